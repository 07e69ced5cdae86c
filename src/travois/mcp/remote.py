"""Servers at an address: the way there, with what lets us in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.mcp.lenders import Server
from travois.mcp.oauth import wanted
from travois.ports.world import Command, Processes

if TYPE_CHECKING:
    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

    from travois.mcp.oauth_provider import Granted

REFUSED, UNKNOWN = frozenset((401, 403)), 404
REFUSAL = "it refuses the Authorization that is configured for it"
SESSION = "mcp-session-id"
PATIENCE = 10.0
"""How many seconds a command has that prints headers."""


@asynccontextmanager
async def remote(
    server: Server,
    *,
    auth: Granted | None = None,
    headers: dict[str, str] | None = None,
    forgotten: Callable[[], None] = lambda: None,
    ended: Callable[[], None] = lambda: None,
) -> AsyncGenerator[TransportStreams]:
    """The way to a server by HTTP.

    `forgotten` is called when it knows nothing of us any more, `ended` when its line is cut.
    """
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    told = {**server.headers, **(headers or {})}

    async def heed(response: httpx2.Response) -> None:
        if auth is None and response.status_code in REFUSED:
            ours = "authorization" in map(str.lower, told)
            raise PermissionError(REFUSAL if ours else wanted(server))
        if auth is not None:
            auth.heed(response)
        if response.status_code == UNKNOWN and SESSION in response.request.headers:
            forgotten()

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        made = create_mcp_http_client(headers, timeout, auth)
        made.event_hooks = {"response": [heed]}
        return made

    if server.kind == "sse":
        sse = sse_client(server.url, told, httpx_client_factory=client, auth=auth)
        async with sse as (read, write), _watched(read, ended) as heard:
            yield heard, write
        return
    async with (
        client(told, auth=auth) as http,
        streamable_http_client(server.url, http_client=http) as (read, write),
    ):
        yield read, write


@asynccontextmanager
async def _watched(
    read: ReadStream[SessionMessage | Exception], ended: Callable[[], None]
) -> AsyncGenerator[MemoryObjectReceiveStream[SessionMessage | Exception]]:
    """The same messages; that there will be no more is told, which the SDK keeps to itself."""
    bring, heard = anyio.create_memory_object_stream["SessionMessage | Exception"](0)

    async def pass_on() -> None:
        async with bring:
            async for message in read:
                await bring.send(message)
        ended()

    async with heard, anyio.create_task_group() as group:
        group.start_soon(pass_on)
        yield heard
        group.cancel_scope.cancel()


async def asked(server: Server, processes: Processes) -> dict[str, str]:
    """The headers that a command of the user's prints; raises OSError if it prints none."""
    known = {"MCP_SERVER_NAME": server.name, "MCP_SERVER_URL": server.url}
    env = known | {f"CLAUDE_CODE_{name}": value for name, value in known.items()}
    command = Command(("/bin/sh", "-c", server.helper), server.cwd, env, stderr="apart")
    done = await processes.run(command, timeout=PATIENCE)
    try:
        return msgspec.json.decode(done.output.joined(), type=dict[str, str])
    except msgspec.DecodeError:
        why = f"its headersHelper printed no JSON of headers (exit {done.status})"
        raise OSError(why) from None
