"""Ollama's own API: how a reply is heard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from travois.core.json import number, string, table
from travois.core.models import Model
from travois.providers.chat_reply import ChatReply, decode
from travois.providers.http.sse import Event
from travois.providers.replies import Reply, StreamDelta

TOLD = ("error", "message", "done")
"""What a line that matters has one of."""


class OllamaReply:
    """A reply while it is being said: lines that say what chunks of a chat say."""

    def __init__(self, model: Model, *, size: int = 0) -> None:
        self._chat = ChatReply(model, size=size)
        self.done = False
        """Whether the server has said that nothing more comes."""

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Take one more line; what comes after the end is not looked at."""
        line = decode(event.data)
        if self.done or not any(name in line for name in TOLD):
            return
        yield from self._chat.take(_chunk(line))
        if line.get("done") is True:
            self.done = True
            yield from self._chat.event(Event("", b"[DONE]"))

    def whole(self, body: bytes) -> None:
        """Take a reply that was not streamed."""
        list(self.event(Event("", body)))

    def reply(self) -> Reply:
        """What was said, once all of it was."""
        return self._chat.reply()


def _chunk(line: dict[str, Any]) -> dict[str, Any]:
    """The same as a chunk of a chat completion; calls get their ids from when it was said."""
    message = table(line.get("message"))
    counts = {
        "prompt_tokens": number(line, "prompt_eval_count"),
        "completion_tokens": number(line, "eval_count"),
    }
    delta = {**message, "reasoning": message.get("thinking")}
    finish = string(line.get("done_reason")) or ("stop" if line.get("done") else "")
    return {
        "id": string(line.get("created_at")),
        "model": line.get("model"),
        "choices": [{"delta": delta, "finish_reason": finish}],
        "usage": counts if line.get("done") else None,
        "error": line.get("error"),
    }
