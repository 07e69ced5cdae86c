"""Long-term memory as the engine sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from travois.memory.drafts import Draft
from travois.memory.memory import Anchor, Change, Consent, Memory, Scope

Turn = Literal["answer", "failure"]
"""How a turn ended that is looked through: after a failure no model is asked."""
GROWTH = 8_000
"""How many tokens people and the model must have said before it is looked through unasked."""
MOVED = "it was changed meanwhile"
"""Why a change is refused that is based on a memory as it was."""


class Applied(msgspec.Struct, frozen=True):
    """What came of some changes that were made together, or not at all."""

    id: str
    """By which they can be undone; empty if nothing changed."""
    diff: str
    """A short unified diff of the files, for the eye."""
    refused: tuple[str, ...] = ()
    """Changes that were not made, each with its reason."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of drafts, for the eye."""

    id: str = ""
    """By which the change can be undone."""
    diff: str = ""
    proposed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()
    """What a person asked to remember and was not kept: why, and how to keep it anyway."""

    @property
    def told(self) -> str:
        """What a person would want to know; empty if there is nothing."""
        undo = f"undo: travois memory undo {self.id}"
        waiting = f"{len(self.proposed)} in the inbox: travois memory inbox"
        lines = [self.diff, undo] if self.diff else []
        lines += [waiting] if self.proposed else []
        return "\n".join((*lines, *self.unkept))


class Recording(Protocol):
    """The way in which a tool remembers and forgets."""

    async def remember(self, draft: Draft) -> str:
        """Keep what the user asked for; says what came of it."""
        ...

    async def forget(self, name: str) -> str:
        """Drop a memory; says what came of it."""
        ...


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

    def apply(
        self,
        changes: Sequence[Change],
        *,
        why: str,
        session: str = "",
        based: Sequence[Memory] | None = None,
    ) -> Applied:
        """Make changes in one step, on record; pinned memories and secrets are refused.

        Changes that are `based` on memories are made only if these are still the same, and then
        all of them or none.
        """
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

    def anchor(self, path: str) -> Anchor | None:
        """A file of the project as it is at the moment; None if it cannot be read."""
        ...

    def reverify(self, memory: Memory) -> Memory | None:
        """Renew a memory whose files changed if all that it names still stands in them."""
        ...

    def used(self, names: Iterable[str]) -> None:
        """Count that these were recalled."""
        ...
