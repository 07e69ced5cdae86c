"""OAuth login in a browser, with a callback on this machine."""

from __future__ import annotations

import os
import sys
import webbrowser
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
LATE = "nobody completed the login within five minutes"
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
    """The local endpoint that the browser returns to after a login."""

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
            raise OAuthFlowError(f"its login page is not secure: {there.scheme}://{there.netloc}")
        self._state = parse_qs(there.query).get("state", [""])[0]
        self._show(f"Open this page to log in:\n{url}")
        if sys.platform == "darwin" or any(os.environ.get(name) for name in SCREENS):
            await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)

    async def answer(self, stream: SocketStream) -> None:
        """Handle a connection from a browser; requests without our state are rejected."""
        gone = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
        with suppress(*gone):  # browsers open more connections than they use
            async with stream:
                await self._answered(stream)

    async def _answered(self, stream: SocketStream) -> None:
        line = (await stream.receive(8192)).partition(b"\r\n")[0].decode(errors="replace")
        asked = urlsplit(line.split(" ")[1] if " " in line else "")
        brought = {key: values[0] for key, values in parse_qs(asked.query).items()}
        ours = asked.path == "/callback" and brought.get("state") == self._state != ""
        page = PAGE.format("You can close this page." if ours else "This login was not expected.")
        head = HEAD.format("200 OK" if ours else "400 Bad Request", len(page))
        await stream.send((head + page).encode())
        if ours:
            self._brought = brought
            self._came.set()

    async def returned(self) -> AuthorizationCodeResult:
        """Wait for the authorization code that the browser brings back."""
        from mcp.client.auth import OAuthFlowError
        from mcp.shared.auth import AuthorizationCodeResult

        await self._came.wait()
        brought = self._brought
        if "code" not in brought:
            why = brought.get("error_description") or brought.get("error", "no reason given")
            raise OAuthFlowError(f"the server refused the login: {why}")
        return AuthorizationCodeResult(
            code=brought["code"], state=brought.get("state"), iss=brought.get("iss")
        )


@asynccontextmanager
async def waiting(server: Server, show: Callable[[str], None]) -> AsyncGenerator[Door]:
    """Listen for the browser's callback before the person is sent anywhere."""
    async with await _listener(server) as listener, anyio.create_task_group() as group:
        door = Door(listener.extra(SocketAttribute.local_port), show)  # noqa: S610 - not Django's
        group.start_soon(listener.serve, door.answer)
        yield door
        group.cancel_scope.cancel()


async def _listener(server: Server) -> MultiListener[SocketStream]:
    """Listen on the usual port, or on any other if it is taken and none is required."""
    try:
        return await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=server.port or PORT
        )
    except OSError:
        if server.port:
            raise
        return await anyio.create_tcp_listener(local_host="127.0.0.1")
