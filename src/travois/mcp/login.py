"""OAuth login to an MCP server in a browser, with a callback on this machine."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.stapled import MultiListener

from travois.lazy_imports import lazy_imports
from travois.mcp.http_transport import connect_remote
from travois.mcp.oauth import CALLBACK_PORT, PendingTokenStore
from travois.mcp.sdk_errors import describe_error, load_sdk, sdk_errors
from travois.mcp.tools import McpServerConfig

with lazy_imports():
    from mcp.client import auth as client_auth
    from mcp.shared import auth as shared_auth

    import mcp
    from travois.mcp import oauth_provider


LOGIN_TIMEOUT_SECONDS = 300.0
LOGIN_TIMEOUT_ERROR = "nobody completed the login within five minutes"
CALLBACK_PAGE = "<!doctype html><title>Travois</title><p>{}\n"
CALLBACK_HEAD = (
    "HTTP/1.1 {}\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n"
)
DISPLAY_VARIABLES = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""Variables that tell of a browser which is not this terminal."""
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


async def log_in_to_server(
    server: McpServerConfig, folder: Path, show: Callable[[str], None]
) -> str:
    """Log in to an MCP server in the user's browser; return why it failed, empty if it did not."""
    if why := load_sdk():
        return why
    try:
        with anyio.fail_after(LOGIN_TIMEOUT_SECONDS):
            await _run_login(server, folder, show)
    except TimeoutError:
        return LOGIN_TIMEOUT_ERROR
    except (ExceptionGroup, *sdk_errors()) as error:
        return describe_error(error)
    return ""


async def _run_login(server: McpServerConfig, folder: Path, show: Callable[[str], None]) -> None:
    """Log in to an MCP server by OAuth and store the tokens."""
    async with listen_for_callback(server, show) as door:
        kept = PendingTokenStore(folder, server)
        auth = oauth_provider.StoredLoginProvider(
            server, kept, port=door.port, show=door.open_login_page, code=door.wait_for_code
        )
        async with mcp.Client(connect_remote(server, auth=auth, check=auth.check_response)):
            return


class LoginCallback:
    """The local endpoint that the browser returns to after a login."""

    def __init__(self, port: int, show: Callable[[str], None]) -> None:
        self.port = port
        self._show = show
        self._state = ""
        self._came = anyio.Event()
        self._brought: dict[str, str] = {}

    async def open_login_page(self, url: str) -> None:
        """Show the login page and open it in a browser; refuse one that is not encrypted."""
        there = urlsplit(url)
        if there.scheme != "https" and there.hostname not in LOOPBACK_HOSTS:
            raise client_auth.OAuthFlowError(
                f"its login page is not secure: {there.scheme}://{there.netloc}"
            )
        self._state = parse_qs(there.query).get("state", [""])[0]
        self._show(f"Open this page to log in:\n{url}")
        if sys.platform == "darwin" or any(os.environ.get(name) for name in DISPLAY_VARIABLES):
            await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)

    async def handle_connection(self, stream: SocketStream) -> None:
        """Handle a connection from a browser; requests without our state are rejected."""
        gone = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
        with suppress(*gone):  # browsers open more connections than they use
            async with stream:
                await self._handle_request(stream)

    async def _handle_request(self, stream: SocketStream) -> None:
        line = (await stream.receive(8192)).partition(b"\r\n")[0].decode(errors="replace")
        asked = urlsplit(line.split(" ")[1] if " " in line else "")
        brought = {key: values[0] for key, values in parse_qs(asked.query).items()}
        ours = asked.path == "/callback" and brought.get("state") == self._state != ""
        page = CALLBACK_PAGE.format(
            "You can close this page." if ours else "This login was not expected."
        )
        head = CALLBACK_HEAD.format("200 OK" if ours else "400 Bad Request", len(page))
        await stream.send((head + page).encode())
        if ours:
            self._brought = brought
            self._came.set()

    async def wait_for_code(self) -> shared_auth.AuthorizationCodeResult:
        """Wait for the authorization code that the browser brings back."""
        await self._came.wait()
        brought = self._brought
        if "code" not in brought:
            why = brought.get("error_description") or brought.get("error", "no reason given")
            raise client_auth.OAuthFlowError(f"the server refused the login: {why}")
        return shared_auth.AuthorizationCodeResult(
            code=brought["code"], state=brought.get("state"), iss=brought.get("iss")
        )


@asynccontextmanager
async def listen_for_callback(
    server: McpServerConfig, show: Callable[[str], None]
) -> AsyncGenerator[LoginCallback]:
    """Listen for the OAuth callback before the user is sent to the browser."""
    async with await _bind_listener(server) as listener, anyio.create_task_group() as group:
        door = LoginCallback(listener.extra(SocketAttribute.local_port), show)  # noqa: S610 - not Django's
        group.start_soon(listener.serve, door.handle_connection)
        yield door
        group.cancel_scope.cancel()


async def _bind_listener(server: McpServerConfig) -> MultiListener[SocketStream]:
    """Bind the OAuth callback to its usual port, or to any if that is taken and none required."""
    try:
        return await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=server.port or CALLBACK_PORT
        )
    except OSError:
        if server.port:
            raise
        return await anyio.create_tcp_listener(local_host="127.0.0.1")
