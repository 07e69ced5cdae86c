"""A scripted model for tests of agents; nothing leaves the process.

model = Scripted(call("Read", file_path="a.txt"), say("It is empty."))
async with Session(Options(model=model)) as session:
    assert await session.ask("what is in a.txt?") == "It is empty."
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager

import anyio.lowlevel
import msgspec

from travois.core.content import AnyBlock, Call, Text
from travois.core.models import Usage
from travois.providers.replies import (
    ApiError,
    ApiErrorKind,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
)
from travois.providers.request import Request

__all__ = ["ScriptLine", "Scripted", "call", "calls", "fail", "refuse", "say"]

ScriptLine = Reply | ApiError | Callable[[Request], "Reply | ApiError"]


def say(text: str, *, usage: Usage | None = None) -> Reply:
    """Return a scripted reply that is text and ends the turn."""
    return Reply((Text(text),), stop="end", usage=usage or Usage(input=10, output=5))


def call(tool: str, /, **args: object) -> Reply:
    """Return a scripted reply that calls one tool."""
    return calls((tool, args))


def calls(*wanted: tuple[str, dict[str, object]], text: str = "") -> Reply:
    """Return a reply that calls several tools at once; the session makes up their ids."""
    asked = tuple(Call("", name, msgspec.json.encode(args).decode()) for name, args in wanted)
    said: tuple[AnyBlock, ...] = (Text(text),) if text else ()
    return Reply((*said, *asked), stop="calls", usage=Usage(input=10, output=5))


def fail(kind: ApiErrorKind, message: str = "", *, status: int = 0) -> ApiError:
    """Return a scripted failure of the API, such as `fail("auth", status=401)`; no retries."""
    return ApiError(kind, message or f"scripted failure: {kind}", status=status, retry=False)


def refuse(text: str = "") -> Reply:
    """Return a scripted reply in which the model declines to answer."""
    return Reply((Text(text),) if text else (), stop="refusal", usage=Usage(input=10, output=5))


class Scripted:
    """A model that gives its replies in order, the last one repeatedly."""

    def __init__(
        self, *lines: ScriptLine, judge: Callable[[bytes], list[str]] | None = None
    ) -> None:
        self.requests: list[Request] = []
        self._lines = lines
        self._judge = judge
        """Finds fault with a request's body; see `travois_lab.validate`."""

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Give the next reply."""
        faults = self._judge(request.body) if self._judge else []
        assert not faults, faults
        line = self._lines[min(len(self.requests), len(self._lines) - 1)]
        self.requests.append(request)
        said = line if isinstance(line, Reply | ApiError) else line(request)
        if isinstance(said, ApiError):
            raise said
        async with aclosing(_stream_slowly(said, len(self.requests))) as stream:
            yield stream


async def _stream_slowly(reply: Reply, number: int) -> AsyncGenerator[StreamDelta | Reply]:
    """Yield scripted events with a pause before each, so that a test can stop the turn."""
    for event in _stream_events(reply, number):
        await anyio.lowlevel.checkpoint()
        yield event


def _stream_events(reply: Reply, number: int) -> Iterator[StreamDelta | Reply]:
    yield ReplyBegan(reply.id or f"msg_{number}", reply.model or "scripted")
    for index, block in enumerate(reply.content):
        kind, text = _kind_and_text(block)
        yield BlockBegan(index, kind, *((block.id, block.name) if isinstance(block, Call) else ()))
        yield Grew(index, kind, text)
        yield BlockEnded(index)
    yield reply


def _kind_and_text(block: AnyBlock) -> tuple[BlockKind, str]:
    match block:
        case Text():
            return "text", block.text
        case Call():
            return "call", block.args
        case _:
            return "other", ""
