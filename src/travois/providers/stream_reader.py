"""Reading streamed replies: picks the parser for a model's protocol and feeds it the body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, assert_never

from travois.core.models import ModelCard
from travois.lazy_imports import lazy_imports
from travois.providers.anthropic_reply import AnthropicReplyParser
from travois.providers.clouds import AwsEventStreamDecoder, CloudPlatform
from travois.providers.http.sse import JsonLinesDecoder, SseDecoder, SseEvent, StreamFraming
from travois.providers.replies import Reply, StreamDelta

with lazy_imports():
    from travois.providers import gemini, ollama, openai_chat, openai_responses


class ReplyReader(Protocol):
    """A reader of one response body; either method may raise `ApiError`."""

    @property
    def done(self) -> bool:
        """Return whether the reply is complete, though the body may go on."""
        ...

    def feed(self, chunk: bytes) -> list[StreamDelta]:
        """Take more bytes of the body and return the deltas they complete."""
        ...

    def finish(self) -> Reply:
        """Return the complete reply, once the body has ended."""
        ...


class ReplyParser(Protocol):
    """A parser of one provider format that builds up a reply."""

    done: bool

    def parse_event(self, event: SseEvent) -> Iterable[StreamDelta]:
        """Parse one event."""
        ...

    def parse_body(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        ...

    def build_reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        ...


def create_reply_reader(
    model: ModelCard, *, size: int = 0, surface: CloudPlatform = ""
) -> ReplyReader:
    """Create a reader for a model's streamed reply to a request of so many bytes.

    The size matters only where the server does not count tokens: the usage is then an estimate.
    """
    protocol = model.protocol
    match protocol:
        case "anthropic":
            frames = AwsEventStreamDecoder() if surface == "bedrock" else None
            return StreamReader(AnthropicReplyParser(size=size), frames)
        case "chat":
            return StreamReader(openai_chat.ChatReplyParser(model, size=size))
        case "responses":
            return StreamReader(openai_responses.ResponsesReplyParser(size=size))
        case "gemini":
            return StreamReader(gemini.GeminiReplyParser(size=size))
        case "ollama":
            return StreamReader(ollama.OllamaReplyParser(model, size=size), JsonLinesDecoder())
        case _:
            assert_never(protocol)


class StreamReader:
    """A reader of server-sent events, or of one JSON object where a gateway does not stream.

    Where the framing is known to be another one, it is given.
    """

    def __init__(self, growing: ReplyParser, frames: StreamFraming | None = None) -> None:
        self._growing = growing
        self._frames = frames
        self._body = bytearray()
        self._start = b""

    @property
    def done(self) -> bool:
        """Return whether the reply is complete, though the body may go on."""
        return self._growing.done

    def feed(self, chunk: bytes) -> list[StreamDelta]:
        """Take more bytes; the first that is not white space shows the kind of body."""
        if self._frames is not None:
            return self._parse_events(self._frames.feed(chunk))
        self._body += chunk
        self._start = self._start or chunk.lstrip()[:1]
        if self._start in (b"", b"{"):
            return []
        self._frames = SseDecoder()
        return self._parse_events(self._frames.feed(bytes(self._body)))

    def finish(self) -> Reply:
        """Return the complete reply."""
        if self._frames is not None:
            self._parse_events(self._frames.finish())
        elif self._body:
            self._growing.parse_body(bytes(self._body))
        return self._growing.build_reply()

    def _parse_events(self, events: list[SseEvent]) -> list[StreamDelta]:
        return [delta for event in events for delta in self._growing.parse_event(event)]
