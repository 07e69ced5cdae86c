"""A memory: one thing worth knowing in later sessions, with the words that support it.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

from typing import Literal

import msgspec

MemoryType = Literal["user", "feedback", "project", "reference"]
"""Facts about the user, their working preferences, project facts, pointers to other places."""
MemoryAuthor = Literal["user", "model", "tool"]
"""The source of a memory: the user's words, the model's, or those of a tool or a page."""
MemoryScope = Literal["project", "user", "team"]
"""Whom it is for: this project, this person everywhere, or all who share the project."""
MemoryConsent = Literal["off", "ask", "auto"]
"""The outcome of a proposal: dropped, put into the inbox, applied."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The quoted words that a memory rests on, and where they were said."""

    session: str
    seq: int
    """The entry of the session's log."""
    who: MemoryAuthor
    words: str
    at: float = 0.0


class FileAnchor(msgspec.Struct, frozen=True):
    """A file that a memory refers to, as it was when the memory was last verified."""

    path: str
    """Relative to the project's root, or absolute."""
    sha256: str


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One memory. Its file is `NAME.md`: these fields as front matter, and the body below."""

    name: str
    """Lower-case words joined by dashes; unique in its folder."""
    description: str
    """Its line in the index; at most 150 characters."""
    type: MemoryType
    body: str = ""
    author: MemoryAuthor = "user"
    created: float = 0.0
    modified: float = 0.0
    verified: float = 0.0
    """The last time when it was known to be true."""
    evidence: tuple[Evidence, ...] = ()
    anchors: tuple[FileAnchor, ...] = ()
    scope: MemoryScope = "project"
    """Told by its folder, not by its file."""
    pinned: bool = False
    """Lies in `pinned/`: agents may not change it."""


class PutMemory(msgspec.Struct, frozen=True, tag="put"):
    """A change that stores a memory, in place of one with its name and scope."""

    memory: Memory


class DropMemory(msgspec.Struct, frozen=True, tag="drop"):
    """A change that deletes a memory."""

    name: str
    scope: MemoryScope = "project"
    why: str = ""


MemoryChange = PutMemory | DropMemory


class MemoryProposal(msgspec.Struct, frozen=True):
    """A change in the inbox that waits for the user's approval."""

    id: str
    change: MemoryChange
    why: str
    """The reason why the change was not simply applied."""
    at: float = 0.0
