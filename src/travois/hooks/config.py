"""Hooks as settings write them, and when they listen."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from travois.hooks.events import EVENTS, TOOLS, AnyOccasion
from travois.permissions.rules import Use, matches
from travois.permissions.rules import parse as rule

COMMAND = 600.0
CALLED = 60.0
PROMPTED = 30.0
LEAVING = 1.5
LONGEST_LEAVING = 60.0
"""How many seconds a hook has: in general, as a callback, before a prompt, when one leaves."""
Type = Literal["command", "http", "callback", "prompt", "agent", "mcp_tool"]
NEEDED = {
    "command": ("command",),
    "http": ("url",),
    "prompt": ("prompt",),
    "agent": ("prompt",),
    "mcp_tool": ("server", "tool"),
}
"""What each type cannot do without."""
PATIENCE = {"prompt": PROMPTED, "agent": CALLED}
EARLY = ("SessionStart", "Setup")
"""Events that come before any server has started."""
NAMES = re.compile(r"[A-Za-z0-9_\- ,|]*")
WORDS = re.compile(r"[A-Za-z0-9_|]*")
"""Matchers that are lists of names; any other is a regular expression."""

ABROAD = {
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


ALSO = {"ApplyPatch": ("apply_patch", "Edit", "Write", "MultiEdit")}
"""Tools whose work other tools do too: a hook on those hears of them."""


class Hook(msgspec.Struct, frozen=True, rename="camel"):
    """One handler as settings write it, with the event, the matcher and the file around it."""

    type: Type
    command: str = ""
    """What is run; for a callback, its name."""
    args: tuple[str, ...] | None = None
    shell: Literal["bash", "powershell"] = "bash"
    url: str = ""
    headers: dict[str, str] = {}
    allowed_env_vars: tuple[str, ...] = ()
    prompt: str = ""
    """What a model is asked; the event stands for `$ARGUMENTS` in it."""
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
    """What the person reads while it runs."""
    once: bool = False
    aside: bool = msgspec.field(default=False, name="async")
    rewake: bool = msgspec.field(default=False, name="asyncRewake")
    env: tuple[str, ...] = ()
    """Variables of ours that it gets although they look like secrets; only the user's own does."""
    sandbox: bool | None = None
    """Whether it runs in the sandbox; none for what the settings say of all hooks."""
    event: str = ""
    matcher: str = ""
    origin: str = ""
    own: bool = False
    """Whether the user wrote it, and not a workspace, a plugin, a skill or an agent."""
    dialect: Literal["", "gemini"] = ""
    """Whose words it speaks, if not those of everybody else."""
    plugin: str = ""
    keeps: str = ""
    """The folder of the plugin that brings it, and where that keeps things."""
    whose: str = ""
    """The child whose own it is; empty for one that hears of everybody."""

    @property
    def name(self) -> str:
        """What it runs, for people."""
        if self.type == "mcp_tool":
            return f"{self.server}: {self.tool}"
        return self.url or self.prompt or " ".join((self.command, *(self.args or ())))

    @property
    def patience(self) -> float:
        """How many seconds it has."""
        if self.event == "SessionEnd":
            return min(self.timeout or LEAVING, LONGEST_LEAVING)
        usual = PROMPTED if self.event == "UserPromptSubmit" else COMMAND
        return self.timeout or min(usual, PATIENCE.get(self.type, usual))

    @property
    def background(self) -> bool:
        """Whether nobody waits for it; what a notification says changes nothing."""
        loose = self.aside or self.rewake or self.event == "Notification"
        return loose and self.type == "command"


Callback = Callable[[dict[str, Any]], Awaitable[object]]
"""Hears what a program would read, and answers with what one would print, as an object."""


class Listener(msgspec.Struct, frozen=True):
    """A hook of whoever drives the session from code."""

    event: str
    call: Callback
    matcher: str = ""
    timeout: float = CALLED
    on_failure: Literal["continue", "block"] = "continue"


def called(listeners: Iterable[Listener]) -> tuple[tuple[Hook, ...], dict[str, Callback]]:
    """These as hooks, and what each of them calls, by its name."""
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


class Group(msgspec.Struct, frozen=True):
    """Handlers under one matcher."""

    hooks: tuple[object, ...]
    matcher: str = ""


class Parsed(msgspec.Struct, frozen=True):
    """The hooks of one file, and what the user should know of the rest."""

    hooks: tuple[Hook, ...] = ()
    notices: tuple[str, ...] = ()


def parse(tree: Mapping[str, object], *, origin: str, whose: str = "") -> Parsed:
    """Read the `hooks` of one settings file; what cannot be used spoils nothing else.

    Those of a child (`whose`) hear of it alone: its `Stop` is that of a child.
    """
    hooks: list[Hook] = []
    notices: list[str] = []
    for written, groups in tree.items():
        event = "SubagentStop" if whose and written == "Stop" else written
        if event not in EVENTS:
            notices.append(f"{origin}: hooks.{event} is ignored: there is no such event here")
            continue
        try:
            told = msgspec.convert(groups, tuple[Group, ...])
        except msgspec.ValidationError as error:
            notices.append(f"{origin}: hooks.{event} is ignored: {error}")
            continue
        for group in told:
            _collect(group, event, origin=origin, hooks=hooks, notices=notices)
    own = (msgspec.structs.replace(hook, whose=whose) for hook in hooks)
    return Parsed(tuple(own), tuple(notices))


def _collect(
    group: Group, event: str, *, origin: str, hooks: list[Hook], notices: list[str]
) -> None:
    for written in group.hooks:
        try:
            hook = msgspec.convert(written, Hook)
        except msgspec.ValidationError as error:
            notices.append(f"{origin}: a hook of {event} is ignored: {error}")
            continue
        if why := _unusable(hook, event, group.matcher):
            notices.append(f"{origin}: a hook of {event} is ignored: {why}")
            continue
        around = {"event": event, "matcher": group.matcher, "origin": origin, "own": False}
        hooks.append(msgspec.structs.replace(hook, **around))


def _unusable(hook: Hook, event: str, matcher: str) -> str:
    if hook.type == "callback":
        return "only a program that drives the session has callbacks"
    for field in NEEDED[hook.type]:
        if not getattr(hook, field):
            return f"it has no {field}"
    if hook.type == "mcp_tool" and event in EARLY:
        return "no server has started by then"
    try:
        re.compile(matcher)
    except re.error as error:
        return f"its matcher {matcher!r} is no regular expression: {error}"
    return ""


def listening(
    hooks: Iterable[Hook], occasion: AnyOccasion, use: Use | None, *, whose: str = ""
) -> tuple[Hook, ...]:
    """Those that want to hear of this, each once however many files name it."""
    found: dict[object, Hook] = {}
    for hook in sorted(hooks, key=lambda hook: hook.dialect):
        if hook.event != occasion.event or not matching(hook, occasion.subject):
            continue
        if hook.whose and hook.whose != whose:
            continue
        if hook.condition and not _holds(hook.condition, use):
            continue
        found.setdefault(msgspec.json.encode(_bare(hook)), hook)
    return tuple(found.values())


def _bare(hook: Hook) -> Hook:
    own = hook.own and bool(hook.env)
    return msgspec.structs.replace(
        hook, matcher="", origin="", dialect="", status_message="", own=own
    )


def matching(hook: Hook, subject: str) -> bool:
    """Whether the hook's matcher means this: one of a list of names, or a regular expression."""
    matcher = hook.matcher
    if matcher in ("", "*") or not subject:
        return True
    if hook.dialect:
        return _pattern(matcher).search(abroad(subject)) is not None
    from travois.core.tool_aliases import SPELLINGS, renamed_tool  # only where a hook has a matcher

    names = WORDS if hook.event in ("StopFailure", "FileChanged") else NAMES
    meant = (subject, *ALSO.get(subject, ()))
    if hook.event in TOOLS:  # only a spelling that the matcher names: `(?!Bash)` means no other one
        meant = (*meant, *(one for one in SPELLINGS.get(subject, ()) if one in matcher))
    if names.fullmatch(matcher):
        listed = [name.strip() for name in re.split(r"[|,]", matcher)]
        by_alias = hook.event in TOOLS and subject in map(renamed_tool, listed)
        return by_alias or any(name in meant for name in listed)
    return any(_pattern(matcher).search(one) is not None for one in meant)


def abroad(subject: str) -> str:
    """What a tool is called in the other dialect; anything else is called the same."""
    return ABROAD.get(subject, subject)


@lru_cache(maxsize=256)
def _pattern(matcher: str) -> re.Pattern[str]:
    return re.compile(matcher)


def _holds(condition: str, use: Use | None) -> bool:
    """Whether a call is what the rule speaks of; a rule that cannot be read holds."""
    if use is None:
        return False
    try:
        return matches(rule(condition, "ask"), use)
    except ValueError:
        return True
