"""Everything that a user can choose when a session starts."""

from __future__ import annotations

import msgspec

PICK = "?"
"""In place of a session: let the person choose one."""


class Options(msgspec.Struct, frozen=True):
    """What the command line, or a program, asks for; empty means the settings decide."""

    cwd: str = ""
    model: str = ""
    mode: str = ""
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    agents: str = ""
    """Kinds of agents as JSON, each by its name."""
    settings: str = ""
    sources: str = ""
    system: str = ""
    append_system: str = ""
    max_turns: int = 0
    max_dollars: float = 0.0
    max_tokens: int = 0
    max_seconds: float = 0.0
    session_id: str = ""
    resume: str = ""
    latest: bool = False
    fork: bool = False
    persist: bool = True
    sandbox: bool = True
