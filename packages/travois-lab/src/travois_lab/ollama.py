"""Ollama's own API: lines of JSON, calls without ids, and prompts cut off in silence."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from travois_lab.exchange import Exchange
from travois_lab.faults import Shape
from travois_lab.http import Request, Response, reply_json
from travois_lab.objects import Json, inner, listed, objects
from travois_lab.plain import (
    Talked,
    any_profile,
    args_of,
    converse,
    parse,
    parts_tokens,
    send_stream,
    send_whole,
    tool_positions,
)
from travois_lab.positions import Position, locate
from travois_lab.refusal import Refusal
from travois_lab.stream import cut, line
from travois_lab.talk import Prompt
from travois_lab.tokens import compact, tokens
from travois_lab.validate_items import ollama_faults
from travois_lab.world import World

WINDOW = 4096
AT = "2026-01-01T00:00:00Z"
LINES = (("content-type", "application/x-ndjson"),)
SHAPE = Shape(
    ping=b"\n",
    unknown=b'{"lab_unknown":true}\n',
    error=lambda refusal: msgspec.json.encode({"error": refusal.message}) + b"\n",
    last="done",
)


def chat(world: World, request: Request) -> Response:
    """`POST /api/chat`."""
    exchange = world.ledger.open(request, "ollama", at=world.clock.now())
    try:
        return _chat(world, request, exchange)
    except Refusal as refusal:
        exchange.status, exchange.error = refusal.status, f"{refusal.kind}: {refusal.message}"
        return reply_json({"error": refusal.message}, status=refusal.status)


def tags(world: World, _request: Request) -> Response:
    """`GET /api/tags`."""
    names = [name for name, p in world.profiles.items() if p.family == "openai"] or ["lab-echo"]
    rows = [{"name": name, "model": name, "modified_at": AT, "size": 0} for name in names]
    return reply_json({"models": rows})


def show(world: World, request: Request) -> Response:
    """`POST /api/show`."""
    model = str(parse(request).get("model", ""))
    window = any_profile(world, model).window
    info = {"general.architecture": "lab", "lab.context_length": window}
    return reply_json({"model_info": info, "capabilities": ["completion", "tools", "thinking"]})


def _chat(world: World, request: Request, exchange: Exchange) -> Response:
    body = parse(request)
    exchange.model = str(body.get("model", ""))
    exchange.invalid = tuple(ollama_faults(request.body))
    if exchange.invalid:
        raise Refusal(exchange.invalid[0])
    most = any_profile(world, exchange.model).window
    window = min(most, int(inner(body, "options").get("num_ctx", WINDOW)))
    messages = objects(body, "messages")
    kept = _fitting(messages, window)
    row = [*tool_positions(listed(body, "tools")), *(_position(i, m) for i, m in kept)]
    talked = converse(
        world,
        prompt_of(exchange, body, [message for _, message in kept]),
        exchange=exchange,
        row=row,
        profile=any_profile(world, exchange.model),
        overflow=lambda total: None,
    )
    if not isinstance(talked, Talked):
        return talked
    whole = sum(position.tokens for position in row) + _lost(messages, kept)
    rows = _rows(exchange, talked, seen=min(whole, window))
    exchange.stop = "stop"
    if body.get("stream") is False:
        return send_whole(_joined(rows, talked), talked, SHAPE)
    return send_stream([line(name, row) for name, row in rows], talked, SHAPE, headers=LINES)


def _tokens(message: Json) -> int:
    calls = message.get("tool_calls")
    return parts_tokens(message.get("content")) + (tokens(compact(calls)) if calls else 0)


def _fitting(messages: list[Json], window: int) -> list[tuple[int, Json]]:
    """The system message and the newest others that fit: the rest is forgotten without a word."""
    rows = list(enumerate(messages))
    fixed = [row for row in rows if row[1].get("role") == "system"]
    left = window - sum(_tokens(message) for _, message in fixed)
    kept: list[tuple[int, Json]] = []
    for row in reversed([row for row in rows if row not in fixed]):
        left -= _tokens(row[1])
        if left < 0 and kept:
            break
        kept.append(row)
    return sorted([*fixed, *kept], key=lambda row: row[0])


def _lost(messages: list[Json], kept: list[tuple[int, Json]]) -> int:
    here = {i for i, _ in kept}
    return sum(_tokens(message) for i, message in enumerate(messages) if i not in here)


def _position(i: int, message: Json) -> Position:
    role = str(message.get("role", ""))
    data = role.encode() + b"\0" + msgspec.json.encode(message)
    return locate("messages", f"messages[{i}]", role, data, _tokens(message))


def _rows(exchange: Exchange, talked: Talked, *, seen: int) -> list[tuple[str, Json]]:
    head = {"model": exchange.model, "created_at": AT}
    said = list(_messages(talked))
    rows = [("chunk", {**head, "message": message, "done": False}) for message in said]
    stop = "length" if talked.reply.stop == "max_tokens" else "stop"
    counts = {"prompt_eval_count": seen, "eval_count": talked.usage.output}
    last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": stop}
    return [*rows, ("done", {**head, **last, **counts, "total_duration": 1, "eval_duration": 1})]


def _messages(talked: Talked) -> Iterator[Json]:
    for block in talked.reply.blocks:
        match block.get("type"):
            case "tool_use":
                call = {"name": block.get("name"), "arguments": block.get("input", {})}
                yield {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
            case "thinking":
                for piece in cut(str(block["thinking"]), talked.reply.pace):
                    yield {"role": "assistant", "content": "", "thinking": piece}
            case _:
                for piece in cut(str(block.get("text", "")), talked.reply.pace):
                    yield {"role": "assistant", "content": piece}


def _joined(rows: list[tuple[str, Json]], talked: Talked) -> Json:
    said = list(_messages(talked))
    message: Json = {"role": "assistant", "content": "".join(m["content"] for m in said)}
    thought = "".join(str(m.get("thinking", "")) for m in said)
    calls = [call for m in said for call in listed(m, "tool_calls")]
    message |= {"thinking": thought} if thought else {}
    message |= {"tool_calls": calls} if calls else {}
    return {**rows[-1][1], "message": message}


def prompt_of(exchange: Exchange, body: Json, messages: list[Json]) -> Prompt:
    """The request as the model reads it."""
    said = [_message(m) for m in messages if m.get("role") != "system"]
    system = [str(m.get("content", "")) for m in messages if m.get("role") == "system"]
    tools = [inner(tool, "function") for tool in objects(body, "tools")]
    return Prompt(
        "ollama",
        exchange.model,
        said,
        system="\n".join(system),
        tools=tuple({**tool, "input_schema": tool.get("parameters")} for tool in tools),
        body=body,
        n=exchange.n,
    )


def _message(message: Json) -> Json:
    """Calls and results pair by the tool's name: there are no ids."""
    content = str(message.get("content") or "")
    blocks: list[Json] = [{"type": "text", "text": content}] if content else []
    if message.get("role") == "tool":
        name = message.get("tool_name")
        result = {"type": "tool_result", "tool_use_id": name, "content": content}
        return {"role": "user", "content": [result]}
    for call in objects(message, "tool_calls"):
        function = inner(call, "function")
        name = function.get("name")
        args = args_of(function.get("arguments"))
        blocks.append({"type": "tool_use", "id": name, "name": name, "input": args})
    return {
        "role": "assistant" if message.get("role") == "assistant" else "user",
        "content": blocks,
    }
