"""Chat completions: OpenAI's, and those of the many servers that imitate them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.lab.accent import check
from travois.lab.dialects import Dialect, dialect
from travois.lab.exchange import Exchange
from travois.lab.faults import Rule, Shape, refuse, tamper
from travois.lab.http import Request, Response, reply_json
from travois.lab.objects import Json, inner, is_list, is_object, listed
from travois.lab.positions import Position
from travois.lab.profiles import Profile
from travois.lab.refusal import Refusal
from travois.lab.stream import Event, Item, paced
from travois.lab.talk import Prompt, Reply, flat
from travois.lab.tokens import IMAGE, compact, tokens
from travois.lab.utterance import Utterance, chunks, completion
from travois.lab.world import World


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
    body = _body(world, request)
    accent = dialect(world.options.dialect)
    exchange.model = str(body.get("model", ""))
    profile = _profile(world, exchange.model, accent)
    exchange.invalid = tuple(check(request.body, body, accent))
    if exchange.invalid:
        raise Refusal(exchange.invalid[0])
    rules = world.faults.pick(request.path, exchange.model)
    exchange.faults = tuple(rule.action for rule in rules)
    page = refuse(rules)
    if page is not None:
        exchange.status = page.status
        return page
    row = positions(body)
    world.ledger.place(exchange, row)
    _check_window(row, profile, accent)
    reply = world.answer(prompt_of(body, exchange))
    if reply.error is not None:
        refuse([Rule("http", reply.error)])
    return _respond(world, exchange, body=body, row=row, reply=reply, rules=rules, profile=profile)


def _body(world: World, request: Request) -> Json:
    key = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if world.options.keys and key not in world.options.keys:
        details = {"code": "invalid_api_key"}
        raise Refusal("Incorrect API key provided", status=401, details=details)
    try:
        body: Any = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise Refusal(f"We could not parse the JSON body of your request: {error}") from None
    if not is_object(body) or not is_list(body.get("messages")):
        raise Refusal("Missing required parameter: 'messages'.", param="messages")
    return body


def _profile(world: World, model: str, accent: Dialect) -> Profile:
    try:
        return world.profile(model)
    except Refusal:
        if not accent.known_models_only:
            return Profile(model, family="openai", window=200_000)
        message = f"The model `{model}` does not exist or you do not have access to it."
        details = {"code": "model_not_found"}
        raise Refusal(message, status=404, kind="invalid_request_error", details=details) from None


def _check_window(row: list[Position], profile: Profile, accent: Dialect) -> None:
    total = sum(position.tokens for position in row)
    if total <= profile.window or not accent.overflow:
        return
    raise Refusal(
        accent.overflow.format(tokens=total, limit=profile.window),
        status=accent.overflow_status,
        kind="invalid_request_error",
        details={"code": accent.overflow_code},
        param="messages",
    )


def _respond(
    world: World,
    exchange: Exchange,
    *,
    body: Json,
    row: list[Position],
    reply: Reply,
    rules: list[Rule],
    profile: Profile,
) -> Response:
    accent = dialect(world.options.dialect)
    usage = world.prefixes.use(row, salt=exchange.model, now=exchange.at)
    said = Utterance.of(reply, world=world, exchange=exchange, accent=accent)
    usage = msgspec.structs.replace(usage, output=said.tokens, reasoning=said.thought)
    if "output_tokens" in reply.usage:
        usage = msgspec.structs.replace(usage, output=int(reply.usage["output_tokens"]))
    exchange.usage, exchange.cost = usage, profile.bill(usage)
    exchange.reply, exchange.stop = reply.blocks, said.finish
    headers = (("x-request-id", world.name("req_", exchange)),)
    if not body.get("stream"):
        whole = reply_json(completion(said, usage), headers=headers)
        items: list[Item] = [Event("body", step) for step in whole.steps if isinstance(step, bytes)]
        return tamper(whole, items, rules=rules, shape=SHAPE)
    asked = bool(inner(body, "stream_options").get("include_usage"))
    events = chunks(said, usage, pace=reply.pace, asked="yes" if asked else "no")
    kind = ("content-type", "text/event-stream; charset=utf-8")
    answer = Response(200, (kind, *headers), (), "chunked")
    return tamper(answer, paced(events, reply.pace), rules=rules, shape=SHAPE)


# --- reading --------------------------------------------------------------------------------------


def positions(body: Json) -> list[Position]:
    """Tools and messages in cache order; one message is one position."""
    tools = [
        Position("tools", f"tools[{i}]", "tool", b"tool\0" + (raw := msgspec.json.encode(tool)),
                 tokens(raw.decode()))
        for i, tool in enumerate(listed(body, "tools"))
    ]  # fmt: skip
    return [*tools, *(_position(i, m) for i, m in enumerate(body["messages"]))]


def _position(i: int, message: Json) -> Position:
    role = str(message.get("role", ""))
    data = role.encode() + b"\0" + msgspec.json.encode(message)
    calls = message.get("tool_calls")
    count = _content_tokens(message.get("content")) + (tokens(compact(calls)) if calls else 0)
    return Position("messages", f"messages[{i}]", role, data, count)


def _content_tokens(content: Any) -> int:
    if isinstance(content, str):
        return tokens(content)
    parts: list[Json] = content or []
    return sum(tokens(str(part["text"])) if "text" in part else IMAGE for part in parts)


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
        role, content = message.get("role"), _blocks(message.get("content"))
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


def _blocks(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    parts: list[Json] = content or []
    return [
        {"type": "text", "text": part["text"]} if "text" in part else {"type": "image"}
        for part in parts
    ]


def _call(call: Json) -> Json:
    function = inner(call, "function")
    args: Any = function.get("arguments") or "{}"
    try:
        parsed = msgspec.json.decode(args) if isinstance(args, str) else args
    except msgspec.DecodeError:
        parsed = {}
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": parsed}
