"""Options of a session: everything that a user or program can choose at its start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from travois.core.spending import LimitScope
from travois.prompt.output_styles import DEFAULT_STYLE

if TYPE_CHECKING:
    from travois.settings.load import SettingValue

NAMED_ONLY_TOOLS = ("Bash", "BashInput", "BashOutput", "KillShell", "WebFetch", "WebSearch")
"""Tools that run commands or reach the web: a restricted session has them only by name."""
STORE_VARIABLE = "TRAVOIS_SESSION_STORE"
NO_STORE = "none"
"""In place of a session store: keep the session on this machine alone."""
PICK_SESSION = "?"
"""In place of a session: let the person choose one."""


class Options(msgspec.Struct, frozen=True):
    """The choices of a command line or a program; empty means the settings decide."""

    cwd: str = ""
    model: str = ""
    fallback: tuple[str, ...] = ()
    """The fallback models in order; empty for those of the settings."""
    effort: str = ""
    """The effort of the model."""
    mode: str = ""
    allowed: tuple[str, ...] = ()
    disallowed: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    """The built-in tools that there are; none of them if empty."""
    mcp: tuple[str, ...] = ()
    """MCP servers, as files or JSON."""
    strict_mcp: bool = False
    """True to use only the MCP servers that are named here."""
    skills: tuple[str, ...] | None = None
    """The only skills to load; none for all."""
    agent: str = ""
    """The type of the main agent."""
    agents: str = ""
    """Agent types as JSON, by name."""
    plugins: tuple[str, ...] = ()
    """Folders of plugins."""
    style: str = ""
    """The name of an output style."""
    settings: str = ""
    sources: str = ""
    bare: bool = False
    """True to ignore instructions, skills, agents, hooks and memories."""
    restricted: bool = False
    """True if files of settings do not count, all work stays in the folders, and only those tools
    run commands or reach the web that were named."""
    commands: bool = True
    """True if the user's own commands, and skills, can be used."""
    window: int = 0
    """The most of the model's window that is to be used."""
    name: str = ""
    """The name of the session."""
    system: str = ""
    append_system: str = ""
    toolset: str = "auto"
    """The toolset that names the model's tools."""
    max_turns: int = 0
    max_dollars: float = 0.0
    max_tokens: int = 0
    max_seconds: float = 0.0
    limits: LimitScope = ""
    session_id: str = ""
    resume: str = ""
    create_missing: bool = False
    """True to create the session that `resume` names if there is none."""
    latest: bool = False
    fork: bool = False
    upto: str = ""
    """The last message that counts of the session that is gone on with, as a line named it."""
    drops: str | None = None
    """The only prompt whose turn `upto` may leave out; None for whatever follows."""
    cleared: bool = False
    """True if it takes the place of a conversation that was left behind."""
    setup: Literal["", "init", "maintenance"] = ""
    """The reason for setup hooks to run first; empty if they do not."""
    session_store: str = ""
    """The address of a session store."""
    persist: bool = True
    driven: bool = False
    """True if a program drives the session: nothing starts that nobody asked for."""
    sandbox: bool = True

    @property
    def shelves(self) -> str:
        """The levels whose instructions, skills and agents count; `none` with --bare."""
        return "none" if self.bare else self.sources


def new_session_options(options: Options) -> Options:
    """Return the options for a new, empty session after /clear."""
    return replace(
        options, resume="", latest=False, fork=False, upto="", session_id="", cleared=True
    )


def find_store_address(options: Options, setting: str, environ: Mapping[str, str]) -> str:
    """Return the address of the session store; empty if there is none."""
    address = options.session_store or environ.get(STORE_VARIABLE, "") or setting
    return "" if address == NO_STORE or not options.persist else address


def _restricted_tools(options: Options) -> tuple[str, ...]:
    """Return the tools that the options of a restricted session exclude."""
    named = options.tools or ()
    return tuple(one for one in NAMED_ONLY_TOOLS if one not in named) if options.restricted else ()


def settings_from_options(options: Options) -> dict[str, SettingValue]:
    """Return the command line's options as settings, without those left open."""
    flags: dict[str, SettingValue] = {
        "model": options.model,
        "agent": options.agent,
        "effortLevel": options.effort,
        "permissions.defaultMode": options.mode,
        "permissions.allow": options.allowed,
        "permissions.deny": (*options.disallowed, *_restricted_tools(options)),
        "permissions.additionalDirectories": options.folders,
        "plugins": options.plugins,
        "outputStyle": options.style or (DEFAULT_STYLE if options.bare else ""),
        "context.window": options.window,
        "disableAllHooks": options.bare,
        "maxTurns": options.max_turns,
        "maxBudgetUsd": options.max_dollars,
        "maxTokens": options.max_tokens,
        "maxSeconds": options.max_seconds,
        "limits": options.limits,
    }
    if options.restricted:
        flags["permissions.disableBypassPermissionsMode"] = "disable"
    off = {"sandbox.enabled": options.sandbox, "memory.enabled": not options.bare}
    flags = {key: value for key, value in flags.items() if value}
    return flags | {key: False for key, on in off.items() if not on}
