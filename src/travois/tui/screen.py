"""The screen: a live region below a scrollback that only grows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

import anyio
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.base import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.layout import (
    BufferControl,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.containers import ConditionalContainer
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from travois.tui.layout import cut_line, display_width, fold_lines, parse_ansi_line, wrap_words
from travois.tui.menu import Menu, MenuOption
from travois.tui.painter import LivePane, LiveRegionPainter, TerminalOutput
from travois.tui.start import PROMPT_MARK
from travois.tui.theme import TextRole, Theme

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindings


# Escape sequences that arrive in pieces, as over a slow connection, count as one key.


UNFINISHED_SEQUENCE_PATTERN = re.compile(r"\x1b(?:\[[0-9;?<>=]*|\][^\x07\x1b]*\x1b?)\Z")
MAX_SEQUENCE_CHARS = 32
PASTE_SEQUENCE = "[200~"
BACKGROUND_REPLY = re.compile(r"\x1b\]11;([^\x07\x1b]*)(?:\x07|\x1b\\)")
UNFINISHED_BACKGROUND_REPLY = re.compile(r"\x1b\](?:1(?:1(?:;[^\x07\x1b]{0,32}\x1b?)?)?)?\Z")


class WholeSequenceParser(Vt100Parser):
    """A parser that times out only on a lone Escape.

    Nobody types `Esc [ 2` by hand within the timeout of an Escape: the rest is on its way. If half
    of the marker before a paste were taken for keys, each pasted line would be sent as a prompt.
    """

    _tail = _held = ""
    _is_escape_taken = False

    def __init__(
        self, press: Callable[[KeyPress], None], on_background: Callable[[str], None]
    ) -> None:
        super().__init__(press)
        self._on_background = on_background
        """Called with the terminal's answer to the question about its background colour."""

    def feed(self, data: str) -> None:
        if self._is_escape_taken and data.startswith(PASTE_SEQUENCE):
            data = f"\x1b{data}"
        self._is_escape_taken = False
        data = self._take_background(self._held + data)
        self._tail = (self._tail + data)[-MAX_SEQUENCE_CHARS:]
        super().feed(data)

    def flush(self) -> None:
        if self._held:
            return
        if not UNFINISHED_SEQUENCE_PATTERN.search(self._tail):
            self._is_escape_taken = self._tail.endswith("\x1b")
            super().flush()

    def _take_background(self, data: str) -> str:
        """Take the terminal's answer out of what was typed; hold back one that is unfinished."""
        self._held = ""
        if found := BACKGROUND_REPLY.search(data):
            self._on_background(found[1])
            data = data[: found.start()] + data[found.end() :]
        if found := UNFINISHED_BACKGROUND_REPLY.search(data):
            data, self._held = data[: found.start()], found[0]
        return data


def parse_whole_sequences(terminal: Input, on_background: Callable[[str], None]) -> None:
    """Read this terminal's keys with `WholeSequenceParser`."""
    if isinstance(terminal, Vt100Input):
        press = terminal.vt100_parser.feed_key_callback
        terminal.vt100_parser = WholeSequenceParser(press, on_background)


REDRAW_SECONDS = 1 / 30
COLOUR_DEPTHS = {
    0: ColorDepth.DEPTH_4_BIT,
    4: ColorDepth.DEPTH_4_BIT,
    8: ColorDepth.DEPTH_8_BIT,
    24: ColorDepth.DEPTH_8_BIT,
}
"""Of the live region, by the theme's: it is drawn often, and these codes are half as long."""
KEY_TIMEOUT_SECONDS = 0.01
SEQUENCE_TIMEOUT_SECONDS = 0.03
"""Seconds to wait for the rest of an escape sequence after Escape."""
MAX_INPUT_ROWS = 10
MAX_COMPLETION_ROWS = 6
HISTORY_SEARCH_PROMPT = "  search history: "
PLACEHOLDER = "Describe a task, or / for commands"
SHORTCUTS = (
    *("/ commands", "@ files", "! shell command", "# remember", "Tab complete, or queue"),
    *("Shift-Tab mode", "Ctrl-O show in full", "Ctrl-R search history", "Ctrl-G editor"),
    *("Alt-Enter new line", "Esc stop", "Esc Esc rewind", "Ctrl-L redraw", "Ctrl-D exit"),
)
SHORTCUT_COLUMNS = 26
FRAME_COLUMNS = 40
"""The frame's lines are short: a line as wide as the window would break when that gets narrower."""
BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
SYNCHRONIZED_QUERY = "\x1b[?2026$p"
"""Asks whether the terminal supports synchronized updates; others do not reply."""
MUTE_TERMINALS = ("linux", "vt", "screen.linux", "sun")


class Screen:
    """The live region, the input line and the menus."""

    def __init__(self, theme: Theme, buffer: Buffer, *, vim: bool = False) -> None:
        self.theme = theme
        self.buffer = buffer
        self.tail: list[str] = []
        self.status: Callable[[int], list[str]] = lambda columns: []
        self.footer: Callable[[int], list[str]] = lambda columns: []
        self.menu: Menu | None = None
        self.frame_role: TextRole = "frame"
        self.last_key = monotonic()
        """When a key was pressed last."""
        self.on_background: Callable[[str], None] = lambda colour: None
        """Called with the terminal's background colour, if it tells it."""
        self._label = self._hint = ""
        self._masked = False
        """True while a secret is typed."""
        self._reply: tuple[anyio.Event, list[str | None]] | None = None
        self._turn = anyio.Lock()
        self._search = SearchToolbar(
            ignore_case=True,
            backward_search_prompt=HISTORY_SEARCH_PROMPT,
            forward_search_prompt=HISTORY_SEARCH_PROMPT,
        )
        self._tube = TerminalOutput(sys.stdout, self._terminal_size)
        self._painter = LiveRegionPainter(self._tube, lambda: len(self.tail))
        self.app: Application[None] = Application(
            layout=self._build_layout(),
            output=self._tube,
            style=Style([]),
            color_depth=lambda: COLOUR_DEPTHS[self.theme.depth],
            editing_mode=EditingMode.VI if vim else EditingMode.EMACS,
            erase_when_done=True,
            min_redraw_interval=REDRAW_SECONDS,
            terminal_size_polling_interval=None,
            include_default_pygments_style=False,
        )
        self.app.renderer = self._painter
        self.app.ttimeoutlen, self.app.timeoutlen = SEQUENCE_TIMEOUT_SECONDS, KEY_TIMEOUT_SECONDS

    async def run(self, keys: KeyBindings) -> None:
        """Run until `close`."""
        self.app.key_bindings = keys
        self.app.key_processor.before_key_press += self._clear_hint
        parse_whole_sequences(self.app.input, self._note_background)
        await self.app.run_async(
            pre_run=self._ask_terminal, set_exception_handler=False, handle_sigint=False
        )

    def close(self) -> None:
        """Remove the live region and restore the terminal."""
        if self.app.is_running:
            self.app.exit()

    def enable_synchronized_output(self) -> None:
        """Use synchronized updates: the terminal supports them."""
        self._tube.synchronized = True

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        return self._terminal_size().columns

    @property
    def rows(self) -> int:
        """The height of the terminal."""
        return self._terminal_size().rows

    def show_hint(self, text: str) -> None:
        """Show a hint instead of the footer until the next key."""
        self._hint = text
        self.refresh()

    def show_shortcuts(self) -> None:
        """Show what keys and first characters do, until the next key."""
        across = max(1, (self.columns - 3) // SHORTCUT_COLUMNS)
        down = -(-len(SHORTCUTS) // across)
        cells = [f"{one:{SHORTCUT_COLUMNS}}" for one in SHORTCUTS]
        self.show_hint("\n".join("".join(cells[at::down]).rstrip() for at in range(down)))

    @property
    def is_asking(self) -> bool:
        """True while a question is open."""
        return self.menu is not None or self._reply is not None

    @property
    def vim_mode(self) -> str:
        """The vi mode; empty if vi keys are off."""
        if self.app.editing_mode != EditingMode.VI:
            return ""
        if self.buffer.selection_state is not None:
            return "VISUAL"
        state = self.app.vi_state.input_mode
        return "NORMAL" if state == InputMode.NAVIGATION else "INSERT"

    def refresh(self) -> None:
        """Schedule a redraw."""
        self.app.invalidate()

    def send_control(self, text: str) -> None:
        """Send a control sequence, such as the bell or a title."""
        self._tube.write_raw(text)
        self._tube.flush()

    def show_lines(self, *lines: str) -> None:
        """Print finished lines; long ones are folded."""
        room = self.columns - 1
        self._painter.write_above([part for line in lines for part in fold_lines(line, room)])
        self.refresh()

    def finish_lines(self, lines: Sequence[str], rest: Sequence[str]) -> None:
        """Move lines of the answer to the scrollback; the rest stays in the live region."""
        grown = len(lines) + len(rest) - len(self.tail)
        if self._painter.height + grown > self.rows or not self.app.is_running:
            self._painter.write_above(lines)
            self.tail = list(rest)
            self.refresh()
        else:
            self.tail = [*lines, *rest]
            self.app._redraw()  # pyright: ignore[reportPrivateUsage] - before they are left alone
            self._painter.release_rows(len(lines))
            self.tail = list(rest)

    async def pick_options(
        self, options: Sequence[MenuOption], *, several: bool = False, hint: str = ""
    ) -> list[int] | None:
        """Let the user choose; return None if they cancel."""
        return await self.run_menu(Menu(tuple(options), several=several, hint=hint))

    async def run_menu(self, menu: Menu) -> list[int] | None:
        """Run a menu; return None if the user cancels."""
        async with self._turn:
            self.menu = menu
            self.refresh()
            try:
                await menu.done.wait()
            finally:
                self.menu = None
                self.refresh()
            return menu.answer

    def toggle_vim(self) -> bool:
        """Switch between vi keys and the usual ones; return whether vi keys are on."""
        is_on = self.app.editing_mode != EditingMode.VI
        self.app.editing_mode = EditingMode.VI if is_on else EditingMode.EMACS
        return is_on

    async def ask_text(self, label: str, *, masked: bool = False) -> str | None:
        """Ask for a line of text; return None if the user cancels. The draft input is kept."""
        async with self._turn:
            self._masked = masked
            kept, event = self.buffer.document, anyio.Event()
            answer: list[str | None] = []
            self._reply, self._label = (event, answer), label
            self.buffer.set_document(Document(), bypass_readonly=True)
            self.refresh()
            try:
                await event.wait()
            finally:
                self._reply, self._label, self._masked = None, "", False
                self.buffer.set_document(kept, bypass_readonly=True)
                self.refresh()
            return answer[0]

    def submit_answer(self, text: str | None) -> bool:
        """Pass input to the open question; return whether there was one."""
        if self._reply is None:
            return False
        event, answer = self._reply
        answer.append(text)
        event.set()
        return True

    def _note_background(self, colour: str) -> None:
        self.on_background(colour)

    def _ask_terminal(self) -> None:
        if not (self._tube.term or "").startswith(MUTE_TERMINALS):
            self._tube.write_raw(f"{SYNCHRONIZED_QUERY}{BACKGROUND_QUERY}")

    def _clear_hint(self, _: object) -> None:
        self._hint, self.last_key = "", monotonic()

    def _terminal_size(self) -> Size:
        try:
            size = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            return Size(rows=24, columns=80)
        return Size(rows=size.lines or 24, columns=size.columns or 80)

    def _build_layout(self) -> Layout:
        def build_pane(get: Callable[[], Sequence[str]]) -> Window:
            control = FormattedTextControl(lambda: _join_fragments(get()), show_cursor=False)
            return LivePane(
                control,
                dont_extend_height=True,
                height=lambda: Dimension(preferred=len(get()), max=len(get())),
            )

        typing = Condition(lambda: self.menu is None)
        secret = ConditionalProcessor(PasswordProcessor(), Condition(lambda: self._masked))
        unasked = ConditionalProcessor(
            AfterInput(self._placeholder_fragments), Condition(self._is_idle)
        )
        entry = LivePane(
            BufferControl(
                self.buffer,
                input_processors=[secret, unasked],
                search_buffer_control=self._search.control,
                preview_search=True,
            ),
            get_line_prefix=self._line_prefix,
            wrap_lines=True,
            dont_extend_height=True,
            height=Dimension(min=1, max=MAX_INPUT_ROWS),
        )
        body = HSplit(
            [
                build_pane(lambda: self.tail),
                build_pane(self._lines_above_input),
                ConditionalContainer(build_pane(lambda: [self._frame_line("╭")]), typing),
                ConditionalContainer(entry, typing),
                ConditionalContainer(build_pane(lambda: [self._frame_line("╰")]), typing),
                build_pane(self._lines_below_input),
                self._search,
                LivePane(),
            ]
        )
        return Layout(body, focused_element=self.buffer)

    def _line_prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        """Render the frame and the prompt, in front of each line of the input."""
        label = PROMPT_MARK if self._is_label_long() else self._label or PROMPT_MARK
        mark = " " * display_width(label) if line or wrapped else self.theme.mark(label, "accent")
        return parse_ansi_line(f"{self.theme.mark('│', self.frame_role)} {mark}")

    def _is_label_long(self) -> bool:
        """Tell whether the label of a question leaves little room for the answer beside it."""
        return display_width(self._label) > self.columns // 2

    def _placeholder_fragments(self) -> StyleAndTextTuples:
        room = self.columns - len(PROMPT_MARK) - 4
        return parse_ansi_line(self.theme.mark(cut_line(PLACEHOLDER, room), "quiet"))

    def _is_idle(self) -> bool:
        return not self.buffer.text and self._reply is None

    def _frame_line(self, corner: str) -> str:
        width = min(self.columns - 1, FRAME_COLUMNS)
        return self.theme.mark(corner + "─" * (width - 1), self.frame_role)

    def _lines_above_input(self) -> list[str]:
        lines = self.status(self.columns - 1)
        while lines and not lines[-1]:
            del lines[-1]
        shown = self.menu.render(self.theme, self.columns - 1) if self.menu else []
        if self._is_label_long():
            parts = wrap_words(self._label.strip(), self.columns - 3)
            shown += [self.theme.mark(f"  {part}", "accent") for part in parts]
        between = [""] if lines and shown else []
        return ["", *lines, *between, *shown, *([""] if shown else [])]

    def _lines_below_input(self) -> list[str]:
        if self._hint:
            return [self.theme.mark(f"  {line}", "quiet") for line in self._hint.split("\n")]
        return self._completion_lines() or self.footer(self.columns - 1)

    def _completion_lines(self) -> list[str]:
        state = self.buffer.complete_state
        if state is None or not state.completions:
            return []
        at = state.complete_index or 0
        first = max(
            0, min(at - MAX_COMPLETION_ROWS // 2, len(state.completions) - MAX_COMPLETION_ROWS)
        )
        lines: list[str] = []
        for number, one in enumerate(state.completions[first : first + MAX_COMPLETION_ROWS], first):
            role = "accent" if number == state.complete_index else "quiet"
            text = cut_line(
                f"  {one.display_text:<24} {one.display_meta_text}".rstrip(), self.columns - 1
            )
            lines.append(self.theme.mark(text, role))
        return lines


def _join_fragments(lines: Sequence[str]) -> StyleAndTextTuples:
    """Join coloured lines into the text fragments of the live region."""
    parts: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        parts += [("", "\n")] if number else []
        parts += parse_ansi_line(line)
    return parts
