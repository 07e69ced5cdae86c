"""OpenAI's Responses API: items in, items out, and compaction as an item."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from travois_lab.chat import SHAPE, error_body
from travois_lab.exchange import Exchange
from travois_lab.faults import Shape
from travois_lab.http import Request, Response, reply_json
from travois_lab.items import Output, response_events, response_json
from travois_lab.objects import Json, inner, is_object, listed, objects
from travois_lab.personas import HABITS
from travois_lab.plain import (
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
from travois_lab.seal import seal, unseal
from travois_lab.stream import sse
from travois_lab.talk import Prompt, Reply, block_text
from travois_lab.tokens import compact, tokens
from travois_lab.validate_items import responses_faults
from travois_lab.world import World

LIVES = {"30m": 1800.0, "12h": 43200.0}


CODES = ("server_error", "rate_limit_exceeded", "invalid_prompt", "misalignment_policy_violation")


def _failed(refusal: Refusal) -> bytes:
    if refusal.kind in CODES:
        error = {"code": refusal.kind, "message": refusal.message}
        head = {"id": "resp_lab", "object": "response", "created_at": 0, "model": "lab"}
        rest: Json = {"output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        whole = {**head, **rest, "status": "failed", "error": error}
        named = {"type": "response.failed", "sequence_number": 0, "response": whole}
        return sse("response.failed", named).raw
    error = {"type": "error", "code": refusal.kind, "message": refusal.message, "param": None}
    return sse("error", {**error, "sequence_number": 0}).raw


RESPONSES_SHAPE = Shape(SHAPE.ping, SHAPE.unknown, _failed, "response.completed")


def create_response(world: World, request: Request) -> Response:
    """`POST /v1/responses`."""
    return _guarded(world, request, _create)


def compact_response(world: World, request: Request) -> Response:
    """`POST /v1/responses/compact`."""
    return _guarded(world, request, _compact)


def show_response(world: World, request: Request) -> Response:
    """`GET /v1/responses/{id}`."""
    found = world.stored.get(request.path.rpartition("/")[2])
    if found is None:
        return reply_json(error_body(Refusal("Response not found.", status=404)), status=404)
    return reply_json(found["response"])


def _guarded(world: World, request: Request, answer: Any) -> Response:
    exchange = world.ledger.open(request, "responses", at=world.clock.now())
    try:
        check_key(world, request.headers.get("authorization", "").removeprefix("Bearer ").strip())
        body = parse(request)
        exchange.model = str(body.get("model", ""))
        return answer(world, exchange, body)
    except Refusal as refusal:
        exchange.status, exchange.error = refusal.status, f"{refusal.kind}: {refusal.message}"
        return reply_json(error_body(refusal), status=refusal.status, headers=refusal.headers)


def _create(world: World, exchange: Exchange, body: Json) -> Response:
    items = _input(world, body)
    exchange.invalid = tuple(responses_faults(msgspec.json.encode({**body, "input": items})))
    if exchange.invalid:
        raise Refusal(exchange.invalid[0], param="input")
    if any(item.get("type") == "compaction_trigger" for item in items[:-1]):
        raise Refusal("compaction_trigger must be the last input item", param="input")
    talked = _converse(world, exchange, body=body, items=items)
    if not isinstance(talked, Talked):
        return talked
    output = Output(world, exchange, body, talked.reply, talked.usage)
    whole = response_json(output)
    if body.get("store") is not False:
        world.stored[whole["id"]] = {"response": whole, "items": [*items, *whole["output"]]}
    exchange.stop = whole["status"]
    if not body.get("stream"):
        return send_whole(whole, talked, RESPONSES_SHAPE)
    events = response_events(output, whole)
    return send_stream(events, talked, RESPONSES_SHAPE)


def _converse(
    world: World, exchange: Exchange, *, body: Json, items: list[Json]
) -> Talked | Response:
    profile = any_profile(world, exchange.model)
    prompt = prompt_of(world, exchange, body=body, items=items)
    ttl = str(inner(body, "prompt_cache_options").get("ttl", "30m"))
    talked = converse(
        world,
        prompt,
        exchange=exchange,
        row=_row(body, items),
        profile=profile,
        overflow=partial(_overflow, profile=profile),
        salt=str(body.get("prompt_cache_key", "")),
        life=LIVES.get(ttl, 1800.0),
    )
    if isinstance(talked, Talked) and items and items[-1].get("type") == "compaction_trigger":
        return msgspec.structs.replace(talked, reply=Reply((_summary(world, prompt),)))
    return talked


def _overflow(total: int, *, profile: Profile) -> None:
    if total > profile.window:
        message = "Your input exceeds the context window of this model."
        details = {"code": "context_length_exceeded"}
        raise Refusal(message, details=details, param="input")


def _summary(world: World, prompt: Prompt) -> Json:
    asked = msgspec.structs.replace(prompt, purpose="compaction")
    reply = world.summarize(asked) or HABITS["lab-summarizer"](asked, 0)
    words = "\n".join(block_text(block) for block in reply.blocks)
    return {"type": "compaction", "content": words}


def _compact(world: World, exchange: Exchange, body: Json) -> Response:
    items = _input(world, body)
    prompt = prompt_of(world, exchange, body=body, items=items)
    summary = _summary(world, prompt)
    talked = Talked(Reply((summary,)), world.prefixes.use(
        _row(body, items), salt=exchange.model, now=exchange.at), [])  # fmt: skip
    usage = msgspec.structs.replace(talked.usage, output=tokens(summary["content"]))
    exchange.usage, exchange.cost = usage, any_profile(world, exchange.model).bill(usage)
    sealed = seal(summary["content"], seed=world.options.seed)
    item = {"type": "compaction", "id": world.name("cmp_", exchange), "encrypted_content": sealed}
    kept = [item for item in items if item.get("role") == "user"]
    output = Output(world, exchange, body, talked.reply, usage)
    whole = {
        "id": world.name("resp_", exchange),
        "object": "response.compaction",
        "created_at": 1767225600,
        "output": [*kept, item],
        "usage": output.usage_json(),
    }
    return send_whole(whole, talked, RESPONSES_SHAPE)


# --- reading --------------------------------------------------------------------------------------


def _input(world: World, body: Json) -> list[Json]:
    given = body.get("input")
    items = [_said("user", given)] if isinstance(given, str) else objects(body, "input")
    before = body.get("previous_response_id")
    if before is None:
        return items
    found = world.stored.get(str(before))
    if found is None:
        details = {"code": "previous_response_not_found"}
        message = f"Previous response with id '{before}' not found."
        raise Refusal(message, details=details, param="previous_response_id")
    return [*found["items"], *items]


def _said(role: str, words: str) -> Json:
    return {"type": "message", "role": role, "content": words}


def _row(body: Json, items: list[Json]) -> list[Position]:
    row = tool_positions(listed(body, "tools"))
    said = str(body.get("instructions") or "")
    if said:
        data = b"instructions\0" + said.encode()
        row.append(locate("system", "instructions", "text", data, tokens(said)))
    for i, item in enumerate(items):
        kind = str(item.get("type", "message"))
        plain = {k: v for k, v in item.items() if k not in ("id", "status")}
        data = kind.encode() + b"\0" + msgspec.json.encode(plain)
        row.append(locate("messages", f"input[{i}]", kind, data, _item_tokens(item)))
    return row


def _item_tokens(item: Json) -> int:
    if item.get("content") is not None and item.get("type") != "reasoning":
        return parts_tokens(item["content"])
    kept = {k: v for k, v in item.items() if k not in ("id", "status", "type")}
    return tokens(compact(kept))


def prompt_of(world: World, exchange: Exchange, *, body: Json, items: list[Json]) -> Prompt:
    """The request as the model reads it."""
    tools = [*objects(body, "tools"), *_added(items)]
    return Prompt(
        "responses",
        exchange.model,
        list(_messages(items, world.options.seed)),
        system=str(body.get("instructions") or ""),
        tools=tuple(
            {**tool, "input_schema": tool.get("parameters")} for tool in tools if "name" in tool
        ),
        body=body,
        n=exchange.n,
    )


def _added(items: list[Json]) -> list[Json]:
    added = [item for item in items if item.get("type") == "additional_tools"]
    return [tool for item in added for tool in objects(item, "tools")]


def _messages(items: list[Json], seed: int) -> Iterator[Json]:
    for item in items:
        role, block = _block(item, seed)
        if block is not None:
            yield {"role": role, "content": block if isinstance(block, list) else [block]}


def _block(item: Json, seed: int) -> tuple[str, Json | list[Json] | None]:
    match item.get("type", "message"):
        case "message":
            role = "assistant" if item.get("role") == "assistant" else "user"
            return role, parts_blocks(item.get("content"))
        case "function_call":
            use = {"type": "tool_use", "id": item.get("call_id"), "name": item.get("name")}
            return "assistant", {**use, "input": args_of(item.get("arguments"))}
        case "custom_tool_call":
            use = {"type": "tool_use", "id": item.get("call_id"), "name": item.get("name")}
            return "assistant", {**use, "input": {"input": item.get("input")}}
        case "function_call_output" | "custom_tool_call_output":
            content = parts_blocks(item.get("output"))
            id = item.get("call_id")
            return "user", {"type": "tool_result", "tool_use_id": id, "content": content}
        case "reasoning":
            return "assistant", {"type": "thinking", "thinking": _opened(item, seed)}
        case "compaction":
            return "user", {"type": "compaction", "content": _opened(item, seed)}
        case _:
            return "", None


def _opened(item: Json, seed: int) -> str:
    """What an encrypted item holds; refuses one that this lab did not make."""
    sealed = item.get("encrypted_content")
    if sealed is None:
        return ""
    words = unseal(sealed, seed=seed)
    if words is None or is_object(words):
        details = {"code": "invalid_encrypted_content"}
        id = item.get("id")
        raise Refusal(
            f"The encrypted content for item {id} could not be verified.", details=details
        )
    return str(words)
