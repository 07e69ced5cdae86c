"""Menus from which the user picks with one key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

import anyio
import msgspec

from travois.tui.layout import cut_line, display_width, wrap_words
from travois.tui.theme import Theme

MENU_QUIET_SECONDS = 0.4
"""Seconds without a key before one counts, so that typing does not answer a question."""
MAX_MENU_ROWS = 10
MAX_LABEL_ROWS = 3
MAX_PICKER_ROWS = 12
RESERVED_PICKER_ROWS = 10
"""Rows that the rest of the screen needs beside a picker."""


class MenuOption(msgspec.Struct, frozen=True):
    """An option of a menu, its key and a note."""

    key: str
    label: str
    note: str = ""


class Menu:
    """Options to choose from, and the position of the pointer."""

    def __init__(
        self, options: tuple[MenuOption, ...], *, several: bool = False, hint: str = ""
    ) -> None:
        self.options = options
        self.several = several
        self.hint = hint
        """What further keys do, below the options."""
        self.at = 0
        self.marked: set[int] = set()
        self.done = anyio.Event()
        self.answer: list[int] | None = None
        self._heard = monotonic()

    def is_armed(self) -> bool:
        """Tell whether a key pressed now is meant for the menu."""
        quiet, self._heard = monotonic() - self._heard, monotonic()
        if quiet >= MENU_QUIET_SECONDS:
            self._heard = 0.0
        return quiet >= MENU_QUIET_SECONDS

    def move(self, by: int) -> None:
        """Move the pointer, wrapping around."""
        self.at = (self.at + by) % len(self.options)

    def press_tab(self) -> None:
        """Handle Tab: move to the next option."""
        self.move(1)

    def press(self, key: str) -> bool:
        """Choose the option with this key; return whether there is one."""
        found = [number for number, one in enumerate(self.options) if one.key == key.lower()]
        if found:
            self.at = found[0]
            self.accept()
        return bool(found)

    def accept(self) -> None:
        """Choose the option at the pointer; in a multiple choice, toggle it."""
        if self.several and self.at < len(self.options) - 1:
            self.marked ^= {self.at}
            return
        self.answer = sorted(self.marked) if self.several else [self.at]
        self.done.set()

    def cancel(self) -> None:
        """Close the menu without a choice."""
        self.done.set()

    def render(self, theme: Theme, columns: int) -> list[str]:
        """Render the visible options."""
        first = max(0, min(self.at - MAX_MENU_ROWS // 2, len(self.options) - MAX_MENU_ROWS))
        shown: list[str] = []
        for number, one in enumerate(self.options[first : first + MAX_MENU_ROWS], first):
            shown += self._render_option(theme, columns, number=number, one=one)
        hint = theme.mark(cut_line(self.hint, columns - 3), "quiet")
        return [*shown, f"  {hint}"] if self.hint else shown

    def _render_option(
        self, theme: Theme, columns: int, *, number: int, one: MenuOption
    ) -> list[str]:
        here = number == self.at
        tick = ("◉ " if number in self.marked else "○ ") if self.several else ""
        if number == len(self.options) - 1:
            tick = ""
        pointer = theme.mark("❯", "accent") if here else " "
        key = theme.mark(one.key, "accent" if here else "quiet")
        room = columns - 8
        label, *rest = wrap_words(tick + one.label, room)[:MAX_LABEL_ROWS] or [""]
        lines = [f"  {pointer} {key}  {theme.mark(label, 'strong') if here else label}"]
        lines += [f"       {theme.mark(line, 'strong') if here else line}" for line in rest]
        notes = wrap_words(one.note, room)[:4] if one.note else []
        return lines + [f"       {theme.mark(note, 'quiet')}" for note in notes]


ERASE_KEY = "\x7f"
CLEAR_KEY = "\x15"
MAX_DIRECT_OPTIONS = 9
"""Up to so many options are chosen by their number; longer lists are filtered by typing."""
MIN_NOTE_COLUMNS = 16


class PickerMenu(Menu):
    """A list under a title: short ones are chosen by number, long ones filtered by typing."""

    def __init__(
        self,
        title: str,
        options: Sequence[tuple[str, str]],
        rows: Callable[[], int],
        *,
        at: int = 0,
    ) -> None:
        keys = [str(number) for number in range(1, len(options) + 1)]
        super().__init__(
            tuple(MenuOption(key, *option) for key, option in zip(keys, options, strict=True))
        )
        self.at = at
        self._title, self._rows = title, rows
        self._is_long = len(options) > MAX_DIRECT_OPTIONS
        self._typed = ""
        self._found = list(range(len(options)))

    def is_armed(self) -> bool:
        """Accept every key: the user has just asked for this list."""
        return True

    def move(self, by: int) -> None:
        """Move the pointer among the options that are shown."""
        if self._found:
            here = self._found.index(self.at)
            step = (here + by) % len(self._found) if abs(by) == 1 else here + by
            self.at = self._found[max(0, min(step, len(self._found) - 1))]

    def press(self, key: str) -> bool:
        """Choose by number, or edit the words that filter a long list."""
        if not self._is_long:
            return super().press(key)
        if key in (ERASE_KEY, CLEAR_KEY):
            self._filter_options(self._typed[:-1] if key == ERASE_KEY else "")
        elif key.isprintable():
            self._filter_options(self._typed + key)
        return True

    def accept(self) -> None:
        """Choose the option at the pointer."""
        if self._found:
            super().accept()

    def _filter_options(self, text: str) -> None:
        words = text.casefold().split()
        self._typed = text
        self._found = [
            number
            for number, one in enumerate(self.options)
            if all(word in f"{one.label} {one.note}".casefold() for word in words)
        ]
        if self._found and self.at not in self._found:
            self.at = self._found[0]

    def render(self, theme: Theme, columns: int) -> list[str]:
        """Render the title, the options that match, and the keys."""
        room = max(3, min(MAX_PICKER_ROWS, self._rows() - RESERVED_PICKER_ROWS))
        here = self._found.index(self.at) if self._found else 0
        first = max(0, min(here - room // 2, len(self._found) - room))
        shown = self._found[first : first + room]
        widest = max((display_width(self.options[n].label) for n in self._found), default=0)
        lines = [f"  {theme.mark(line, 'strong')}" for line in wrap_words(self._title, columns - 2)]
        if self._is_long:
            lines.append(f"  {theme.mark('find:', 'accent')} {cut_line(self._typed, columns - 10)}")
        for number in shown:
            lines += self._render_picker_row(theme, columns, number=number, width=widest)
        left = len(self._found) - len(shown)
        keys = f"{f'{left} more · ' if left else ''}Enter choose · Esc cancel"
        lines += [] if self._found else ["  Nothing matches."]
        return [*lines, f"  {theme.mark(cut_line(keys, columns - 2), 'quiet')}"]

    def _render_picker_row(
        self, theme: Theme, columns: int, *, number: int, width: int
    ) -> list[str]:
        one, here = self.options[number], number == self.at
        pointer = theme.mark("❯", "accent") if here else " "
        key = "" if self._is_long else theme.mark(f"{one.key}  ", "accent" if here else "quiet")
        start = 4 if self._is_long else 7
        room = columns - start - width - 2
        beside = not one.note or room >= max(MIN_NOTE_COLUMNS, display_width(one.note))
        label = cut_line(one.label, columns - start)
        pad = " " * (width - display_width(label)) if beside and one.note else ""
        note = f"{pad}  {theme.mark(one.note, 'quiet')}" if beside and one.note else ""
        first = f"  {pointer} {key}{theme.mark(label, 'strong') if here else label}{note}"
        below = [] if beside else wrap_words(one.note, columns - start)[:2]
        return [first, *(f"{' ' * start}{theme.mark(line, 'quiet')}" for line in below)]
