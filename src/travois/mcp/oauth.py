"""Stored OAuth logins of MCP servers, in files that only their owner can read."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from travois.files.openat import make_folders
from travois.lazy_imports import lazy_imports
from travois.mcp.tools import McpServerConfig

if TYPE_CHECKING:
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

with lazy_imports():
    from mcp.shared import auth


CALLBACK_PORT = 8976
"""The default local port of the login callback."""
ShowLoginPage = Callable[[str], Awaitable[None]]
ReceiveCode = Callable[[], Awaitable["AuthorizationCodeResult"]]


def login_hint(server: McpServerConfig) -> str:
    """Return the hint that an MCP server requires a login, with the command for it."""
    return f"login required: run `travois mcp login {server.name}`"


class StoredLogin(msgspec.Struct):
    """A stored login, as the SDK writes it."""

    tokens: msgspec.Raw = msgspec.Raw(b"null")
    client: msgspec.Raw = msgspec.Raw(b"null")
    scope: str = ""
    """Scopes that a server found missing before."""


class TokenStore:
    """The stored OAuth tokens and client registration of one server."""

    def __init__(self, folder: Path, server: McpServerConfig) -> None:
        name = blake2b(server.url.encode(errors="replace"), digest_size=12).hexdigest()
        self.path = folder / f"{name}.json"
        self._known = server.client

    async def get_tokens(self) -> auth.OAuthToken | None:
        """Return the tokens, if there are any."""
        kept = bytes(self._read().tokens)
        return None if kept == b"null" else auth.OAuthToken.model_validate_json(kept)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store the tokens."""
        self._write(
            msgspec.structs.replace(self._read(), tokens=_to_raw_json(tokens.model_dump_json()))
        )

    async def get_client_info(self) -> auth.OAuthClientInformationFull | None:
        """Return our client registration: configured by the server's owner, or registered by us."""
        if self._known:
            return auth.OAuthClientInformationFull.model_validate(self._known)
        kept = bytes(self._read().client)
        return (
            None if kept == b"null" else auth.OAuthClientInformationFull.model_validate_json(kept)
        )

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store our client registration."""
        known = _to_raw_json(client_info.model_dump_json())
        self._write(msgspec.structs.replace(self._read(), client=known))

    @property
    def scope(self) -> str:
        """Additional scopes for the next login."""
        return self._read().scope

    def require_scope(self, scope: str) -> None:
        """Store a further scope that the next login must ask for."""
        both = dict.fromkeys((*self.scope.split(), *scope.split()))
        if len(both) > len(self.scope.split()):
            self._write(msgspec.structs.replace(self._read(), scope=" ".join(both)))

    @property
    def modification_time(self) -> int:
        """The time of the last change in nanoseconds; 0 if there is no file."""
        return self.path.stat().st_mtime_ns if self.path.exists() else 0

    def delete(self) -> bool:
        """Delete the stored login; return whether there was any."""
        there = self.path.exists()
        self.path.unlink(missing_ok=True)
        return there

    def _read(self) -> StoredLogin:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=StoredLogin)
        except (OSError, msgspec.DecodeError):
            return StoredLogin()

    def _write(self, pair: StoredLogin) -> None:
        make_folders(self.path.parent)
        part = self.path.with_suffix(f".{os.getpid()}.part")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(part, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(pair))
        part.replace(self.path)


class PendingTokenStore(TokenStore):
    """The tokens of a login in progress: until it succeeds, the stored ones stay."""

    def __init__(self, folder: Path, server: McpServerConfig) -> None:
        super().__init__(folder, server)
        self._pair = StoredLogin(scope=super()._read().scope)

    def _read(self) -> StoredLogin:
        return self._pair

    def _write(self, pair: StoredLogin) -> None:
        self._pair = pair
        if bytes(pair.tokens) != b"null":
            super()._write(pair)


def _to_raw_json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())
