"""The port of worktrees: a session that moves into one, and back."""

from __future__ import annotations

from typing import Protocol

import msgspec

WORKTREE = "worktree"
"""State of a session that works in a git worktree; empty where it began."""


class Moved(msgspec.Struct, frozen=True):
    """Where a session works that has left the folder it began in."""

    root: str
    """The workspace in the worktree."""
    path: str
    """The top of the worktree."""
    branch: str
    back: str
    """The folder that the session goes back to."""
    own: bool = True
    """Whether the session made it, so that it may remove it too."""


class Worktrees(Protocol):
    """Makes and removes the worktrees of one session. Raises `Refusal`."""

    async def enter(self, name: str, *, path: str) -> Moved:
        """Make a worktree of that name, or find the one at that path."""
        ...

    async def remove(self, moved: Moved, *, discard: bool) -> None:
        """Remove a worktree with its branch; refuses to lose work unless that is said."""
        ...


def where_moved(state: str) -> Moved | None:
    """Return where a session works by its state; none if it is where it began."""
    return msgspec.json.decode(state, type=Moved) if state else None
