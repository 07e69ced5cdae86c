"""Long-term memory as the engine sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from travois.context.memory.memory import Change, Consent, Memory, Scope


class Applied(msgspec.Struct, frozen=True):
    """What came of some changes that were made together, or not at all."""

    id: str
    """By which they can be undone; empty if nothing changed."""
    diff: str
    """A short unified diff of the files, for the eye."""
    refused: tuple[str, ...] = ()
    """Changes that were not made, each with its reason."""


class Memories(Protocol):
    """The memories of this project, this user and this team. Safe between processes."""

    def all(self) -> tuple[Memory, ...]:
        """Every memory that can be read."""
        ...

    def consent(self, scope: Scope) -> Consent:
        """What becomes of a proposal in this scope."""
        ...

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Those that have most to do with a text, the best first; none that have nothing."""
        ...

    def apply(self, changes: Sequence[Change], *, why: str, session: str = "") -> Applied:
        """Make changes in one step, on record; pinned memories and secrets are refused."""
        ...

    def propose(self, changes: Sequence[Change], *, why: str) -> tuple[str, ...]:
        """Lay changes in the inbox; returns the ids of the proposals."""
        ...

    def index(self) -> str:
        """The index that opens a session: all folders' `MEMORY.md`, within their limits."""
        ...

    def stale(self, memory: Memory) -> tuple[str, ...]:
        """The files that it speaks of and that are no longer as they were."""
        ...
