"""A choice between a few things, made with one key."""

from __future__ import annotations

from time import monotonic

import anyio
import msgspec

from travois.tui.markdown import Theme, cut, worded

QUIET = 0.4
"""A key counts only after so many seconds without one, so that nobody answers while typing."""
MOST = 10


class Pick(msgspec.Struct, frozen=True):
    """One thing to choose, the key that chooses it, and what there is to know about it."""

    key: str
    label: str
    note: str = ""


class Menu:
    """Things to choose from, and where the choice stands."""

    def __init__(self, options: tuple[Pick, ...], *, several: bool = False) -> None:
        self.options = options
        self.several = several
        self.at = 0
        self.marked: set[int] = set()
        self.done = anyio.Event()
        self.answer: list[int] | None = None
        self._heard = monotonic()

    def armed(self) -> bool:
        """Whether a key that comes at this moment is meant for the menu."""
        quiet, self._heard = monotonic() - self._heard, monotonic()
        if quiet >= QUIET:
            self._heard = 0.0
        return quiet >= QUIET

    def move(self, by: int) -> None:
        """Go to the next one, or the one before."""
        self.at = (self.at + by) % len(self.options)

    def turn(self) -> None:
        """Go on, as Tab does."""
        self.move(1)

    def press(self, key: str) -> bool:
        """Choose by key; whether there is anything by that key."""
        found = [number for number, one in enumerate(self.options) if one.key == key.lower()]
        if found:
            self.at = found[0]
            self.take()
        return bool(found)

    def take(self) -> None:
        """Choose what is pointed at; where several may be, first mark it."""
        if self.several and self.at < len(self.options) - 1:
            self.marked ^= {self.at}
            return
        self.answer = sorted(self.marked) if self.several else [self.at]
        self.done.set()

    def turn_away(self) -> None:
        """Choose nothing."""
        self.done.set()

    def lines(self, theme: Theme, columns: int) -> list[str]:
        """What there is to choose."""
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
