"""Menus from which the user picks with one key."""

from __future__ import annotations

from time import monotonic

import anyio
import msgspec

from travois.tui.markdown import wrap_words
from travois.tui.theme import Theme

MENU_QUIET_SECONDS = 0.4
"""Seconds without a key before one counts, so that typing does not answer a question."""
MAX_MENU_ROWS = 10
MAX_LABEL_ROWS = 3


class MenuOption(msgspec.Struct, frozen=True):
    """An option of a menu, its key and a note."""

    key: str
    label: str
    note: str = ""


class Menu:
    """Options to choose from, and the position of the pointer."""

    def __init__(self, options: tuple[MenuOption, ...], *, several: bool = False) -> None:
        self.options = options
        self.several = several
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
        return shown

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
