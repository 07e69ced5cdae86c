"""OpenAI Responses: how a reply is heard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.core.content import AnyBlock, Call, Opaque, Text, calls
from travois.core.facts import Stop
from travois.core.json import Members, joined, members, number, rows, string, table
from travois.core.models import Usage
from travois.providers.chat_calls import arguments, made_id
from travois.providers.chat_reply import decode
from travois.providers.errors import streamed
from travois.providers.http.sse import Event
from travois.providers.openai_responses import BESIDE, FREEFORM, INPUT, MINE
from travois.providers.replies import (
    Began,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Problem,
    Reply,
    StreamDelta,
)
from travois.providers.usage import guess
from travois.providers.web_search import annotated, merged

KINDS: dict[str, BlockKind] = {
    "message": "text",
    "function_call": "call",
    "custom_tool_call": "call",
    "reasoning": "thinking",
}
GROWS: dict[str, BlockKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
CUT: dict[str, Stop] = {"max_output_tokens": "length", "content_filter": "refusal"}
OWN = frozenset(("id", "type", "status", "role", "content", "call_id", "name", "arguments"))
"""Members of an item that are kept as ours, or that name it only within one reply."""


class ResponsesReply:
    """A reply while it is being said."""

    def __init__(self, *, size: int = 0) -> None:
        self._size = size
        self._items: dict[int, bytes] = {}
        self._whole: dict[str, Any] = {}
        self.done = False
        """Whether the server has said that nothing more comes."""

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Take one more event; what comes after the end is not looked at."""
        data = event.data.strip()
        if self.done or not data or data == b"[DONE]":
            return
        told = decode(data)
        kind = string(told.get("type")) or event.name
        index = number(told, "output_index")
        if grown := GROWS.get(kind):
            yield Grew(index, grown, string(told.get("delta")))
            return
        match kind:
            case "error":
                raise streamed(told.get("error") or told, protocol="responses")
            case "response.created":
                begun = table(told.get("response"))
                yield Began(string(begun.get("id")), string(begun.get("model")))
            case "response.output_item.added":
                yield _began(index, table(told.get("item")))
            case "response.reasoning_summary_part.added" if number(told, "summary_index"):
                yield Grew(index, "thinking", "\n\n")
            case "response.output_item.done":
                self._items[index] = bytes(members(data)["item"])
                yield BlockEnded(index)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(bytes(members(data)["response"]))
            case _:
                pass

    def whole(self, body: bytes) -> None:
        """Take a reply that was not streamed."""
        self._end(body)

    def reply(self) -> Reply:
        """What was said, once all of it was."""
        if not self.done:
            raise Problem("garbled", "The stream ended before the reply was whole.")
        id, whole = string(self._whole.get("id")), self._whole
        found = [b for n, item in sorted(self._items.items()) for b in _blocks(item, f"{id}/{n}")]
        content, refusal = tuple(found), _refused(self._items)
        reason = string(table(whole.get("incomplete_details")).get("reason"))
        stop: Stop = CUT.get(reason, "unknown") if reason else "end"
        if refusal:
            stop = "refusal"
        elif stop == "end" and calls(content):
            stop = "calls"
        usage = _usage(table(whole.get("usage"))) or guess(content, size=self._size)
        usage = msgspec.structs.replace(usage, searches=_searches(content))
        model, detail = string(whole.get("model")), refusal or ("" if reason in CUT else reason)
        hits = merged(annotated(_message_parts(self._items)))
        return Reply(content, stop, usage, id=id, model=model, detail=detail, hits=hits)

    def _end(self, body: bytes) -> None:
        """Items that came one by one are the better ones; else those of the whole."""
        self._whole = decode(body)
        error = self._whole.get("error")
        if error or self._whole.get("status") in ("failed", "cancelled"):
            raise streamed(error or "The response failed.", protocol="responses")
        if not isinstance(self._whole.get("output"), list):
            raise Problem("garbled", "The answer is not a response: it has no output.")
        if not self._items:
            given = msgspec.json.decode(members(body)["output"], type=list[msgspec.Raw])
            self._items = {n: bytes(item) for n, item in enumerate(given)}
        self.done = True


def _began(index: int, item: dict[str, Any]) -> BlockBegan:
    kind = KINDS.get(string(item.get("type")), "other")
    return BlockBegan(index, kind, id=string(item.get("call_id")), name=string(item.get("name")))


def _blocks(data: bytes, where: str) -> Iterator[AnyBlock]:
    """One output item as blocks; what is not ours to read is kept as it came."""
    item = decode(data)
    kind = string(item.get("type"))
    match kind:
        case "message":
            if rest := _rest(members(data)):
                yield Opaque(MINE, BESIDE, "{" + joined(rest) + "}")
            if text := "".join(_words(item)):
                yield Text(text)
        case "function_call":
            rest = _rest(members(data))
            extra = f'"{MINE}":{{{joined(rest)}}}' if rest else ""
            id = string(item.get("call_id")) or made_id(where, 0)
            args = arguments(string(item.get("arguments")))
            yield Call(id, string(item.get("name")), args, extra=extra)
        case "custom_tool_call":
            id = string(item.get("call_id")) or made_id(where, 0)
            args = msgspec.json.encode({INPUT: string(item.get("input"))}).decode()
            yield Call(id, string(item.get("name")), args, extra=FREEFORM)
        case "reasoning":
            told = (*rows(item.get("summary")), *rows(item.get("content")))
            text = "\n\n".join(string(table(part).get("text")) for part in told)
            yield Opaque(MINE, "sealed", data.decode(), text)
        case _:
            yield Opaque(MINE, kind, data.decode())


def _rest(inside: Members) -> Members:
    return {k: v for k, v in inside.items() if k not in OWN and bytes(v) != b"null"}


def _words(item: dict[str, Any]) -> Iterator[str]:
    for part in map(table, rows(item.get("content"))):
        yield string(part.get("text")) + string(part.get("refusal"))


def _refused(items: dict[int, bytes]) -> str:
    return "".join(string(table(part).get("refusal")) for part in _message_parts(items))


def _message_parts(items: dict[int, bytes]) -> list[object]:
    return [part for data in items.values() for part in rows(decode(data).get("content"))]


def _searches(content: tuple[AnyBlock, ...]) -> int:
    return sum(isinstance(b, Opaque) and b.kind == "web_search_call" for b in content)


def _usage(usage: dict[str, Any]) -> Usage | None:
    """The counts without overlap; None if there are none."""
    prompt, output = number(usage, "input_tokens"), number(usage, "output_tokens")
    if not prompt and not output:
        return None
    inside = table(usage.get("input_tokens_details"))
    read = min(prompt, number(inside, "cached_tokens"))
    write = min(prompt - read, number(inside, "cache_write_tokens"))
    reasoning = number(table(usage.get("output_tokens_details")), "reasoning_tokens")
    return Usage(prompt - read - write, read=read, write=write, output=output, reasoning=reasoning)
