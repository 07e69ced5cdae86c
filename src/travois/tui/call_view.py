"""Tool calls in the transcript: a title line each, and a preview of what the call brought."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from travois.core.content import Text
from travois.core.display_text import escape_invisible
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE
from travois.ports.tool import AnyTool
from travois.presentation import ToolCallItem, ToolKind
from travois.tui.diff_view import (
    INDENT,
    MAX_DIFF_LINES,
    TOO_LONG_DIFF,
    format_line_counts,
    render_diff_rows,
    render_more_hint,
)
from travois.tui.layout import clean_display_text, cut_line, display_width, fold_lines, wrap_words
from travois.tui.theme import TextRole, Theme

MAX_RESULT_LINES = 400
MAX_FAILURE_LINES = 8
"""Lines of a failure that are shown at first."""
MAX_MARKED_LINES = 5
"""Lines that say why it failed, among them."""
MAX_NEW_FILE_LINES = 10
MAX_PROGRESS_LINES = 3
MAX_NOTICE_LINES = 8
"""Last lines of a result that are searched for our own notices."""
PREVIEW_LINES: dict[ToolKind, int] = {
    "execute": -5,
    "search": 5,
    "fetch": 3,
    "think": 3,
    "other": 3,
}
"""Lines of a result that are shown at first; of a command, the last ones."""
ARGUMENT_STYLES: dict[str, tuple[TextRole | Literal[""], str]] = {
    "old_string": ("bad", "-"),
    "new_string": ("good", "+"),
    "content": ("good", "+"),
    "command": ("strong", "$"),
}
QUIET_TOOLS = (
    *("TodoWrite", "TaskCreate", "TaskUpdate", "TaskGet", "TaskList"),
    *("AskUserQuestion", "ExitPlanMode"),
)
"""Tools whose effect is shown elsewhere."""
NEW_ERRORS_PATTERN = re.compile(r"\d+ new errors? since .*:$", re.MULTILINE)
"""The first line of what language servers say about an edit (`lsp/problems.py`)."""
NO_FAILURES_PATTERN = re.compile(r"\b(?:0|no) (?:errors?|failed|failures?)\b", re.IGNORECASE)
FAILURE_PATTERN = re.compile(
    r"^E  |^npm ERR!|\w*(?:Error|Exception|Panic)\b|"
    r"(?i:\b(?:error|fatal|panicked|failed|failures?|undefined|denied|cannot|not found"
    r"|no such|no module named|unexpected|assertion|aborted|killed|timed out|could not|refused)\b)"
)
"""A line of output that says why something failed."""
HEADING_PATTERN = re.compile(r"[=_*-]{5,}\D*")
"""A heading of a report, such as pytest's FAILURES: it says no reason."""
SURE_FAILURE_PATTERN = re.compile(
    r"^(?:Traceback \(most recent call last\)|npm ERR!|FAILED |ERROR |fatal: |error(?:\[\w+\])?: "
    r"|make: \*\*\*|\w+(?:Error|Exception): )|: command not found$|No module named |curl: \(\d+\) |"
    r"\b[1-9]\d* failed\b",
    re.MULTILINE,
)
"""Output of a program that failed, whatever the exit code of the pipe or list it stands in."""
DONE_AGENT_PATTERN = re.compile(r"\[agent \w+: done\]")
"""The first line of a subagent's report, which the sign of its call says already."""
REMARK_PATTERN = re.compile(r"\[.*\.\]|\(no output\)")
"""What is said to the model about how a command ran."""
READER_PROGRAMS = ("cat", "grep", "rg", "git", "head", "tail", "sed", "awk", "less", "journalctl")
"""Programs that show texts of others: an error in these is not theirs."""


def render_arguments(args: str, theme: Theme, columns: int) -> list[str]:
    """Render a call's arguments in full, with control characters made visible."""
    try:
        fields: object = json.loads(args or "{}")
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return fold_lines(escape_invisible(args), columns)
    lines: list[str] = []
    for name, value in cast(dict[str, object], fields).items():
        lines += _render_argument(name, value, theme=theme, columns=columns)
    return lines


def _render_argument(name: str, value: object, *, theme: Theme, columns: int) -> list[str]:
    """Render one argument; texts of edits and commands are marked as such."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    role, sign = ARGUMENT_STYLES.get(name, ("", ""))
    shown = [
        line
        for part in text.split("\n")
        for line in fold_lines(escape_invisible(part), columns - 4)
    ]
    if role and sign in ("+", "-"):
        return [theme.mark(f"{sign} {line}", role) for line in shown]
    first, *more = [theme.mark(line, role) if role else line for line in shown]
    label = theme.mark(sign or f"{escape_invisible(name)}:", "quiet")
    return [f"{label} {first}", *(f"{theme.mark('│', 'quiet')} {line}" for line in more)]


def render_finished_call(
    item: ToolCallItem,
    *,
    tools: Mapping[str, AnyTool],
    theme: Theme,
    columns: int,
    is_diff_shown: bool = False,
) -> list[str]:
    """Render a finished call: a title, and a preview of its change, result or failure."""
    if item.name in QUIET_TOOLS and not item.is_error:
        return []
    told = _format_outcome(item, theme)
    room = columns - 7 - display_width(told)
    title = f"  {_render_sign(item, theme)} {cut_line(_title(item, tools), room)}"
    first = f"{title}  {told}".rstrip()
    notices = [
        theme.mark(f"{INDENT}{cut_line(line, columns - 5)}", "quiet")
        for line in _find_tmp_notices(item.text)
    ]
    body = [] if is_diff_shown and item.patches else _render_preview(item, theme, columns)
    return [first, *notices, *body, *_render_new_errors(item, theme, columns)]


def render_running_call(
    item: ToolCallItem, progress: str, *, tools: Mapping[str, AnyTool], theme: Theme, columns: int
) -> list[str]:
    """Render a running call with the last lines of its output."""
    if item.name in QUIET_TOOLS:
        return []
    first = f"  {theme.mark('●', 'accent')} {cut_line(_title(item, tools), columns - 5)}"
    told = clean_display_text(progress).rstrip()
    lines = told.split("\n")[-MAX_PROGRESS_LINES:] if told else []
    return [first, *(theme.mark(f"{INDENT}{cut_line(one, columns - 5)}", "quiet") for one in lines)]


def _title(item: ToolCallItem, tools: Mapping[str, AnyTool]) -> str:
    return item.title(tools, folder=os.getcwd())


def render_whole_call(item: ToolCallItem, *, theme: Theme, columns: int) -> list[str]:
    """Render a call's change, or its arguments and its result up to a limit."""
    title = theme.mark(f"  {item.name}", "strong")
    if rows := item.diff_rows:
        return ["", title, *render_diff_rows(rows, theme, columns, most=len(rows))]
    asked = [f"{INDENT}{line}" for line in render_arguments(item.own_call.args, theme, columns - 5)]
    text = clean_display_text(item.text).rstrip()
    brought = [f"{INDENT}{line}" for line in fold_lines(text, columns - 5)] if text else []
    rest = len(brought) - MAX_RESULT_LINES
    more = [theme.mark(f"{INDENT}… {rest} more lines", "quiet")] if rest > 0 else []
    return ["", title, *asked, *brought[:MAX_RESULT_LINES], *more]


def _render_sign(item: ToolCallItem, theme: Theme) -> str:
    if item.is_error:
        return theme.mark("✗", "bad")
    return theme.mark("!", "warn") if _hides_failure(item) else theme.mark("✓", "good")


def _hides_failure(item: ToolCallItem) -> bool:
    """Tell whether a command reports success though a program in it failed."""
    command = item.arguments if item.kind == "execute" else None
    command = command.get("command") if isinstance(command, dict) else None
    if not isinstance(command, str) or not re.search(r"[|;&]", command):
        return False
    program = command.split(maxsplit=1)[0]
    return program not in READER_PROGRAMS and bool(SURE_FAILURE_PATTERN.search(item.text))


def _format_outcome(item: ToolCallItem, theme: Theme) -> str:
    """Format the end of the title: changed lines, the size of the result, or the exit code."""
    if item.patches:
        return format_line_counts(item.patches, theme)
    if item.is_denied:
        return theme.mark("not run", "bad")
    if not item.is_error:
        return theme.mark(_format_result_size(item), "quiet")
    code = item.detail.get("exitCode") if isinstance(item.detail, dict) else None
    return theme.mark(f"exit {code}", "bad") if code else ""


def _format_result_size(item: ToolCallItem) -> str:
    """Format how many lines a tool call returned."""
    if item.result is None or item.kind == "think":
        return ""
    count = len(item.text.splitlines()) if item.result.lines < 0 else item.result.lines
    return "" if not count else "1 line" if count == 1 else f"{count:,} lines"


def _render_preview(item: ToolCallItem, theme: Theme, columns: int) -> list[str]:
    """Render the part of a result that a person wants to see at once."""
    if item.is_error:
        return _render_failure(item, theme, columns)
    if item.patches:
        only = item.patches[0] if len(item.patches) == 1 else None
        if only is not None and only.truncated:
            return [theme.mark(f"{INDENT}{TOO_LONG_DIFF}", "quiet")]
        most = MAX_NEW_FILE_LINES if only and only.type == "create" else MAX_DIFF_LINES
        return render_diff_rows(item.diff_rows, theme, columns, most=most)
    lines, count = _result_lines(item), PREVIEW_LINES.get(item.kind, 0)
    if item.name == "Remember" or not count:
        return []
    if lines and item.name == "Agent" and DONE_AGENT_PATTERN.fullmatch(lines[0]):
        del lines[0]
    if count < 0 and _hides_failure(item):
        return _render_failure(item, theme, columns)
    chosen = range(len(lines))[count:] if count < 0 else range(len(lines))[:count]
    return _render_chosen(lines, chosen, theme, columns)


def _render_failure(item: ToolCallItem, theme: Theme, columns: int) -> list[str]:
    """Render the lines that say why a call failed; if none does, its last ones."""
    lines = _result_lines(item)
    if item.kind != "execute" or item.is_denied:
        shown = range(min(MAX_FAILURE_LINES, len(lines)))
        return _render_chosen(lines, shown, theme, columns, red=() if item.is_denied else shown)
    lines = [line for line in lines if not HEADING_PATTERN.fullmatch(line)]
    telling = [at for at, line in enumerate(lines) if _tells_failure(line)]
    return _render_chosen(lines, _choose_failure_lines(lines), theme, columns, red=telling)


def _choose_failure_lines(lines: Sequence[str]) -> Sequence[int]:
    """Choose the last lines that name a failure, and the end of the output."""
    if len(lines) <= MAX_FAILURE_LINES:
        return range(len(lines))
    telling = [at for at, line in enumerate(lines) if _tells_failure(line)][-MAX_MARKED_LINES:]
    ending = range(len(lines))[len(telling) - MAX_FAILURE_LINES :]
    return sorted({*telling, *ending})


def _tells_failure(line: str) -> bool:
    return bool(FAILURE_PATTERN.search(NO_FAILURES_PATTERN.sub("", line)))


def _render_chosen(
    lines: Sequence[str],
    chosen: Sequence[int],
    theme: Theme,
    columns: int,
    *,
    red: Sequence[int] = (),
) -> list[str]:
    """Render some lines of a result; a last line counts the others."""
    shown: list[str] = []
    before = chosen[0] - 1 if chosen else 0
    for at in chosen:
        if at > before + 1:
            shown.append(theme.mark(f"{INDENT}⋯", "quiet"))
        before = at
        role: TextRole = "bad" if at in red else "quiet"
        room = columns - len(INDENT) - 1
        parts = wrap_words(lines[at], room)[:3] if at in red else [cut_line(lines[at], room)]
        shown += [theme.mark(f"{INDENT}{part}", role) for part in parts]
    rest = len(lines) - len(chosen)
    return [*shown, render_more_hint(rest, theme)] if rest > 0 else shown


def _result_lines(item: ToolCallItem) -> list[str]:
    """Return the lines of a result that are not empty, without what the title says already."""
    lines = [line.rstrip() for line in clean_display_text(item.text).split("\n")]
    kept = [line for line in lines if line and not line.startswith(f"[{PRIVATE_TMP_NOTICE}")]
    while item.kind == "execute" and kept and REMARK_PATTERN.fullmatch(kept[-1]):
        del kept[-1]
    is_told = item.is_error and kept and kept[0].startswith("Exit code ")
    return kept[1:] if is_told else kept


def _render_new_errors(item: ToolCallItem, theme: Theme, columns: int) -> list[str]:
    """Render the errors that language servers found since an edit, which its diff hides."""
    content = item.result.content if item.result else ()
    found = [block.text for block in content[1:] if isinstance(block, Text)]
    found = [text.splitlines() for text in found if NEW_ERRORS_PATTERN.match(text)]
    return [
        theme.mark(
            f"{INDENT}{cut_line(clean_display_text(line), columns - 5)}", "quiet" if n else "warn"
        )
        for lines in found
        for n, line in enumerate(lines)
    ]


def _find_tmp_notices(text: str) -> list[str]:
    """Find the notices about the private /tmp, where a user would not look for files."""
    lines = text.splitlines()[-MAX_NOTICE_LINES:]
    return [
        clean_display_text(line.strip("[]"))
        for line in lines
        if line.startswith(f"[{PRIVATE_TMP_NOTICE}")
    ]
