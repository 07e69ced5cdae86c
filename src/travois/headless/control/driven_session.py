"""The session that control requests act on."""

from __future__ import annotations

from typing import Protocol

import anyio

from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.headless.control.mcp import HostMcpServer
from travois.headless.run import HeadlessRun


class DrivenSession(Protocol):
    """A session controlled by a client, as control requests see it."""

    run: HeadlessRun
    options: Options
    servers: dict[str, HostMcpServer]
    """MCP servers that run in the client."""
    added: dict[str, anyio.CancelScope]
    """Scopes of the MCP servers that the client added during the session."""
    said: dict[str, int]
    model: str

    @property
    def session(self) -> LiveSession:
        """The current session."""
        ...

    async def switch_model(self, model: str) -> None:
        """Switch the model as soon as no turn is running."""
        ...

    async def set_effort(self, effort: str) -> None:
        """Set the effort as soon as no turn is running."""
        ...
