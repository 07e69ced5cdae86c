"""Agent memory: what agents of one type remember across tasks, in folders of three scopes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.agents.types import AgentType
from travois.permissions.decide import Permissions
from travois.permissions.paths import is_inside
from travois.permissions.rules import PermissionRule
from travois.prompt.environment import escape_line
from travois.prompt.instruction_files import open_exact_path, read_plain_text
from travois.prompt.instruction_text import InstructionFile
from travois.sessions.home import TravoisHome

AGENT_INDEX_FILE = "MEMORY.md"
MAX_SHOWN_LINES = 200
MAX_SHOWN_BYTES = 25_000
"""Limits of the part of an index that is shown."""
AGENT_MEMORY_INTRO = """\
<agent-memory>
Notes from agents of your type in earlier tasks; verify them before you rely on them. You may \
write to your folder, {folder}. Before you report, save what will help the next agent and is not \
in the code: details in separate files, one line for each in MEMORY.md (at most 150 characters). \
Remove what no longer holds."""
NO_NOTES_YET = "No notes yet."
GLOB_CHARS = frozenset("*?[]{}")


class AgentMemoryFolder(msgspec.Struct, frozen=True):
    """The memory folder of an agent, and the note that shows it at the start."""

    folder: str
    note: str


def load_agent_memory(kind: AgentType, home: TravoisHome, root: str) -> AgentMemoryFolder | None:
    """Load the memory of agents of this type; None if the type has none."""
    if not kind.memory:
        return None
    folder, theirs = _find_memory_folders(kind, home, root)
    held = str(home.path) if kind.memory == "user" else root
    if not is_inside(os.path.realpath(folder), os.path.realpath(held)):
        return None
    owner: Literal["User", "Project"] = "User" if kind.memory == "user" else "Project"
    shown = [
        f"{file.header}\n{shorten_index(file.text)}\n</file {file.digest}>"
        for path in (theirs, folder)
        if path and (text := _read_index(path, held))
        for file in (InstructionFile(os.path.join(path, AGENT_INDEX_FILE), text, owner),)
    ]
    parts = (
        AGENT_MEMORY_INTRO.format(folder=escape_line(folder)),
        *(shown or (NO_NOTES_YET,)),
        "</agent-memory>",
    )
    return AgentMemoryFolder(folder, "\n".join(parts))


def allow_memory_edits(permissions: Permissions, memory: AgentMemoryFolder) -> Permissions:
    """Return permissions under which an agent may edit its own memory without approval."""
    folders = (*permissions.folders, memory.folder)
    if not GLOB_CHARS.isdisjoint(memory.folder):
        return replace(permissions, folders=folders)
    rule = PermissionRule("Edit", f"/{memory.folder}/**", "allow", "the agent's own memory")
    return replace(permissions, folders=folders, rules=(*permissions.rules, rule))


def shorten_index(text: str) -> str:
    """Shorten an agent's memory index to the limits, with a note about the rest."""
    lines = text.splitlines()
    shown, size = list[str](), 0
    for line in lines[:MAX_SHOWN_LINES]:
        size += len(line.encode(errors="replace")) + 1
        if size > MAX_SHOWN_BYTES:
            break
        shown.append(line)
    if len(shown) == len(lines):
        return text
    rest = "[{} of {} lines shown. Shorten this file: keep an index, with details in other files.]"
    return "\n".join((*shown, rest.format(len(shown), len(lines))))


def _find_memory_folders(kind: AgentType, home: TravoisHome, root: str) -> tuple[str, str]:
    """Return the folder of a type's memory, and the read-only one that Claude Code uses."""
    name = kind.name.casefold()
    if kind.memory == "user":
        return str(home.path / "agent-memory" / name), ""
    place = "agent-memory" if kind.memory == "project" else "agent-memory-local"
    return str(Path(root, ".travois", place, name)), str(Path(root, ".claude", place, name))


def _read_index(folder: str, held: str) -> str:
    """Read an agent's memory index; empty if there is none or it is outside `held`."""
    real = os.path.realpath(os.path.join(folder, AGENT_INDEX_FILE))
    if not is_inside(real, os.path.realpath(held)):
        return ""
    try:
        return read_plain_text(real, opener=open_exact_path).strip()
    except OSError:
        return ""
