"""Everything that a user can choose when a session starts."""

from __future__ import annotations

import msgspec

PICK = "?"
"""In place of a session: let the person choose one."""


class Options(msgspec.Struct, frozen=True):
    """What the command line, or a program, asks for; empty means the settings decide."""

    cwd: str = ""
    model: str = ""
    fallback: tuple[str, ...] = ()
    """Who answers, in this order, while the model cannot; empty for those of the settings."""
    effort: str = ""
    """How much the model is asked to think."""
    mode: str = ""
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    """The built-in tools that there are; none of them if empty."""
    mcp: tuple[str, ...] = ()
    """Servers of tools, as files or JSON."""
    strict_mcp: bool = False
    """Whether only those servers count that are named here."""
    skills: tuple[str, ...] | None = None
    """The only skills that count; none means that all do."""
    agents: str = ""
    """Kinds of agents as JSON, each by its name."""
    plugins: tuple[str, ...] = ()
    """Folders of plugins."""
    style: str = ""
    """The name of an output style."""
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
    driven: bool = False
    """Whether a program drives the session: nothing starts that nobody asked for."""
    sandbox: bool = True
