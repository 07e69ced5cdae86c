"""Claude Code's JSON formats: content blocks, stream events, usage."""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Text
from travois.core.facts import StopReason
from travois.core.models import Usage
from travois.providers.replies import Began, BlockBegan, BlockEnded, Grew

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Object: TypeAlias = dict[str, Json]

STOPS: dict[StopReason, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "pause": "pause_turn",
    "length": "max_tokens",
    "window": "model_context_window_exceeded",
    "refusal": "refusal",
    "compaction": "compaction",
    "unknown": "end_turn",
}


def block_json(block: AnyBlock) -> Object:
    """Encode a content block."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Call():
            return call_json(block)
        case Media():
            source: Object = {"type": "blob", "media_type": block.mime, "blob": block.blob}
            return {"type": block.kind, "source": source}
        case Opaque(protocol="anthropic"):
            return msgspec.json.decode(block.raw)
        case Opaque():
            return {"type": "thinking", "thinking": block.text, "signature": ""}


def call_json(call: Call) -> Object:
    """Encode a tool call as a `tool_use` block."""
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments(call)}


def arguments(call: Call) -> Json:
    """Decode a call's arguments; the raw text if they are not JSON."""
    try:
        return msgspec.json.decode(call.args or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {"_invalid_arguments": call.args}


def usage_json(usage: Usage) -> Object:
    """Encode token counts."""
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


def stream_json(delta: Began | BlockBegan | Grew | BlockEnded) -> Object | None:
    """Encode a delta as a stream event; None if it has no equivalent."""
    match delta:
        case Began():
            return {"type": "message_start", "message": _message(delta)}
        case BlockBegan():
            start: Object = {"index": delta.index, "content_block": _opening(delta)}
            return {"type": "content_block_start"} | start
        case Grew():
            change = _growth(delta)
            return change and {
                "type": "content_block_delta",
                "index": delta.index,
                "delta": change,
            }
        case BlockEnded():
            return {"type": "content_block_stop", "index": delta.index}


def _message(delta: Began) -> Object:
    return {
        "id": delta.id,
        "type": "message",
        "role": "assistant",
        "model": delta.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_json(delta.usage),
    }


def _opening(delta: BlockBegan) -> Object:
    match delta.kind:
        case "text" | "other":
            return {"type": "text", "text": ""}
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "call":
            return {"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}}


def _growth(delta: Grew) -> Object | None:
    match delta.kind:
        case "text":
            return {"type": "text_delta", "text": delta.text}
        case "thinking":
            return {"type": "thinking_delta", "thinking": delta.text}
        case "call":
            return {"type": "input_json_delta", "partial_json": delta.text}
        case "other":
            return None


def uuid(session: str, what: str) -> str:
    """Make a stable UUID for a line of a session."""
    name = blake2b(f"{session}/{what}".encode(), digest_size=16).hexdigest()
    parts = (name[:8], name[8:12], "4" + name[13:16], "8" + name[17:20], name[20:])
    return "-".join(parts)
