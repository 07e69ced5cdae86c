"""What is wrong with memories, and the command that mends each of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from travois.app.commands.memory_told import line, many
from travois.app.commands.plain import styled
from travois.context.memory.dream import keyed, ruled, text
from travois.context.memory.memory import Memory
from travois.policy.leaks import leak
from travois.store.memory.memories import FolderMemories
from travois.store.memory.usage import key

UNUSED = 90 * 86400.0
"""How long a memory may lie without being of any use."""
Kind = Literal["file", "secret", "stale", "conflict", "unused"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, and what mends it."""

    kind: Kind
    name: str
    what: str
    fix: str


def findings(memories: FolderMemories, *, now: float) -> list[Finding]:
    """All that can be told without a model, what matters most first."""
    known = memories.all()
    files = [Finding("file", one.where, one.what, one.fix) for one in memories.flaws()]
    return [
        *_leaks(known),
        *files,
        *_stale(memories, known),
        *_conflicts(known),
        *_idle(memories, known, now=now),
    ]


def told(found: Sequence[Finding], *, total: int) -> str:
    """The findings, each with what mends it."""
    if not found:
        return f"All is well with {many(total)}."
    lines: list[str] = []
    for one in found:
        lines += [f"{styled(one.kind, 'yellow')}: {line(one.what)}", f"    {line(one.fix)}"]
    things = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
    return "\n".join((*lines, "", f"{things} not well with {many(total)}."))


def _leaks(known: Sequence[Memory]) -> Iterator[Finding]:
    for one in known:
        said = "\n".join((text(one), *(evidence.words for evidence in one.evidence)))
        if kind := leak(said):
            what = f"{key(one)} seems to hold a secret ({kind})"
            yield Finding("secret", one.name, what, _forget(one))


def _stale(memories: FolderMemories, known: Sequence[Memory]) -> Iterator[Finding]:
    for one in known:
        if paths := memories.stale(one):
            what = f"{key(one)} speaks of {', '.join(paths)}, changed since"
            fix = f"travois memory edit {one.name}   or   {_forget(one)}"
            yield Finding("stale", one.name, what, fix)


def _conflicts(known: Sequence[Memory]) -> Iterator[Finding]:
    """Doubles and contradictions, as dreaming would settle them."""
    for step in ruled(keyed(known)):
        for name in step.drop:
            yield Finding("conflict", name, step.why, f"travois memory forget {name.split('/')[1]}")


def _idle(memories: FolderMemories, known: Sequence[Memory], *, now: float) -> Iterator[Finding]:
    never = frozenset(memories.stats().never)
    for one in known:
        if key(one) in never and not one.pinned and 0 < one.modified < now - UNUSED:
            what = f"{key(one)} was not of any use in {int((now - one.modified) // 86400)} days"
            yield Finding("unused", one.name, what, _forget(one))


def _forget(memory: Memory) -> str:
    return f"travois memory forget {memory.name} --scope {memory.scope}"
