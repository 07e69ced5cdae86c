"""The transcript: session events as lines on the screen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Literal, cast

import anyio

from travois.core.content import Text, TextOrMedia, extract_text
from travois.core.display_text import escape_invisible
from travois.core.facts import AnyFact, Changed, Ended, Entry, User
from travois.core.tasks import Task, TaskList, read_tasks, task_remark
from travois.permissions.sandbox_profile import PRIVATE_TMP_NOTICE
from travois.ports.tool import AnyTool
from travois.ports.world import (
    ActivityShown,
    AgentProgress,
    CompactionProgress,
    Event,
    TerminalSignal,
    ToolProgress,
    ToolStarted,
)
from travois.presentation import NoticeItem, ReplyItem, SessionItems, ToolCallItem
from travois.providers.replies import BlockBegan, BlockKind, Grew
from travois.tui import agent_progress
from travois.tui.agent_progress import SpinnerState, format_agent_progress
from travois.tui.diff_view import format_line_counts, render_patch, render_unified_diff
from travois.tui.markdown import (
    MarkdownStream,
    clean_display_text,
    cut_line,
    fold_lines,
    render_markdown,
    wrap_words,
)
from travois.tui.screen import Screen
from travois.tui.theme import TextRole, Theme

if TYPE_CHECKING:
    from travois.tui.markdown import MarkdownStream


# Tool calls: a title line each, and a few lines of their result.


MAX_FAILURE_LINES = 4
"""Lines of a failure that are shown at first."""
MAX_RESULT_LINES = 400
MAX_NOTICE_LINES = 8
"""Last lines of a result that are searched for our own notices."""
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


def render_arguments(args: str, theme: Theme, columns: int) -> list[str]:
    """Render a tool call's arguments in full, with control characters made visible."""
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
    """Render one argument of a tool call in the transcript; edits and commands are marked."""
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
    item: ToolCallItem, *, tools: Mapping[str, AnyTool], theme: Theme, columns: int
) -> list[str]:
    """Render a finished tool call in the transcript: a title, and its diff or error."""
    if item.name in QUIET_TOOLS and not item.is_error:
        return []
    change, size = item.patch, _format_result_size(item)
    mark = theme.mark("✗", "bad") if item.is_error else theme.mark("✓", "good")
    told = format_line_counts(change, theme) if change else theme.mark(size, "quiet")
    title = cut_line(item.title(tools), columns - 6 - len(size))
    first = f"  {mark} {title}  {told}".rstrip()
    if item.is_error:
        return [first, *_render_failure(item.text, theme, columns)]
    where = [
        theme.mark(f"    {cut_line(line, columns - 5)}", "quiet")
        for line in _find_tmp_notices(item.text)
    ]
    return [first, *where, *(render_patch(change, theme, columns) if change else ())]


def render_running_call(
    item: ToolCallItem, progress: str, *, tools: Mapping[str, AnyTool], theme: Theme, columns: int
) -> list[str]:
    """Render a running tool call with the last line of its output."""
    if item.name in QUIET_TOOLS:
        return []
    first = f"  {theme.mark('●', 'accent')} {cut_line(item.title(tools), columns - 5)}"
    last = clean_display_text(progress).rstrip().rpartition("\n")[2]
    return [first, theme.mark(f"    {cut_line(last, columns - 5)}", "quiet")] if last else [first]


def render_whole_call(item: ToolCallItem, *, theme: Theme, columns: int) -> list[str]:
    """Render a tool call's arguments and result in full, up to a limit."""
    asked = [f"    {line}" for line in render_arguments(item.own_call.args, theme, columns - 5)]
    text = clean_display_text(item.text).rstrip()
    brought = [f"    {line}" for line in fold_lines(text, columns - 5)] if text else []
    rest = len(brought) - MAX_RESULT_LINES
    more = [theme.mark(f"    … {rest} more lines", "quiet")] if rest > 0 else []
    title = theme.mark(f"  {item.name}", "strong")
    return ["", title, *asked, *brought[:MAX_RESULT_LINES], *more]


def _format_result_size(item: ToolCallItem) -> str:
    """Format how many lines a tool call returned; empty if it failed."""
    if item.result is None or item.is_error:
        return ""
    count = len(item.text.splitlines()) if item.result.lines < 0 else item.result.lines
    return "" if not count else "1 line" if count == 1 else f"{count:,} lines"


def _find_tmp_notices(text: str) -> list[str]:
    """Find notices in a tool result about files in the private /tmp."""
    lines = text.splitlines()[-MAX_NOTICE_LINES:]
    return [
        clean_display_text(line.strip("[]"))
        for line in lines
        if line.startswith(f"[{PRIVATE_TMP_NOTICE}")
    ]


def _render_failure(text: str, theme: Theme, columns: int) -> list[str]:
    """Render the first lines of a failed tool call's error."""
    told = [
        cut_line(line, columns - 5)
        for line in clean_display_text(text).strip().split("\n")
        if line.strip()
    ]
    more = (
        [f"… {len(told) - MAX_FAILURE_LINES} more lines (Ctrl-O)"]
        if len(told) > MAX_FAILURE_LINES
        else []
    )
    return [theme.mark(f"    {line}", "quiet") for line in (*told[:MAX_FAILURE_LINES], *more)]


# The todo list.


MAX_TODO_LINES = 8


def render_todos(
    todos: TaskList, theme: Theme, columns: int, *, most: int = MAX_TODO_LINES
) -> list[str]:
    """Render the to-do list in the transcript; of a long one, the part around the current."""
    at = next((n for n, todo in enumerate(todos) if todo.status != "completed"), len(todos))
    first = max(0, min(at - 2, len(todos) - most))
    shown = [
        _render_todo(todos, todo, theme, columns=columns) for todo in todos[first : first + most]
    ]
    rest = len(todos) - len(shown)
    return [*shown, *([theme.mark(f"    … {rest} more", "quiet")] if rest else [])]


def _render_todo(todos: TaskList, todo: Task, theme: Theme, *, columns: int) -> str:
    """Render one to-do with a mark for its status."""
    text = cut_line(clean_display_text(f"{todo.content}{task_remark(todos, todo)}"), columns - 6)
    match todo.status:
        case "completed":
            return f"  {theme.mark('✓', 'good')} {theme.mark(text, 'quiet')}"
        case "in_progress":
            return f"  {theme.mark('▸', 'accent')} {theme.mark(text, 'strong')}"
        case "pending" | "deleted":
            return f"    {text}"


FRAME_SECONDS = 0.1
MIN_FRAME_CHARS = 72
"""Draw a frame only for this many characters, or after a while."""
MAX_FRAME_WAIT_SECONDS = 0.5
ACTIVITY_NAMES: dict[BlockKind, str] = {
    "thinking": "Thinking",
    "text": "Writing",
    "call": "Preparing",
}
MAX_PROMPT_LINES = 20
"""Lines of a prompt that are shown."""
CHARS_PER_TOKEN = 4


class Transcript:
    """The events of a session on the screen."""

    def __init__(self, screen: Screen, tools: Mapping[str, AnyTool]) -> None:
        self._screen = screen
        self._tools = tools
        self._stream: MarkdownStream | None = None
        self._fresh = 0
        self._drawn = 0.0
        self._items = SessionItems()
        self._running: dict[str, str] = {}
        """The last progress of each running call, by its id."""
        self.results: list[ToolCallItem] = []
        self.todos = read_tasks("")
        self.pending: list[str] = []
        """Input sent to the running turn that the model has not seen yet."""
        self._doing = "Working"
        self._streamed = 0
        self._spin, self._spun = "", 0.0
        self.queued: tuple[str, ...] = ()
        """Input that is queued until the turn ends."""
        self.began = 0.0
        """When the turn began; zero between turns."""
        self.working, self.resting = anyio.Event(), anyio.Event()
        self.resting.set()
        self.spent: tuple[int, int] = (0, 0)
        self.dollars = 0.0
        self._shown = 0
        """Results already expanded, counted from the last one."""

    def begin_turn(self) -> None:
        """Mark the start of a turn."""
        self.began, self.resting = monotonic(), anyio.Event()
        self.spent, self.dollars = (0, 0), 0.0
        self.working.set()

    def end_turn(self) -> None:
        """Mark the end of a turn."""
        self.began, self.queued, self.working = 0.0, (), anyio.Event()
        self.pending.clear()
        self.resting.set()
        self._screen.refresh()

    def show_event(self, event: Event) -> None:
        """Show an event."""
        match item := self._items.add(event):
            case BlockBegan(kind=kind, name=name):
                self._doing = f"{ACTIVITY_NAMES.get(kind, 'Working')}{f' {name}' if name else ''}"
            case Grew(kind=kind, text=text):
                self._extend_reply(text, kind)
                return
            case ToolStarted(call=call):
                self._running[call], self._doing = "", "Running"
            case ToolProgress() | AgentProgress():
                self._show_progress(item)
            case ActivityShown() | CompactionProgress() | TerminalSignal():
                self._show_side_activity(item)
            case NoticeItem():
                self._show_notice(item)
            case ReplyItem():
                self._finish_reply(item)
            case ToolCallItem():
                self._show_result(item)
            case Entry(fact=fact):
                self._show_entry(fact)
            case _:
                return
        self._screen.refresh()

    def _show_progress(self, event: ToolProgress | AgentProgress) -> None:
        """Keep the last progress of a running call or of its subagent."""
        if isinstance(event, ToolProgress):
            self._running[event.call] = event.text
        elif event.call in self._running:
            self._running[event.call] = format_agent_progress(event)

    def _show_side_activity(
        self, event: ActivityShown | CompactionProgress | TerminalSignal
    ) -> None:
        """Show side activity: hooks and compaction."""
        if isinstance(event, ActivityShown):
            self._doing = clean_display_text(event.text)
        elif isinstance(event, CompactionProgress):
            self._doing = "Working" if event.over else f"Summarising ({event.seconds:.0f} s)"
        else:
            self._screen.send_control(event.text)

    def _show_notice(self, item: NoticeItem) -> None:
        match item.kind:
            case "retry":
                self._drop_stream()
                self.show_note(item.text, tone="warn")
            case "warning":
                self.show_note(item.text)
            case "mail":
                self._finish_stream()
                self.show_note(item.text)
            case "memory":
                self._finish_stream()
                self.show_note("remembered")
                theme, columns = self._screen.theme, self._screen.columns
                self._screen.show_lines(*render_unified_diff(item.diff, theme, columns, most=8))

    def _show_entry(self, fact: AnyFact) -> None:
        match fact:
            case User():
                self._show_user_message(fact)
            case Changed(what="todos", value=value):
                self.todos = read_tasks(value)
            case Ended():
                self._show_turn_end(fact)
            case _:
                pass

    def _extend_reply(self, text: str, kind: BlockKind) -> None:
        self._streamed += len(text)
        if kind != "text":
            return
        if self._stream is None:
            self._stream = MarkdownStream(self._screen.theme)
            self._screen.show_lines("")
        self._stream.feed(text)
        self._fresh += len(text)

    def _show_user_message(self, fact: User) -> None:
        text = extract_text(fact.content)
        match fact.origin:
            case "human":
                self.pending = [one for one in self.pending if one != text]
                self._finish_stream()
                self.show_prompt(fact.content)
            case "task":
                self._finish_stream()
                self.show_note(text.strip().partition("\n")[0][:300])
            case "mail" | "note" | "hook":
                pass

    def _finish_reply(self, item: ReplyItem) -> None:
        if self._stream is None and (text := extract_text(item.fact.content)).strip():
            self._extend_reply(text, "text")
        self._finish_stream()
        self._streamed, usage = 0, item.fact.usage
        sent, said = self.spent
        self.spent = (sent + usage.prompt, said + usage.output)
        self._doing = "Working"

    def _show_result(self, item: ToolCallItem) -> None:
        if item.result is None:
            return
        self._running.pop(item.id, None)
        if not item.name:
            return
        self.results.append(item)
        self._shown = 0
        columns, theme = self._screen.columns, self._screen.theme
        lines = render_finished_call(item, tools=self._tools, theme=theme, columns=columns)
        self._screen.show_lines(*(["", *lines] if lines and item.patch else lines))

    def _show_turn_end(self, fact: Ended) -> None:
        self._finish_stream()
        self._running.clear()
        if fact.why == "aborted":
            self.show_note("stopped; the conversation so far is kept", tone="warn")
        elif fact.why not in ("end", "refusal") or fact.detail:
            self.show_note(fact.detail or fact.why, tone="warn")

    def show_prompt(self, content: tuple[TextOrMedia, ...]) -> None:
        """Show a prompt of the user; the last text block is what they typed."""
        theme = self._screen.theme
        media = [f"[{block.kind} {block.name}]" for block in content if not isinstance(block, Text)]
        texts = [
            clean_display_text(block.text).strip("\n")
            for block in content
            if isinstance(block, Text)
        ]
        text = "\n".join((*texts[-1:], *media)).strip("\n")
        lines = fold_lines(text, self._screen.columns - 3)
        rest = len(lines) - MAX_PROMPT_LINES
        shown = lines[:MAX_PROMPT_LINES] + ([f"… {rest} more lines"] if rest > 0 else [])
        first, *more = [theme.mark(line, "strong") for line in shown]
        mark = theme.mark("❯", "accent")
        self._screen.show_lines("", f"{mark} {first}", *(f"  {line}" for line in more))

    def show_note(self, text: str, *, tone: str = "quiet") -> None:
        """Show a notice."""
        theme = self._screen.theme
        lines = wrap_words(clean_display_text(text).strip(), self._screen.columns - 5)
        marked = [theme.mark(line, "warn" if tone == "warn" else "quiet") for line in lines]
        self._screen.show_lines(
            f"  {theme.mark('·', 'quiet')} {marked[0]}", *(f"    {m}" for m in marked[1:])
        )

    def show_paragraph(self, text: str) -> None:
        """Show the answer to a slash command."""
        self._screen.show_lines(
            "", *(f"  {line}" for line in clean_display_text(text).rstrip().split("\n"))
        )

    def show_markdown(self, text: str) -> None:
        """Show a whole Markdown text."""
        self._screen.show_lines(
            "", *render_markdown(text, self._screen.theme, self._screen.columns)
        )

    def expand_result(self) -> None:
        """Show the last result in full; with each further call, the one before."""
        if self._shown < len(self.results):
            self._shown += 1
            theme, columns = self._screen.theme, self._screen.columns
            self._screen.show_lines(
                *render_whole_call(self.results[-self._shown], theme=theme, columns=columns)
            )

    def draw_frame(self) -> bool:
        """Draw the text that arrived since the last frame, if it is due."""
        if self._stream is None or not self._fresh:
            return False
        if self._fresh < MIN_FRAME_CHARS and monotonic() - self._drawn < MAX_FRAME_WAIT_SECONDS:
            return False
        self._fresh, self._drawn = 0, monotonic()
        room = max(2, self._screen.rows - len(self.status_lines(self._screen.columns)) - 8)
        self._screen.finish_lines(*self._stream.take_lines(self._screen.columns, most=room))
        return True

    def status_lines(self, columns: int) -> list[str]:
        """Render the lines between the answer and the input line."""
        theme = self._screen.theme
        lines: list[str] = []
        for id, progress in list(self._running.items())[-4:]:
            if (item := self._items.find_call(id)).name:
                lines += render_running_call(
                    item, progress, tools=self._tools, theme=theme, columns=columns
                )
        if self.began and self._has_open_todos():
            lines += [*([""] if lines else []), *render_todos(self.todos, theme, columns), ""]
        if self.began and not self._screen.is_asking:
            lines.append(self._spinner_line(columns))
        for mark, said in (("↳", self.pending), ("…", self.queued)):
            lines += [
                theme.mark(f"  {mark} {cut_line(clean_display_text(one), columns - 4)}", "quiet")
                for one in said
            ]
        return lines

    def _has_open_todos(self) -> bool:
        return any(todo.status != "completed" for todo in self.todos)

    def _spinner_line(self, columns: int) -> str:
        """Render the spinner; while text streams, it is redrawn once a second."""
        pace = 1.0 if self._stream else agent_progress.SPINNER_FRAME_SECONDS
        if monotonic() - self._spun >= pace or self._doing not in self._spin:
            (sent, said), self._spun = self.spent, monotonic()
            said += self._streamed // CHARS_PER_TOKEN
            work = SpinnerState(self._doing, monotonic() - self.began, sent, said, self.dollars)
            self._spin = agent_progress.render_spinner(work, self._screen.theme, columns)
        return cut_line(self._spin, columns)

    def _finish_stream(self) -> None:
        """Finish the streamed text."""
        if self._stream is not None:
            self._screen.finish_lines(self._stream.finish(self._screen.columns), [])
            self._stream, self._fresh = None, 0

    def _drop_stream(self) -> None:
        """Discard the streamed text: the reply is being retried."""
        self._stream, self._fresh, self._streamed = None, 0, 0
        self._screen.finish_lines([], [])
        self._running.clear()
