"""Ollama's own API: builds request bodies (`OllamaEncoder`) and parses replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from travois.core.content import AnyBlock, Call, Media, Text, TextOrMedia, extract_text
from travois.core.facts import Epoch, Result
from travois.core.json import (
    JsonMembers,
    as_object,
    as_string,
    ensure_json_object,
    quote_json,
    read_count,
)
from travois.core.models import ModelCard
from travois.providers.http.sse import Event
from travois.providers.openai_chat import Chat, ChatReply, declared, decode, message, thought
from travois.providers.options import NO_WORDS, base64, further, note, tool_name
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import Head, Piece


class Ollama(Chat):
    """An encoder of chat messages without ids: results name their tool, arguments are objects."""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        super().__init__(epoch, fetch)
        self.head = _head(epoch)
        self._nothing = b'""'

    def _user(self, content: tuple[TextOrMedia, ...], *, before: str) -> Iterator[Piece]:
        """Encode text as one string, with the images beside it."""
        told, images = list[Text](), list[bytes]()
        for block in map(self._told, content):
            data = base64(block, self._fetch) if isinstance(block, Media) else None
            if data is not None:
                images.append(b'"' + data + b'"')
            else:
                told.append(block if isinstance(block, Text) else Text(note(block, "it is lost")))
        text = extract_text(tuple(told))
        said = b'{"role":"user","content":' + quote_json(text if text.strip() else NO_WORDS)
        shown = b',"images":[' + b",".join(images) + b"]" if images else b""
        yield Piece("user", said + shown + b"}")

    def _result(self, fact: Result, call: Call) -> Piece:
        said = b'{"role":"tool","tool_name":%s,"content":%s}'
        return Piece(
            "tool", said % (quote_json(tool_name(call.name)), quote_json(self._outcome(fact)))
        )

    def _reasoning(self, content: tuple[AnyBlock, ...]) -> JsonMembers:
        thoughts = thought(content).get("reasoning_content")
        return {} if thoughts is None else {"thinking": thoughts}

    def _call(self, call: Call) -> bytes:
        name, args = quote_json(tool_name(call.name)), ensure_json_object(call.args)
        return b'{"function":{"name":%s,"arguments":%s}}' % (name, args)


def _head(epoch: Epoch) -> Head:
    """Build the head of a request; without a window the server cuts prompts to a few thousand."""
    model = epoch.model
    tools = [declared(tool) for tool in epoch.tools]
    system = [message("system", quote_json(epoch.system))] if epoch.system.strip() else []
    sizes = b'"num_ctx":%d,"num_predict":%d' % (model.window, model.output)
    opening = b'{"model":' + quote_json(model.id) + b',"options":{' + sizes + b"}"
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    return Head(
        path="/api/chat",
        headers=(("content-type", "application/json"),),
        pieces=(*(Piece("tools", tool) for tool in tools), *system),
        opening=opening + b',"messages":[' + b"".join(piece.data for piece in system),
        closing=b'],"stream":true' + further(model) + b"}",
        role="system" if system else "",
    )


# Ollama's own API: how a reply is heard.


TOLD = ("error", "message", "done")
"""What a line that matters has one of."""


class OllamaReply:
    """A parser of Ollama's JSON lines, which say the same as chat chunks."""

    def __init__(self, model: ModelCard, *, size: int = 0) -> None:
        self._chat = ChatReply(model, size=size)
        self.done = False
        """Whether the server has said that nothing more comes."""

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Parse one line; anything after the end is ignored."""
        line = decode(event.data)
        if self.done or not any(name in line for name in TOLD):
            return
        yield from self._chat.take(_chunk(line))
        if line.get("done") is True:
            self.done = True
            yield from self._chat.event(Event("", b"[DONE]"))

    def whole(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        list(self.event(Event("", body)))

    def reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        return self._chat.reply()


def _chunk(line: dict[str, Any]) -> dict[str, Any]:
    """Convert a line to a chat completion chunk; calls get ids from its timestamp."""
    message = as_object(line.get("message"))
    counts = {
        "prompt_tokens": read_count(line, "prompt_eval_count"),
        "completion_tokens": read_count(line, "eval_count"),
    }
    delta = {**message, "reasoning": message.get("thinking")}
    finish = as_string(line.get("done_reason")) or ("stop" if line.get("done") else "")
    return {
        "id": as_string(line.get("created_at")),
        "model": line.get("model"),
        "choices": [{"delta": delta, "finish_reason": finish}],
        "usage": counts if line.get("done") else None,
        "error": line.get("error"),
    }
