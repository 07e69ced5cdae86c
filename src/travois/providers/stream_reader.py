"""Streamed replies: picks the parser for a model's protocol and feeds it the response body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, assert_never

from travois.core.models import ModelCard
from travois.providers.anthropic_reply import AnthropicReply
from travois.providers.clouds import EventStream, Surface
from travois.providers.gemini import GeminiReply
from travois.providers.http.sse import Event, Frames, Framing, Lines
from travois.providers.ollama import OllamaReply
from travois.providers.openai_chat import ChatReply
from travois.providers.openai_responses import ResponsesReply
from travois.providers.replies import Reply, StreamDelta


class Reader(Protocol):
    """A reader of one response body; either method may raise `ApiError`."""

    @property
    def done(self) -> bool:
        """Whether the reply is complete, though the body may go on."""
        ...

    def feed(self, chunk: bytes) -> list[StreamDelta]:
        """Take more bytes of the body and return the deltas they complete."""
        ...

    def reply(self) -> Reply:
        """Return the complete reply, once the body has ended."""
        ...


class Growing(Protocol):
    """A parser of one provider format that builds up a reply."""

    done: bool

    def event(self, event: Event) -> Iterable[StreamDelta]:
        """Parse one event."""
        ...

    def whole(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        ...

    def reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        ...


def reader(model: ModelCard, *, size: int = 0, surface: Surface = "") -> Reader:
    """Create a reader for the response of this model to a request of so many bytes.

    The size matters only where the server does not count: the usage is then an estimate.
    """
    protocol = model.protocol
    match protocol:
        case "anthropic":
            frames = EventStream() if surface == "bedrock" else None
            return StreamReader(AnthropicReply(size=size), frames)
        case "chat":
            return StreamReader(ChatReply(model, size=size))
        case "responses":
            return StreamReader(ResponsesReply(size=size))
        case "gemini":
            return StreamReader(GeminiReply(size=size))
        case "ollama":
            return StreamReader(OllamaReply(model, size=size), Lines())
        case _:
            assert_never(protocol)


class StreamReader:
    """A reader of server-sent events, or of one JSON object where a gateway does not stream.

    Where the framing is known to be another one, it is given.
    """

    def __init__(self, growing: Growing, frames: Framing | None = None) -> None:
        self._growing = growing
        self._frames = frames
        self._body = bytearray()
        self._start = b""

    @property
    def done(self) -> bool:
        """Whether the reply is complete, though the body may go on."""
        return self._growing.done

    def feed(self, chunk: bytes) -> list[StreamDelta]:
        """Take more bytes; the first that is not white space shows the kind of body."""
        if self._frames is not None:
            return self._take(self._frames.feed(chunk))
        self._body += chunk
        self._start = self._start or chunk.lstrip()[:1]
        if self._start in (b"", b"{"):
            return []
        self._frames = Frames()
        return self._take(self._frames.feed(bytes(self._body)))

    def reply(self) -> Reply:
        """Return the complete reply."""
        if self._frames is not None:
            self._take(self._frames.finish())
        elif self._body:
            self._growing.whole(bytes(self._body))
        return self._growing.reply()

    def _take(self, events: list[Event]) -> list[StreamDelta]:
        return [delta for event in events for delta in self._growing.event(event)]
