"""What answers to a host may know of the run that they are about."""

from __future__ import annotations

from typing import Protocol

import anyio

from travois.compose.options import Options
from travois.headless.control.mcp import Server
from travois.headless.run import Run
from travois.sdk import Session


class Driven(Protocol):
    """A run under a host, as far as answers need it."""

    run: Run
    options: Options
    servers: dict[str, Server]
    """Those that live in the host."""
    added: dict[str, anyio.CancelScope]
    """What ends each server that the host named while the session ran."""
    said: dict[str, int]
    model: str

    @property
    def session(self) -> Session:
        """The conversation."""
        ...

    async def go_on_with(self, model: str) -> None:
        """Change the model as soon as no turn is under way."""
        ...

    async def exert(self, effort: str) -> None:
        """Let it think more or less as soon as no turn is under way."""
        ...
