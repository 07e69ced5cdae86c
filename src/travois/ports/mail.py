"""The ports of mail: how a call sends a message, and who takes it to other processes."""

from __future__ import annotations

from typing import Protocol


class Outbox(Protocol):
    """Where the agent that called puts what it wants to tell other agents."""

    async def send(self, to: str, text: str) -> str:
        """Send a message; returns what becomes of it. Raises `Refusal` if nobody would get it."""
        ...


class Courier(Protocol):
    """Takes messages to agents of other processes."""

    def team(self) -> tuple[str, ...]:
        """The names of the others in our team."""
        ...

    async def carry(self, to: str, text: str, *, sender: str = "") -> str:
        """Leave a message for one of our team, `session:ID` or `TEAM:NAME`.

        Returns what becomes of it; `sender` is the agent of ours that wrote it, if a child did.
        Raises `Fault`.
        """
        ...
