"""What the protocols without cache markers have in common, from admission to accounting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from travois.core.models import Usage
from travois_lab.exchange import Exchange
from travois_lab.faults import Rule, Shape, refuse, tamper
from travois_lab.http import Request, Response, reply_json
from travois_lab.objects import Json, is_list, is_object
from travois_lab.positions import Position, locate
from travois_lab.profiles import Profile
from travois_lab.refusal import Refusal
from travois_lab.stream import Event, Item, paced
from travois_lab.talk import Prompt, Reply
from travois_lab.tokens import IMAGE, block_tokens, compact, tokens
from travois_lab.world import World

Headers = tuple[tuple[str, str], ...]
SSE = ("content-type", "text/event-stream; charset=utf-8")


class Talked(msgspec.Struct, frozen=True):
    """What the model said to a request, and what it took."""

    reply: Reply
    usage: Usage
    rules: list[Rule]


def parse(request: Request) -> Json:
    """The body of a request."""
    try:
        body: Any = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise Refusal(f"We could not parse the JSON body of your request: {error}") from None
    if not is_object(body):
        raise Refusal("We expected the body of your request to be a JSON object")
    return body


def check_key(world: World, key: str) -> None:
    """Refuse a key that is not on the list, if there is a list."""
    if world.options.keys and key not in world.options.keys:
        details = {"code": "invalid_api_key"}
        raise Refusal("Incorrect API key provided", status=401, details=details)


def converse(
    world: World,
    prompt: Prompt,
    *,
    exchange: Exchange,
    row: list[Position],
    profile: Profile,
    overflow: Callable[[int], None],
    salt: str = "",
    life: float = 1800.0,
) -> Talked | Response:
    """Let faults happen, the prompt overflow, the model speak; and write it all down."""
    rules = world.faults.pick(exchange.path, exchange.model)
    exchange.faults = tuple(rule.action for rule in rules)
    page = refuse(rules)
    if page is not None:
        exchange.status = page.status
        return page
    world.ledger.place(exchange, row)
    overflow(sum(position.tokens for position in row))
    reply = world.answer(prompt)
    if reply.error is not None:
        refuse([Rule("http", reply.error)])
    usage = world.prefixes.use(row, salt=exchange.model + salt, now=exchange.at, life=life)
    if not profile.price.write:
        usage = msgspec.structs.replace(usage, input=usage.input + usage.write, write=0)
    usage = _said(reply, usage)
    exchange.usage, exchange.cost = usage, profile.bill(usage)
    exchange.reply, exchange.stop = reply.blocks, reply.stop
    return Talked(reply, usage, rules)


def _said(reply: Reply, usage: Usage) -> Usage:
    thought = [block for block in reply.blocks if block.get("type") == "thinking"]
    counted = sum(_tokens(block) for block in reply.blocks)
    said = int(reply.usage.get("output_tokens", counted))
    return msgspec.structs.replace(usage, output=said, reasoning=sum(map(_tokens, thought)))


def _tokens(block: Json) -> int:
    if "args" in block:
        return tokens(str(block.get("name", ""))) + tokens(str(block["args"]))
    return block_tokens(block)


def send_whole(value: Json, talked: Talked, shape: Shape, *, headers: Headers = ()) -> Response:
    """The answer as one JSON object, faults included."""
    whole = reply_json(value, headers=headers)
    items: list[Item] = [Event("body", step) for step in whole.steps if isinstance(step, bytes)]
    return tamper(whole, items, rules=talked.rules, shape=shape)


def send_stream(
    events: list[Event], talked: Talked, shape: Shape, *, headers: Headers = (SSE,)
) -> Response:
    """The answer as a stream, faults included."""
    answer = Response(200, headers, (), "chunked")
    return tamper(answer, paced(events, talked.reply.pace), rules=talked.rules, shape=shape)


def any_profile(world: World, model: str) -> Profile:
    """The model of that id; any other is one of some unknown, unpriced kind."""
    try:
        return world.profile(model)
    except Refusal:
        return Profile(model, family="openai", window=200_000)


def tool_positions(tools: list[Any]) -> list[Position]:
    """Tools in the order sent."""
    made: list[Position] = []
    for i, tool in enumerate(tools):
        raw = msgspec.json.encode(tool)
        made.append(locate("tools", f"tools[{i}]", "tool", b"tool\0" + raw, tokens(raw.decode())))
    return made


def _parts(content: Any) -> list[Json]:
    return [part for part in content if is_object(part)] if is_list(content) else []


def parts_tokens(content: Any) -> int:
    """Content that is a text or a list of parts."""
    if isinstance(content, str):
        return tokens(content)
    return sum(tokens(str(p["text"])) if "text" in p else IMAGE for p in _parts(content))


def parts_blocks(content: Any) -> list[Json]:
    """Content that is a text or a list of parts, as blocks."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [
        {"type": "text", "text": str(part["text"])} if "text" in part else {"type": "image"}
        for part in _parts(content)
    ]


def args_of(value: Any) -> Json:
    """The arguments of a call, whether they came as an object or as JSON text."""
    try:
        parsed = msgspec.json.decode(value or "{}") if isinstance(value, str) else value
    except msgspec.DecodeError:
        return {}
    return parsed if is_object(parsed) else {}


def args_text(block: Json) -> str:
    """The arguments of a call as JSON text, valid or not."""
    return str(block.get("args", compact(block.get("input", {}))))
