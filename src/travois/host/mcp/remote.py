"""Servers at an address, and how a person lets us in there."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from travois.tools.lenders import Server

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

PORT = 8976
"""Where a login comes back to, on this machine only."""
REFUSED = frozenset((401, 403))
Show = Callable[[str], Awaitable[None]]
Code = Callable[[], Awaitable["AuthorizationCodeResult"]]


def wanted(server: Server) -> str:
    """What a person has to do who is not let in."""
    return f"it wants you to log in: run `travois mcp login {server.name}`"


@asynccontextmanager
async def remote(server: Server, tokens: Path) -> AsyncGenerator[TransportStreams]:
    """The way to a server by HTTP, with the leave that a login gave us."""
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    kept = Tokens(tokens, server)
    auth = provider(server, kept) if kept.path.exists() else None

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        made = create_mcp_http_client(headers, timeout, auth)
        if auth is None:
            made.event_hooks = {"response": [_let_in]}
        return made

    async def _let_in(response: httpx2.Response) -> None:
        if response.status_code in REFUSED:
            raise PermissionError(wanted(server))

    if server.kind == "sse":
        sse = sse_client(server.url, server.headers, httpx_client_factory=client, auth=auth)
        async with sse as (read, write):
            yield read, write
        return
    async with (
        client(server.headers, auth=auth) as http,
        streamable_http_client(server.url, http_client=http) as (read, write),
    ):
        yield read, write


def provider(
    server: Server, kept: Tokens, *, show: Show | None = None, code: Code | None = None
) -> OAuthClientProvider:
    """Lets us in with what is kept; where that no longer holds, a person must log in again."""
    from mcp.client.auth import OAuthClientProvider, OAuthFlowError
    from mcp.shared.auth import OAuthClientMetadata

    async def refuse(url: str) -> None:
        raise OAuthFlowError(f"its login no longer holds; {wanted(server)}")

    async def never() -> AuthorizationCodeResult:
        raise OAuthFlowError(wanted(server))

    about = OAuthClientMetadata.model_validate(
        {"client_name": "Travois", "redirect_uris": [f"http://127.0.0.1:{PORT}/callback"]}
    )
    return OAuthClientProvider(server.url, about, kept, show or refuse, code or never)


class Pair(msgspec.Struct):
    """What a login leaves behind, as the SDK writes it."""

    tokens: msgspec.Raw = msgspec.Raw(b"null")
    client: msgspec.Raw = msgspec.Raw(b"null")


class Tokens:
    """The file with what a login gave, for its owner only."""

    def __init__(self, folder: Path, server: Server) -> None:
        name = blake2b(server.url.encode(errors="replace"), digest_size=12).hexdigest()
        self.path = folder / f"{name}.json"

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens, if there are any."""
        from mcp.shared.auth import OAuthToken

        kept = bytes(self._read().tokens)
        return None if kept == b"null" else OAuthToken.model_validate_json(kept)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens."""
        self._write(msgspec.structs.replace(self._read(), tokens=_raw(tokens.model_dump_json())))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Who we are to the server."""
        from mcp.shared.auth import OAuthClientInformationFull

        kept = bytes(self._read().client)
        return None if kept == b"null" else OAuthClientInformationFull.model_validate_json(kept)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep who we are."""
        known = _raw(client_info.model_dump_json())
        self._write(msgspec.structs.replace(self._read(), client=known))

    def _read(self) -> Pair:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Pair)
        except (OSError, msgspec.DecodeError):
            return Pair()

    def _write(self, pair: Pair) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(pair))
        part.replace(self.path)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())
