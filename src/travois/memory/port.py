"""Long-term memory as the engine sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from travois.memory.drafts import MemoryDraft
from travois.memory.memory import FileAnchor, Memory, MemoryChange, MemoryConsent, MemoryScope

TurnEnding = Literal["answer", "failure"]
"""The end of the examined turn: after a failure no model is asked."""
EXTRACTION_GROWTH_TOKENS = 8_000
"""Tokens that the user and the model must have said before an unrequested extraction."""
CHANGED_MEANWHILE = "it changed in the meantime"
"""The reason why a change based on an older state of a memory is refused."""


class AppliedChanges(msgspec.Struct, frozen=True):
    """The outcome of changes that were applied together, or not at all."""

    id: str
    """The transaction id for an undo; empty if nothing changed."""
    diff: str
    """A short unified diff of the files, for the eye."""
    refused: tuple[str, ...] = ()
    """Changes that were not made, each with its reason."""


class ExtractionOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of memory drafts, for the user."""

    id: str = ""
    """The transaction id for an undo."""
    diff: str = ""
    proposed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    unkept: tuple[str, ...] = ()
    """Requests to remember that were not kept, with the reason and a way to keep them."""

    @property
    def summary(self) -> str:
        """Return a summary for the user; empty if there is nothing to say."""
        undo = f"undo: travois memory undo {self.id}"
        waiting = f"{len(self.proposed)} in the inbox: travois memory inbox"
        lines = [self.diff, undo] if self.diff else []
        lines += [waiting] if self.proposed else []
        return "\n".join((*lines, *self.unkept))


class MemoryRecorder(Protocol):
    """The interface through which a tool remembers and forgets."""

    async def remember(self, draft: MemoryDraft) -> str:
        """Keep what the user asked for; return a message about the outcome."""
        ...

    async def forget(self, name: str) -> str:
        """Delete a memory; return a message about the outcome."""
        ...


class MemoryStore(Protocol):
    """The memories of this project, this user and this team. Safe between processes."""

    def read_all(self) -> tuple[Memory, ...]:
        """Return every readable memory."""
        ...

    def consent(self, scope: MemoryScope) -> MemoryConsent:
        """Return what happens to a proposal in this scope."""
        ...

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Return the memories most relevant to a text, best first; irrelevant ones are left out."""
        ...

    def apply(
        self,
        changes: Sequence[MemoryChange],
        *,
        why: str,
        session: str = "",
        based: Sequence[Memory] | None = None,
    ) -> AppliedChanges:
        """Apply changes in one recorded step; pinned memories and secrets are refused.

        Changes that are `based` on memories are made only if these are still the same, and then
        all of them or none.
        """
        ...

    def propose(self, changes: Sequence[MemoryChange], *, why: str) -> tuple[str, ...]:
        """Add changes to the inbox; return the ids of the proposals."""
        ...

    def index(self) -> str:
        """Return the index for the start of a session: `MEMORY.md` of all folders, shortened."""
        ...

    def find_stale_files(self, memory: Memory) -> tuple[str, ...]:
        """Return the files that a memory refers to and that have changed."""
        ...

    def anchor(self, path: str) -> FileAnchor | None:
        """Return a project file as it is now; None if it cannot be read."""
        ...

    def reverify(self, memory: Memory) -> Memory | None:
        """Renew a memory whose files changed if everything that it names is still in them."""
        ...

    def count_recalls(self, names: Iterable[str]) -> None:
        """Count a recall for each of these memories."""
        ...
