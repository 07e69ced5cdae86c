"""The events of a running turn, as a program sees them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from travois.core.facts import Compacted, Entry
from travois.core.json import as_object
from travois.library.results import Result
from travois.ports.world import RequestRetrying, ToolProgress
from travois.presentation import NoticeItem, ReplyItem, SessionItem, ToolCallItem
from travois.providers.replies import Grew


class TextDelta(msgspec.Struct, frozen=True):
    """Text of the model as it arrives."""

    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """Thinking of the model as it arrives, where the provider shows it."""

    text: str


class ToolCallStarted(msgspec.Struct, frozen=True):
    """The model calls a tool."""

    id: str
    name: str
    input: Mapping[str, Any]


class ToolCallProgress(msgspec.Struct, frozen=True):
    """What a running tool reports; `id` is that of its call."""

    id: str
    text: str


class ToolCallFinished(msgspec.Struct, frozen=True):
    """A tool call has its result."""

    id: str
    name: str
    text: str
    is_error: bool


class PermissionDenied(msgspec.Struct, frozen=True):
    """A tool call was not permitted; its result follows as an error."""

    id: str
    name: str
    reason: str


class RequestRetried(msgspec.Struct, frozen=True):
    """A request failed and is sent again after a pause."""

    message: str
    wait: float
    """The pause in seconds."""


class ConversationCompacted(msgspec.Struct, frozen=True):
    """Older messages were replaced by a summary; the numbers are tokens."""

    before: int
    after: int


class Notice(msgspec.Struct, frozen=True):
    """Something that whoever runs the session should know."""

    text: str


class TurnEnded(msgspec.Struct, frozen=True):
    """The last event of a run."""

    result: Result[Any]


Event = (
    TextDelta
    | ThinkingDelta
    | ToolCallStarted
    | ToolCallProgress
    | ToolCallFinished
    | PermissionDenied
    | RequestRetried
    | ConversationCompacted
    | Notice
    | TurnEnded
)


def translate_event(item: SessionItem) -> Iterator[Event]:
    """Yield the public events of what happened in a session."""
    match item:
        case Grew(kind="text", text=text) if text:
            yield TextDelta(text)
        case Grew(kind="thinking", text=text) if text:
            yield ThinkingDelta(text)
        case ReplyItem(calls=calls):
            yield from (ToolCallStarted(c.id, c.name, as_object(c.arguments)) for c in calls)
        case ToolCallItem():
            yield from _translate_tool_call(item)
        case ToolProgress(call=call, text=text):
            yield ToolCallProgress(call, text)
        case Entry(fact=Compacted() as fact):
            yield ConversationCompacted(fact.before, fact.after)
        case RequestRetrying(message=message, wait=wait):
            yield RequestRetried(message, wait)
        case NoticeItem(kind="warning", text=text):
            yield Notice(text)
        case _:
            pass


def _translate_tool_call(item: ToolCallItem) -> Iterator[Event]:
    """Yield that a tool call was denied or has its result."""
    if item.result is not None:
        yield ToolCallFinished(item.id, item.name, item.text, item.is_error)
    elif item.is_denied and item.decided and item.decided.by != "schema":
        yield PermissionDenied(item.id, item.name, item.decided.because)
