"""Models that a program or package brings: one method, from a request to pieces of a reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol, runtime_checkable

import msgspec

from travois.core.content import AnyBlock, Call, Text
from travois.core.json import as_list, as_object
from travois.core.models import Usage
from travois.core.tokens import estimate_tokens
from travois.providers.replies import BlockBegan, BlockEnded, Grew, Reply, ReplyBegan, StreamDelta
from travois.providers.request import Request


class ModelRequest(msgspec.Struct, frozen=True):
    """A request to a custom model, in the format of Anthropic's Messages API."""

    model: str
    system: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    max_tokens: int


class ModelToolCall(msgspec.Struct, frozen=True):
    """A tool call in the reply of a custom model."""

    name: str
    input: Mapping[str, Any] = {}


class ModelReply(msgspec.Struct, frozen=True):
    """The end of a custom model's reply: what it calls, and what it used."""

    tool_calls: tuple[ModelToolCall, ...] = ()
    input_tokens: int = 0
    """The tokens of the request; estimated if zero."""
    output_tokens: int = 0


@runtime_checkable
class ModelProvider(Protocol):
    """A model of a program's own. An async generator fits."""

    def reply(self, request: ModelRequest) -> AsyncIterator[str | ModelReply]:
        """Yield the text as it comes, and at the end a `ModelReply` if there is more to say.

        Raise `ProviderError` to say that the request failed, and whether to try again.
        """
        ...


ProviderFactory = Callable[[str], ModelProvider]
"""Makes a provider's model by its id: the part of `provider/id` after the slash."""


class CustomModel:
    """A custom model as the engine asks one."""

    def __init__(self, provider: ModelProvider) -> None:
        self._provider = provider
        self._count = 0

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send a request; the last thing yielded is the reply."""
        self._count += 1
        async with aclosing(self._stream_reply(read_request(request.body))) as stream:
            yield stream

    async def _stream_reply(self, asked: ModelRequest) -> AsyncGenerator[StreamDelta | Reply]:
        end, texts = ModelReply(), list[str]()
        yield ReplyBegan(f"custom_{self._count}", asked.model)
        yield BlockBegan(0, "text")
        async for piece in self._provider.reply(asked):
            if isinstance(piece, ModelReply):
                end = piece
            elif piece:
                texts.append(piece)
                yield Grew(0, "text", piece)
        yield BlockEnded(0)
        for index, call in enumerate(end.tool_calls, 1):
            yield BlockBegan(index, "call", name=call.name)
            yield BlockEnded(index)
        yield _build_custom_reply("".join(texts), end, asked)


def read_request(body: bytes) -> ModelRequest:
    """Read the request that a custom model is sent."""
    asked = as_object(msgspec.json.decode(body))
    system = [as_object(one).get("text", "") for one in as_list(asked.get("system"))]
    return ModelRequest(
        str(asked.get("model", "")),
        "\n\n".join(map(str, system)),
        [as_object(one) for one in as_list(asked.get("messages"))],
        [as_object(one) for one in as_list(asked.get("tools"))],
        int(asked.get("max_tokens") or 0),
    )


def _build_custom_reply(text: str, end: ModelReply, asked: ModelRequest) -> Reply:
    calls = [
        Call("", call.name, msgspec.json.encode(call.input).decode()) for call in end.tool_calls
    ]
    content: tuple[AnyBlock, ...] = (*((Text(text),) if text else ()), *calls)
    usage = Usage(
        input=end.input_tokens or estimate_tokens(msgspec.json.encode(asked).decode()),
        output=end.output_tokens or estimate_tokens(text),
        estimated=not (end.input_tokens and end.output_tokens),
    )
    return Reply(content, stop="calls" if calls else "end", usage=usage, model=asked.model)
