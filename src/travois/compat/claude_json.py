"""Claude Code's JSON formats: content blocks, stream events, token usage."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Text
from travois.core.facts import StopReason
from travois.core.models import Usage
from travois.providers.replies import BlockBegan, BlockEnded, Grew, ReplyBegan

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

CLAUDE_STOP_REASONS: dict[StopReason, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "pause": "pause_turn",
    "length": "max_tokens",
    "window": "model_context_window_exceeded",
    "refusal": "refusal",
    "compaction": "compaction",
    "unknown": "end_turn",
}


def encode_claude_block(block: AnyBlock) -> JsonObject:
    """Encode a content block in Claude Code's JSON."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Call():
            return encode_claude_call(block)
        case Media():
            source: JsonObject = {"type": "blob", "media_type": block.mime, "blob": block.blob}
            return {"type": block.kind, "source": source}
        case Opaque(protocol="anthropic"):
            return msgspec.json.decode(block.raw)
        case Opaque():
            return {"type": "thinking", "thinking": block.text, "signature": ""}


def encode_claude_call(call: Call) -> JsonObject:
    """Encode a tool call as a `tool_use` block."""
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.name,
        "input": decode_call_arguments(call),
    }


def decode_call_arguments(call: Call) -> Json:
    """Decode a tool call's arguments for Claude Code's JSON; raw text if they are invalid."""
    try:
        return msgspec.json.decode(call.args or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {"_invalid_arguments": call.args}


def encode_claude_usage(usage: Usage) -> JsonObject:
    """Encode token counts in Claude Code's JSON."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.write + usage.write_1h,
        "cache_read_input_tokens": usage.read,
        "output_tokens": usage.output,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.write,
            "ephemeral_1h_input_tokens": usage.write_1h,
        },
        "server_tool_use": {"web_search_requests": usage.searches},
        "service_tier": "standard",
    }


def encode_claude_stream_event(
    delta: ReplyBegan | BlockBegan | Grew | BlockEnded,
) -> JsonObject | None:
    """Encode a delta as a Claude Code stream event; None if it has no counterpart."""
    match delta:
        case ReplyBegan():
            return {"type": "message_start", "message": _encode_message_start(delta)}
        case BlockBegan():
            start: JsonObject = {"index": delta.index, "content_block": _encode_block_start(delta)}
            return {"type": "content_block_start"} | start
        case Grew():
            change = _encode_block_delta(delta)
            return change and {
                "type": "content_block_delta",
                "index": delta.index,
                "delta": change,
            }
        case BlockEnded():
            return {"type": "content_block_stop", "index": delta.index}


def _encode_message_start(delta: ReplyBegan) -> JsonObject:
    """Encode the message of a `message_start` stream event in Claude Code's JSON."""
    return {
        "id": delta.id,
        "type": "message",
        "role": "assistant",
        "model": delta.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": encode_claude_usage(delta.usage),
    }


def _encode_block_start(delta: BlockBegan) -> JsonObject:
    """Encode the block of a `content_block_start` stream event in Claude Code's JSON."""
    match delta.kind:
        case "text" | "other":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "call":
            return {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}


def _encode_block_delta(delta: Grew) -> JsonObject | None:
    """Encode the delta of a stream event in Claude Code's JSON; None if it has no counterpart."""
    match delta.kind:
        case "text":
            return {"type": "text_delta", "text": delta.text}
        case "thinking":
            return {"type": "thinking_delta", "thinking": delta.text}
        case "call":
            return {"type": "input_json_delta", "partial_json": delta.text}
        case "other":
            return None


def make_line_uuid(session: str, what: str) -> str:
    """Make a stable UUID for a line in Claude Code's formats."""
    name = blake2b(f"{session}/{what}".encode(), digest_size=16).hexdigest()
    parts = (name[:8], name[8:12], "4" + name[13:16], "8" + name[17:20], name[20:])
    return "-".join(parts)
