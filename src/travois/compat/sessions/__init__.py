"""Recorded sessions of Travois and other agents on this machine, read only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from travois.compat.sessions import claude, codex, gemini, opencode, own, pi
from travois.compat.sessions.format import NO_TEXT_LIMIT, RecordedSession, SessionFile
from travois.core.errors import UserError


class SessionSource(Protocol):
    """The module that finds and reads the sessions of one agent."""

    @property
    def RESUME(self) -> str:  # noqa: N802 - a constant of its module
        """The command that goes on with a session."""
        ...

    def find_sessions(self, environ: Mapping[str, str]) -> Iterator[SessionFile]:
        """Find all session files, in no order."""
        ...

    def read_session(self, path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
        """Read one session, with each text cut to `longest` characters; raises OSError."""
        ...


SESSION_SOURCES: dict[str, SessionSource] = {
    own.TRAVOIS_AGENT: own,
    claude.CLAUDE_AGENT: claude,
    codex.CODEX_AGENT: codex,
    opencode.OPENCODE_AGENT: opencode,
    gemini.GEMINI_AGENT: gemini,
    pi.PI_AGENT: pi,
}


def read_recorded_session(
    file: SessionFile, *, longest: int = NO_TEXT_LIMIT
) -> RecordedSession | None:
    """Read a session; None if it cannot be read, is gone, or has no turns."""
    try:
        recorded = SESSION_SOURCES[file.agent].read_session(file.path, longest=longest)
    except (OSError, UserError):
        return None
    return recorded if recorded.turns else None
