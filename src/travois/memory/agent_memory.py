"""What agents of a kind remember from one task to the next, in folders of three scopes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.agents.types import Kind
from travois.permissions.decide import Guard
from travois.permissions.paths import inside
from travois.permissions.rules import Rule
from travois.prompt.environment import plain
from travois.prompt.instruction_files import exactly, plain_text
from travois.prompt.instruction_text import Instruction
from travois.sessions.home import Home

INDEX = "MEMORY.md"
LINES, BYTES = 200, 25_000
"""How much of an index is shown."""
OPENING = """\
<agent-memory>
What agents of your kind wrote down in earlier tasks; check it before you rely on it. Your folder \
for it is {folder}; you may write there. Before your report, keep what will help the next one and \
cannot be seen in the code: details in files of their own, and in MEMORY.md one line for each \
(at most 150 characters), with what no longer holds taken out."""
EMPTY = "Nothing was written down yet."
GLOBS = frozenset("*?[]{}")


class Memory(msgspec.Struct, frozen=True):
    """A folder that an agent may write to, and the note that opens its conversation."""

    folder: str
    note: str


def memory(kind: Kind, home: Home, root: str) -> Memory | None:
    """What agents of this kind remember here; None if they remember nothing."""
    if not kind.memory:
        return None
    folder, theirs = _folders(kind, home, root)
    held = str(home.path) if kind.memory == "user" else root
    if not inside(os.path.realpath(folder), os.path.realpath(held)):
        return None
    owner: Literal["User", "Project"] = "User" if kind.memory == "user" else "Project"
    shown = [
        f"{file.opening}\n{head(file.text)}\n</file {file.mark}>"
        for path in (theirs, folder)
        if path and (text := _index(path, held))
        for file in (Instruction(os.path.join(path, INDEX), text, owner),)
    ]
    parts = (OPENING.format(folder=plain(folder)), *(shown or (EMPTY,)), "</agent-memory>")
    return Memory(folder, "\n".join(parts))


def granted(guard: Guard, memory: Memory) -> Guard:
    """The same guard for an agent that may write to its memory without a question."""
    folders = (*guard.folders, memory.folder)
    if not GLOBS.isdisjoint(memory.folder):
        return replace(guard, folders=folders)
    rule = Rule("Edit", f"/{memory.folder}/**", "allow", "the agent's own memory")
    return replace(guard, folders=folders, rules=(*guard.rules, rule))


def head(text: str) -> str:
    """The beginning of an index, and how much there is besides."""
    lines = text.splitlines()
    shown, size = list[str](), 0
    for line in lines[:LINES]:
        size += len(line.encode(errors="replace")) + 1
        if size > BYTES:
            break
        shown.append(line)
    if len(shown) == len(lines):
        return text
    rest = "[{} of {} lines are shown. Make this file shorter: an index, with details elsewhere.]"
    return "\n".join((*shown, rest.format(len(shown), len(lines))))


def _folders(kind: Kind, home: Home, root: str) -> tuple[str, str]:
    """Our folder of a kind's memory, and that of another agent, which is only read."""
    name = kind.name.casefold()
    if kind.memory == "user":
        return str(home.path / "agent-memory" / name), ""
    place = "agent-memory" if kind.memory == "project" else "agent-memory-local"
    return str(Path(root, ".travois", place, name)), str(Path(root, ".claude", place, name))


def _index(folder: str, held: str) -> str:
    """What an index says; nothing if there is none, or if it leads elsewhere."""
    real = os.path.realpath(os.path.join(folder, INDEX))
    if not inside(real, os.path.realpath(held)):
        return ""
    try:
        return plain_text(real, opener=exactly).strip()
    except OSError:
        return ""
