"""A login by browser: the server's page asks the person, and what they grant comes back to us."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import anyio
from anyio.abc import SocketStream

from travois.host.mcp.link import failures, loaded, worded
from travois.host.mcp.remote import PORT, Tokens, provider
from travois.tools.lenders import Server

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult

PATIENCE = 300.0
PAGE = b"<!doctype html><title>Travois</title><p>You can close this page.\n"


async def login(server: Server, folder: Path, show: Callable[[str], None]) -> str:
    """Ask the person by their browser; returns why that failed, if it did."""
    if why := loaded():
        return why
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    async def shown(url: str) -> None:
        show(f"Open this page to let Travois in:\n{url}")

    auth = provider(server, Tokens(folder, server), show=shown, code=returned)
    try:
        with anyio.fail_after(PATIENCE):
            async with (
                create_mcp_http_client(server.headers, None, auth) as http,
                Client(streamable_http_client(server.url, http_client=http)),
            ):
                return ""
    except (ExceptionGroup, *failures()) as error:
        return worded(error)


async def returned() -> AuthorizationCodeResult:
    """What the browser brings back to this machine."""
    from mcp.shared.auth import AuthorizationCodeResult

    brought: list[AuthorizationCodeResult] = []
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=PORT)

    async def answer(stream: SocketStream) -> None:
        async with stream:
            line = (await stream.receive(8192)).partition(b"\r\n")[0].decode(errors="replace")
            asked = parse_qs(urlsplit(line.split(" ")[1] if " " in line else "").query)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(PAGE)}\r\n"
            await stream.send(f"{head}connection: close\r\n\r\n".encode() + PAGE)
        if "code" in asked or "error" in asked:
            first = {key: values[0] for key, values in asked.items()}
            brought.append(
                AuthorizationCodeResult(
                    code=first.get("code", ""), state=first.get("state"), iss=first.get("iss")
                )
            )
            group.cancel_scope.cancel()

    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, answer)
    return brought[0]
