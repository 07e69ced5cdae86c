"""What is wrong with memories, as far as rules can tell, and the command that mends each of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Literal

import msgspec

from travois.memory.dreaming.rules import MemoriesByKey, join_memory_text, plan_rule_steps
from travois.memory.memory import Memory

FindingKind = Literal["file", "secret", "stale", "conflict", "unused"]


UNUSED_SECONDS = 90 * 86400.0
"""Seconds without a recall after which a memory counts as unused."""


class MemoryFinding(msgspec.Struct, frozen=True):
    """A problem with a memory, and the command that fixes it."""

    kind: FindingKind
    name: str
    what: str
    fix: str


def find_leaked_secrets(
    memories: MemoriesByKey, leak: Callable[[str], str]
) -> Iterator[MemoryFinding]:
    """Yield the memories that contain a secret; `leak` returns the kind of secret in a text."""
    for key, one in memories.items():
        said = "\n".join((join_memory_text(one), *(evidence.words for evidence in one.evidence)))
        if kind := leak(said):
            yield MemoryFinding(
                "secret",
                one.name,
                f"{key} seems to contain a secret ({kind})",
                format_forget_command(one),
            )


def find_stale_memories(
    memories: MemoriesByKey, changed: Mapping[str, tuple[str, ...]]
) -> Iterator[MemoryFinding]:
    """Yield the memories whose files have changed; `changed` has those files by memory key."""
    for key, paths in changed.items():
        memory = memories[key]
        fix = f"travois memory edit {memory.name}   or   {format_forget_command(memory)}"
        what = f"{key} refers to {', '.join(paths)}, changed since"
        yield MemoryFinding("stale", memories[key].name, what, fix)


def find_conflicts(memories: MemoriesByKey) -> Iterator[MemoryFinding]:
    """Yield duplicate and contradicting memories, as a consolidation would settle them."""
    for step in plan_rule_steps(memories):
        yield from (
            MemoryFinding(
                "conflict", memories[key].name, step.why, format_forget_command(memories[key])
            )
            for key in step.drop
        )


def find_unused(
    memories: MemoriesByKey, never: Collection[str], *, now: float
) -> Iterator[MemoryFinding]:
    """Yield the memories that were never recalled for a long time."""
    for key, one in memories.items():
        if key in never and not one.pinned and 0 < one.modified < now - UNUSED_SECONDS:
            what = f"{key} was not used in {int((now - one.modified) // 86400)} days"
            yield MemoryFinding("unused", one.name, what, format_forget_command(one))


def format_forget_command(memory: Memory) -> str:
    """Return the command that forgets a memory."""
    return f"travois memory forget {memory.name} --scope {memory.scope}"
