"""The transcript: session events as lines on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.core.content import AnyBlock, Opaque, Text, TextOrMedia, extract_text
from travois.core.facts import AnyFact, Asked, Changed, Ended, Entry, User
from travois.core.tasks import Task, TaskList, read_tasks, task_remark
from travois.core.view import THINKING_KINDS
from travois.lazy_imports import lazy_imports
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
from travois.presentation import (
    ACTIVITY_NAMES,
    NoticeItem,
    ReplyItem,
    SessionItem,
    SessionItems,
    ToolCallItem,
    describe_activity,
)
from travois.providers.replies import BlockBegan, BlockKind, Grew
from travois.sessions.titles import is_greeting, make_title
from travois.tui import agent_progress
from travois.tui.agent_progress import (
    SpinnerState,
    format_agent_progress,
    format_elapsed,
    format_price,
    format_token_count,
)
from travois.tui.call_view import render_finished_call, render_running_call, render_whole_call
from travois.tui.diff_view import render_unified_diff
from travois.tui.layout import clean_display_text, cut_line, wrap_hanging, wrap_words
from travois.tui.permission_text import is_refused_by_person
from travois.tui.screen import Screen
from travois.tui.theme import Theme

if TYPE_CHECKING:
    from travois.tui.markdown import MarkdownStream

with lazy_imports():
    from travois.tui import markdown  # rich is slow to load, and the first answer takes a while


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
MAX_AGENT_LINES = 3
"""Lines of a subagent's progress that are shown below its call."""
MIN_SUMMARY_SECONDS = 10.0
"""A turn that took longer is summed up in a line."""
MAX_PROMPT_LINES = 20
"""Lines of a prompt that are shown."""
CHARS_PER_TOKEN = 4
MIN_HINT_COLUMNS = 60
"""From this width on, there is room to say what a key does beside a title."""


class Thought(msgspec.Struct, frozen=True):
    """What the model thought before it answered, as far as the provider shows it."""

    text: str
    seconds: float

    def render_title(self, theme: Theme, columns: int) -> str:
        """Render one line that sums it up."""
        time = f" for {format_elapsed(self.seconds)}" if self.seconds >= 1 else ""
        head = f"Thought{time}: "
        more = "  Ctrl-O: all of it" if columns >= MIN_HINT_COLUMNS else "  Ctrl-O"
        said = cut_line(" ".join(self.text.split()), columns - len(head) - len(more) - 5)
        return f"  {theme.mark('∴', 'accent')} {theme.mark(f'{head}{said}{more}', 'quiet')}"

    def render_whole(self, theme: Theme, columns: int) -> list[str]:
        """Render all of it."""
        lines = (wrap_words(line, columns - 5) for line in self.text.strip().split("\n"))
        told = [theme.mark(f"    {part}", "quiet") for line in lines for part in line]
        return ["", theme.mark("  Thinking", "strong"), *told]


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
        self.results: list[ToolCallItem | Thought] = []
        """What can be shown in full, in the order of the screen."""
        self._asked: set[str] = set()
        """Calls that a question has shown already."""
        self._thought = ""
        self._thought_since = 0.0
        self._agent_lines: dict[str, list[str]] = {}
        """The last steps of each running subagent, by its call."""
        self.todos = read_tasks("")
        self._needs_gap = False
        """True if a prompt or a result of several lines was the last thing that was shown."""
        self.expanded: dict[str, str] = {}
        """The command that was typed, by the prompt that it stands for."""
        self.topic = ""
        """What the first prompt asks for."""
        self._last_entry = 0
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
        self._memories_shown = 0
        """Changes of memory that were shown since the last reply."""
        self._shown = 0
        """Results already expanded, counted from the last one."""

    def begin_turn(self) -> None:
        """Mark the start of a turn."""
        self.began, self.resting = monotonic(), anyio.Event()
        self.spent, self.dollars = (0, 0), 0.0
        self.working.set()

    def end_turn(self, inspector: str = "") -> None:
        """Mark the end of a turn; sum up a long one, with a link to it in the inspector."""
        seconds = monotonic() - self.began
        if self.began and self.spent != (0, 0) and (seconds >= MIN_SUMMARY_SECONDS or inspector):
            self._show_summary(seconds, inspector)
        self.began, self.queued, self.working = 0.0, (), anyio.Event()
        self.pending.clear()
        self.resting.set()
        self._screen.refresh()

    def _show_summary(self, seconds: float, inspector: str) -> None:
        (sent, said), theme = self.spent, self._screen.theme
        parts = [format_elapsed(seconds)]
        parts.append(f"↑ {format_token_count(sent)} ↓ {format_token_count(said)}")
        parts += [price] if (price := format_price(self.dollars)) else []
        if inspector:
            parts.append(f"\x1b]8;;{inspector}&entry={self._last_entry}\x1b\\inspect\x1b]8;;\x1b\\")
        line = theme.mark(" · ".join(parts), "quiet")
        self._screen.show_lines(f"  {theme.mark('·', 'quiet')} {line}")

    def show_event(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, Entry):
            self._last_entry = event.seq
        if self._show_item(self._items.add(event)):
            self._screen.refresh()

    def _show_item(self, item: SessionItem) -> bool:
        """Show an item; return whether there is something to draw before the next frame."""
        match item:
            case BlockBegan(kind=kind, name=name):
                self._thought_since = monotonic() if kind == "thinking" else self._thought_since
                self._doing = f"{ACTIVITY_NAMES.get(kind, 'Working')}{f' {name}' if name else ''}"
            case Grew(kind=kind, text=text):
                self._extend_reply(text, kind)
                return False
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
                return False
        return True

    def _show_progress(self, event: ToolProgress | AgentProgress) -> None:
        """Keep the last progress of a running call or of its subagent."""
        if isinstance(event, ToolProgress):
            self._running[event.call] = event.text
        elif event.call in self._running:
            lines = self._agent_lines.setdefault(event.call, [])
            if event.doing not in lines[-1:]:
                lines.append(event.doing)
                del lines[:-MAX_AGENT_LINES]
            self._running[event.call] = "\n".join((*lines[:-1], format_agent_progress(event)))

    def _show_side_activity(
        self, event: ActivityShown | CompactionProgress | TerminalSignal
    ) -> None:
        """Show side activity: hooks and compaction."""
        if isinstance(event, ActivityShown | CompactionProgress):
            self._doing = clean_display_text(describe_activity(event))
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
                self._memories_shown += 1
                self.show_note("remembered")
                theme, columns = self._screen.theme, self._screen.columns
                self._screen.show_lines(*render_unified_diff(item.diff, theme, columns, most=8))

    def _show_entry(self, fact: AnyFact) -> None:
        match fact:
            case User():
                self._show_user_message(fact)
            case Changed(what="todos", value=value):
                self.todos = read_tasks(value)
            case Asked(call=call):
                self._asked.add(call)
                self._needs_gap = False
            case Ended():
                self._show_turn_end(fact)
            case _:
                pass

    def _extend_reply(self, text: str, kind: BlockKind) -> None:
        self._streamed += len(text)
        if kind == "thinking":
            self._thought += text
        if kind != "text":
            return
        if self._stream is None:
            self._finish_thought()
            self._needs_gap = False
            self._stream = markdown.MarkdownStream(self._screen.theme)
            self._screen.show_lines("")
        self._stream.feed(text)
        self._fresh += len(text)

    def _show_user_message(self, fact: User) -> None:
        text = extract_text(fact.content)
        match fact.origin:
            case "human":
                self.pending = [one for one in self.pending if one != text]
                self._finish_stream()
                self.topic = self.topic or ("" if is_greeting(text) else make_title(text))
                typed = self.expanded.pop(text, "")
                self.show_prompt((Text(typed),) if typed else fact.content)
            case "task":
                self._finish_stream()
                self.show_note(text.strip().partition("\n")[0][:300])
            case "mail" | "note" | "hook":
                pass

    def _finish_reply(self, item: ReplyItem) -> None:
        if self._stream is None:
            self._thought = self._thought or _thinking_text(item.fact.content)
            self._finish_thought()
            if (text := extract_text(item.fact.content)).strip():
                self._extend_reply(text, "text")
        self._finish_stream()
        self._streamed, self._memories_shown, usage = 0, 0, item.fact.usage
        sent, said = self.spent
        self.spent = (sent + usage.prompt, said + usage.output)
        self._doing = "Working"

    def _show_result(self, item: ToolCallItem) -> None:
        if item.result is None:
            return
        self._running.pop(item.id, None)
        self._agent_lines.pop(item.id, None)
        if not item.name:
            return
        self.results.append(item)
        self._shown = 0
        if item.name == "Remember" and not item.is_error and self._memories_shown:
            self._memories_shown -= 1  # the change stands there already
            return
        if item.id in self._asked and is_refused_by_person(item.decided):
            return  # question and answer stand there already
        columns, theme = self._screen.columns, self._screen.theme
        lines = render_finished_call(
            item,
            tools=self._tools,
            theme=theme,
            columns=columns,
            is_diff_shown=item.id in self._asked,
        )
        if lines:
            is_block = len(lines) > 1
            self._screen.show_lines(*([""] if is_block or self._needs_gap else []), *lines)
            self._needs_gap = is_block

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
        room = self._screen.columns - 3
        lines = [part for line in text.split("\n") for part in wrap_hanging(line, room)]
        rest = len(lines) - MAX_PROMPT_LINES
        shown = lines[:MAX_PROMPT_LINES] + ([f"… {rest} more lines"] if rest > 0 else [])
        first, *more = [theme.mark(line, "strong") for line in shown]
        mark = theme.mark("❯", "accent")
        self._screen.show_lines("", f"{mark} {first}", *(f"  {line}" for line in more))
        self._needs_gap = True

    def show_note(self, text: str, *, tone: str = "quiet") -> None:
        """Show a notice."""
        theme = self._screen.theme
        lines = wrap_words(clean_display_text(text).strip(), self._screen.columns - 5)
        marked = [theme.mark(line, "warn" if tone == "warn" else "quiet") for line in lines]
        self._screen.show_lines(
            f"  {theme.mark('·', 'quiet')} {marked[0]}", *(f"    {m}" for m in marked[1:])
        )

    def show_mark(self, text: str) -> None:
        """Draw a line across the conversation, with a few words in it."""
        said = cut_line(clean_display_text(text), self._screen.columns - 12)
        rule = self._screen.theme.mark(f"─── {said} ───", "quiet")
        self._screen.show_lines("", f"  {rule}")

    def show_paragraph(self, text: str) -> None:
        """Show the answer to a slash command."""
        room = self._screen.columns - 3
        lines = clean_display_text(text).rstrip().split("\n")
        parts = (part for line in lines for part in wrap_hanging(line, room))
        self._screen.show_lines("", *(f"  {part}" for part in parts))

    def show_markdown(self, text: str) -> None:
        """Show a whole Markdown text."""
        self._screen.show_lines(
            "", *markdown.render_markdown(text, self._screen.theme, self._screen.columns)
        )

    def expand_result(self) -> None:
        """Show the last result in full; with each further call, the one before."""
        if self._shown < len(self.results):
            self._shown += 1
            theme, columns = self._screen.theme, self._screen.columns
            chosen = self.results[-self._shown]
            lines = (
                chosen.render_whole(theme, columns)
                if isinstance(chosen, Thought)
                else render_whole_call(chosen, theme=theme, columns=columns)
            )
            self._screen.show_lines(*lines)

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

    def _finish_thought(self) -> None:
        """Sum up what the model thought in one line."""
        text, self._thought = clean_display_text(self._thought).strip(), ""
        if not text:
            return
        seconds = monotonic() - self._thought_since if self._thought_since else 0.0
        thought, self._thought_since, self._shown = Thought(text, seconds), 0.0, 0
        self.results.append(thought)
        self._needs_gap = False
        self._screen.show_lines("", thought.render_title(self._screen.theme, self._screen.columns))

    def _finish_stream(self) -> None:
        """Finish the streamed text."""
        if self._stream is not None:
            self._screen.finish_lines(self._stream.finish(self._screen.columns), [])
            self._stream, self._fresh = None, 0

    def _drop_stream(self) -> None:
        """Discard the streamed text: the reply is being retried."""
        self._stream, self._fresh, self._streamed, self._thought = None, 0, 0, ""
        self._screen.finish_lines([], [])
        self._running.clear()


def _thinking_text(content: tuple[AnyBlock, ...]) -> str:
    """Return what a reply shows of the model's thinking."""
    blocks = (block for block in content if isinstance(block, Opaque))
    return "\n".join(block.text for block in blocks if block.kind in THINKING_KINDS and block.text)
