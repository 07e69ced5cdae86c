"""A server of tools at an address of this machine, as the SDK makes them."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from pydantic import BaseModel


class Name(BaseModel):
    name: str


def _who() -> Elicit[Name]:
    return Elicit("Who?", Name)


@contextmanager
def elsewhere(port: int, kind: str = "http") -> Generator[MCPServer]:
    """The server while it runs; when the block is left, it breaks off whatever it does."""
    server = MCPServer("elsewhere", log_level="CRITICAL")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def header(name: str, ctx: Context) -> str:
        return (ctx.headers or {}).get(name, "")

    @server.tool()
    async def hang() -> None:
        running.should_exit = True
        await anyio.sleep_forever()

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(add, name="more")
        await ctx.notify_tools_changed()
        return "grown"

    @server.tool()
    async def who(name: Annotated[Name, Resolve(_who)]) -> str:
        return name.name

    app = server.streamable_http_app() if kind == "http" else server.sse_app()
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="critical"))
    running.force_exit = True
    thread = Thread(target=running.run)
    thread.start()
    await_port(port)
    try:
        yield server
    finally:
        running.should_exit = True
        thread.join()


def free_port() -> int:
    """A port for a server that comes and goes: none that the system gives to others meanwhile."""
    for port in random.sample(range(20_000, 32_000), 50):
        with suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            return port
    raise AssertionError("fifty ports are taken")


def await_port(port: int) -> None:
    """Wait until somebody listens there."""
    for _ in range(6_000):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on port {port}")
