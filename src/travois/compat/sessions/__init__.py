"""Sessions that were recorded on this machine, by Travois and by other agents. Only read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from travois.compat.sessions import claude, codex, gemini, opencode, own, pi
from travois.compat.sessions.format import WHOLE, Found, Recorded
from travois.core.errors import Fault


class Agent(Protocol):
    """One agent's way of keeping sessions."""

    @property
    def RESUME(self) -> str:  # noqa: N802 - a constant of its module
        """The command that goes on with a session."""
        ...

    def find(self, environ: Mapping[str, str]) -> Iterator[Found]:
        """Where its sessions lie, in no order."""
        ...

    def read(self, path: Path, *, longest: int = WHOLE) -> Recorded:
        """One session, with no more of each text than that. Raises OSError."""
        ...


AGENTS: dict[str, Agent] = {
    own.NAME: own,
    claude.NAME: claude,
    codex.NAME: codex,
    opencode.NAME: opencode,
    gemini.NAME: gemini,
    pi.NAME: pi,
}


def read(found: Found, *, longest: int = WHOLE) -> Recorded | None:
    """A session that was found; None if it cannot be read, is gone, or nothing was said."""
    try:
        recorded = AGENTS[found.agent].read(found.path, longest=longest)
    except (OSError, Fault):
        return None
    return recorded if recorded.turns else None
