"""The choice of a session among thousands: type to find it, see how it ended, go on."""

from __future__ import annotations

import time
from collections.abc import Callable

from travois.compose.session_picker import Shelf
from travois.sessions.catalog import Summary
from travois.terminal.tables import ago
from travois.tui.cells import clean, cut, width
from travois.tui.menu import Menu
from travois.tui.themes import Theme

MOST, AROUND = 10, 13
"""How many sessions are shown at most, and how many rows the rest of the screen needs."""
ERASE, CLEAR = "\x7f", "\x15"
AGE = 10


class Picker(Menu):
    """Sessions to choose from, those that fit what is typed."""

    def __init__(self, shelf: Shelf, rows: Callable[[], int]) -> None:
        super().__init__(())
        self._shelf, self._rows = shelf, rows
        self._typed, self._everywhere = "", False
        self._found = shelf.found("", everywhere=False)

    @property
    def chosen(self) -> Summary | None:
        """The session that was chosen."""
        return self._found[self.answer[0]] if self.answer else None

    def armed(self) -> bool:
        """Every key is meant for it: all that they do before Enter is to look."""
        return True

    def move(self, by: int) -> None:
        """Go to another one; there is nothing beyond the first and the last."""
        self.at = max(0, min(self.at + by, len(self._found) - 1))

    def turn(self) -> None:
        """Look at those of all projects, or of this one."""
        self._everywhere = not self._everywhere
        self._find(self._typed)

    def press(self, key: str) -> bool:
        """Look for other words."""
        if key in (ERASE, CLEAR):
            self._find(self._typed[:-1] if key == ERASE else "")
        elif key.isprintable():
            self._find(self._typed + key)
        return True

    def take(self) -> None:
        """Choose the one that is pointed at."""
        if self._found:
            self.answer = [self.at]
            self.done.set()

    def _find(self, text: str) -> None:
        self._typed, self.at = text, 0
        self._found = self._shelf.found(text, everywhere=self._everywhere)

    # --- how it looks ----------------------------------------------------------------------------

    def lines(self, theme: Theme, columns: int) -> list[str]:
        """What was typed, the sessions that fit, and how the one that is pointed at ended."""
        room = max(1, min(MOST, self._rows() - AROUND))
        first = max(0, min(self.at - room // 2, len(self._found) - room))
        where = "all projects" if self._everywhere else "this project"
        other = "this project" if self._everywhere else "all projects"
        head = f"Go on with which session? {len(self._found):,} of {where}"
        shown = [f"  {theme.mark(cut(head, columns - 2), 'strong')}"]
        shown.append(f"  {theme.mark('find:', 'accent')} {cut(clean(self._typed), columns - 10)}")
        shown.append("")
        for number, one in enumerate(self._found[first : first + room], first):
            shown.append(self._row(theme, columns, number=number, one=one))
        shown += self._ending(theme, columns)
        keys = f"Enter goes on · Tab {other} · Esc leaves"
        return [*shown, f"  {theme.mark(cut(keys, columns - 2), 'quiet')}"]

    def _row(self, theme: Theme, columns: int, *, number: int, one: Summary) -> str:
        here = number == self.at
        age = ago(time.time() - one.updated) if one.updated else "?"
        folder = f"  {_tail(clean(one.cwd), columns // 3)}" if self._everywhere else ""
        title = cut(clean(one.title), columns - 6 - AGE - width(folder))
        pointer = theme.mark("❯", "accent") if here else " "
        told = theme.mark(title, "strong") if here else title
        when, where = (theme.mark(text, "quiet") for text in (f"{age:<{AGE}}", folder))
        return f"  {pointer} {when} {told}{where}"

    def _ending(self, theme: Theme, columns: int) -> list[str]:
        if not self._found:
            return ["  Nothing fits.", ""]
        said, answered = self._shelf.ending(self._found[self.at])
        told = (("you", said), ("it", answered))
        lines = [f"{who:>5}: {clean(text)}" for who, text in told if text]
        return ["", *(f"  {theme.mark(cut(line, columns - 2), 'quiet')}" for line in lines), ""]


def _tail(path: str, room: int) -> str:
    return path if width(path) <= room else f"…{path[-(room - 1) :]}"
