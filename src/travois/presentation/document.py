"""A session as a document of readable parts, for export, web and search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, assert_never

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Text, extract_text
from travois.core.facts import (
    AnyFact,
    Asked,
    Assistant,
    Changed,
    Cleared,
    Compacted,
    Decided,
    Ended,
    Entry,
    Epoch,
    Failed,
    Finished,
    Hooked,
    Noted,
    Offloaded,
    Opened,
    Restored,
    Result,
    Rewound,
    Sent,
    Spawned,
    Unknown,
    User,
)
from travois.presentation.items import SessionItems, ToolCallItem

PartKind = Literal["person", "model", "thinking", "call", "result", "error", "note", "event"]


class DocumentPart(msgspec.Struct, frozen=True):
    """A part of a document: a title (who or what) and a text; `media` is shown below."""

    seq: int
    at: float
    kind: PartKind
    title: str
    text: str = ""
    media: tuple[Media, ...] = ()


PartFields = tuple[PartKind, str, str, tuple[Media, ...]]


def document_parts(entries: Iterable[Entry]) -> Iterator[DocumentPart]:
    """Yield all parts of a session in the order of the log."""
    items = SessionItems()
    for entry in entries:
        item = items.add(entry)
        fact = item if isinstance(item, ToolCallItem) and item.result else entry.fact
        for kind, title, text, media in _fact_parts(fact):
            yield DocumentPart(entry.seq, entry.at, kind, title, text, media)


def _fact_parts(fact: AnyFact | ToolCallItem) -> Iterator[PartFields]:
    """Yield the parts that a fact contributes."""
    match fact:
        case User():
            yield _user_part(fact)
        case Assistant():
            yield from _reply_parts(fact)
        case ToolCallItem(result=Result(content=content)) as item:
            kind: PartKind = "error" if item.is_error else "result"
            yield kind, item.call.name or item.id, item.text, _media_blocks(content)
        case Compacted():
            title = f"Entries {fact.first} to {fact.last} were replaced by a summary ({fact.by})"
            yield "note", title, extract_text(fact.summary), ()
        case Offloaded() | Cleared() | Rewound() | Restored() | Epoch() | Opened():
            yield "event", _context_event_text(fact), "", ()
        case Failed() | Ended() | Decided() | Changed() | Spawned() | Finished() | Hooked():
            if title := _event_text(fact):
                yield "event", title, "", ()
        case Noted():
            yield "note", fact.what, fact.text, ()
        case Sent() | Asked() | Result() | Unknown() | ToolCallItem():
            return
        case _:
            assert_never(fact)


def _user_part(fact: User) -> PartFields:
    """Build the part of a session document for a user message or a note to the model."""
    if fact.origin == "human":
        return "person", "You", extract_text(fact.content), _media_blocks(fact.content)
    return (
        "note",
        f"Note to the model ({fact.origin})",
        extract_text(fact.content),
        _media_blocks(fact.content),
    )


def _reply_parts(fact: Assistant) -> Iterator[PartFields]:
    """Build the parts of a session document for a reply: texts, calls and thinking."""
    name = fact.model or "Model"
    for block in fact.content:
        match block:
            case Text():
                yield "model", name, block.text, ()
            case Call():
                yield "call", block.name, block.args, ()
            case Opaque():
                yield "thinking", block.kind, block.text, ()
            case Media():
                yield "model", name, "", (block,)
            case _:
                assert_never(block)
    if fact.stop not in ("end", "calls", "pause"):
        yield "event", f"The reply stopped: {fact.stop} {fact.detail}".rstrip(), "", ()


def _context_event_text(fact: Offloaded | Cleared | Rewound | Restored | Epoch | Opened) -> str:
    """Describe a change of what the model sees."""
    match fact:
        case Offloaded():
            return f"The model sees only a preview of the result of {fact.call}"
        case Cleared():
            old = "thinking of earlier turns is" if fact.what == "thinking" else ""
            return f"{old or f'{len(fact.calls)} old {fact.what} are'} no longer shown to the model"
        case Rewound():
            return f"Rewound to entry {fact.to}: later messages were removed"
        case Restored():
            return f"The compaction at entry {fact.compaction} was undone"
        case Epoch():
            return f"{fact.model.name}, {len(fact.tools)} tools ({fact.why})"
        case Opened():
            origin = f", a fork of {fact.parent} at entry {fact.at}" if fact.parent else ""
            return f"Session {fact.session} in {fact.cwd}{origin}"
        case _:
            assert_never(fact)


def _event_text(fact: Failed | Ended | Decided | Changed | Spawned | Finished | Hooked) -> str:
    """Describe an event; empty if it is not worth showing."""
    match fact:
        case Failed():
            return f"The request failed ({fact.kind}): {fact.message}"
        case Ended():
            return "" if fact.why == "end" else f"The turn ended: {fact.why} {fact.detail}".rstrip()
        case Decided():
            return f"Denied: {fact.because}" if fact.verdict == "deny" else ""
        case Changed():
            return f"Named {fact.value!r}" if fact.what == "name" else ""
        case Spawned():
            return f"Started {fact.kind} {fact.id}: {fact.what}"
        case Finished():
            return f"{fact.id} ended: {fact.outcome}"
        case Hooked():
            return f"Hook {fact.event}: {fact.command} ({fact.outcome})"
        case _:
            assert_never(fact)


def _media_blocks(content: tuple[AnyBlock, ...]) -> tuple[Media, ...]:
    return tuple(block for block in content if isinstance(block, Media))
