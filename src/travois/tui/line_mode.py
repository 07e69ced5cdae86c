"""Line mode: a plain prompt loop for terminals that cannot move the cursor."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from errno import EIO
from functools import partial
from shutil import get_terminal_size

import anyio
from anyio.abc import TaskStatus

from travois.commands import trust
from travois.commands.flags import options_from_args
from travois.commands.trust import LineReader
from travois.compose import commands
from travois.compose.live_session import LiveSession
from travois.compose.open_session import is_worth_keeping
from travois.compose.options import PICK_SESSION, Options
from travois.compose.session import load_workspace
from travois.compose.session_picker import SessionPicker
from travois.context.keep_warm import keep_cache_warm
from travois.core.content import Text, TextOrMedia
from travois.core.display_text import clean_for_terminal, escape_invisible
from travois.core.errors import UserError
from travois.core.facts import Asked, Ended, Entry, User
from travois.hooks.fire import notify_hooks
from travois.memory.extraction import wait_for_extraction
from travois.ports.tool import AnyTool
from travois.ports.world import (
    Choice,
    ChoiceRequest,
    Event,
    PermissionQuestion,
    PersonAnswer,
    ToolStarted,
)
from travois.presentation import NoticeItem, SessionItems, ToolCallItem, describe_activity
from travois.progress_line import ProgressLine
from travois.providers.replies import Grew
from travois.sessions.catalog import SessionSummary
from travois.terminal import (
    escape_controls,
    format_age,
    hide_typing,
    hold_hangups,
    ignore_hangups,
)
from travois.tui import clipboard, shell_command, slash
from travois.tui.permission_text import AskedCall, build_answer, list_answers
from travois.tui.slash import CommandPrompt, SlashCommand, run_slash_line
from travois.tui.slash_commands.sessions import choose_session, reason_for_leaving
from travois.tui.slash_registry import RESERVED_NAMES, SLASH_COMMANDS

# Slash commands in line mode: choices are made by number.


MAX_NUMBERED_SESSIONS = 20
"""Sessions listed at once."""


async def pick_numbered_session(reader: LineReader, picker: SessionPicker) -> SessionSummary | None:
    """Ask for a session by number or search words."""
    text, everywhere = "", False
    while True:
        found = picker.search(text, everywhere=everywhere)
        where = "all projects" if everywhere else "this project"
        reader.line(f"{len(found):,} sessions in {where}:")
        for number, one in enumerate(found[:MAX_NUMBERED_SESSIONS], 1):
            title = escape_controls(one.title, lines="show")
            reader.line(f"  {number}. {title}  {_format_session_age(one)}")
        typed = (await reader.read("Number, search words, or * for all projects: ") or "").strip()
        if not typed:
            return None
        if typed.isdecimal() and 0 < int(typed) <= len(found[:MAX_NUMBERED_SESSIONS]):
            return found[int(typed) - 1]
        everywhere = everywhere or typed.startswith("*")
        text = typed.lstrip("* ")


def _format_session_age(summary: SessionSummary) -> str:
    folder = escape_controls(summary.cwd, lines="show")
    return f"({format_age(time.time() - summary.updated)}, {folder})"


class LineModeHost(slash.ScreenlessHost):
    """The host of slash commands in line mode."""

    can_choose = True

    def __init__(self, session: LiveSession, options: Options, reader: LineReader) -> None:
        self.session = session
        self.options = options
        self.left = False
        """True once the user wants to leave the session."""
        self.next: Options | None = None
        """Options of the session to switch to; None to exit."""
        self.errand: anyio.CancelScope | None = None
        """The scope of a running `!command`."""
        self.notes: list[User] = []
        """Notes that the model gets with the next prompt."""
        self._reader = reader
        known, self.notices = commands.compose_commands(options, taken=RESERVED_NAMES)
        self._own = slash.to_slash_commands(known)

    @property
    def commands(self) -> Mapping[str, SlashCommand]:
        """All slash commands, built-in and custom."""
        return {**SLASH_COMMANDS, **self._own}

    @property
    def columns(self) -> int:
        """The width available for an answer."""
        return get_terminal_size().columns

    async def pick_session(self, picker: SessionPicker) -> SessionSummary | None:
        """Ask for a session."""
        return await pick_numbered_session(self._reader, picker)

    async def pick_option(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Ask for the number of an option."""
        self._reader.line(title)
        for number, (text, remark) in enumerate(options, 1):
            self._reader.line(f"  {number}. {text}{f': {remark}' if remark else ''}")
        typed = (await self._reader.read("Number: ") or "").strip()
        found = int(typed) if typed.isdecimal() else 0
        return found - 1 if 0 < found <= len(options) else None

    def set_input(self, text: str) -> None:
        """Show the text that could be sent again."""
        self._reader.line(f"Your message was: {text}")

    def switch_to(self, options: Options | None) -> None:
        """Leave for another session, or exit."""
        self.left, self.next = True, options

    def set_theme(self, name: str) -> None:
        """Refuse: line mode has no colours."""
        raise UserError("Themes are not available here", why="line mode shows plain text")

    async def ask_secret(self, label: str) -> str | None:
        """Ask for a line without showing it."""
        with hide_typing():
            return await self._reader.read(label)

    def show_diff(self, diff: str) -> None:
        """Print a diff."""
        self._reader.line(diff)

    def copy_text(self, text: str) -> None:
        """Put text on the clipboard by a program of the desktop."""
        clipboard.copy_text(text)


ANSWER_PROMPT = "Answer: "
WHY_PROMPT = "Why, or what to do instead (Enter to skip): "
MAX_FAILURE_LINES = 4
MAX_OUTPUT_LINES = 40
"""The last lines of a command's output that are printed."""
WELCOME_HINT = "Type a task. /help lists commands, Ctrl-C stops a turn, Ctrl-D exits."
PERMISSION_NOTICE = "Travois needs your permission to continue"


def run_line_mode(args: Namespace) -> int:
    """Run line mode until the user exits; return the exit code."""
    return anyio.run(_run_line_mode, args)


async def _run_line_mode(args: Namespace) -> int:
    """Run line mode, after the session picker if one is to be chosen."""
    terminal, asked, first = LineTerminal(), options_from_args(args), args.prompt or ""
    picking = asked.resume == PICK_SESSION
    options = (
        await choose_session(partial(pick_numbered_session, terminal), asked) if picking else asked
    )
    await run_line_sessions(options, terminal, first=first)
    return 0


async def run_line_sessions(
    options: Options | None, terminal: LineTerminal, *, first: str = ""
) -> None:
    """Run one session after another in line mode."""
    while options is not None:
        options, first = await _run_line_session(options, terminal, first=first), ""


async def _run_line_session(
    options: Options, terminal: LineTerminal, *, first: str
) -> Options | None:
    """Run one session in line mode; return the options of the next one."""
    os.chdir(options.cwd)
    place, loaded = load_workspace(options)
    await trust.ask_for_trust(place.home, loaded, terminal)
    starting = ProgressLine(whole_lines=True)
    async with LiveSession(options, person=terminal, report_start=starting.show) as session:
        starting.close()
        runtime, desk = session.runtime, LineModeHost(session, options, terminal)
        runtime.agent.runtime.stays_open = True
        terminal.line(
            f"Travois · {runtime.model.name} · {runtime.agent.world.root}\n{WELCOME_HINT}"
        )
        terminal.tools, terminal.is_quoting = runtime.agent.tools.by_name, runtime.model.is_frail
        terminal.show_notices(*runtime.notices, *desk.notices)
        async with anyio.create_task_group() as group:
            await group.start(_watch_interrupts, desk, terminal)
            await _line_prompt_loop(desk, terminal, first=first)
            group.cancel_scope.cancel()
        session.leaving = reason_for_leaving(desk.next)
        talked = runtime.agent.session
        if talked.is_lasting and is_worth_keeping(talked.history()):
            terminal.show_resume_hint(session.id)
    for notice in session.parting:
        terminal.line(f"· {notice}")
    return desk.next


async def _line_prompt_loop(host: LineModeHost, terminal: LineTerminal, *, first: str) -> None:
    """Read and handle typed lines in line mode until the user leaves."""
    text: str | None = first
    while text is not None and not host.left:
        if text.startswith("!") and (line := text[1:].strip()):
            await _run_typed_command(host, terminal, line)
        else:
            await _handle_typed_line(host, terminal, text)
        text = None if host.left else await _read_or_wake(host.session, terminal)


async def _handle_typed_line(host: LineModeHost, terminal: LineTerminal, text: str) -> None:
    """Run a slash command, or a turn with the line as its prompt."""
    mail, inbox = host.session.runtime.mail, host.session.runtime.agent.turn.inbox
    answer = await run_slash_line(host, text)
    if isinstance(answer, CommandPrompt):
        await _run_line_turn(host, terminal, said=answer.content)
    elif answer is not None:
        terminal.line(answer)
    elif text.strip() or inbox or (mail is not None and mail.called):
        await _run_line_turn(host, terminal, said=(Text(text),) if text.strip() else ())


async def _run_typed_command(host: LineModeHost, terminal: LineTerminal, line: str) -> None:
    """Run a shell command (`!command`) that the user typed in line mode."""
    with anyio.CancelScope() as host.errand:
        told, notes = await shell_command.run_user_command(host.session.runtime.agent, line)
        host.notes.extend(notes)
        terminal.line(told)
    host.errand = None


async def _read_or_wake(session: LiveSession, terminal: LineTerminal) -> str | None:
    """Read a line in line mode; return an empty one if mail or a subagent needs a turn.

    Meanwhile the prompt cache is kept warm, if that is configured.
    """
    text: str | None = ""
    async with anyio.create_task_group() as group:
        group.start_soon(keep_cache_warm, session.runtime.agent)
        group.start_soon(_wake_on_mail, session, group.cancel_scope)
        group.start_soon(_wake_on_subagent, session, group.cancel_scope)
        group.start_soon(_show_memory_changes, session, terminal)
        text = await terminal.read("> ")
        group.cancel_scope.cancel()
    return text


async def _wake_on_mail(session: LiveSession, scope: anyio.CancelScope) -> None:
    """Stop waiting for a line when mail arrives."""
    if session.runtime.mail is not None:
        await session.runtime.mail.wait_for_mail()
        scope.cancel()


async def _wake_on_subagent(session: LiveSession, scope: anyio.CancelScope) -> None:
    """Stop waiting for a line when a background agent has news."""
    if await session.news():
        scope.cancel()


async def _show_memory_changes(session: LiveSession, terminal: LineTerminal) -> None:
    """Print in line mode which memories the last turn changed, once known."""
    if terminal.show_memory_change(await wait_for_extraction(session.runtime.agent)):
        terminal.line("> ")


async def _watch_interrupts(
    host: LineModeHost, terminal: LineTerminal, *, task_status: TaskStatus[None]
) -> None:
    """Stop line mode's work on Ctrl-C, and the session when the terminal closes."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                hold_hangups()
                break
            if host.errand is not None:
                host.errand.cancel()
            elif host.session.running:
                host.session.stop()
            else:
                terminal.on_interrupt()
    ignore_hangups()
    raise OSError(EIO, "the terminal was closed")


async def _run_line_turn(
    host: LineModeHost, terminal: LineTerminal, *, said: tuple[TextOrMedia, ...]
) -> None:
    """Run one turn in line mode and print its events."""
    session = host.session
    session.runtime.agent.turn.inbox.extend(host.notes)
    host.notes.clear()
    try:
        with ProgressLine(whole_lines=True) as progress:
            await _print_turn(session, terminal, progress, said=said)
    except UserError as fault:
        terminal.line(str(fault))


async def _print_turn(
    session: LiveSession,
    terminal: LineTerminal,
    progress: ProgressLine,
    *,
    said: tuple[TextOrMedia, ...],
) -> None:
    async with aclosing(session.run(said)) as events:
        async for event in events:
            _show_slow_work(event, progress)
            terminal.show_event(event)
            await _notify_permission_hooks(session, event)


def _show_slow_work(event: Event, progress: ProgressLine) -> None:
    """Name what is slow; not while the user is asked or reads an answer that grows."""
    if isinstance(event, Grew) or (isinstance(event, Entry) and isinstance(event.fact, Asked)):
        progress.clear()
    elif doing := describe_activity(event):
        progress.show(doing)


async def _notify_permission_hooks(session: LiveSession, event: Event) -> None:
    """Run notification hooks when a permission question waits."""
    if isinstance(event, Entry) and isinstance(event.fact, Asked):
        await notify_hooks(session.runtime.agent, "permission_prompt", PERMISSION_NOTICE)


class LineTerminal:
    """The user at a plain terminal: input, output and questions."""

    def __init__(self) -> None:
        self._typed = b""
        self._column = 0
        self._asked: dict[str, anyio.Event] = {}
        self._remembered = ""
        self._noticed: set[str] = set()
        self._items = SessionItems()
        self._unfinished = ""
        """The beginning of a line of the answer, whose end has not come yet."""
        self.tools: Mapping[str, AnyTool] = {}
        """The session's tools by name."""
        self.is_quoting = False
        """True if the model repeats results in its answer, as the embedded one does."""

    def line(self, text: str) -> None:
        """Print a line; text that ends like a prompt is not terminated."""
        ending = "" if text.endswith(("\n", "> ", ": ")) else "\n"
        self._write_harmless(("\n" if self._column else "") + text + ending)

    def show_notices(self, *texts: str) -> None:
        """Print notices, each only once."""
        for text in dict.fromkeys(text for text in texts if text not in self._noticed):
            self.line(f"· {text}")
        self._noticed.update(texts)

    def show_resume_hint(self, id: str) -> None:
        """Print how to resume the session."""
        self.line(f"Resume with: travois --resume {id}")

    def on_interrupt(self) -> None:
        """Handle Ctrl-C while nothing runs."""
        self.line("(Ctrl-D exits)\n> ")

    def show_event(self, event: Event) -> None:
        """Print an event."""
        item = self._items.add(event)
        if isinstance(event, Grew) and event.kind == "text":
            self._write_answer(event.text)
            return
        self._finish_answer()
        match item:
            case NoticeItem(kind="memory", text=text):
                self.show_memory_change(text)
            case NoticeItem(kind="mail", text=text):
                self.line(text)
            case NoticeItem(text=text):
                self.line(f"· {text}")
            case ToolCallItem() if item.result is not None:
                self._show_call(item)
            case _:
                self._show_other(event)

    def _show_other(self, event: Event) -> None:
        match event:
            case ToolStarted(call=call, name="Bash"):
                self.line(
                    f"· Running {self._items.find_call(call).title(self.tools, folder=os.getcwd())}"
                )
            case Entry(fact=Asked(call=call)):
                self._call_shown_event(call).set()
            case Entry(fact=Ended() as ended) if ended.why != "end":
                self.line(f"· {ended.detail or ended.why}")
            case _:
                pass

    def _show_call(self, item: ToolCallItem) -> None:
        """Print what a call was about and what came of it."""
        size, lines = _format_call_outcome(item), item.text.strip().splitlines()
        self.line(f"· {item.title(self.tools, folder=os.getcwd())}{size}")
        shown = lines[:MAX_FAILURE_LINES] if item.is_error else lines[-MAX_OUTPUT_LINES:]
        if item.is_error or (item.name == "Bash" and not self.is_quoting):
            if (left := len(lines) - len(shown)) > 0:
                self.line(f"    ({left:,} more lines: /output shows all)")
            for line in shown:
                self.line(f"    {line}")

    def _write_answer(self, text: str) -> None:
        """Print the lines of an answer that are complete, without Markdown's marks."""
        *lines, self._unfinished = f"{self._unfinished}{text}".split("\n")
        for line in lines:
            self._write_harmless(f"{simplify_markdown(line)}\n")

    def _finish_answer(self) -> None:
        if self._unfinished:
            self._write_harmless(simplify_markdown(self._unfinished))
        self._unfinished = ""

    def show_memory_change(self, text: str) -> bool:
        """Print a change of memory once; return whether it was printed."""
        if not text or text == self._remembered:
            return False
        self._remembered = text
        self.line("\n".join(f"· {line}" for line in text.splitlines()))
        return True

    async def read(self, prompt: str) -> str | None:
        """Read one line; return None at end of input."""
        self.line(prompt)
        while b"\n" not in self._typed:
            await anyio.wait_readable(0)
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return None
            self._typed += chunk
        line, _, self._typed = self._typed.partition(b"\n")
        self._column = 0
        return line.decode("utf-8", "replace")

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Ask whether a call may run, once all output before it is shown."""
        await self._call_shown_event(question.call).wait()
        self._finish_answer()
        for line in render_question(question):
            self.line(line)
        choices = tuple(list_answers(AskedCall(question, os.getcwd())))
        for one in choices:
            self.line(f"  {one.key}: {one.label}{f' ({one.note})' if one.note else ''}")
        while True:
            typed = (await self.read(ANSWER_PROMPT) or "").strip()
            word = typed.casefold()
            found = next((one for one in choices if word in (one.key, one.name)), None)
            if found is not None and found.name == "no":
                return build_answer(question, "no", why=(await self.read(WHY_PROMPT) or "").strip())
            if found is not None:
                return build_answer(question, found.name)
            if len(word) != 1:  # words are a no with its reason, and so is nothing at all
                return build_answer(question, "no", why=typed)
            self.line(f"There is no answer {typed}.")

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Ask the questions of an inquiry: by number, several numbers, or own words."""
        await self._call_shown_event(inquiry.call).wait()
        if inquiry.plan:
            self.line(inquiry.plan)
        answers: list[str] = []
        for choice in inquiry.choices:
            for line in render_choice(choice):
                self.line(line)
            typed = await self.read("Number, or your own words: ")
            if typed is None:
                return None
            answers.append(parse_choice_answer(choice, typed))
        return tuple(answers)

    def _call_shown_event(self, call: str) -> anyio.Event:
        return self._asked.setdefault(call, anyio.Event())

    def _write_harmless(self, text: str) -> None:
        """Print text without escape sequences."""
        plain = clean_for_terminal(text)
        sys.stdout.write(plain)
        sys.stdout.flush()
        if plain:
            self._column = 0 if plain.endswith("\n") else 1


def render_question(question: PermissionQuestion) -> Iterator[str]:
    """Yield a question in words: what would run or change, what it touches, and why it is asked."""
    asked = AskedCall(question, os.getcwd())
    yield asked.sentence
    yield from (f"  {line}" for line in asked.describe_call())
    yield from (f"  {line}" for line in (*asked.dangers, *asked.effects))
    yield f"  why: {asked.reason}"
    if asked.agent:
        yield f"  for the agent: {asked.agent}"


# No pattern can pass a mark of its own kind, so each takes time linear in the length of a line,
# which whoever wrote the text decides.
MARKDOWN_MARKS = (
    (re.compile(r"^\s*(?:```|~~~).*$"), ""),
    (re.compile(r"^#{1,6} +"), ""),
    (re.compile(r"^> ?"), ""),
    (re.compile(r"\*\*(?=\S)([^*]+)(?<=\S)\*\*"), r"\1"),
    (re.compile(r"`([^`]+)`"), r"\1"),
    (re.compile(r"\[([^\[\]]+)\]\(([^()\s]+)\)"), r"\1 (\2)"),
)


def simplify_markdown(line: str) -> str:
    """Return a line of Markdown without the marks that a reader would have to listen to."""
    for pattern, words in MARKDOWN_MARKS:
        line = pattern.sub(words, line)
    return line


def _format_call_outcome(item: ToolCallItem) -> str:
    """Format how a call ended: lines changed, lines that came, or that it failed."""
    if item.is_error:
        return " failed:"
    if item.patches:
        added = sum(one.added for one in item.patches)
        return f": +{added} -{sum(one.removed for one in item.patches)} lines"
    count = len(item.text.splitlines())
    return f": {count:,} line{'' if count == 1 else 's'}" if count else ""


def render_choice(choice: Choice) -> Iterator[str]:
    """Yield a question with its numbered options."""
    yield escape_invisible(choice.question) + (
        " (separate several with commas)" if choice.several else ""
    )
    for number, option in enumerate(choice.options, 1):
        more = f": {escape_invisible(option.description)}" if option.description else ""
        yield f"  {number}. {escape_invisible(option.label)}{more}"


def parse_choice_answer(choice: Choice, typed: str) -> str:
    """Return the labels for the numbers typed in line mode, or the typed text itself."""
    numbers = [part.strip() for part in typed.split(",")]
    labels = {str(number): option.label for number, option in enumerate(choice.options, 1)}
    if all(number in labels for number in numbers) and (choice.several or len(numbers) == 1):
        return ", ".join(labels[number] for number in numbers)
    return typed.strip()
