"""The door of this room for replies: bytes go in, deltas and one reply come out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, assert_never

from travois.core.models import Model
from travois.providers.anthropic_reply import AnthropicReply
from travois.providers.clouds import EventStream, Surface
from travois.providers.gemini import GeminiReply
from travois.providers.http.sse import Event, Frames, Framing, Lines
from travois.providers.ollama import OllamaReply
from travois.providers.openai_chat import ChatReply
from travois.providers.openai_responses import ResponsesReply
from travois.providers.replies import Reply, StreamDelta


class Reader(Protocol):
    """Reads one answer. Either method may raise `Problem`."""

    @property
    def done(self) -> bool:
        """Whether the reply is whole, though the body may go on."""
        ...

    def feed(self, chunk: bytes) -> list[StreamDelta]:
        """Take more bytes of the body; gives what there is to see of them."""
        ...

    def reply(self) -> Reply:
        """The whole reply, once the body has ended."""
        ...


class Growing(Protocol):
    """A reply of one protocol while it is being said."""

    done: bool

    def event(self, event: Event) -> Iterable[StreamDelta]:
        """Take one more event."""
        ...

    def whole(self, body: bytes) -> None:
        """Take a reply that was not streamed."""
        ...

    def reply(self) -> Reply:
        """What was said; raises `Problem` if it is not whole."""
        ...


def reader(model: Model, *, size: int = 0, surface: Surface = "") -> Reader:
    """A reader for one answer of this model to a request of so many bytes.

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
    """Reads server-sent events, or one JSON object where a gateway does not stream.

    Where the framing is known to be another one, it is given.
    """

    def __init__(self, growing: Growing, frames: Framing | None = None) -> None:
        self._growing = growing
        self._frames = frames
        self._body = bytearray()
        self._start = b""

    @property
    def done(self) -> bool:
        """Whether the reply is whole, though the body may go on."""
        return self._growing.done

    def feed(self, chunk: bytes) -> list[StreamDelta]:
        """Take more bytes; the first one that is not white tells which kind of body it is."""
        if self._frames is not None:
            return self._take(self._frames.feed(chunk))
        self._body += chunk
        self._start = self._start or chunk.lstrip()[:1]
        if self._start in (b"", b"{"):
            return []
        self._frames = Frames()
        return self._take(self._frames.feed(bytes(self._body)))

    def reply(self) -> Reply:
        """The whole reply."""
        if self._frames is not None:
            self._take(self._frames.finish())
        elif self._body:
            self._growing.whole(bytes(self._body))
        return self._growing.reply()

    def _take(self, events: list[Event]) -> list[StreamDelta]:
        return [delta for event in events for delta in self._growing.event(event)]
