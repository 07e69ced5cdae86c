"""A reply in the shapes of the Messages API: one JSON message, or its stream of events."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from travois.core.models import Usage
from travois_lab.faults import Shape
from travois_lab.http import Response, reply_json
from travois_lab.objects import Json
from travois_lab.refusal import Refusal
from travois_lab.stream import Event, cut, sse
from travois_lab.talk import Pace

CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


class Spoken(msgspec.Struct, frozen=True):
    """One block of a reply; `args` is the JSON text of a call's input, valid or not."""

    block: Json
    args: str = ""


def error_body(refusal: Refusal, request_id: str) -> Json:
    """An error in the provider's words."""
    error: Json = {"type": refusal.kind, "message": refusal.message}
    if refusal.details is not None:
        error["details"] = refusal.details
    return {"type": "error", "error": error, "request_id": request_id}


def refused(refusal: Refusal, request_id: str) -> Response:
    """The HTTP answer to a refused request."""
    headers = (("request-id", request_id), *refusal.headers)
    return reply_json(error_body(refusal, request_id), status=refusal.status, headers=headers)


SHAPE = Shape(
    ping=b'event: ping\ndata: {"type":"ping"}\n\n',
    unknown=b'event: lab_unknown\ndata: {"type":"lab_unknown","index":0}\n\n',
    error=lambda refusal: sse("error", error_body(refusal, "req_lab")).raw,
    last="message_stop",
)


def usage_json(usage: Usage) -> Json:
    """Token counts as the provider reports them."""
    return {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.read,
        "cache_creation_input_tokens": usage.write + usage.write_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.write,
            "ephemeral_1h_input_tokens": usage.write_1h,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "server_tool_use": None,
        "service_tier": "standard",
        "inference_geo": "global",
    }


def events(message: Json, spoken: list[Spoken], pace: Pace) -> list[Event]:
    """A message as the stream that a client puts together again."""
    usage = message["usage"]
    start: Json = {
        **{k: v for k, v in message.items() if k != "context_management"},
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "usage": {**usage, "output_tokens": 1},
    }
    delta = {k: message[k] for k in ("stop_reason", "stop_sequence", "stop_details", "container")}
    end: Json = {"type": "message_delta", "delta": delta, "usage": usage}
    if message.get("context_management") is not None:
        end["context_management"] = message["context_management"]
    row = [sse("message_start", {"type": "message_start", "message": start})]
    row.append(Event("ping", SHAPE.ping))
    for index, part in enumerate(spoken):
        row += _block_events(index, part, pace)
    return [*row, sse("message_delta", end), sse("message_stop", {"type": "message_stop"})]


def _block_events(index: int, part: Spoken, pace: Pace) -> Iterator[Event]:
    empty, deltas = _deltas(part, pace)
    begin = {"type": "content_block_start", "index": index, "content_block": empty}
    yield sse("content_block_start", begin)
    for delta in deltas:
        value = {"type": "content_block_delta", "index": index, "delta": delta}
        yield sse("content_block_delta", value)
    yield sse("content_block_stop", {"type": "content_block_stop", "index": index})


def _deltas(part: Spoken, pace: Pace) -> tuple[Json, list[Json]]:
    """A block as it begins, and how it grows."""
    block = part.block
    match block.get("type"):
        case "text":
            grown = [{"type": "text_delta", "text": piece} for piece in cut(block["text"], pace)]
            return {**block, "text": ""}, grown
        case "thinking":
            pieces = cut(block["thinking"], pace)
            grown = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
            grown.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, grown
        case "compaction":
            grown = {"type": "compaction_delta", "content": block.get("content")}
            if "encrypted_content" in block:
                grown["encrypted_content"] = block["encrypted_content"]
            return {**block, "content": None}, [grown]
        case kind if kind in CALLS:
            pieces = ["", *cut(part.args, pace)]
            grown = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            return {**block, "input": {}}, grown
        case _:
            return block, []
