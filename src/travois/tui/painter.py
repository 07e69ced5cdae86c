"""Drawing the live region without rewriting lines that only moved.

prompt_toolkit draws the region and writes only what differs from the last frame. It knows nothing
of lines inserted above or inside the region; here the terminal is told to insert or delete lines,
so that unchanged lines are not written again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.layout import Window
from prompt_toolkit.layout.screen import Screen, WritePosition
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import Attrs, Style

from travois.core.display_text import replace_invisible
from travois.tui.theme import RESET_CODE

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.layout.layout import Layout


class LivePane(Window):
    """A part of the live region whose rows have no style, so that any row can be reused."""

    def _apply_style(
        self, new_screen: Screen, write_position: WritePosition, parent_style: str
    ) -> None:
        pass


class TerminalOutput(Vt100_Output):
    """The terminal output: repeats no colour code, and sends each frame in one write."""

    def __init__(self, stdout: TextIO, size: Callable[[], Size]) -> None:
        super().__init__(stdout, size, default_color_depth=ColorDepth.DEPTH_4_BIT, enable_cpr=False)
        self.synchronized = False
        self.settled = False
        """True while all rows of the region exist on the terminal."""
        self._colour = ""
        """The colours in effect; empty if unknown."""

    def hide_cursor(self) -> None:
        """Do nothing: a frame is one write, so no cursor movement is visible."""

    def disable_autowrap(self) -> None:
        """Do nothing: no line is too long."""

    def enable_autowrap(self) -> None:
        """Do nothing: autowrap stays on."""

    def set_attributes(self, attrs: Attrs, color_depth: ColorDepth) -> None:
        """Switch colours, unless they are in effect."""
        self._set_colours(self._escape_code_caches[color_depth][attrs])

    def reset_attributes(self) -> None:
        """Reset colours, unless they are reset."""
        self._set_colours(RESET_CODE)

    def _set_colours(self, code: str) -> None:
        if code != self._colour:
            # Where nothing is set, nothing need be reset first.
            plain = self._colour == RESET_CODE and code.startswith("\x1b[0;")
            self.write_raw(f"\x1b[{code[4:]}" if plain else code)
            self._colour = code

    def write(self, data: str) -> None:
        """Write text; newlines over existing rows become one cursor movement."""
        rows = data.count("\n")
        if rows and not data.strip("\r\n"):
            super().write_raw(f"\r\x1b[{rows}B" if self.settled and rows > 1 else data)
        else:
            super().write(replace_invisible(data))

    def write_raw(self, data: str) -> None:
        """Write codes and text, without invisible characters."""
        super().write_raw(replace_invisible(data))

    def flush(self) -> None:
        """Send the frame, as one synchronized update if the terminal supports it."""
        if self.synchronized and self._buffer:
            self._buffer = ["\x1b[?2026h", *self._buffer, "\x1b[?2026l"]
        super().flush()


class LiveRegionPainter(Renderer):
    """Draws the live region; `top` returns how many of its first rows are the streaming answer."""

    def __init__(self, output: TerminalOutput, top: Callable[[], int]) -> None:
        self._tube = output
        self._top = top
        self._drawn = 0
        super().__init__(Style([]), output)

    def render(self, app: Application[object], layout: Layout, is_done: bool = False) -> None:
        """Draw what differs from the last frame."""
        if self._last_screen is not None and self._last_size == self._tube.get_size():
            self._resize_region(layout)
            self._tube.settled = True
        super().render(app, layout, is_done)
        self._tube.settled = False
        self._drawn = self._top()

    @property
    def height(self) -> int:
        """The rows of the region."""
        return self._last_screen.height if self._last_screen else 0

    def write_above(self, lines: Sequence[str]) -> None:
        """Write finished lines above the region; each fits the width and resets its colours."""
        rest = list(lines)
        room = self.output.get_size().rows - self.height
        if self._last_screen is None or room < 1:
            self.erase()
            self.output.write_raw("".join(f"{line}\r\n" for line in rest))
            rest, room = [], 1
        while rest:
            self._insert_lines(rest[:room])
            del rest[:room]
        self.output.flush()

    def release_rows(self, count: int) -> None:
        """Release the first rows of the region into the scrollback."""
        if count and self._last_screen is not None:
            self._shift_rows(0, -count)
            self._cursor_pos = Point(self._cursor_pos.x, self._cursor_pos.y - count)
            self._drawn = max(0, self._drawn - count)

    def _resize_region(self, layout: Layout) -> None:
        """Insert rows for a growing answer, delete those it left, and trim the bottom."""
        assert self._last_screen is not None
        size, top = self.output.get_size(), self._top()
        height = self._last_screen.height
        wanted = layout.container.preferred_height(size.columns, size.rows).preferred
        grown = top - self._drawn
        if grown > 0 and height + grown <= size.rows:
            self._add_rows(grown)
            self._move_cursor(0, self._drawn)
            self.output.write_raw(f"\x1b[{grown}L")
            self._shift_rows(self._drawn, grown)
        elif grown < 0:
            self._move_cursor(0, top)
            self.output.write_raw(f"\x1b[{-grown}M")
            self._shift_rows(top - grown, grown)
        if wanted < self._last_screen.height:
            self._trim_rows(wanted)
        elif more := min(wanted, size.rows) - self._last_screen.height:
            self._add_rows(more)
            self._last_screen.height += more

    def _insert_lines(self, lines: Sequence[str]) -> None:
        back, count = self._cursor_pos, len(lines)
        self._add_rows(count)
        self._move_cursor(0, 0)
        self.output.reset_attributes()
        text = "\r\n".join(lines)
        self.output.write_raw(f"\x1b[{count}L{text}\r\n")
        self._cursor_pos = Point(0, 0)
        self._move_cursor(back.x, back.y)

    def _add_rows(self, count: int) -> None:
        """Make sure that this many rows are free below the region."""
        assert self._last_screen is not None
        bottom = self._last_screen.height - 1
        self._move_cursor(0, bottom)
        self.output.reset_attributes()
        self.output.write_raw("\n" * count)
        self._cursor_pos = Point(0, bottom + count)

    def _trim_rows(self, height: int) -> None:
        assert self._last_screen is not None
        self._move_cursor(0, height)
        self.output.write_raw("\x1b[J")
        for row in [row for row in self._last_screen.data_buffer if row >= height]:
            del self._last_screen.data_buffer[row]
        self._last_screen.height = height

    def _move_cursor(self, x: int, y: int) -> None:
        rows = y - self._cursor_pos.y
        move = f"\x1b[{abs(rows)}{'B' if rows > 0 else 'A'}" if rows else ""
        self.output.write_raw(f"\r{move}" + (f"\x1b[{x}C" if x else ""))
        self._cursor_pos = Point(x, y)

    def _shift_rows(self, first: int, by: int) -> None:
        """Move the rows from `first` on in the last frame, as the terminal moved them."""
        old = self._last_screen
        assert old is not None
        moved = Screen()
        for row, cells in old.data_buffer.items():
            if row < first and (by > 0 or row < first + by):
                moved.data_buffer[row] = cells
            elif row >= first and row + by >= 0:
                moved.data_buffer[row + by] = cells
        moved.width, moved.height = old.width, max(1, old.height + by)
        moved.show_cursor = old.show_cursor
        self._last_screen = moved
