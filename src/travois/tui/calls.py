"""Tool calls, one readable line each, and what they brought in a few more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, cast

import msgspec

from travois.core.content import Call, words
from travois.core.display_text import visible
from travois.core.facts import Result
from travois.core.tool_names import canonical, canonical_name
from travois.ports.tool import AnyTool
from travois.sandbox.profile import PRIVATE_TMP
from travois.tui import diffs
from travois.tui.cells import clean, cut, folded
from travois.tui.themes import Role, Theme

ERROR = 4
"""How many lines of a failure are shown at once."""
WHOLE = 400
REMARKS = 8
"""How many of the last lines of a result may be remarks of ours."""
CHANGES: dict[str, tuple[Role | Literal[""], str]] = {
    "old_string": ("bad", "-"),
    "new_string": ("good", "+"),
    "content": ("good", "+"),
    "command": ("strong", "$"),
}
QUIET = (
    *("TodoWrite", "TaskCreate", "TaskUpdate", "TaskGet", "TaskList"),
    *("AskUserQuestion", "ExitPlanMode"),
)
"""Calls that show elsewhere what they did."""


def summary(call: Call, tools: Mapping[str, AnyTool]) -> str:
    """What a call does, on one line; of a command always the command itself."""
    call = canonical(call)
    tool = tools.get(call.name)
    try:
        if tool is not None and call.name != "Bash":
            args = msgspec.json.decode(call.args or "{}", type=tool.args, strict=False)
            return visible(tool.summary(args))
        found: object = json.loads(call.args or "{}")
    except (msgspec.DecodeError, ValueError, RecursionError):
        return visible(f"{call.name} {call.args[:200]}")
    fields = cast(dict[str, object], found) if isinstance(found, dict) else {}
    if isinstance(command := fields.get("command"), str):
        return visible(f"$ {command.strip()}")
    return visible(f"{call.name} {call.args[:200]}")


def given(args: str, theme: Theme, columns: int) -> list[str]:
    """The arguments of a call, a line or more each, with nothing in them hidden or left out."""
    try:
        fields: object = json.loads(args or "{}")
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return folded(visible(args), columns)
    lines: list[str] = []
    for name, value in cast(dict[str, object], fields).items():
        lines += _field(name, value, theme=theme, columns=columns)
    return lines


def _field(name: str, value: object, *, theme: Theme, columns: int) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    role, sign = CHANGES.get(name, ("", ""))
    shown = [line for part in text.split("\n") for line in folded(visible(part), columns - 4)]
    if role and sign in ("+", "-"):
        return [theme.mark(f"{sign} {line}", role) for line in shown]
    first, *more = [theme.mark(line, role) if role else line for line in shown]
    label = theme.mark(sign or f"{visible(name)}:", "quiet")
    return [f"{label} {first}", *(f"{theme.mark('│', 'quiet')} {line}" for line in more)]


def done(
    call: Call, result: Result, *, tools: Mapping[str, AnyTool], theme: Theme, columns: int
) -> list[str]:
    """A call that has ended: one line, the change if it made one, the failure if it was one."""
    if canonical_name(call.name) in QUIET and not result.error:
        return []
    change = diffs.patch(result.detail) if result.detail else None
    mark = theme.mark("✗", "bad") if result.error else theme.mark("✓", "good")
    told = diffs.tally(change, theme) if change else theme.mark(_size(result), "quiet")
    room = columns - 6 - len(_size(result))
    first = f"  {mark} {cut(summary(call, tools), room)}  {told}".rstrip()
    where = [theme.mark(f"    {cut(line, columns - 5)}", "quiet") for line in _tmp_notices(result)]
    if change and not result.error:
        return [first, *where, *diffs.lines(change, theme, columns)]
    if result.error:
        return [first, *_failure(result, theme, columns)]
    return [first, *where]


def running(
    call: Call, progress: str, *, tools: Mapping[str, AnyTool], theme: Theme, columns: int
) -> list[str]:
    """A call that runs, with the last line of what it said."""
    if canonical_name(call.name) in QUIET:
        return []
    first = f"  {theme.mark('●', 'accent')} {cut(summary(call, tools), columns - 5)}"
    last = clean(progress).rstrip().rpartition("\n")[2]
    return [first, theme.mark(f"    {cut(last, columns - 5)}", "quiet")] if last else [first]


def whole(call: Call, result: Result, *, theme: Theme, columns: int) -> list[str]:
    """Everything that a call was given and brought, as far as a screen can bear it."""
    call = canonical(call)
    asked = [f"    {line}" for line in given(call.args, theme, columns - 5)]
    text = clean(words(result.content)).rstrip()
    brought = [f"    {line}" for line in folded(text, columns - 5)] if text else []
    rest = len(brought) - WHOLE
    more = [theme.mark(f"    … {rest} more lines", "quiet")] if rest > 0 else []
    title = theme.mark(f"  {call.name}", "strong")
    return ["", title, *asked, *brought[:WHOLE], *more]


def _size(result: Result) -> str:
    if result.error:
        return ""
    shown = len(words(result.content).splitlines())
    count = shown if result.lines < 0 else result.lines
    return "" if not count else "1 line" if count == 1 else f"{count:,} lines"


def _tmp_notices(result: Result) -> list[str]:
    """What the result says of the session's private /tmp, which a person would look for in vain."""
    lines = words(result.content).splitlines()[-REMARKS:]
    return [clean(line.strip("[]")) for line in lines if line.startswith(f"[{PRIVATE_TMP}")]


def _failure(result: Result, theme: Theme, columns: int) -> list[str]:
    text = clean(words(result.content)).strip()
    told = [cut(line, columns - 5) for line in text.split("\n") if line.strip()]
    more = [f"… {len(told) - ERROR} more lines (Ctrl-O)"] if len(told) > ERROR else []
    return [theme.mark(f"    {line}", "quiet") for line in (*told[:ERROR], *more)]
