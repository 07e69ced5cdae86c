"""A memory: one thing worth knowing in later sessions, with the words that it rests on.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Type = Literal["user", "feedback", "project", "reference"]
"""Who the user is; how they want the work done; what the project is; where to look elsewhere."""
Author = Literal["user", "model", "tool"]
"""Whose words a memory rests on: a person's, the model's, or what a tool or a page said."""
Scope = Literal["project", "user", "team"]
"""Whom it is for: this project, this person everywhere, or all who share the project."""
Consent = Literal["off", "ask", "auto"]
"""What becomes of a proposal: nothing, a place in the inbox, a memory."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The very words that a memory rests on, and where they were said."""

    session: str
    seq: int
    """The entry of the session's log."""
    who: Author
    words: str
    at: float = 0.0


class Anchor(msgspec.Struct, frozen=True):
    """A file that a memory speaks of, as it was when that was known to be true."""

    path: str
    """Relative to the project's root, or absolute."""
    sha256: str


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """One memory. Its file is `NAME.md`: these fields as front matter, and the body below."""

    name: str
    """Lower-case words joined by dashes; unique in its folder."""
    description: str
    """Its line in the index; at most 150 characters."""
    type: Type
    body: str = ""
    author: Author = "user"
    created: float = 0.0
    modified: float = 0.0
    verified: float = 0.0
    """When it was last known to be true."""
    evidence: tuple[Evidence, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    scope: Scope = "project"
    """Told by its folder, not by its file."""
    pinned: bool = False
    """Lies in `pinned/`: agents may not change it."""


class Put(msgspec.Struct, frozen=True, tag="put"):
    """A memory is to be there as it is here, in place of one of its name and scope."""

    memory: Memory


class Drop(msgspec.Struct, frozen=True, tag="drop"):
    """A memory is to be there no longer."""

    name: str
    scope: Scope = "project"
    why: str = ""


Change = Put | Drop


class Proposal(msgspec.Struct, frozen=True):
    """A change that waits in the inbox for a person's word."""

    id: str
    change: Change
    why: str
    """Why it was not simply made."""
    at: float = 0.0
