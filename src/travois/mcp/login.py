"""A login by browser: the server's page asks the person, and what they grant comes back to us."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.stapled import MultiListener

from travois.mcp.oauth import PORT, Coming
from travois.mcp.remote import remote
from travois.mcp.sdk import failures, loaded, worded
from travois.mcp.tools import Server

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

PATIENCE = 300.0
LATE = "nobody let Travois in for five minutes"
PAGE = "<!doctype html><title>Travois</title><p>{}\n"
HEAD = "HTTP/1.1 {}\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n"
SCREENS = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables that tell of a browser which is not this terminal."""
LOCAL = ("127.0.0.1", "localhost", "::1")


async def login(server: Server, folder: Path, show: Callable[[str], None]) -> str:
    """Ask the person by their browser; returns why that failed, if it did."""
    if why := loaded():
        return why
    try:
        with anyio.fail_after(PATIENCE):
            await _let_in(server, folder, show)
    except TimeoutError:
        return LATE
    except (ExceptionGroup, *failures()) as error:
        return worded(error)
    return ""


async def _let_in(server: Server, folder: Path, show: Callable[[str], None]) -> None:
    from mcp import Client
    from travois.mcp.oauth_provider import Granted

    async with waiting(server, show) as door:
        kept = Coming(folder, server)
        auth = Granted(server, kept, port=door.port, show=door.open, code=door.returned)
        async with Client(remote(server, auth=auth)):
            return


class Door:
    """Where the browser comes back to, and what it brings."""

    def __init__(self, port: int, show: Callable[[str], None]) -> None:
        self.port = port
        self._show = show
        self._state = ""
        self._came = anyio.Event()
        self._brought: dict[str, str] = {}

    async def open(self, url: str) -> None:
        """Send the person to a page, which must be one that nobody can listen in on."""
        from mcp.client.auth import OAuthFlowError

        there = urlsplit(url)
        if there.scheme != "https" and there.hostname not in LOCAL:
            raise OAuthFlowError(f"its page to log in is not safe: {there.scheme}://{there.netloc}")
        self._state = parse_qs(there.query).get("state", [""])[0]
        self._show(f"Open this page to let Travois in:\n{url}")
        if sys.platform == "darwin" or any(os.environ.get(name) for name in SCREENS):
            await anyio.to_thread.run_sync(_browse, url, abandon_on_cancel=True)

    async def answer(self, stream: SocketStream) -> None:
        """Take what a browser brings; whoever does not know the state is not ours."""
        gone = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
        with suppress(*gone):  # browsers open more connections than they use
            async with stream:
                await self._answered(stream)

    async def _answered(self, stream: SocketStream) -> None:
        line = (await stream.receive(8192)).partition(b"\r\n")[0].decode(errors="replace")
        asked = urlsplit(line.split(" ")[1] if " " in line else "")
        brought = {key: values[0] for key, values in parse_qs(asked.query).items()}
        ours = asked.path == "/callback" and brought.get("state") == self._state != ""
        page = PAGE.format("You can close this page." if ours else "This is not what we wait for.")
        head = HEAD.format("200 OK" if ours else "400 Bad Request", len(page))
        await stream.send((head + page).encode())
        if ours:
            self._brought = brought
            self._came.set()

    async def returned(self) -> AuthorizationCodeResult:
        """What the browser brings back to this machine."""
        from mcp.client.auth import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        await self._came.wait()
        brought = self._brought
        if "code" not in brought:
            why = brought.get("error_description") or brought.get("error", "it gave no reason")
            raise OAuthFlowError(f"it did not let us in: {why}")
        return AuthorizationCodeResult(
            code=brought["code"], state=brought.get("state"), iss=brought.get("iss")
        )


@asynccontextmanager
async def waiting(server: Server, show: Callable[[str], None]) -> AsyncGenerator[Door]:
    """Listen on this machine for a browser, before anybody is sent anywhere."""
    async with await _listener(server) as listener, anyio.create_task_group() as group:
        door = Door(listener.extra(SocketAttribute.local_port), show)  # noqa: S610 - not Django's
        group.start_soon(listener.serve, door.answer)
        yield door
        group.cancel_scope.cancel()


async def _listener(server: Server) -> MultiListener[SocketStream]:
    """At the usual port, or at any if that is taken and nothing says that it must be this one."""
    try:
        return await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=server.port or PORT
        )
    except OSError:
        if server.port:
            raise
        return await anyio.create_tcp_listener(local_host="127.0.0.1")


def _browse(url: str) -> None:
    from webbrowser import open as show

    show(url)
