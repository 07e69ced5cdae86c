"""Gemini's generateContent, with its thought signatures."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from travois.core.models import Usage
from travois_lab.exchange import Exchange
from travois_lab.faults import Shape
from travois_lab.http import Request, Response, reply_json
from travois_lab.objects import Json, inner, is_object, listed, objects
from travois_lab.plain import (
    Talked,
    any_profile,
    args_of,
    check_key,
    converse,
    parse,
    send_stream,
    send_whole,
    tool_positions,
)
from travois_lab.positions import Position, locate
from travois_lab.profiles import Profile
from travois_lab.refusal import Refusal
from travois_lab.stream import Event, chunk, cut
from travois_lab.talk import Prompt, Reply
from travois_lab.tokens import IMAGE, compact, tokens
from travois_lab.validate_items import gemini_faults
from travois_lab.world import World

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
FINISH = {"max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}


def error_body(refusal: Refusal) -> Json:
    """An error in Google's shape."""
    status = STATUS.get(refusal.status, "UNKNOWN")
    return {"error": {"code": refusal.status, "message": refusal.message, "status": status}}


SHAPE = Shape(
    ping=b": ping\n\n",
    unknown=b'data: {"labUnknown":true}\n\n',
    error=lambda refusal: b"data: %b\n\n" % msgspec.json.encode(error_body(refusal)),
    last="last",
)


def generate_content(world: World, request: Request) -> Response:
    """`POST /v1beta/models/{model}:generateContent`, `:streamGenerateContent`, `:countTokens`."""
    exchange = world.ledger.open(request, "gemini", at=world.clock.now())
    try:
        return _generate(world, request, exchange)
    except Refusal as refusal:
        exchange.status, exchange.error = refusal.status, f"{refusal.kind}: {refusal.message}"
        return reply_json(error_body(refusal), status=refusal.status, headers=refusal.headers)


def _generate(world: World, request: Request, exchange: Exchange) -> Response:
    check_key(world, request.headers.get("x-goog-api-key", "") or request.query.get("key", ""))
    body = parse(request)
    exchange.model, _, verb = request.path.rpartition("/")[2].partition(":")
    contents = objects(body, "contents")
    if verb == "countTokens":
        return reply_json({"totalTokens": sum(p.tokens for p in _row(body, contents))})
    exchange.invalid = (*_unsigned(contents), *gemini_faults(request.body))
    if exchange.invalid:
        raise Refusal(exchange.invalid[0])
    profile = any_profile(world, exchange.model)
    talked = converse(
        world,
        prompt_of(exchange, body, contents),
        exchange=exchange,
        row=_row(body, contents),
        profile=profile,
        overflow=partial(_overflow, profile=profile),
    )
    if not isinstance(talked, Talked):
        return talked
    parts = list(_parts(talked.reply, exchange))
    exchange.stop = FINISH.get(talked.reply.stop, "STOP")
    if verb != "streamGenerateContent":
        return send_whole(_answer(exchange, parts, talked, finish=exchange.stop), talked, SHAPE)
    return _streamed(request, exchange, parts, talked)


def _streamed(request: Request, exchange: Exchange, parts: list[Json], talked: Talked) -> Response:
    pieces = [piece for part in parts for piece in _cut(part, talked)] or [{"text": ""}]
    rows = [_answer(exchange, [piece], talked, finish="") for piece in pieces[:-1]]
    rows.append(_answer(exchange, pieces[-1:], talked, finish=exchange.stop))
    if request.query.get("alt") != "sse":
        listed_ = Event("body", msgspec.json.encode(rows))
        return send_stream(
            [listed_], talked, SHAPE, headers=(("content-type", "application/json"),)
        )
    names = ["chunk"] * (len(rows) - 1) + ["last"]
    return send_stream([chunk(n, row) for n, row in zip(names, rows, strict=True)], talked, SHAPE)


def _cut(part: Json, talked: Talked) -> list[Json]:
    if "text" not in part:
        return [part]
    return [{**part, "text": piece} for piece in cut(part["text"], talked.reply.pace)]


def _overflow(total: int, *, profile: Profile) -> None:
    if total > profile.window:
        raise Refusal(
            f"The input token count ({total}) exceeds the maximum number of tokens allowed "
            f"({profile.window})."
        )


def _parts(reply: Reply, exchange: Exchange) -> Iterator[Json]:
    signature = exchange.digest.hex()
    for block in reply.blocks:
        match block.get("type"):
            case "thinking":
                yield {"text": block.get("thinking", ""), "thought": True}
            case "tool_use":
                call = {"name": block.get("name"), "args": block.get("input", {})}
                signed = {"thoughtSignature": signature} if signature else {}
                signature = ""
                yield {"functionCall": call, **signed}
            case "server_tool_use" | "web_search_tool_result":
                continue
            case _:
                yield {"text": block.get("text", "")}


def _answer(exchange: Exchange, parts: list[Json], talked: Talked, *, finish: str) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
        candidate |= _grounds(talked.reply)
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(talked.usage),
        "modelVersion": exchange.model,
        "responseId": exchange.digest.hex()[:16],
    }


def _grounds(reply: Reply) -> Json:
    """What a reply rests on, where the model searched for it."""
    searches = [b for b in reply.blocks if b.get("type") == "server_tool_use"]
    cited = [c for b in reply.blocks for c in objects(b, "citations")]
    webs = [{"web": {"uri": c.get("url"), "title": c.get("title")}} for c in cited]
    supports = [
        {"segment": {"text": c.get("cited_text")}, "groundingChunkIndices": [i]}
        for i, c in enumerate(cited)
    ]
    queries = [inner(block, "input").get("query") for block in searches]
    told = {"webSearchQueries": queries, "groundingChunks": webs, "groundingSupports": supports}
    return {"groundingMetadata": told} if queries else {}


def _usage(usage: Usage) -> Json:
    return {
        "promptTokenCount": usage.prompt,
        "cachedContentTokenCount": usage.read,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.context,
    }


# --- reading --------------------------------------------------------------------------------------


def _unsigned(contents: list[Json]) -> Iterator[str]:
    """The first call of each step of the current turn must bring its signature back."""
    spoken = [
        i
        for i, content in enumerate(contents)
        if content.get("role") == "user" and any("text" in p for p in objects(content, "parts"))
    ]
    for i, content in enumerate(contents):
        calls = [part for part in objects(content, "parts") if "functionCall" in part]
        if calls and i > max(spoken, default=-1) and not calls[0].get("thoughtSignature"):
            name = inner(calls[0], "functionCall").get("name")
            yield (
                f"Function call `{name}` in the {i + 1}. content block is missing a "
                "thought_signature in functionCall parts."
            )


def _row(body: Json, contents: list[Json]) -> list[Position]:
    row = tool_positions(listed(body, "tools"))
    system = _text(inner(body, "systemInstruction"))
    if system:
        data = b"system\0" + system.encode()
        row.append(locate("system", "systemInstruction", "text", data, tokens(system)))
    for i, content in enumerate(contents):
        data = str(content.get("role")).encode() + b"\0" + msgspec.json.encode(content)
        count = sum(_part_tokens(part) for part in objects(content, "parts"))
        row.append(locate("messages", f"contents[{i}]", "content", data, count))
    return row


def _part_tokens(part: Json) -> int:
    if "text" in part:
        return tokens(str(part["text"]))
    return IMAGE if "inlineData" in part else tokens(compact(part))


def _text(content: Json) -> str:
    return "\n".join(str(part["text"]) for part in objects(content, "parts") if "text" in part)


def prompt_of(exchange: Exchange, body: Json, contents: list[Json]) -> Prompt:
    """The request as the model reads it."""
    declared = [
        {**function, "input_schema": function.get("parametersJsonSchema")}
        for tool in objects(body, "tools")
        for function in objects(tool, "functionDeclarations")
    ]
    return Prompt(
        "gemini",
        exchange.model,
        [_message(content) for content in contents],
        system=_text(inner(body, "systemInstruction")),
        tools=tuple(declared),
        body=body,
        n=exchange.n,
    )


def _message(content: Json) -> Json:
    role = "assistant" if content.get("role") == "model" else "user"
    return {"role": role, "content": [_block(part) for part in objects(content, "parts")]}


def _block(part: Json) -> Json:
    """Calls and results pair by name where they have no id."""
    if is_object(call := part.get("functionCall")):
        id = call.get("id") or call.get("name")
        args: Any = call.get("args")
        return {"type": "tool_use", "id": id, "name": call.get("name"), "input": args_of(args)}
    if is_object(result := part.get("functionResponse")):
        id = result.get("id") or result.get("name")
        said = compact(result.get("response"))
        return {"type": "tool_result", "tool_use_id": id, "content": said}
    if part.get("thought"):
        return {"type": "thinking", "thinking": part.get("text", "")}
    return {"type": "text", "text": part["text"]} if "text" in part else {"type": "image"}
