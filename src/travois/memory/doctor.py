"""What is wrong with memories, as far as rules can tell, and the command that mends each of it.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Literal

import msgspec

from travois.memory.dream import Memories, ruled, text
from travois.memory.memory import Memory

UNUSED = 90 * 86400.0
"""How long a memory may lie without being of any use."""
Kind = Literal["file", "secret", "stale", "conflict", "unused"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, and what mends it."""

    kind: Kind
    name: str
    what: str
    fix: str


def leaks(known: Memories, leak: Callable[[str], str]) -> Iterator[Finding]:
    """Memories that hold a secret; `leak` tells which kind a text holds."""
    for key, one in known.items():
        said = "\n".join((text(one), *(evidence.words for evidence in one.evidence)))
        if kind := leak(said):
            yield Finding("secret", one.name, f"{key} seems to hold a secret ({kind})", drop(one))


def moved(known: Memories, changed: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Memories whose files have changed since; those are told by the memory's key."""
    for key, paths in changed.items():
        fix = f"travois memory edit {known[key].name}   or   {drop(known[key])}"
        what = f"{key} speaks of {', '.join(paths)}, changed since"
        yield Finding("stale", known[key].name, what, fix)


def conflicts(known: Memories) -> Iterator[Finding]:
    """Doubles and contradictions, as a night would settle them."""
    for step in ruled(known):
        yield from (
            Finding("conflict", known[key].name, step.why, drop(known[key])) for key in step.drop
        )


def unused(known: Memories, never: Collection[str], *, now: float) -> Iterator[Finding]:
    """Memories that were never recalled, for long enough."""
    for key, one in known.items():
        if key in never and not one.pinned and 0 < one.modified < now - UNUSED:
            what = f"{key} was not of any use in {int((now - one.modified) // 86400)} days"
            yield Finding("unused", one.name, what, drop(one))


def drop(memory: Memory) -> str:
    """The command that forgets it."""
    return f"travois memory forget {memory.name} --scope {memory.scope}"
