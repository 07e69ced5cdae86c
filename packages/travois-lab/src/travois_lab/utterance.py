"""A reply in the shapes of chat completions: one JSON object, or its stream of chunks."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from travois.core.models import Usage
from travois_lab.dialects import Dialect
from travois_lab.exchange import Exchange
from travois_lab.objects import Json
from travois_lab.plain import args_text
from travois_lab.stream import Event, chunk, cut
from travois_lab.talk import Pace, Reply
from travois_lab.tokens import compact
from travois_lab.world import World

CREATED = 1767225600
FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "refusal": "content_filter",
    "model_context_window_exceeded": "length",
}


class Utterance(msgspec.Struct, frozen=True):
    """What is said, taken apart the way chat completions need it."""

    id: str
    model: str
    text: str
    thinking: str
    calls: tuple[Json, ...]
    finish: str
    accent: Dialect

    @classmethod
    def of(cls, reply: Reply, *, world: World, exchange: Exchange, accent: Dialect) -> Utterance:
        """A reply taken apart."""
        texts = [str(b["text"]) for b in reply.blocks if b.get("type") == "text"]
        thoughts = [str(b["thinking"]) for b in reply.blocks if b.get("type") == "thinking"]
        used = [b for b in reply.blocks if b.get("type") == "tool_use"]
        calls = tuple(_call(block, i, world, exchange, accent) for i, block in enumerate(used))
        if accent.calls_as_text:
            texts += [_as_text(block) for block in used]
            calls = ()
        finish = FINISH.get(reply.stop, reply.stop) or "stop"
        if calls and not (reply.stop and reply.stop != "tool_use"):
            finish = accent.finish
        id = world.name("chatcmpl-", exchange)
        said = "".join(texts)
        return cls(id, exchange.model, said, "".join(thoughts), calls, finish, accent)


def _as_text(block: Json) -> str:
    call = {"name": block.get("name"), "arguments": block.get("input", {})}
    return f"<tool_call>{compact(call)}</tool_call>"


def _call(block: Json, index: int, world: World, exchange: Exchange, accent: Dialect) -> Json:
    args: Any = args_text(block) if accent.args == "text" else block.get("input", {})
    call: Json = {
        "id": block.get("id") or world.name("call_", exchange, index),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": args},
    }
    if accent.ids == "nine":
        call["id"] = blake2b(str(call["id"]).encode(), digest_size=5).hexdigest()[:9]
    if accent.ids == "none":
        del call["id"]
    if accent.signatures and index == 0:
        signature = exchange.digest.hex()
        call["extra_content"] = {"google": {"thought_signature": signature}}
    return call


def usage_json(usage: Usage, accent: Dialect) -> Json:
    """Token counts as this server reports them."""
    counted: Json = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "total_tokens": usage.context,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
    if accent.cache_fields == "details":
        details = {"cached_tokens": usage.read, "cache_write_tokens": usage.write}
        counted["prompt_tokens_details"] = details
    if accent.cache_fields == "deepseek":
        counted["prompt_cache_hit_tokens"] = usage.read
        counted["prompt_cache_miss_tokens"] = usage.prompt - usage.read
    return counted


def _reasoning(said: Utterance, words: str) -> Json:
    fields: Json = {}
    for name in said.accent.reasoning:
        detail = {"type": "reasoning.text", "text": words, "index": 0, "format": "lab"}
        fields[name] = [detail] if name == "reasoning_details" else words
    return fields


def completion(said: Utterance, usage: Usage) -> Json:
    """The whole reply as one object."""
    message: Json = {"role": "assistant", "content": said.text or None, "refusal": None}
    if said.thinking:
        message |= _reasoning(said, said.thinking)
    if said.calls:
        message["tool_calls"] = list(said.calls)
    choice = {"index": 0, "message": message, "finish_reason": said.finish, "logprobs": None}
    whole: Json = {
        "id": said.id,
        "object": "chat.completion",
        "created": CREATED,
        "model": said.model,
        "choices": [choice],
    }
    if said.accent.usage != "never":
        whole["usage"] = usage_json(usage, said.accent)
    if said.accent.cache_fields == "timings":
        whole["timings"] = {"cache_n": usage.read, "prompt_n": usage.prompt - usage.read}
    return whole


def chunks(
    said: Utterance, usage: Usage, *, pace: Pace, asked: Literal["yes", "no"]
) -> list[Event]:
    """The reply as a stream."""
    comments = [Event("comment", said.accent.comment.encode())] if said.accent.comment else []
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [
        _reasoning(said, piece) for piece in cut(said.thinking, pace) if said.accent.reasoning
    ]
    deltas += [{"content": piece} for piece in cut(said.text, pace)]
    for index, call in enumerate(said.calls):
        where = 0 if said.accent.index == "zero" else index
        deltas += [{"tool_calls": [{"index": where, **part}]} for part in _parts(call, pace)]
    events = [_chunk(said, [_choice(delta)]) for delta in deltas]
    return [*comments, *events, *_endings(said, usage, asked), Event("[DONE]", b"data: [DONE]\n\n")]


def _parts(call: Json, pace: Pace) -> Iterator[Json]:
    args = call["function"]["arguments"]
    if not isinstance(args, str):
        yield call
        return
    yield {**call, "function": {"name": call["function"]["name"], "arguments": ""}}
    for piece in cut(args, pace):
        yield {"function": {"arguments": piece}}


def _choice(delta: Json, finish: str | None = None) -> Json:
    return {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}


def _chunk(said: Utterance, choices: list[Json], **more: object) -> Event:
    head: Json = {
        "id": said.id,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": said.model,
        "choices": choices,
    }
    return chunk("chunk", head | more)


def _endings(said: Utterance, usage: Usage, asked: str) -> Iterator[Event]:
    """The finish, and the token counts where this server puts them."""
    counted = usage_json(usage, said.accent)
    last = _choice({}, said.finish)
    match said.accent.usage:
        case "choice":
            yield _chunk(said, [{**last, "usage": counted}])
        case "x_groq":
            yield _chunk(said, [last], x_groq={"id": said.id, "usage": counted})
        case "always":
            yield _chunk(said, [last])
            yield _chunk(said, [], usage=counted)
        case "asked":
            yield _chunk(said, [last])
            if asked == "yes":
                yield _chunk(said, [], usage=counted)
        case "never":
            yield _chunk(said, [last])
