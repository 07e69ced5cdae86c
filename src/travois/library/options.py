"""The options of a session, as a program writes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from travois.compose import options as compose_options
from travois.core.errors import UserError
from travois.core.models import Effort
from travois.core.spending import LimitScope
from travois.extensions.custom_layers import ContextLayer
from travois.extensions.custom_models import ModelProvider
from travois.extensions.function_hooks import FunctionHook
from travois.extensions.function_tools import AnyFunctionTool, FunctionTool
from travois.extensions.permission_callback import PermissionCallback, QuestionCallback
from travois.permissions.decide import PermissionMode
from travois.ports.world import ModelClient

SourceLevels = Literal["", "none", "user", "project", "local", "user,project", "user,project,local"]


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a session and its subagents may use; zero means no limit."""

    dollars: float = 0.0
    tokens: int = 0
    turns: int = 0
    """Replies of the model."""
    seconds: float = 0.0
    agents: int = 0
    """The subagents that may be started in all."""
    scope: LimitScope = ""
    """`run` or `session`; without it, turns and seconds count per run, the others in all."""


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of subagent that the model can start."""

    description: str
    """When to use it; the model chooses by this."""
    prompt: str
    tools: Sequence[str] | None = None
    """The only tools that it has; None for those of its parent."""
    disallowed_tools: Sequence[str] = ()
    model: str = ""
    effort: Effort = ""
    permission_mode: PermissionMode | Literal[""] = ""
    max_turns: int = 0
    background: bool = False
    """True if the conversation goes on while it works."""
    isolation: Literal["", "worktree"] = ""
    """`worktree` to work in a git worktree of its own."""
    skills: Sequence[str] = ()


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """How a long conversation is kept within the context window."""

    auto: bool = True
    """Compact when the window is nearly full; without it, a full window ends the run."""
    threshold_tokens: int = 0
    """The size at which compaction starts, if earlier than the window's own; 0 for that."""
    window_tokens: int = 0
    """The most of the model's window to use; 0 for all of it."""
    keep_tokens: int = 0
    """The newest part that stays word for word; 0 for the default."""
    clear_results: bool = True
    """Clear old tool results when that costs nothing or pays off."""


McpServerConfig = Mapping[str, Any]
"""A server's configuration as in `.mcp.json`: `command` and `args`, or `url`."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that can be chosen for a session; what is left out, settings decide."""

    cwd: str | os.PathLike[str] = ""
    """The folder to work in; the current one if empty."""
    model: str | ModelProvider | ModelClient = ""
    """A model's name, such as `anthropic/claude-opus-5-5`, or a model of your own."""
    fallback: Sequence[str] = ()
    """Models that answer while the chosen one cannot."""
    effort: Effort = ""
    mode: PermissionMode | Literal[""] = ""
    """The permission mode."""
    system: str = ""
    """The system prompt in place of ours."""
    append_system: str = ""
    """A text at the end of the system prompt."""
    tools: Sequence[AnyFunctionTool] = ()
    """Functions with `@tool`."""
    builtin_tools: Sequence[str] | None = None
    """The only built-in tools; None for all, `()` for none."""
    allowed: Sequence[str] = ()
    """Permission rules for what runs without a question: `Read`, `Bash(git diff:*)`, `my_tool`."""
    disallowed: Sequence[str] = ()
    """Permission rules for what never runs."""
    folders: Sequence[str] = ()
    """More folders to work in."""
    on_permission: PermissionCallback | None = None
    """Decides calls that need permission; without it, they are denied."""
    on_question: QuestionCallback | None = None
    """Answers questions of the model; without it, nobody does."""
    hooks: Sequence[FunctionHook] = ()
    """Functions with `@hook`."""
    agents: Mapping[str, AgentDefinition] = {}
    """Kinds of subagents, by name."""
    budget: Budget = Budget()
    mcp_servers: Mapping[str, McpServerConfig | object] = {}
    """MCP servers by name: a configuration, or a server object of the MCP SDK."""
    skills: Sequence[str] | None = None
    """The only skills to load; None for all."""
    plugins: Sequence[str] = ()
    """Folders of plugins."""
    memory: bool = True
    """False to neither recall nor keep memories."""
    compaction: Compaction = Compaction()
    layers: Sequence[ContextLayer] = ()
    """Context layers of your own."""
    settings: Mapping[str, Any] = {}
    """Any other setting, by its name in settings.json."""
    sources: SourceLevels = ""
    """The settings files that count; `none` for the administrator's alone."""
    bare: bool = False
    """True to ignore instruction files, skills, agents, hooks and memories."""
    sandbox: bool = True
    persist: bool = True
    """False to leave nothing on disk; such a session cannot be resumed."""
    name: str = ""
    session_id: str = ""
    """The id of a new session, a UUID; one is made up if empty."""
    resume: str = ""
    """The id or name of a session to go on with."""
    create_missing: bool = False
    """True to create the session that `resume` names if there is none."""
    fork: bool = False
    """True to go on in a copy of the session that `resume` names."""


def build_compose_options(options: Options) -> compose_options.Options:
    """Translate a program's options to those that a session is composed from."""
    _check_decorated_functions(options)
    agents = {name: _encode_agent(agent) for name, agent in options.agents.items()}
    servers = {
        name: cast("McpServerConfig", each)
        for name, each in options.mcp_servers.items()
        if isinstance(each, Mapping)
    }
    budget = options.budget
    return compose_options.Options(
        cwd=os.fspath(options.cwd),
        model=options.model if isinstance(options.model, str) else "",
        fallback=tuple(options.fallback),
        effort=options.effort,
        mode=options.mode,
        allowed=tuple(options.allowed),
        disallowed=tuple(options.disallowed),
        folders=tuple(os.fspath(folder) for folder in options.folders),
        tools=None if options.builtin_tools is None else tuple(options.builtin_tools),
        mcp=(_encode_option({"mcpServers": servers}),) if servers else (),
        skills=None if options.skills is None else tuple(options.skills),
        agents=_encode_option(agents) if agents else "",
        plugins=tuple(os.path.abspath(folder) for folder in options.plugins),
        settings=_encode_option(settings) if (settings := build_settings(options)) else "",
        sources=options.sources,
        bare=options.bare,
        window=options.compaction.window_tokens,
        name=options.name,
        system=options.system,
        append_system=options.append_system,
        max_turns=budget.turns,
        max_dollars=budget.dollars,
        max_tokens=budget.tokens,
        max_seconds=budget.seconds,
        limits=budget.scope,
        session_id=options.session_id,
        resume=options.resume,
        create_missing=options.create_missing,
        fork=options.fork,
        persist=options.persist,
        sandbox=options.sandbox,
    )


def build_settings(options: Options) -> dict[str, Any]:
    """Return the options that are settings rather than flags."""
    compaction, settings = options.compaction, dict(options.settings)
    context: dict[str, object] = {
        "autoCompact": compaction.auto,
        "threshold": compaction.threshold_tokens,
        "tailTokens": compaction.keep_tokens,
        "clear": compaction.clear_results,
    }
    usual: dict[str, object] = {"autoCompact": True, "threshold": 0, "tailTokens": 0, "clear": True}
    if chosen := {key: value for key, value in context.items() if value != usual[key]}:
        settings["context"] = {**settings.get("context", {}), **chosen}
    if not options.memory:
        settings["memory"] = {**settings.get("memory", {}), "enabled": False}
    if options.budget.agents:
        settings["maxAgents"] = options.budget.agents
    return settings


def _check_decorated_functions(options: Options) -> None:
    """Refuse tools and hooks that are not what the decorators make."""
    for tool in options.tools:
        if not isinstance(tool, FunctionTool):  # pyright: ignore[reportUnnecessaryIsInstance] - not everyone checks types
            name = getattr(tool, "__name__", repr(tool))
            raise UserError(f"{name} is not a tool", fix="Write @tool above the function.")
    for hook in options.hooks:
        if not isinstance(hook, FunctionHook):  # pyright: ignore[reportUnnecessaryIsInstance] - as above
            name = getattr(hook, "__name__", repr(hook))
            raise UserError(f"{name} is not a hook", fix='Write @hook("PreToolUse") above it.')
    names = [tool.name for tool in options.tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"Two tools are called {twice[0]}", fix="Name one with @tool(name=…).")


def _encode_agent(agent: AgentDefinition) -> dict[str, Any]:
    """Return an agent as the settings write one, without what is left out."""
    told: dict[str, Any] = msgspec.to_builtins(agent)
    return {key: value for key, value in told.items() if value not in ("", None, 0, False, [], ())}


def _encode_option(value: object) -> str:
    return msgspec.json.encode(value).decode()
