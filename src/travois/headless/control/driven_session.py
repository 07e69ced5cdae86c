"""The session that control requests act on."""

from __future__ import annotations

from typing import Protocol

import anyio

from travois.compose.options import Options
from travois.headless.control.mcp import Server
from travois.headless.run import Run
from travois.sdk import Session


class Driven(Protocol):
    """A session controlled by a client, as control requests see it."""

    run: Run
    options: Options
    servers: dict[str, Server]
    """MCP servers that run in the client."""
    added: dict[str, anyio.CancelScope]
    """Scopes of the MCP servers that the client added during the session."""
    said: dict[str, int]
    model: str

    @property
    def session(self) -> Session:
        """The current session."""
        ...

    async def go_on_with(self, model: str) -> None:
        """Switch the model as soon as no turn is running."""
        ...

    async def exert(self, effort: str) -> None:
        """Set the effort as soon as no turn is running."""
        ...
