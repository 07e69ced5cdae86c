"""The Messages API: the pipeline that a request goes through, from bytes to an answer."""

from __future__ import annotations

from base64 import b64encode
from hashlib import blake2b
from typing import Any

import msgspec

from travois.kernel.models import Usage
from travois.lab.cache import chain, place_markers
from travois.lab.exchange import Exchange
from travois.lab.faults import Rule, refuse, tamper
from travois.lab.http import Request, Response, reply_json
from travois.lab.message import CALLS, SHAPE, Spoken, events, refused, usage_json
from travois.lab.objects import Json, is_object, listed
from travois.lab.positions import Position, as_blocks, positions
from travois.lab.profiles import Profile
from travois.lab.refusal import Refusal
from travois.lab.stream import Event, Item, paced
from travois.lab.talk import Prompt, Reply, flat
from travois.lab.tokens import block_tokens, compact, tokens
from travois.lab.world import World

BODY_LIMIT = 32 * 1024 * 1024


class Ask(msgspec.Struct):
    """One request on its way through the pipeline."""

    world: World
    request: Request
    exchange: Exchange
    body: Json
    profile: Profile
    rules: list[Rule] = []
    row: list[Position] = []


def create_message(world: World, request: Request) -> Response:
    """`POST /v1/messages`."""
    exchange = world.ledger.open(request, "anthropic", at=world.clock.now())
    try:
        return _create(world, request, exchange)
    except Refusal as refusal:
        return _refused(world, exchange, refusal)


def count_tokens(world: World, request: Request) -> Response:
    """`POST /v1/messages/count_tokens`."""
    exchange = world.ledger.open(request, "anthropic", at=world.clock.now())
    try:
        ask = _read(world, request, exchange)
        total = sum(position.tokens for position in positions(ask.body))
        return reply_json({"input_tokens": total}, headers=_headers(world, exchange))
    except Refusal as refusal:
        return _refused(world, exchange, refusal)


def _refused(world: World, exchange: Exchange, refusal: Refusal) -> Response:
    exchange.status = refusal.status
    exchange.error = f"{refusal.kind}: {refusal.message}"
    return refused(refusal, world.name("req_", exchange))


def _headers(world: World, exchange: Exchange) -> tuple[tuple[str, str], ...]:
    return (
        ("request-id", world.name("req_", exchange)),
        ("anthropic-organization-id", "org_lab"),
    )


def _create(world: World, request: Request, exchange: Exchange) -> Response:
    ask = _read(world, request, exchange)
    ask.rules = world.faults.pick(request.path, ask.profile.id)
    exchange.faults = tuple(rule.action for rule in ask.rules)
    page = refuse(ask.rules)
    if page is not None:
        exchange.status = page.status
        return page
    ask.row = place_markers(positions(ask.body), ask.body)
    world.ledger.place(exchange, ask.row)
    _check_window(ask)
    reply = _reply(ask)
    return _respond(ask, reply)


def _read(world: World, request: Request, exchange: Exchange) -> Ask:
    """Parse, let in, and look up the model."""
    if len(request.body) > BODY_LIMIT:
        raise Refusal("Request exceeds the maximum size", status=413)
    try:
        body: Any = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise Refusal(f"The request body is not valid JSON: {error}") from None
    if not is_object(body):
        raise Refusal("The request body must be a JSON object")
    _authenticate(world, request)
    model: Any = body.get("model")
    if not isinstance(model, str):
        raise Refusal("model: Field required")
    exchange.model = model
    return Ask(world, request, exchange, body, world.profile(model))


def _authenticate(world: World, request: Request) -> None:
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    key = request.headers.get("x-api-key", "") or bearer
    if not key:
        raise Refusal("x-api-key header is required", status=401)
    if world.options.keys and key not in world.options.keys:
        raise Refusal("invalid x-api-key", status=401)


def _check_window(ask: Ask) -> None:
    total, window = sum(position.tokens for position in ask.row), ask.profile.window
    if total > window:
        raise Refusal(f"prompt is too long: {total} tokens > {window} maximum")


def prompt_of(body: Json, exchange: Exchange) -> Prompt:
    """The request as the model reads it."""
    messages = [
        {**message, "content": as_blocks(message.get("content"))} for message in body["messages"]
    ]
    return Prompt(
        "anthropic",
        exchange.model,
        messages,
        system=flat(body.get("system")),
        tools=tuple(listed(body, "tools")),
        body=body,
        n=exchange.n,
    )


def _reply(ask: Ask) -> Reply:
    if ask.body.get("max_tokens") == 0:
        return Reply((), stop="max_tokens")
    reply = ask.world.answer(prompt_of(ask.body, ask.exchange))
    if reply.error is not None:
        refuse([Rule("http", reply.error)])
    return reply


def _respond(ask: Ask, reply: Reply) -> Response:
    spoken = [_spoken(ask, block, index) for index, block in enumerate(reply.blocks)]
    usage = _use_cache(ask, spoken, reply)
    exchange, world = ask.exchange, ask.world
    message = _message(ask, reply, spoken=spoken, usage=usage)
    exchange.reply = tuple(part.block for part in spoken)
    exchange.stop = message["stop_reason"]
    headers = _headers(world, exchange)
    if not ask.body.get("stream"):
        whole = reply_json(message, headers=headers)
        items: list[Item] = [Event("body", step) for step in whole.steps if isinstance(step, bytes)]
        return tamper(whole, items, rules=ask.rules, shape=SHAPE)
    kind = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))
    answer = Response(200, (*kind, *headers), (), "chunked")
    items = paced(events(message, spoken, reply.pace), reply.pace)
    return tamper(answer, items, rules=ask.rules, shape=SHAPE)


def _spoken(ask: Ask, block: Json, index: int) -> Spoken:
    kind = block.get("type")
    if kind in CALLS:
        args = block.get("args", compact(block.get("input", {})))
        rest = {k: v for k, v in block.items() if k not in ("args", "id", "name", "input")}
        id = block.get("id") or ask.world.name("toolu_", ask.exchange, index)
        whole = {"type": kind, "id": id, "name": block.get("name"), "input": _parsed(args), **rest}
        return Spoken(whole, args)
    if kind == "thinking" and "signature" not in block:
        sealed = blake2b(ask.exchange.body + block["thinking"].encode(), digest_size=48).digest()
        return Spoken({**block, "signature": b64encode(sealed).decode()})
    return Spoken(block)


def _parsed(args: str) -> Any:
    try:
        return msgspec.json.decode(args) if args else {}
    except msgspec.DecodeError:
        return {}


def _use_cache(ask: Ask, spoken: list[Spoken], reply: Reply) -> Usage:
    world, now = ask.world, ask.exchange.at
    workspace = ask.request.headers.get("anthropic-workspace-id", world.options.workspace)
    hashes = chain(ask.row, ask.body, profile=ask.profile, workspace=workspace)
    hit = world.cache.use(
        ask.row,
        hashes,
        low=ask.profile.cache_min,
        now=now,
        start=now + world.options.first_byte,
    )
    said = sum(_said_tokens(part) for part in spoken)
    thought = sum(_said_tokens(p) for p in spoken if p.block.get("type") == "thinking")
    said = int(reply.usage.get("output_tokens", said))
    usage = msgspec.structs.replace(hit.usage, output=said, reasoning=thought)
    ask.exchange.usage = usage
    ask.exchange.cost = ask.profile.bill(usage, speed=ask.body.get("speed") or "standard")
    return usage


def _said_tokens(part: Spoken) -> int:
    if part.args:
        return tokens(str(part.block.get("name", ""))) + tokens(part.args)
    return block_tokens(part.block)


def _message(ask: Ask, reply: Reply, *, spoken: list[Spoken], usage: Usage) -> Json:
    calls = any(part.block.get("type") == "tool_use" for part in spoken)
    return {
        "id": ask.world.name("msg_", ask.exchange),
        "type": "message",
        "role": "assistant",
        "model": ask.profile.id,
        "content": [part.block for part in spoken],
        "stop_reason": reply.stop or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "stop_details": reply.details,
        "container": None,
        "usage": {**usage_json(usage), **reply.usage},
    }
