"""Recorded sessions of Travois and other agents on this machine, read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from travois.compat.sessions import claude, codex, gemini, opencode, own, pi
from travois.compat.sessions.format import WHOLE, Found, Recorded
from travois.core.errors import UserError


class Agent(Protocol):
    """The module that finds and reads the sessions of one agent."""

    @property
    def RESUME(self) -> str:  # noqa: N802 - a constant of its module
        """The command that goes on with a session."""
        ...

    def find(self, environ: Mapping[str, str]) -> Iterator[Found]:
        """Find all session files, in no order."""
        ...

    def read(self, path: Path, *, longest: int = WHOLE) -> Recorded:
        """Read one session, with each text cut to `longest` characters; raises OSError."""
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
    """Read a session; None if it cannot be read, is gone, or has no turns."""
    try:
        recorded = AGENTS[found.agent].read(found.path, longest=longest)
    except (OSError, UserError):
        return None
    return recorded if recorded.turns else None
