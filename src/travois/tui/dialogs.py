"""Dialogs for permission questions, plans, choices and the session picker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import anyio

from travois.compose.session_picker import SessionPicker
from travois.ports.world import (
    Choice,
    ChoiceRequest,
    PermissionQuestion,
    PersonAnswer,
)
from travois.sessions.catalog import SessionSummary
from travois.terminal import format_age
from travois.tui import call_view
from travois.tui.diff_view import render_diff_rows
from travois.tui.layout import clean_display_text, cut_line, display_width, wrap_words
from travois.tui.menu import CLEAR_KEY, ERASE_KEY, Menu, MenuOption
from travois.tui.permission_text import AnswerChoice, AskedCall, build_answer, list_answers
from travois.tui.screen import Screen
from travois.tui.theme import Theme
from travois.tui.transcript import Transcript

QUESTION_HINT = "Esc no, and stop · Shift-Tab mode"
CHOICE_HINT = "Esc stop"
OWN_WORDS_OPTION = MenuOption("0", "in your own words")
DENIAL_REASON_PROMPT = "why, or what to do instead (Enter to skip): "
SEE_ALL_HINT = "… {} more lines: Ctrl-O shows all"
MIN_HEAD_LINES = 10
MAX_HEAD_LINES = 40
"""Lines of a long change or command that are shown with its question."""
RESERVED_QUESTION_ROWS = 18
"""Rows that the rest of a question and the footer need."""


class TerminalDialogs:
    """Dialogs with the user, shown one at a time."""

    def __init__(
        self, screen: Screen, page: Callable[[], Transcript], stop: Callable[[], None]
    ) -> None:
        self._screen = screen
        self._page = page
        self._stop = stop
        """Stops the turn, for who answers a question with Esc."""
        # The engine asks as soon as it must; the text before the call reaches the screen through
        # another task. Without this a question could appear above the text that explains it.
        self._told: dict[str, anyio.Event] = {}
        self._one = anyio.Lock()
        self._standing: tuple[PermissionQuestion, Menu] | None = None
        self._rest: list[str] = []
        """The lines of the open question that are not shown yet."""
        self._mode = ""
        """The mode that answered the open question."""

    def call_shown_event(self, call: str) -> anyio.Event:
        """Return an event that is set once all output before this call's question is shown."""
        return self._told.setdefault(call, anyio.Event())

    async def decide(self, question: PermissionQuestion) -> PersonAnswer:
        """Show exactly what would run, and ask for permission."""
        await self.call_shown_event(question.call).wait()
        async with self._one:
            asked = AskedCall(question, os.getcwd())
            self._show_question(asked)
            choices = tuple(list_answers(asked))
            picked = await self._pick_answer(question, choices, at_no=bool(asked.dangers))
            if self._mode:
                self._show_answer(f"yes: mode {self._mode}")
                said = f"the user switched to mode {self._mode}"
                return PersonAnswer(allow=True, reason=said, digest=question.digest)
            if picked is None:
                self._show_answer("no, and stop")
                # Only what waits next is cancelled: this answer still reaches the log.
                self._stop()
                return build_answer(question, "no")
            choice, why = choices[picked], ""
            if choice.name == "no":
                why = (await self._screen.ask_text(DENIAL_REASON_PROMPT) or "").strip()
            told = f"no{': ' + why if why else ''}" if choice.name == "no" else choice.label
            self._show_answer(told)
            return build_answer(question, choice.name, why=why)

    async def _pick_answer(
        self, question: PermissionQuestion, choices: tuple[AnswerChoice, ...], *, at_no: bool
    ) -> int | None:
        """Let the user pick an answer; None if they cancel, or a mode answers for them."""
        options = tuple(MenuOption(one.key, one.label, one.note) for one in choices)
        menu = Menu(options, hint=QUESTION_HINT)
        menu.at = len(options) - 1 if at_no else 0
        self._standing, self._mode = (question, menu), ""
        try:
            picked = await self._screen.run_menu(menu)
        finally:
            self._standing, self._rest = None, []
        return picked[0] if picked else None

    def answer_by_mode(self, mode: str) -> None:
        """Answer the open question with yes if there would be none in this mode."""
        if self._standing is not None and mode in self._standing[0].modes:
            self._mode = mode
            self._standing[1].cancel()

    def show_rest(self) -> bool:
        """Show what the open question left out; return whether there was anything."""
        rest, self._rest = self._rest, []
        if rest:
            self._screen.show_lines(*rest)
        return bool(rest)

    async def choose(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Ask the questions of an inquiry one after the other."""
        await self.call_shown_event(inquiry.call).wait()
        async with self._one:
            if inquiry.plan:
                self._page().show_markdown(inquiry.plan)
            answers = await self._ask_choices(inquiry)
            if answers is None and inquiry.call:
                self._stop()
            return answers

    async def _ask_choices(self, inquiry: ChoiceRequest) -> tuple[str, ...] | None:
        """Return the answer to each question, or None as soon as one is refused."""
        answers: list[str] = []
        for choice in inquiry.choices:
            answer = await self._ask_choice(choice, CHOICE_HINT if inquiry.call else "")
            if answer is None:
                return None
            answers.append(answer)
        return tuple(answers)

    async def _ask_choice(self, choice: Choice, hint: str) -> str | None:
        theme = self._screen.theme
        asked = wrap_words(clean_display_text(choice.question), self._screen.columns - 5)
        marked = [f"  {theme.mark(line, 'strong')}" for line in asked]
        self._screen.show_lines(
            "", f"  {theme.mark('?', 'accent')} {marked[0].lstrip()}", *marked[1:]
        )
        options = [
            MenuOption(
                str(number), clean_display_text(one.label), clean_display_text(one.description)
            )
            for number, one in enumerate(choice.options, 1)
        ]
        last = MenuOption("0", "done") if choice.several else OWN_WORDS_OPTION
        picked = await self._screen.pick_options(
            (*options, last), several=choice.several, hint=hint
        )
        if picked is None:
            return None
        if not choice.several and picked == [len(options)]:
            typed = await self._screen.ask_text("answer: ")
            answer = typed.strip() if typed else None
        else:
            answer = ", ".join(choice.options[number].label for number in picked)
        if answer is not None:
            self._show_answer(answer)
        return answer

    def _show_answer(self, text: str) -> None:
        """Leave the user's answer below its question."""
        theme = self._screen.theme
        first, *more = wrap_words(clean_display_text(text), self._screen.columns - 5)
        lines = [f"  {theme.mark('→', 'accent')} {first}", *(f"    {line}" for line in more)]
        self._screen.show_lines(*lines)

    def _show_question(self, asked: AskedCall) -> None:
        """Show the call, what it touches and why it is asked about; a long one by its head."""
        theme, room = self._screen.theme, self._screen.columns - 5
        risky = bool(asked.dangers)
        sign = theme.mark("!" if risky else "?", "bad" if risky else "warn")
        by = f"for the agent: {asked.agent}" if asked.agent else ""
        first, *more = wrap_words(asked.sentence, room)
        body = self._render_body(asked, room)
        head = max(MIN_HEAD_LINES, min(MAX_HEAD_LINES, self._screen.rows - RESERVED_QUESTION_ROWS))
        self._rest = body[head:]
        hint = [f"    {SEE_ALL_HINT.format(len(self._rest))}"] if self._rest else []
        effects = (wrap_words(one, room - 2) for one in asked.effects)
        quiet = [f"{'  ' if at else '· '}{line}" for one in effects for at, line in enumerate(one)]
        quiet += [
            line for one in (f"why: {asked.reason}", by) if one for line in wrap_words(one, room)
        ]
        self._screen.show_lines(
            "",
            f"  {sign} {theme.mark(first, 'strong')}",
            *(f"    {theme.mark(line, 'strong')}" for line in more),
            *body[:head],
            *(theme.mark(line, "warn") for line in hint),
            *(
                f"    {theme.mark(line, 'bad')}"
                for one in asked.dangers
                for line in wrap_words(one, room)
            ),
            *(f"    {theme.mark(line, 'quiet')}" for line in quiet),
        )

    def _render_body(self, asked: AskedCall, room: int) -> list[str]:
        """Render what would change or run, in full; long lines are folded, never cut."""
        theme = self._screen.theme
        if asked.is_told_by_sentence:
            return []
        if not (rows := asked.diff_rows):
            lines = call_view.render_arguments(asked.question.args, theme, room)
            return [f"    {line}" for line in lines]
        return render_diff_rows(rows, theme, room + 4, most=len(rows))


# The session picker.


MAX_SESSION_ROWS = 10
RESERVED_ROWS = 13
"""Rows that the rest of the screen needs."""
AGE_COLUMNS = 10


class SessionMenu(Menu):
    """A menu of sessions that is filtered while the user types."""

    def __init__(self, picker: SessionPicker, rows: Callable[[], int]) -> None:
        super().__init__(())
        self._picker, self._rows = picker, rows
        self._typed, self._everywhere = "", False
        self._found = picker.search("", everywhere=False)

    @property
    def selection(self) -> SessionSummary | None:
        """The chosen session."""
        return self._found[self.answer[0]] if self.answer else None

    def is_armed(self) -> bool:
        """Accept every key: nothing is decided before Enter."""
        return True

    def move(self, by: int) -> None:
        """Move the pointer, without wrapping around."""
        self.at = max(0, min(self.at + by, len(self._found) - 1))

    def press_tab(self) -> None:
        """Switch between all projects and this one."""
        self._everywhere = not self._everywhere
        self._search(self._typed)

    def press(self, key: str) -> bool:
        """Edit the search words."""
        if key in (ERASE_KEY, CLEAR_KEY):
            self._search(self._typed[:-1] if key == ERASE_KEY else "")
        elif key.isprintable():
            self._search(self._typed + key)
        return True

    def accept(self) -> None:
        """Choose the session at the pointer."""
        if self._found:
            self.answer = [self.at]
            self.done.set()

    def _search(self, text: str) -> None:
        self._typed, self.at = text, 0
        self._found = self._picker.search(text, everywhere=self._everywhere)

    def render(self, theme: Theme, columns: int) -> list[str]:
        """Render the search, the matching sessions and the end of the selected one."""
        room = max(1, min(MAX_SESSION_ROWS, self._rows() - RESERVED_ROWS))
        first = max(0, min(self.at - room // 2, len(self._found) - room))
        where = "all projects" if self._everywhere else "this project"
        other = "this project" if self._everywhere else "all projects"
        head = f"Resume which session? {len(self._found):,} in {where}"
        shown = [f"  {theme.mark(cut_line(head, columns - 2), 'strong')}"]
        typed = cut_line(clean_display_text(self._typed), columns - 10)
        shown.append(f"  {theme.mark('find:', 'accent')} {typed}")
        shown.append("")
        for number, one in enumerate(self._found[first : first + room], first):
            shown.append(self._render_row(theme, columns, number=number, summary=one))
        shown += self._render_last_exchange(theme, columns)
        keys = f"Enter open · Tab {other} · Esc cancel"
        return [*shown, f"  {theme.mark(cut_line(keys, columns - 2), 'quiet')}"]

    def _render_row(
        self, theme: Theme, columns: int, *, number: int, summary: SessionSummary
    ) -> str:
        here = number == self.at
        age = format_age(time.time() - summary.updated) if summary.updated else "?"
        folder = (
            f"  {_shorten_path(clean_display_text(summary.cwd), columns // 3)}"
            if self._everywhere
            else ""
        )
        title = cut_line(
            clean_display_text(summary.title), columns - 6 - AGE_COLUMNS - display_width(folder)
        )
        pointer = theme.mark("❯", "accent") if here else " "
        told = theme.mark(title, "strong") if here else title
        when, where = (theme.mark(text, "quiet") for text in (f"{age:<{AGE_COLUMNS}}", folder))
        return f"  {pointer} {when} {told}{where}"

    def _render_last_exchange(self, theme: Theme, columns: int) -> list[str]:
        if not self._found:
            return ["  No session matches.", ""]
        said, answered = self._picker.last_words(self._found[self.at])
        told = (("you", said), ("model", answered))
        lines = [f"{who:>5}: {clean_display_text(text)}" for who, text in told if text]
        return [
            "",
            *(f"  {theme.mark(cut_line(line, columns - 2), 'quiet')}" for line in lines),
            "",
        ]


def _shorten_path(path: str, room: int) -> str:
    return path if display_width(path) <= room else f"…{path[-(room - 1) :]}"
