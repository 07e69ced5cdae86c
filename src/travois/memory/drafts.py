"""Memory drafts: proposed memories, each with the words that it quotes.

Model sees: the request for drafts, with the memories that are nearest to the conversation.
Tokens: the request about 600, each of at most 20 memories below 100.
Cache: never moves the prefix; the request stands after the conversation and is forgotten with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from travois.memory.memory import Memory, MemoryScope, MemoryType
from travois.prompt.environment import escape_line

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


def build_draft_request(instructions: str, known: Iterable[Memory]) -> str:
    """Build the request for drafts that the model gets after a turn."""
    lines = [f"- {m.name} ({m.type}): {escape_line(_format_summary(m))}" for m in known][
        :MAX_NEAREST_MEMORIES
    ]
    return instructions.strip().replace("{known}", "\n".join(lines) or "(none)")


def parse_drafts(reply: str) -> tuple[MemoryDraft, ...]:
    """Parse the drafts in a model's reply; invalid items are skipped."""
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
    return "-".join(words[:6])[:60].strip("-") or "memory"


def _parse_draft(raw: msgspec.Raw) -> MemoryDraft | None:
    """Parse a memory proposed by the model; None if it is invalid, empty or too long."""
    try:
        draft = msgspec.json.decode(raw, type=MemoryDraft)
    except (msgspec.DecodeError, RecursionError):
        return None
    return draft if draft.text.strip() and len(draft.text) <= MAX_DRAFT_CHARS else None


def _format_summary(memory: Memory) -> str:
    return (memory.description or memory.body)[:MAX_LISTED_CHARS]
