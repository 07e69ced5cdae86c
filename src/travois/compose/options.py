"""Everything that a user can choose when a session starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from travois.settings.load import Value

NAMED = ("Bash", "BashInput", "BashOutput", "KillShell", "WebFetch", "WebSearch")
"""Tools that run commands or reach the web: a restricted session has them only by name."""
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
    agent: str = ""
    """The kind of agent that the person talks to."""
    agents: str = ""
    """Kinds of agents as JSON, each by its name."""
    plugins: tuple[str, ...] = ()
    """Folders of plugins."""
    style: str = ""
    """The name of an output style."""
    settings: str = ""
    sources: str = ""
    bare: bool = False
    """Whether nothing counts that lies about: instructions, skills, agents, hooks, memories."""
    restricted: bool = False
    """Whether files of settings do not count, all work stays in the folders, and only those tools
    run commands or reach the web that were named."""
    commands: bool = True
    """Whether the user's own commands, and skills, can be used."""
    window: int = 0
    """The most of the model's window that is to be used."""
    name: str = ""
    """What the session is to be called."""
    system: str = ""
    append_system: str = ""
    toolset: str = "auto"
    """Whose names the model's tools have."""
    max_turns: int = 0
    max_dollars: float = 0.0
    max_tokens: int = 0
    max_seconds: float = 0.0
    session_id: str = ""
    resume: str = ""
    latest: bool = False
    fork: bool = False
    upto: str = ""
    """The last message that counts of the session that is gone on with, as a line named it."""
    cleared: bool = False
    """Whether it takes the place of a conversation that was left behind."""
    setup: Literal["", "init", "maintenance"] = ""
    """Why the folder is to be made ready first; empty if it is not."""
    persist: bool = True
    driven: bool = False
    """Whether a program drives the session: nothing starts that nobody asked for."""
    sandbox: bool = True

    @property
    def shelves(self) -> str:
        """Which files besides settings count, as `sources` says it."""
        return "none" if self.bare else self.sources


def _barred(options: Options) -> tuple[str, ...]:
    """What a restricted session may not do, whoever asks for it."""
    named = options.tools or ()
    return tuple(one for one in NAMED if one not in named) if options.restricted else ()


def settings(options: Options) -> dict[str, Value]:
    """What the command line chose, by settings key; what it left open is not there."""
    from travois.prompt.style_text import DEFAULT

    flags: dict[str, Value] = {
        "model": options.model,
        "agent": options.agent,
        "effortLevel": options.effort,
        "permissions.defaultMode": options.mode,
        "permissions.allow": options.allowed,
        "permissions.deny": (*options.disallowed, *_barred(options)),
        "permissions.additionalDirectories": options.folders,
        "plugins": options.plugins,
        "outputStyle": options.style or (DEFAULT if options.bare else ""),
        "context.window": options.window,
        "disableAllHooks": options.bare,
        "maxTurns": options.max_turns,
        "maxBudgetUsd": options.max_dollars,
        "maxTokens": options.max_tokens,
        "maxSeconds": options.max_seconds,
    }
    if options.restricted:
        flags["permissions.disableBypassPermissionsMode"] = "disable"
    off = {"sandbox.enabled": options.sandbox, "memory.enabled": not options.bare}
    flags = {key: value for key, value in flags.items() if value}
    return flags | {key: False for key, on in off.items() if not on}
