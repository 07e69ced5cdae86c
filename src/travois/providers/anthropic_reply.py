"""The Anthropic Messages API: parses streamed and whole replies (`AnthropicReplyParser`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.core.content import AnyBlock, Call, Opaque, Text, extract_calls
from travois.core.facts import StopReason
from travois.core.json import (
    JsonMembers,
    as_list,
    as_object,
    as_string,
    ensure_json_object,
    is_json_object,
    join_members,
    read_count,
    split_members,
    to_raw_json,
)
from travois.core.models import Usage
from travois.providers.errors import parse_stream_error
from travois.providers.http.sse import SseEvent
from travois.providers.replies import (
    ApiError,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
    estimate_reply_usage,
)
from travois.providers.web_search import collect_anthropic_hits, merge_hits

ANTHROPIC_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "calls",
    "pause_turn": "pause",
    "max_tokens": "length",
    "model_context_window_exceeded": "window",
    "refusal": "refusal",
    "compaction": "compaction",
}
ANTHROPIC_BLOCK_KINDS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
    "tool_use": "call",
}
TEXT_DELTA_MEMBERS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
}
"""Deltas that add text, and the member that has it."""


class _AnthropicEvent(msgspec.Struct):
    """One event of the stream; members are read only where its type gives them a meaning."""

    type: Any = ""
    index: Any = None
    message: Any = None
    content_block: msgspec.Raw = msgspec.Raw()
    delta: Any = None
    usage: Any = None
    error: Any = None
    context_management: Any = None


_event_decoder = msgspec.json.Decoder(_AnthropicEvent)


class AnthropicReplyParser:
    """A parser of Anthropic's stream events that builds up one reply."""

    def __init__(self, *, size: int = 0) -> None:
        self._size = size
        self._blocks: dict[int, _AnthropicBlock] = {}
        self._usage: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._id = ""
        self._model = ""
        self.done = False
        """Whether the model has said its last word."""

    def parse_event(self, event: SseEvent) -> Iterator[StreamDelta]:
        """Parse one event; unknown types are ignored."""
        if self.done:
            return
        said = _decode_anthropic_event(event.data)
        match said.type or event.name:
            case "message_start":
                yield self._start_message(as_object(said.message))
            case "content_block_start":
                yield self._start_block(_block_index(said), said.content_block)
            case "content_block_delta":
                yield from self._extend_block(_block_index(said), as_object(said.delta))
            case "content_block_stop":
                yield BlockEnded(_block_index(said))
            case "message_delta":
                self._end.update(as_object(said.delta))
                self._end["context_management"] = said.context_management
                self._add_usage(said.usage)
            case "message_stop":
                self.done = True
            case "error":
                raise parse_stream_error(said.error, protocol="anthropic")
            case _:
                pass

    def parse_body(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        try:
            message = split_members(body)
            blocks = msgspec.json.decode(message.get("content", b"[]"), type=list[msgspec.Raw])
            self._end = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ApiError("garbled", f"The reply could not be parsed: {error}") from error
        if self._end.get("error"):
            raise parse_stream_error(self._end["error"], protocol="anthropic")
        self._start_message(self._end)
        for index, block in enumerate(blocks):
            self._start_block(index, block)
        self.done = bool(self._end.get("stop_reason"))

    def build_reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self.done:
            raise ApiError("garbled", "The stream ended before the reply was complete.")
        stop = ANTHROPIC_STOP_REASONS.get(str(self._end.get("stop_reason")), "unknown")
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        if stop in ("length", "window") and blocks and blocks[-1].is_half_call():
            blocks.pop()
        content = tuple(made for block in blocks if (made := block.build()) is not None)
        if stop == "refusal":
            content = tuple(block for block in content if not isinstance(block, Call))
        return Reply(
            content,
            _effective_stop(stop, content),
            self._usage_or_estimate(content),
            id=self._id,
            model=self._model,
            detail=_stop_detail(self._end),
            left_out=_count_cleared_tool_uses(self._end),
            hits=merge_hits(collect_anthropic_hits(content)),
        )

    def _start_message(self, message: dict[str, Any]) -> ReplyBegan:
        self._id, self._model = str(message.get("id", "")), str(message.get("model", ""))
        self._add_usage(message.get("usage"))
        return ReplyBegan(self._id, self._model, _parse_anthropic_usage(self._usage))

    def _start_block(self, index: int, content: msgspec.Raw) -> BlockBegan:
        block = self._blocks[index] = _AnthropicBlock(content)
        return BlockBegan(
            index, block.shown, id=block.string_member("id"), name=block.string_member("name")
        )

    def _extend_block(self, index: int, delta: dict[str, Any]) -> Iterator[StreamDelta]:
        block = self._blocks.get(index)
        if block is None:
            raise ApiError("garbled", f"The stream extended block {index}, which never started.")
        text = block.extend(delta)
        if text:
            yield Grew(index, block.shown, text)

    def _add_usage(self, usage: object) -> None:
        """Update the token counts; they are cumulative, so a later one replaces an earlier one."""
        self._usage |= {k: v for k, v in as_object(usage).items() if v is not None}

    def _usage_or_estimate(self, content: tuple[AnyBlock, ...]) -> Usage:
        return (
            _parse_anthropic_usage(self._usage)
            if self._usage
            else estimate_reply_usage(content, size=self._size)
        )


class _AnthropicBlock:
    """A content block: its members as they came, and the text added by deltas."""

    def __init__(self, content: msgspec.Raw) -> None:
        try:
            self._members: JsonMembers = split_members(bytes(content).decode("utf-8", "replace"))
        except msgspec.DecodeError as error:
            raise ApiError("garbled", f"A block of the reply is not an object: {error}") from error
        self._added: dict[str, list[str]] = {}
        self.kind = self.string_member("type")
        if not self.kind:
            raise ApiError("garbled", "A block of the reply has no type.")
        self.shown: BlockKind = ANTHROPIC_BLOCK_KINDS.get(self.kind, "other")

    def string_member(self, name: str) -> str:
        """Return a string member; empty if it is absent or of another type."""
        return as_string(msgspec.json.decode(self._members.get(name, b"null")))

    def extend(self, delta: dict[str, Any]) -> str:
        """Apply one delta and return the text it added."""
        kind = str(delta.get("type"))
        match kind:
            case "signature_delta":
                self._members["signature"] = to_raw_json(delta.get("signature"))
            case "citations_delta":
                known = as_list(msgspec.json.decode(self._members.get("citations", b"[]")))
                self._members["citations"] = to_raw_json([*known, delta.get("citation")])
            case "compaction_delta":
                self._members |= {k: to_raw_json(v) for k, v in delta.items() if k != "type"}
            case _ if kind in TEXT_DELTA_MEMBERS:
                return self._append_text(TEXT_DELTA_MEMBERS[kind], delta)
            case _:
                pass
        return ""

    def is_half_call(self) -> bool:
        """Return whether this is a tool call whose arguments were cut off."""
        return self.kind == "tool_use" and not is_json_object(self._call_input(absent=""))

    def build(self) -> AnyBlock | None:
        """Build the block as the log stores it; None if there is nothing to store."""
        match self.kind:
            case "text":
                return self._build_text()
            case "tool_use":
                rest = {k: v for k, v in self._members.items() if k not in CALL_MEMBERS}
                args = self._call_input(absent="{}")
                return Call(
                    self.string_member("id"),
                    self.string_member("name"),
                    args,
                    extra=join_members(rest),
                )
            case "thinking" if not self.string_member("signature"):
                return None
            case _:
                return self._build_opaque(self._full_text("thinking") or self._full_text("content"))

    def _append_text(self, name: str, delta: dict[str, Any]) -> str:
        text = as_string(delta.get(name))
        self._added.setdefault(name, []).append(text)
        return text

    def _full_text(self, name: str) -> str:
        return self.string_member(name) + "".join(self._added.get(name, ()))

    def _call_input(self, *, absent: str) -> str:
        """Return the call's arguments as written; a block that came whole has them in `input`."""
        text = "".join(self._added.get("partial_json", ()))
        if text.strip():
            return text
        whole = bytes(self._members.get("input", b"")).decode()
        return whole if "partial_json" not in self._added and whole not in ("", "{}") else absent

    def _build_text(self) -> AnyBlock | None:
        text = self._full_text("text")
        rest = self._members.keys() - {"type", "text"}
        plain = all(bytes(self._members[name]) in (b"null", b"[]") for name in rest)
        if not text:
            return None
        return Text(text) if plain else self._build_opaque(text)

    def _build_opaque(self, text: str) -> Opaque:
        whole = dict(self._members)
        for name in self._added.keys() & {"text", "thinking"}:
            whole[name] = to_raw_json(self._full_text(name))
        if "partial_json" in self._added:
            whole["input"] = msgspec.Raw(ensure_json_object(self._call_input(absent="{}")))
        return Opaque("anthropic", self.kind, msgspec.json.encode(whole).decode(), text)


CALL_MEMBERS = frozenset(("type", "id", "name", "input"))


def _decode_anthropic_event(data: bytes) -> _AnthropicEvent:
    """Decode a streamed event of the Messages API; raise `ApiError` if it is not JSON."""
    try:
        return _event_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError("garbled", f"An event of the stream is not JSON: {error}") from error


def _block_index(said: _AnthropicEvent) -> int:
    """Return the block that an Anthropic stream event belongs to; raise `ApiError` if none."""
    if not isinstance(said.index, int):
        raise ApiError("garbled", f"A {said.type} event does not name its block.")
    return said.index


def _effective_stop(stop: StopReason, content: tuple[AnyBlock, ...]) -> StopReason:
    """Return the stop reason that fits the Anthropic reply: tool calls wait for results."""
    if extract_calls(content) and stop in ("end", "unknown"):
        return "calls"
    return "end" if stop == "calls" and not extract_calls(content) else stop


def _stop_detail(end: dict[str, Any]) -> str:
    """Return the details of an Anthropic reply's unusual stop, such as a refusal's category."""
    details = as_object(end.get("stop_details"))
    told = (details.get("category"), details.get("explanation"))
    if any(told):
        return ": ".join(str(part) for part in told if part)
    reason = end.get("stop_reason")
    return "" if reason is None or reason in ANTHROPIC_STOP_REASONS else str(reason)


WINDOW_STEPS = ("message", "fallback_message")
"""The steps of a provider whose prompt is the window in use."""


def _count_cleared_tool_uses(end: dict[str, Any]) -> int:
    """Return how many tool results Anthropic's context edits cleared."""
    applied = as_list(as_object(end.get("context_management")).get("applied_edits"))
    return sum(read_count(as_object(edit), "cleared_tool_uses") for edit in applied)


def _parse_anthropic_usage(usage: dict[str, Any]) -> Usage:
    """Parse Anthropic's token usage; if the reply took several steps, their sum is billed."""
    taken = [as_object(row) for row in as_list(usage.get("iterations"))]
    said = [row for row in taken if row.get("type") in WINDOW_STEPS]
    others = [_parse_usage_counts(row) for row in taken if not said or row is not said[-1]]
    beside = sum(others[1:], others[0]) if others else None
    if not said and beside:
        return beside
    return msgspec.structs.replace(
        _parse_usage_counts(said[-1] if others else usage), beside=beside
    )


def _parse_usage_counts(usage: dict[str, Any]) -> Usage:
    """Parse the token counts of one Anthropic usage object."""
    made = as_object(usage.get("cache_creation"))
    short, hour = (read_count(made, f"ephemeral_{ttl}_input_tokens") for ttl in ("5m", "1h"))
    written = read_count(usage, "cache_creation_input_tokens") or short + hour
    return Usage(
        input=read_count(usage, "input_tokens"),
        read=read_count(usage, "cache_read_input_tokens"),
        write=max(0, written - hour),
        write_1h=hour,
        output=read_count(usage, "output_tokens"),
        reasoning=read_count(as_object(usage.get("output_tokens_details")), "thinking_tokens"),
        searches=read_count(as_object(usage.get("server_tool_use")), "web_search_requests"),
    )
