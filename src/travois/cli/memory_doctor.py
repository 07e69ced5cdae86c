"""`travois memory doctor`: what is wrong with memories, for people."""

from __future__ import annotations

from collections.abc import Sequence

from travois.cli.memory_told import line, many
from travois.memory.doctor import Finding, conflicts, leaks, moved, unused
from travois.memory.dream import keyed
from travois.memory.store import FolderMemories
from travois.permissions.leaks import leak
from travois.terminal.tables import styled


def findings(memories: FolderMemories, *, now: float) -> list[Finding]:
    """All that can be told without a model, what matters most first."""
    known = keyed(memories.all())
    changed = {key: paths for key, one in known.items() if (paths := memories.stale(one))}
    return [
        *leaks(known, leak),
        *(Finding("file", one.where, one.what, one.fix) for one in memories.flaws()),
        *moved(known, changed),
        *conflicts(known),
        *unused(known, memories.stats().never, now=now),
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
