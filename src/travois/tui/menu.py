"""Menus from which the user picks with one key."""

from __future__ import annotations

from time import monotonic

import anyio
import msgspec

from travois.tui.markdown import Theme, cut, worded

QUIET = 0.4
"""Seconds without a key before one counts, so that typing does not answer a question."""
MOST = 10


class Pick(msgspec.Struct, frozen=True):
    """An option of a menu, its key and a note."""

    key: str
    label: str
    note: str = ""


class Menu:
    """Options to choose from, and the position of the pointer."""

    def __init__(self, options: tuple[Pick, ...], *, several: bool = False) -> None:
        self.options = options
        self.several = several
        self.at = 0
        self.marked: set[int] = set()
        self.done = anyio.Event()
        self.answer: list[int] | None = None
        self._heard = monotonic()

    def armed(self) -> bool:
        """Tell whether a key pressed now is meant for the menu."""
        quiet, self._heard = monotonic() - self._heard, monotonic()
        if quiet >= QUIET:
            self._heard = 0.0
        return quiet >= QUIET

    def move(self, by: int) -> None:
        """Move the pointer, wrapping around."""
        self.at = (self.at + by) % len(self.options)

    def turn(self) -> None:
        """Handle Tab: move to the next option."""
        self.move(1)

    def press(self, key: str) -> bool:
        """Choose the option with this key; return whether there is one."""
        found = [number for number, one in enumerate(self.options) if one.key == key.lower()]
        if found:
            self.at = found[0]
            self.take()
        return bool(found)

    def take(self) -> None:
        """Choose the option at the pointer; in a multiple choice, toggle it."""
        if self.several and self.at < len(self.options) - 1:
            self.marked ^= {self.at}
            return
        self.answer = sorted(self.marked) if self.several else [self.at]
        self.done.set()

    def turn_away(self) -> None:
        """Close the menu without a choice."""
        self.done.set()

    def lines(self, theme: Theme, columns: int) -> list[str]:
        """Render the visible options."""
        first = max(0, min(self.at - MOST // 2, len(self.options) - MOST))
        shown: list[str] = []
        for number, one in enumerate(self.options[first : first + MOST], first):
            shown += self._option(theme, columns, number=number, one=one)
        return shown

    def _option(self, theme: Theme, columns: int, *, number: int, one: Pick) -> list[str]:
        here = number == self.at
        tick = ("◉ " if number in self.marked else "○ ") if self.several else ""
        if number == len(self.options) - 1:
            tick = ""
        pointer = theme.mark("❯", "accent") if here else " "
        key = theme.mark(one.key, "accent" if here else "quiet")
        room = columns - 8
        label = cut(tick + one.label, room)
        lines = [f"  {pointer} {key}  {theme.mark(label, 'strong') if here else label}"]
        notes = worded(one.note, room)[:4] if one.note else []
        return lines + [f"       {theme.mark(note, 'quiet')}" for note in notes]
