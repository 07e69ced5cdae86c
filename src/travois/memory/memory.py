"""A memory: one thing worth knowing in later sessions, with the words that support it.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from travois.prompt.environment import escape_line

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


MAX_DRAFTS_PER_REPLY = 10
"""Drafts of one reply beyond this are no longer durable knowledge."""
MAX_NEAREST_MEMORIES = 20
MAX_LISTED_CHARS = 300
MAX_DRAFT_CHARS = 2_000


class MemoryDraft(msgspec.Struct, frozen=True):
    """A proposed memory before it is checked."""

    text: str
    type: MemoryType = "project"
    words: str = ""
    """Exactly as they stand in the conversation."""
    name: str = ""
    why: str = ""
    scope: MemoryScope | None = None
    replaces: str = ""
    """The name of a memory that no longer holds because of this."""
    lasts: str = ""
    """The model's judgement: `now` if the user meant it only for the work at hand."""


def build_draft_request(instructions: str, known: Iterable[Memory]) -> str:
    """Build the request for memory drafts that the model gets after a turn."""
    lines = [f"- {m.name} ({m.type}): {escape_line(_format_summary(m))}" for m in known][
        :MAX_NEAREST_MEMORIES
    ]
    return instructions.strip().replace("{known}", "\n".join(lines) or "(none)")


def parse_drafts(reply: str) -> tuple[MemoryDraft, ...]:
    """Parse the memory drafts in a model's reply; invalid items are skipped."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        listed = msgspec.json.decode(reply[start : end + 1], type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return ()
    found = (_parse_draft(raw) for raw in listed)
    return tuple(draft for draft in found if draft is not None)[:MAX_DRAFTS_PER_REPLY]


def make_draft_name(text: str) -> str:
    """Make a memory name from the first words of a text."""
    words = re.findall(r"[a-z0-9]+", text.casefold())
    return "-".join(words[:6])[:60].strip("-") or "note"


def _parse_draft(raw: msgspec.Raw) -> MemoryDraft | None:
    """Parse a memory proposed by the model; None if it is invalid, empty or too long."""
    try:
        draft = msgspec.json.decode(raw, type=MemoryDraft)
    except (msgspec.DecodeError, RecursionError):
        return None
    return draft if draft.text.strip() and len(draft.text) <= MAX_DRAFT_CHARS else None


def _format_summary(memory: Memory) -> str:
    return (memory.description or memory.body)[:MAX_LISTED_CHARS]


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

    def count_uses(self, names: Iterable[str]) -> None:
        """Count a use for each of these memories, once a session."""
        ...

    def put_idle_last(self, memories: Sequence[Memory]) -> tuple[Memory, ...]:
        """Put those that were never used or refer to changed files behind the others."""
        ...
