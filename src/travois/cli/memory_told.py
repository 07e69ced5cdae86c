"""What is remembered, in words for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import localtime, strftime
from typing import assert_never

import msgspec

from travois.memory.history import Transaction
from travois.memory.memory import Change, Drop, Evidence, Memory, Proposal, Put
from travois.memory.store import FolderMemories
from travois.memory.usage import Stats, key
from travois.terminal.tables import ago, clean, styled, table

SPOKE = {"user": "you said", "model": "the model said", "tool": "a tool said"}
MEANING = {"auto": "kept at once", "ask": "waits in the inbox", "off": "nothing is kept"}


def line(text: str) -> str:
    """A text on one line, safe to look at."""
    return clean(" ".join(text.split()), lines="show")


def many(number: int) -> str:
    """So many memories."""
    return "1 memory" if number == 1 else f"{number} memories"


def listing(memories: FolderMemories, found: Sequence[Memory], *, now: float) -> str:
    """Memories in a table."""
    if not found:
        return (
            "Nothing is remembered here yet.\n"
            "Say “remember …” in a session, or: travois memory add TEXT"
        )
    rows = [("SCOPE", "TYPE", "NAME", "AGE", "MEMORY")]
    for one in found:
        marks = _marks(memories, one)
        note = styled(f"[{', '.join(marks)}] ", "yellow") if marks else ""
        age = ago(now - one.modified).removesuffix(" ago") if one.modified else "?"
        rows.append((one.scope, one.type, line(one.name), age, note + line(one.description)))
    return table(rows, right=(3,))


def _marks(memories: FolderMemories, memory: Memory) -> list[str]:
    stale = ["stale"] if memories.stale(memory) else []
    pinned = ["pinned"] if memory.pinned else []
    return [*stale, *pinned, *([f"by {memory.author}"] if memory.author != "user" else [])]


def as_json(memories: FolderMemories, memory: Memory) -> str:
    """A memory with all that is known of it."""
    told = msgspec.to_builtins(memory) | {
        "scope": memory.scope,
        "author": memory.author,
        "pinned": memory.pinned,
        "stale": memories.stale(memory),
        "file": str(file(memories, memory)),
    }
    return msgspec.json.encode(told).decode()


def file(memories: FolderMemories, memory: Memory) -> Path:
    """Where a memory lies."""
    folder = memories.folders()[memory.scope]
    return (folder / "pinned" if memory.pinned else folder) / f"{memory.name}.md"


def whole(memories: FolderMemories, memory: Memory, *, now: float) -> str:
    """One memory, the words that it rests on, and how well it stands."""
    about = ", ".join((memory.type, memory.scope, *_marks(memories, memory)))
    lines = [f"{styled(line(memory.name), 'bold')}  ({about})", line(memory.description)]
    if memory.body.strip() and memory.body.strip() != memory.description:
        lines += ["", clean(memory.body.strip())]
    if memory.evidence:
        lines += ["", "It rests on:"]
    for one in memory.evidence:
        lines += _evidence(one)
    for path in memories.stale(memory):
        lines += [
            "",
            styled(f"{line(path)} has changed since this was known to be true.", "yellow"),
        ]
    used = memories.stats().recalled.get(key(memory))
    lines += ["", _times(memory, used, now=now), f"File: {file(memories, memory)}"]
    return "\n".join(lines)


def _evidence(one: Evidence) -> list[str]:
    day = f" on {strftime('%Y-%m-%d', localtime(one.at))}" if one.at else ""
    said = [f"  {SPOKE[one.who]}{day}: “{line(one.words)}”"]
    if "/" in one.session:
        return [*said, f"    {line(one.session)}"]
    return [*said, f"    travois --resume {line(one.session)}"] if one.session else said


def _times(memory: Memory, used: tuple[int, float] | None, *, now: float) -> str:
    told = [
        f"{word} {ago(now - at)}"
        for word, at in (
            ("Made", memory.created),
            ("changed", memory.modified),
            ("last verified", memory.verified),
        )
        if at
    ]
    told.append(
        f"recalled {used[0]} times, last {ago(now - used[1])}" if used else "never recalled"
    )
    return f"{', '.join(told)}."


def changes(made: Sequence[Transaction], *, now: float) -> str:
    """What was changed, the latest first."""
    if not made:
        return "Nothing was changed yet."
    rows = [("ID", "WHEN", "SESSION", "FILES", "WHY")]
    for one in made:
        files = sorted({Path(each.file).stem for each in one.files})
        names = (
            files[0] + (f" and {len(files) - 1} more" if len(files) > 1 else "") if files else ""
        )
        why = f"{one.why} (undone)" if one.undone else one.why
        rows.append((one.id, ago(now - one.at), one.session[:8] or "-", line(names), line(why)))
    return table(rows) + "\n\ntravois memory undo ID takes one back."


def proposals(waiting: Sequence[Proposal], *, now: float) -> str:
    """What waits for a person's word."""
    if not waiting:
        return "Nothing waits for your word."
    lines: list[str] = []
    for one in waiting:
        lines.append(f"{styled(one.id, 'bold')}  {_wish(one.change)}  ({ago(now - one.at)})")
        lines.append(f"    because {line(one.why)}")
    return "\n".join((*lines, "", "travois memory accept ID   or   travois memory reject ID"))


def _wish(change: Change) -> str:
    match change:
        case Put(memory):
            return f"{memory.scope} {memory.type}: {line(memory.body or memory.description)}"
        case Drop(name, scope):
            return f"forget {scope} {line(name)}"
        case _:
            assert_never(change)


def counts(counted: Stats) -> str:
    """What there is, and what of it is of use."""
    lines = [f"{many(counted.total)}, {counted.pinned} pinned"]
    for name, parts in (
        ("scope", counted.scopes),
        ("type", counted.types),
        ("said by", counted.authors),
    ):
        each = ", ".join(f"{what} {number}" for what, number in sorted(parts.items()))
        lines.append(f"  {name + ':':<9} {each or 'none'}")
    often = sorted(counted.recalled.items(), key=lambda one: (-one[1][0], one[0]))[:5]
    lines += [f"  recalled {times} times: {line(name)}" for name, (times, _) in often]
    lines.append(f"  never recalled: {len(counted.never)}")
    if counted.waiting:
        lines.append(f"  not yet found by meaning: {counted.waiting}")
    return "\n".join(lines)


def places(memories: FolderMemories) -> str:
    """The folders, and what becomes of what agents find there."""
    rows = [("SCOPE", "WHAT AGENTS FIND", "FOLDER")]
    for scope, path in memories.folders().items():
        rows.append((scope, MEANING[memories.consent(scope)], str(path)))
    if "team" in memories.folders():
        return table(rows)
    return (
        f"{table(rows)}\n\nThere is no folder for a team here, or the repository is not trusted:\n"
        "  travois memory share   or   travois trust"
    )
