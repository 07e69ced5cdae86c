"""A model behind HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from time import time

from travois.host.catalog import Endpoint
from travois.host.http import Response, Transport
from travois.kernel.models import Model
from travois.wire.errors import problem
from travois.wire.pieces import Request
from travois.wire.protocol import reader
from travois.wire.replies import Problem, Reply, StreamDelta

ERROR_BODY = 1 << 20
"""How much of an error's body is worth reading."""


class HttpModel:
    """One model at one endpoint, over one transport."""

    def __init__(self, model: Model, endpoint: Endpoint, transport: Transport) -> None:
        self._model = model
        self._endpoint = endpoint
        self._transport = transport
        self._size = 0

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[StreamDelta | Reply]]:
        """Send the request; the last thing yielded is the reply. Raises `Problem`."""
        headers = (("content-type", "application/json"), *request.headers, *self._endpoint.headers)
        url, self._size = self._endpoint.url + request.path, len(request.body)
        async with self._transport.post(url, headers=headers, body=request.body) as response:
            if response.status != 200:
                raise problem(
                    response.status,
                    response.headers,
                    body=await _body(response),
                    protocol=self._model.protocol,
                    now=time(),
                )
            async with aclosing(self._events(response)) as events:
                yield events

    async def _events(self, response: Response) -> AsyncGenerator[StreamDelta | Reply]:
        reading, broken = reader(self._model, size=self._size), None
        try:
            async for chunk in response.chunks:
                for delta in reading.feed(chunk):
                    yield delta
        except Problem as problem:
            broken = problem  # what came before may be whole all the same
        try:
            yield reading.reply()
        except Problem as unfinished:
            raise broken or unfinished from None


async def _body(response: Response) -> bytes:
    body = b""
    async for chunk in response.chunks:
        body += chunk
        if len(body) > ERROR_BODY:
            break
    return body
