"""OpenAI chat completions and its dialects: how a reply is heard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.core.content import AnyBlock, Call, Opaque, Text, calls
from travois.core.facts import Stop
from travois.core.json import number, rows, string, table
from travois.core.models import Model, Usage
from travois.providers.chat_calls import Calls
from travois.providers.errors import streamed
from travois.providers.http.sse import Event
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
from travois.providers.text_calls import split
from travois.providers.usage import guess
from travois.providers.web_search import annotated, merged

STOPS: dict[str, Stop] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "refusal",
    "model_context_window_exceeded": "window",
}
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text")
GROWING = ("text", "summary", "data")
"""Members of a reasoning detail that come in parts."""

_chunks = msgspec.json.Decoder(dict[str, Any])


class ChatReply:
    """A reply while it is being said."""

    def __init__(self, model: Model, *, size: int = 0) -> None:
        self._size = size
        self._text_calls = "text-calls" in model.quirks
        self._id = ""
        self._model = ""
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._details: list[dict[str, Any]] = []
        self._refusal: list[str] = []
        self._calls = Calls()
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self.done = False
        """Whether the server has said that nothing more comes."""
        self._began = False
        self._notes: list[dict[str, Any]] = []
        """Parts that say where the words come from."""
        self._blocks: list[tuple[BlockKind, object]] = []

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Take one more chunk; what comes after the end is not looked at."""
        data = event.data.strip()
        if self.done or not data:
            return
        if data == b"[DONE]":
            self.done = True
            yield from self._end()
            return
        chunk = decode(data)
        if event.name == "error" and "error" not in chunk:
            chunk = {"error": chunk}
        yield from self.take(chunk)

    def whole(self, body: bytes) -> None:
        """Take a reply that was not streamed."""
        chunk = decode(body)
        list(self.take(chunk))
        self.done = bool(chunk.get("choices"))

    def reply(self) -> Reply:
        """What was said, once all of it was."""
        if not self.done and not self._finish:
            raise Problem("garbled", "The stream ended before the reply was whole.")
        stop = STOPS.get(self._finish, "unknown")
        if self._refusal:
            stop = "refusal"
        asked, cut = self._calls.made(self._id, cut=stop in ("length", "window"))
        content = self._content(asked if stop != "refusal" else ())
        if calls(content) and not cut:
            stop = "calls"
        elif stop == "calls":
            stop = "end"
        usage = _usage(self._usage) or guess(content, size=self._size)
        hits = merged(annotated(self._notes))
        return Reply(
            content,
            stop,
            usage,
            id=self._id,
            model=self._model,
            detail=self._detail(),
            hits=hits,
        )

    def take(self, chunk: dict[str, Any]) -> Iterator[StreamDelta]:
        """Take one more chunk that has been read."""
        choice = table(next(iter(rows(chunk.get("choices"))), None))
        groq = table(chunk.get("x_groq"))
        error = chunk.get("error") or choice.get("error") or groq.get("error")
        if error:
            raise streamed(error, protocol="chat")
        yield from self._begin(chunk)
        for usage in (groq.get("usage"), choice.get("usage"), chunk.get("usage")):
            self._usage = table(usage) or self._usage
        if number(choice, "index") == 0:
            yield from self._grow(table(choice.get("delta")) or table(choice.get("message")))
            self._finish = string(choice.get("finish_reason")) or self._finish

    def _begin(self, chunk: dict[str, Any]) -> Iterator[StreamDelta]:
        self._id = self._id or string(chunk.get("id"))
        self._model = self._model or string(chunk.get("model"))
        if not self._began:
            self._began = True
            yield Began(self._id, self._model)

    def _grow(self, delta: dict[str, Any]) -> Iterator[StreamDelta]:
        self._notes += [delta] if delta.get("annotations") else []
        thoughts, text = _parts(delta.get("content"))
        thoughts += next((t for name in THOUGHTS if (t := string(delta.get(name)))), "")
        self._add_details(delta.get("reasoning_details"))
        if thoughts:
            self._thoughts.append(thoughts)
            yield from self._show("thinking", None, text=thoughts)
        refusal = string(delta.get("refusal"))
        if refusal:
            self._refusal.append(refusal)
        if text or refusal:
            self._text.append(text + refusal)
            yield from self._show("text", None, text=text + refusal)
        for call in _call_deltas(delta):
            key, grown = self._calls.take(call, reply=self._id)
            yield from self._show("call", key, text=grown)

    def _show(self, kind: BlockKind, key: object, *, text: str) -> Iterator[StreamDelta]:
        block = (kind, key)
        if block not in self._blocks:
            yield from self._end()
            self._blocks.append(block)
            id, name = self._calls.named(key) if kind == "call" else ("", "")
            yield BlockBegan(len(self._blocks) - 1, kind, id=id, name=name)
        if text:
            yield Grew(self._blocks.index(block), kind, text)

    def _end(self) -> Iterator[StreamDelta]:
        if self._blocks:
            yield BlockEnded(len(self._blocks) - 1)

    def _add_details(self, details: object) -> None:
        """Fragments of one detail follow each other under one type and index."""
        for part in map(table, rows(details)):
            last = self._details[-1] if self._details else {}
            same = (part.get("type"), part.get("index")) == (last.get("type"), last.get("index"))
            if not last or not same:
                self._details.append(dict(part))
                continue
            grown = {k: string(last.get(k)) + part[k] for k in GROWING if string(part.get(k))}
            last |= {k: v for k, v in part.items() if v is not None} | grown

    def _content(self, asked: tuple[Call, ...]) -> tuple[AnyBlock, ...]:
        text, thoughts = "".join(self._text), "".join(self._thoughts)
        if self._text_calls and not asked:
            text, asked = split(text, reply=self._id)
        kept: dict[str, Any] = {"reasoning_content": thoughts} if thoughts else {}
        if self._details:
            kept["reasoning_details"] = self._details
        content: list[AnyBlock] = []
        if kept:
            raw = msgspec.json.encode(kept).decode()
            content.append(Opaque("chat", "reasoning", raw, thoughts))
        if text:
            content.append(Text(text))
        return (*content, *asked)

    def _detail(self) -> str:
        if self._refusal:
            return "".join(self._refusal)
        return "" if self._finish in STOPS else self._finish


def decode(data: bytes) -> dict[str, Any]:
    """One event of a stream as an object; raises `Problem`."""
    try:
        return _chunks.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("garbled", f"A chunk of the stream is not an object: {error}") from error


def _parts(content: object) -> tuple[str, str]:
    """Thoughts and words of a content that may be a string or a list of parts."""
    parts = [table(part) for part in rows(content)]
    thoughts = "".join(_parts(part.get("thinking"))[1] for part in parts)
    return thoughts, string(content) + "".join(string(part.get("text")) for part in parts)


def _call_deltas(delta: dict[str, Any]) -> list[dict[str, Any]]:
    if delta.get("function_call"):
        return [{"function": delta["function_call"]}]
    return [table(call) for call in rows(delta.get("tool_calls"))]


def _usage(usage: dict[str, Any]) -> Usage | None:
    """The counts without overlap; None if there are none."""
    prompt, output = number(usage, "prompt_tokens"), number(usage, "completion_tokens")
    if not prompt and not output:
        return None
    inside = table(usage.get("prompt_tokens_details"))
    read = number(inside, "cached_tokens") or number(usage, "cached_tokens")
    read = min(prompt, read or number(usage, "prompt_cache_hit_tokens"))
    write = min(prompt - read, number(inside, "cache_write_tokens"))
    reasoning = number(table(usage.get("completion_tokens_details")), "reasoning_tokens")
    apart = number(usage, "total_tokens") == prompt + output + reasoning
    return Usage(
        input=prompt - read - write,
        read=read,
        write=write,
        output=output + reasoning if apart else output,
        reasoning=reasoning,
    )
