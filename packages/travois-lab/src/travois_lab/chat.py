"""Chat completions: OpenAI's, and those of the many servers that imitate them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from travois_lab.accent import check
from travois_lab.dialects import Dialect, dialect
from travois_lab.exchange import Exchange
from travois_lab.faults import Shape
from travois_lab.http import Request, Response, reply_json
from travois_lab.objects import Json, inner, is_list, listed
from travois_lab.plain import (
    SSE,
    Talked,
    any_profile,
    args_of,
    check_key,
    converse,
    parse,
    parts_blocks,
    parts_tokens,
    send_stream,
    send_whole,
    tool_positions,
)
from travois_lab.positions import Position, locate
from travois_lab.profiles import Profile
from travois_lab.refusal import Refusal
from travois_lab.talk import Prompt, flat
from travois_lab.tokens import compact, tokens
from travois_lab.utterance import Utterance, chunks, completion
from travois_lab.world import World


def error_body(refusal: Refusal) -> Json:
    """An error in OpenAI's shape."""
    code = (refusal.details or {}).get("code")
    return {
        "error": {
            "message": refusal.message,
            "type": refusal.kind,
            "param": refusal.param,
            "code": code,
        }
    }


SHAPE = Shape(
    ping=b": ping\n\n",
    unknown=b'data: {"object":"lab.unknown","choices":[]}\n\n',
    error=lambda refusal: b"data: %b\n\n" % msgspec.json.encode(error_body(refusal)),
    last="[DONE]",
)


def create_completion(world: World, request: Request) -> Response:
    """`POST /v1/chat/completions`."""
    exchange = world.ledger.open(request, "chat", at=world.clock.now())
    try:
        return _create(world, request, exchange)
    except Refusal as refusal:
        exchange.status, exchange.error = refusal.status, f"{refusal.kind}: {refusal.message}"
        headers = (("x-request-id", world.name("req_", exchange)), *refusal.headers)
        if not refusal.message.strip():
            return Response(refusal.status, headers, (b"",))
        return reply_json(error_body(refusal), status=refusal.status, headers=headers)


def _create(world: World, request: Request, exchange: Exchange) -> Response:
    check_key(world, request.headers.get("authorization", "").removeprefix("Bearer ").strip())
    body = parse(request)
    if not is_list(body.get("messages")):
        raise Refusal("Missing required parameter: 'messages'.", param="messages")
    accent = dialect(world.options.dialect)
    exchange.model = str(body.get("model", ""))
    profile = _profile(world, exchange.model, accent)
    exchange.invalid = tuple(check(request.body, body, accent))
    if exchange.invalid:
        raise Refusal(exchange.invalid[0])
    talked = converse(
        world,
        prompt_of(body, exchange),
        exchange=exchange,
        row=positions(body),
        profile=profile,
        overflow=partial(_overflow, profile=profile, accent=accent),
    )
    return _respond(world, exchange, body, talked) if isinstance(talked, Talked) else talked


def _profile(world: World, model: str, accent: Dialect) -> Profile:
    if not accent.known_models_only:
        return any_profile(world, model)
    try:
        return world.profile(model)
    except Refusal:
        message = f"The model `{model}` does not exist or you do not have access to it."
        details = {"code": "model_not_found"}
        raise Refusal(message, status=404, kind="invalid_request_error", details=details) from None


def _overflow(total: int, *, profile: Profile, accent: Dialect) -> None:
    if total <= profile.window or not accent.overflow:
        return
    raise Refusal(
        accent.overflow.format(tokens=total, limit=profile.window),
        status=accent.overflow_status,
        kind="invalid_request_error",
        details={"code": accent.overflow_code},
        param="messages",
    )


def _respond(world: World, exchange: Exchange, body: Json, talked: Talked) -> Response:
    accent = dialect(world.options.dialect)
    said = Utterance.of(talked.reply, world=world, exchange=exchange, accent=accent)
    exchange.stop = said.finish
    id = ("x-request-id", world.name("req_", exchange))
    if not body.get("stream"):
        return send_whole(completion(said, talked.usage), talked, SHAPE, headers=(id,))
    asked = bool(inner(body, "stream_options").get("include_usage"))
    events = chunks(said, talked.usage, pace=talked.reply.pace, asked="yes" if asked else "no")
    return send_stream(events, talked, SHAPE, headers=(SSE, id))


# --- reading --------------------------------------------------------------------------------------


def positions(body: Json) -> list[Position]:
    """Tools and messages in cache order; one message is one position."""
    messages = [_position(i, message) for i, message in enumerate(body["messages"])]
    return [*tool_positions(listed(body, "tools")), *messages]


def _position(i: int, message: Json) -> Position:
    role = str(message.get("role", ""))
    data = role.encode() + b"\0" + msgspec.json.encode(message)
    calls = message.get("tool_calls")
    count = parts_tokens(message.get("content")) + (tokens(compact(calls)) if calls else 0)
    return locate("messages", f"messages[{i}]", role, data, count)


def prompt_of(body: Json, exchange: Exchange) -> Prompt:
    """The request as the model reads it."""
    said = list(_messages(body["messages"]))
    system = "\n".join(flat(m["content"]) for m in said if m["role"] == "system")
    return Prompt(
        "chat",
        exchange.model,
        [message for message in said if message["role"] != "system"],
        system=system,
        tools=tuple(_tool(tool) for tool in listed(body, "tools")),
        body=body,
        n=exchange.n,
    )


def _tool(tool: Json) -> Json:
    function = tool.get("function") or tool
    return {
        "name": function.get("name"),
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {},
    }


def _messages(messages: list[Json]) -> Iterator[Json]:
    for message in messages:
        role, content = message.get("role"), parts_blocks(message.get("content"))
        if role == "tool":
            id = message.get("tool_call_id")
            result = {"type": "tool_result", "tool_use_id": id, "content": content}
            yield {"role": "user", "content": [result]}
        elif role == "assistant":
            calls = [_call(call) for call in listed(message, "tool_calls")]
            yield {"role": "assistant", "content": [*content, *calls]}
        else:
            role = "system" if role in ("system", "developer") else "user"
            yield {"role": role, "content": content}


def _call(call: Json) -> Json:
    function = inner(call, "function")
    args = args_of(function.get("arguments"))
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": args}
