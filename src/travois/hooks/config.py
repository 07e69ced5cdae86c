"""Hooks as settings files declare them, and the rules for which hook runs on which event."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from travois.core.patterns import compile_lazily
from travois.hooks.events import HOOK_EVENT_NAMES, TOOL_EVENT_NAMES, AnyHookEvent
from travois.lazy_imports import lazy_imports
from travois.permissions.rules import ToolUse, rule_matches
from travois.permissions.rules import parse_permission_rule as parse_permission_rule

with lazy_imports():
    from travois.core import tool_names


COMMAND_TIMEOUT_SECONDS = 600.0
CALLBACK_TIMEOUT_SECONDS = 60.0
PROMPT_TIMEOUT_SECONDS = 30.0
SESSION_END_TIMEOUT_SECONDS = 1.5
MAX_SESSION_END_TIMEOUT_SECONDS = 60.0
"""Hook timeouts: usual, callback, before a prompt, at the end of a session and its maximum."""
HookType = Literal["command", "http", "callback", "prompt", "agent", "mcp_tool"]
REQUIRED_FIELDS = {
    "command": ("command",),
    "http": ("url",),
    "prompt": ("prompt",),
    "agent": ("prompt",),
    "mcp_tool": ("server", "tool"),
}
"""The required fields of each hook type."""
TIMEOUT_BY_HOOK_TYPE = {"prompt": PROMPT_TIMEOUT_SECONDS, "agent": CALLBACK_TIMEOUT_SECONDS}
EVENTS_BEFORE_MCP_START = ("SessionStart", "Setup")
"""Events that come before any server has started."""
NAME_LIST_MATCHER = compile_lazily(r"[A-Za-z0-9_\- ,|]*")
WORD_LIST_MATCHER = compile_lazily(r"[A-Za-z0-9_|]*")
"""Matchers that are lists of names; any other is a regular expression."""

GEMINI_TOOL_NAMES = {
    "Bash": "run_shell_command",
    "Read": "read_file",
    "Edit": "replace",
    "Write": "write_file",
    "Grep": "grep_search",
    "Glob": "glob",
    "WebFetch": "web_fetch",
    "WebSearch": "google_web_search",
    "TodoWrite": "write_todos",
}
"""Our tools, and what Gemini CLI calls them."""


EQUIVALENT_TOOL_NAMES = {
    "ApplyPatch": ("apply_patch", "Edit", "Write", "MultiEdit"),
    "ApplyRename": ("Edit",),
}
"""Tools whose work other tools do too: a hook on those hears of them."""


class Hook(msgspec.Struct, frozen=True, rename="camel"):
    """One hook from a settings file, with its event, its matcher and the file that declares it."""

    type: HookType
    command: str = ""
    """The command line; for a callback, its name."""
    args: tuple[str, ...] | None = None
    shell: Literal["bash", "powershell"] = "bash"
    url: str = ""
    headers: dict[str, str] = {}
    allowed_env_vars: tuple[str, ...] = ()
    prompt: str = ""
    """The prompt for a model; `$ARGUMENTS` in it is replaced by the event."""
    model: str = ""
    continue_on_block: bool = False
    server: str = ""
    tool: str = ""
    input: dict[str, Any] = {}
    """The arguments of a server's tool; `${tool_input.file_path}` is that of the event."""
    condition: str = msgspec.field(default="", name="if")
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None
    on_failure: Literal["continue", "block"] = "continue"
    status_message: str = ""
    """The text shown to the user while the hook runs."""
    once: bool = False
    aside: bool = msgspec.field(default=False, name="async")
    rewake: bool = msgspec.field(default=False, name="asyncRewake")
    env: tuple[str, ...] = ()
    """Variables of ours that it gets although they look like secrets; only the user's own does."""
    sandbox: bool | None = None
    """True to run in the sandbox, False not to; None for the general setting."""
    event: str = ""
    matcher: str = ""
    origin: str = ""
    own: bool = False
    """True if the user wrote it, and not a workspace, a plugin, a skill or an agent."""
    dialect: Literal["", "gemini"] = ""
    """The agent whose payload format the hook expects; empty for Claude Code's."""
    plugin: str = ""
    keeps: str = ""
    """The folder of the plugin that brings it, and where that keeps things."""
    whose: str = ""
    """The child whose own it is; empty for one that hears of everybody."""

    @property
    def name(self) -> str:
        """Return the command, URL, prompt or MCP tool that identifies the hook to people."""
        if self.type == "mcp_tool":
            return f"{self.server}: {self.tool}"
        return self.url or self.prompt or " ".join((self.command, *(self.args or ())))

    @property
    def timeout_seconds(self) -> float:
        """Return the timeout in seconds."""
        if self.event == "SessionEnd":
            return min(self.timeout or SESSION_END_TIMEOUT_SECONDS, MAX_SESSION_END_TIMEOUT_SECONDS)
        usual = (
            PROMPT_TIMEOUT_SECONDS if self.event == "UserPromptSubmit" else COMMAND_TIMEOUT_SECONDS
        )
        return self.timeout or min(usual, TIMEOUT_BY_HOOK_TYPE.get(self.type, usual))

    @property
    def runs_in_background(self) -> bool:
        """Return whether the hook runs in the background; a `Notification` hook always does."""
        loose = self.aside or self.rewake or self.event == "Notification"
        return loose and self.type == "command"


HookCallback = Callable[[dict[str, Any]], Awaitable[object]]
"""Hears what a program would read, and answers with what one would print, as an object."""


class Listener(msgspec.Struct, frozen=True):
    """A hook that an SDK program registers from code."""

    event: str
    call: HookCallback
    matcher: str = ""
    timeout: float = CALLBACK_TIMEOUT_SECONDS
    on_failure: Literal["continue", "block"] = "continue"


def build_callback_hooks(
    listeners: Iterable[Listener],
) -> tuple[tuple[Hook, ...], dict[str, HookCallback]]:
    """Convert SDK listeners to hooks, and return their callbacks by hook name."""
    calls = {f"callback {number}": one for number, one in enumerate(listeners, 1)}
    hooks = tuple(
        Hook(
            "callback",
            command=name,
            timeout=one.timeout,
            on_failure=one.on_failure,
            event=one.event,
            matcher=one.matcher,
        )
        for name, one in calls.items()
    )
    return hooks, {name: one.call for name, one in calls.items()}


class HookGroup(msgspec.Struct, frozen=True):
    """The hooks under one matcher."""

    hooks: tuple[object, ...]
    matcher: str = ""


class ParsedHooks(msgspec.Struct, frozen=True):
    """The hooks of one file, and notices about entries that were ignored."""

    hooks: tuple[Hook, ...] = ()
    notices: tuple[str, ...] = ()


def parse_hooks(tree: Mapping[str, object], *, origin: str, whose: str = "") -> ParsedHooks:
    """Parse the `hooks` of one settings file; an invalid entry does not affect the others.

    Hooks of a subagent (`whose`) run for it alone: its `Stop` counts as `SubagentStop`.
    """
    hooks: list[Hook] = []
    notices: list[str] = []
    for written, groups in tree.items():
        event = "SubagentStop" if whose and written == "Stop" else written
        if event not in HOOK_EVENT_NAMES:
            notices.append(f"{origin}: hooks.{event} is ignored: unknown event")
            continue
        try:
            told = msgspec.convert(groups, tuple[HookGroup, ...])
        except msgspec.ValidationError as error:
            notices.append(f"{origin}: hooks.{event} is ignored: {error}")
            continue
        for group in told:
            _parse_hook_group(group, event, origin=origin, hooks=hooks, notices=notices)
    own = (msgspec.structs.replace(hook, whose=whose) for hook in hooks)
    return ParsedHooks(tuple(own), tuple(notices))


def _parse_hook_group(
    group: HookGroup, event: str, *, origin: str, hooks: list[Hook], notices: list[str]
) -> None:
    """Parse one group of hooks into `hooks`; add a notice for each that is ignored."""
    for written in group.hooks:
        try:
            hook = msgspec.convert(written, Hook)
        except msgspec.ValidationError as error:
            notices.append(f"{origin}: a {event} hook is ignored: {error}")
            continue
        if why := _find_hook_error(hook, event, group.matcher):
            notices.append(f"{origin}: a {event} hook is ignored: {why}")
            continue
        around = {"event": event, "matcher": group.matcher, "origin": origin, "own": False}
        hooks.append(msgspec.structs.replace(hook, **around))


def _find_hook_error(hook: Hook, event: str, matcher: str) -> str:
    """Return why a hook in a settings file is invalid; empty if it is valid."""
    if hook.type == "callback":
        return "only SDK programs can register callbacks"
    for field in REQUIRED_FIELDS[hook.type]:
        if not getattr(hook, field):
            return f"{field} is missing"
    if hook.type == "mcp_tool" and event in EVENTS_BEFORE_MCP_START:
        return "no MCP server has started by then"
    try:
        re.compile(matcher)
    except re.error as error:
        return f"its matcher {matcher!r} is not a regular expression: {error}"
    return ""


def select_matching_hooks(
    hooks: Iterable[Hook], occasion: AnyHookEvent, use: ToolUse | None, *, whose: str = ""
) -> tuple[Hook, ...]:
    """Return the hooks that match an event, each once even if several files declare it."""
    found: dict[object, Hook] = {}
    for hook in sorted(hooks, key=lambda hook: hook.dialect):
        if hook.event != occasion.event or not matches_subject(hook, occasion.subject):
            continue
        if hook.whose and hook.whose != whose:
            continue
        if hook.condition and not _condition_matches(hook.condition, use):
            continue
        found.setdefault(msgspec.json.encode(_strip_origin(hook)), hook)
    return tuple(found.values())


def _strip_origin(hook: Hook) -> Hook:
    """Return a hook without the fields that do not change its effect, to find duplicates."""
    own = hook.own and bool(hook.env)
    return msgspec.structs.replace(
        hook, matcher="", origin="", dialect="", status_message="", own=own
    )


def matches_subject(hook: Hook, subject: str) -> bool:
    """Return whether a hook's matcher, a list of names or a regex, matches the event's subject."""
    matcher = hook.matcher
    if matcher in ("", "*") or not subject:
        return True
    if hook.dialect:
        return _compile_matcher(matcher).search(gemini_tool_name(subject)) is not None
    names = WORD_LIST_MATCHER if hook.event in ("StopFailure", "FileChanged") else NAME_LIST_MATCHER
    meant = (subject, *EQUIVALENT_TOOL_NAMES.get(subject, ()))
    if (
        hook.event in TOOL_EVENT_NAMES
    ):  # only a spelling that the matcher names: `(?!Bash)` means no other one
        meant = (
            *meant,
            *(one for one in tool_names.PATTERN_SPELLINGS.get(subject, ()) if one in matcher),
        )
    if names.fullmatch(matcher):
        listed = [name.strip() for name in re.split(r"[|,]", matcher)]
        by_alias = hook.event in TOOL_EVENT_NAMES and subject in map(
            tool_names.find_renamed_tool, listed
        )
        return by_alias or any(name in meant for name in listed)
    return any(_compile_matcher(matcher).search(one) is not None for one in meant)


def gemini_tool_name(subject: str) -> str:
    """Return Gemini CLI's name of a tool for its hooks; other names stay."""
    return GEMINI_TOOL_NAMES.get(subject, subject)


@lru_cache(maxsize=256)
def _compile_matcher(matcher: str) -> re.Pattern[str]:
    return re.compile(matcher)


def _condition_matches(condition: str, use: ToolUse | None) -> bool:
    """Return whether a tool call matches a hook's `if` rule; an invalid rule matches."""
    if use is None:
        return False
    try:
        return rule_matches(parse_permission_rule(condition, "ask"), use)
    except ValueError:
        return True
