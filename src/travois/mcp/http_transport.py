"""MCP servers at an address: HTTP transports and headers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.lazy_imports import lazy_imports
from travois.mcp.oauth import login_hint
from travois.mcp.tools import McpServerConfig
from travois.ports.world import Command, Processes

if TYPE_CHECKING:
    import httpx2
    from anyio.streams.memory import MemoryObjectReceiveStream
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage


with lazy_imports():
    from mcp.client import sse as client_sse
    from mcp.client import streamable_http
    from mcp.shared import _httpx_utils


REFUSED_STATUSES = frozenset((401, 403))
SESSION_UNKNOWN_STATUS = 404
AUTHORIZATION_REFUSED = "it rejects the configured Authorization header"
SESSION_HEADER = "mcp-session-id"
HEADERS_TIMEOUT_SECONDS = 10.0
"""Seconds that a headers command may take."""


@asynccontextmanager
async def connect_remote(
    server: McpServerConfig,
    *,
    auth: httpx2.Auth | None = None,
    check: Callable[[httpx2.Response], None] = lambda response: None,
    headers: dict[str, str] | None = None,
    forgotten: Callable[[], None] = lambda: None,
    ended: Callable[[], None] = lambda: None,
) -> AsyncGenerator[TransportStreams]:
    """Connect to a remote MCP server by HTTP.

    `check` is called with each response, `forgotten` when the server no longer knows our session,
    `ended` when its stream ends.
    """
    told = {**server.headers, **(headers or {})}

    async def check_status(response: httpx2.Response) -> None:
        if auth is None and response.status_code in REFUSED_STATUSES:
            ours = "authorization" in map(str.lower, told)
            raise PermissionError(AUTHORIZATION_REFUSED if ours else login_hint(server))
        check(response)
        if (
            response.status_code == SESSION_UNKNOWN_STATUS
            and SESSION_HEADER in response.request.headers
        ):
            forgotten()

    def create_client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        made = _httpx_utils.create_mcp_http_client(headers, timeout, auth)
        made.event_hooks = {"response": [check_status]}
        return made

    if server.kind == "sse":
        sse = client_sse.sse_client(server.url, told, httpx_client_factory=create_client, auth=auth)
        async with sse as (read, write), _watch_stream_end(read, ended) as heard:
            yield heard, write
        return
    async with (
        create_client(told, auth=auth) as http,
        streamable_http.streamable_http_client(server.url, http_client=http) as (read, write),
    ):
        yield read, write


@asynccontextmanager
async def _watch_stream_end(
    read: ReadStream[SessionMessage | Exception], ended: Callable[[], None]
) -> AsyncGenerator[MemoryObjectReceiveStream[SessionMessage | Exception]]:
    """Forward a remote MCP server's messages, and report the end of its stream."""
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


async def run_headers_helper(server: McpServerConfig, processes: Processes) -> dict[str, str]:
    """Run the user's command that prints HTTP headers for an MCP server; raises OSError if none."""
    known = {"MCP_SERVER_NAME": server.name, "MCP_SERVER_URL": server.url}
    env = known | {f"CLAUDE_CODE_{name}": value for name, value in known.items()}
    command = Command(("/bin/sh", "-c", server.helper), server.cwd, env, stderr="apart")
    done = await processes.run(command, timeout=HEADERS_TIMEOUT_SECONDS)
    try:
        return msgspec.json.decode(done.output.head_and_tail(), type=dict[str, str])
    except msgspec.DecodeError:
        why = f"its headersHelper did not print headers as JSON (exit code {done.status})"
        raise OSError(why) from None
