"""The last steps of a Messages request: the model speaks, and its words are counted and sent."""

from __future__ import annotations

from typing import Any

import msgspec

from travois.core.models import Usage
from travois_lab.admission import Ask
from travois_lab.betas import BINDING
from travois_lab.binding import Chain, sign
from travois_lab.cache import chain as chain_names
from travois_lab.compaction import compacted
from travois_lab.diagnosis import diagnose
from travois_lab.faults import Rule, refuse, tamper
from travois_lab.http import Response, reply_json
from travois_lab.limits import limited
from travois_lab.message import CALLS, SHAPE, Spoken, events, usage_json
from travois_lab.objects import Json, inner, is_list, is_object, listed
from travois_lab.personas import HABITS
from travois_lab.positions import as_blocks, positions
from travois_lab.stream import Event, Item, paced
from travois_lab.talk import Prompt, Reply, flat
from travois_lab.tokens import block_tokens, compact, tokens
from travois_lab.toolset import offered

NO_SUMMARY = Reply((), stop="max_tokens")
"""The summary did not fit: an empty reply, with the reason that the summariser stopped."""
SSE = (("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache"))


def respond(ask: Ask) -> Response:
    """Let the model speak, and say it in the shape that was asked for."""
    summed = _summarize(ask)
    reply = _reply(ask)
    spoken = [_spoken(ask, block, index) for index, block in enumerate(reply.blocks)]
    usage = _count(ask, spoken, reply) if not _only_summary(ask) else Usage()
    message = _message(ask, reply, spoken=spoken, usage=usage)
    if summed is not None:
        rows = [{"type": "compaction", **_iteration(summed)}]
        rows += [] if _only_summary(ask) else [{"type": "message", **_iteration(usage)}]
        message["usage"]["iterations"] = rows
        usage = usage + summed
    _enter(ask, message, usage)
    return _sent(ask, message, spoken=spoken, reply=reply)


def prompt_of(ask: Ask) -> Prompt:
    """The request as the model reads it."""
    body = ask.rendered
    messages = [
        message
        if is_list(message.get("content"))
        else {**message, "content": as_blocks(message.get("content"))}
        for message in listed(body, "messages")
    ]
    return Prompt(
        "anthropic",
        ask.exchange.model,
        messages,
        system=flat(body.get("system")),
        tools=tuple(offered(body)),
        body=ask.body,
        n=ask.exchange.n,
    )


# --- what is said ---------------------------------------------------------------------------------


def _reply(ask: Ask) -> Reply:
    if ask.body.get("max_tokens") == 0:
        return Reply((), stop="max_tokens")
    if _only_summary(ask):
        return Reply((ask.summary,), stop="compaction") if ask.summary else NO_SUMMARY
    reply = ask.world.answer(prompt_of(ask))
    if reply.error is not None:
        refuse([Rule("http", reply.error)])
    reply, ask.stopped_by = limited(reply, ask.body)
    if ask.summary is not None:
        reply = msgspec.structs.replace(reply, blocks=(ask.summary, *reply.blocks))
    return reply


def _only_summary(ask: Ask) -> bool:
    paused = ask.compact is not None and bool(ask.compact.get("pause_after_compaction"))
    return ask.summary is not None and (paused or "compaction" in ask.body)


def _summarize(ask: Ask) -> Usage | None:
    """Compact the conversation where that was asked for; returns what it took."""
    demanded = bool(ask.body.get("compaction"))
    if not demanded and ask.compact is None:
        return None
    prompt = msgspec.structs.replace(prompt_of(ask), purpose="compaction")
    reply = ask.world.summarize(prompt) or HABITS["lab-summarizer"](prompt, 0)
    summary = "".join(str(block.get("text", "")) for block in reply.blocks)
    if demanded and tokens(summary) > int(ask.body.get("max_tokens") or 0):
        ask.summary, usage = {}, _use_cache(ask)
        return msgspec.structs.replace(usage, output=int(ask.body.get("max_tokens") or 0))
    if demanded:
        ask.summary = compacted(summary, ask.body, _chain(ask))
        usage = _use_cache(ask)
    else:
        usage = Usage(input=sum(position.tokens for position in ask.row))
        ask.summary = {"type": "compaction", "content": summary}
        head = {"role": "assistant", "content": [ask.summary]}
        last = [m for m in listed(ask.rendered, "messages") if m.get("role") == "user"][-1:]
        ask.rendered = {**ask.rendered, "messages": [head, *last]}
        ask.row = positions(ask.rendered)
    return msgspec.structs.replace(usage, output=tokens(summary))


def _chain(ask: Ask) -> Chain:
    """The name of the whole history, made when it is first needed."""
    if ask.chain is None:
        loose = frozenset(ask.world.loose)
        ask.chain = Chain(ask.body, seed=ask.world.options.seed, loose=loose)
        for message in listed(ask.body, "messages"):
            for block in as_blocks(message.get("content")):
                ask.chain.add(str(message.get("role")), block)
    return ask.chain


def _spoken(ask: Ask, block: Json, index: int) -> Spoken:
    kind = block.get("type")
    if kind in ("thinking", "redacted_thinking") and "signature" not in block:
        return Spoken(_thought(ask, block))
    spoken = Spoken(block)
    if kind in CALLS:
        args = str(block.get("args", compact(block.get("input", {}))))
        rest = {k: v for k, v in block.items() if k not in ("type", "args", "id", "name", "input")}
        id = block.get("id") or ask.world.name("toolu_", ask.exchange, index)
        parsed = _parsed(args)
        if parsed is None:
            ask.world.loose.add(id)
        whole: Json = {
            "type": kind,
            "id": id,
            "name": block.get("name"),
            "input": parsed or {},
            **rest,
        }
        spoken = Spoken(whole, args)
    if ask.chain is not None:
        ask.chain.loose = frozenset(ask.world.loose)
        ask.chain.add("assistant", spoken.block)
    return spoken


def _thought(ask: Ask, block: Json) -> Json:
    chain = _chain(ask)
    display = inner(ask.body, "thinking").get("display") or ask.profile.display
    shown = block if display != "omitted" else {**block, "thinking": ""}
    organization = ask.world.options.organization
    profile = ask.profile
    return sign(chain, shown, model=profile.id, rank=profile.rank, organization=organization)


def _parsed(args: str) -> Json | None:
    """The arguments of a call; None if they are not a JSON object."""
    try:
        value: Any = msgspec.json.decode(args or "{}")
    except msgspec.DecodeError:
        return None
    return value if is_object(value) else None


# --- what it cost ---------------------------------------------------------------------------------


def _use_cache(ask: Ask) -> Usage:
    world, now = ask.world, ask.exchange.at
    names = chain_names(ask.row, ask.rendered, profile=ask.profile, workspace=ask.workspace)
    start = now + world.options.first_byte
    return world.cache.use(ask.row, names, low=ask.profile.cache_min, now=now, start=start).usage


def _count(ask: Ask, spoken: list[Spoken], reply: Reply) -> Usage:
    said = sum(_said_tokens(part) for part in spoken if part.block.get("type") != "compaction")
    thought = sum(_said_tokens(p) for p in spoken if p.block.get("type") == "thinking")
    said = int(reply.usage.get("output_tokens", said))
    return msgspec.structs.replace(_use_cache(ask), output=said, reasoning=thought)


def _said_tokens(part: Spoken) -> int:
    if part.args:
        return tokens(str(part.block.get("name", ""))) + tokens(part.args)
    return block_tokens(part.block)


def _iteration(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.read,
        "cache_creation_input_tokens": usage.write + usage.write_1h,
    }


# --- how it leaves --------------------------------------------------------------------------------


def _message(ask: Ask, reply: Reply, *, spoken: list[Spoken], usage: Usage) -> Json:
    calls = any(part.block.get("type") == "tool_use" for part in spoken)
    message: Json = {
        "id": ask.world.name("msg_", ask.exchange),
        "type": "message",
        "role": "assistant",
        "model": ask.profile.id,
        "content": [part.block for part in spoken],
        "stop_reason": reply.stop or ("tool_use" if calls else "end_turn"),
        "stop_sequence": ask.stopped_by,
        "stop_details": reply.details,
        "container": None,
        "usage": {**usage_json(usage), **_searched(spoken), **reply.usage},
    }
    if ask.exchange.applied or "context_management" in ask.body:
        message["context_management"] = {"applied_edits": list(ask.exchange.applied)}
    if BINDING in ask.betas:
        message["input_transformations"] = list(ask.exchange.transformed)
    if "diagnostics" in ask.body:
        message["diagnostics"] = _diagnosis(ask)
    return message


def _searched(spoken: list[Spoken]) -> Json:
    """How often the model searched the web, where it did."""
    count = sum(part.block.get("name") == "web_search" for part in spoken)
    return {"server_tool_use": {"web_search_requests": count}} if count else {}


def _diagnosis(ask: Ask) -> Json | None:
    named = inner(ask.body, "diagnostics").get("previous_message_id")
    if named is None:
        return None
    return diagnose(ask.world.answered.get(str(named)), ask.exchange)


def _enter(ask: Ask, message: Json, usage: Usage) -> None:
    """Write the exchange down, before its first byte leaves."""
    world, exchange = ask.world, ask.exchange
    exchange.usage = usage
    speed, geo = ask.body.get("speed") or "standard", ask.body.get("inference_geo") or "global"
    exchange.cost = ask.profile.bill(usage, speed=speed, geo=geo)
    exchange.reply, exchange.stop = tuple(message["content"]), message["stop_reason"]
    world.limiter.settle(usage)
    world.answered[message["id"]] = exchange
    if "thread" in ask.body:
        reply: list[Json] = message["content"]
        world.threads.keep(message["id"], ask.body, reply=reply, betas=ask.betas, now=exchange.at)


def _headers(ask: Ask) -> tuple[tuple[str, str], ...]:
    world, exchange = ask.world, ask.exchange
    own = (
        ("request-id", world.name("req_", exchange)),
        ("anthropic-organization-id", world.options.organization),
    )
    return (*own, *world.limiter.headers(exchange.at))


def _sent(ask: Ask, message: Json, *, spoken: list[Spoken], reply: Reply) -> Response:
    headers = _headers(ask)
    if not ask.body.get("stream"):
        whole = reply_json(message, headers=headers)
        items: list[Item] = [Event("body", step) for step in whole.steps if isinstance(step, bytes)]
        return tamper(whole, items, rules=ask.rules, shape=SHAPE)
    answer = Response(200, (*SSE, *headers), (), "chunked")
    items = paced(events(message, spoken, reply.pace), reply.pace)
    return tamper(answer, items, rules=ask.rules, shape=SHAPE)
