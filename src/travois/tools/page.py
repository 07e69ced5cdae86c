"""Some lines out of a long text, numbered, as many as there is room for.

A page ends at a whole line. Only a line that alone has no room is cut, at a character, and the next
page begins there: pages that follow what they say show every line once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from travois.context.tool_results import MOST_CHARS, measure, most_that_fits
from travois.core.tokens import estimate
from travois.ports.world import Room
from travois.tools.text import shown

LINES = 2_000
AROUND = 110
"""The tokens for what is said below a page, and for what a provider puts around a result."""
LEAST = 32
"""A page has room for so many tokens, or nobody would ever get on."""


class Place(NamedTuple):
    """A place in a text: a line, or another part of a file, and a character in it, both from 1."""

    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"offset={self.line}" + (f", column={self.column}" if self.column > 1 else "")


class Fitted(NamedTuple):
    """What a page shows, and where the next one begins."""

    text: str
    next: Place
    lines: int


def fit_parts(parts: Iterable[str], *, column: int, room: Room) -> tuple[list[str], int]:
    """Return the parts that fit whole; of one that alone has no room, what fits of it.

    The first part begins at a column. With them comes the column at which the last of them goes
    on, nought if it is whole.
    """
    fitting, left = list[str](), max(LEAST, min(room.cap, room.share) - AROUND)
    for part in parts:
        text = part if fitting else part[column - 1 :]
        if (size := measure(text)) > left:
            return (fitting, 0) if fitting else _fit_beginning(text, column=column, tokens=left)
        fitting.append(text)
        left -= size
    return fitting, 0


def _fit_beginning(text: str, *, column: int, tokens: int) -> tuple[list[str], int]:
    """Return as much of a text as fits, to the end of a line if one ends there."""
    size = max(1, most_that_fits(len(text), lambda size: measure(text[:size]), tokens=tokens))
    size = text.rfind("\n", 0, size) + 1 or size
    return [text[:size]], column + size


class Page:
    """The lines from a place on, taken from text that comes in parts.

    Once there is more than could ever be shown, `full` is set and no more is taken.
    """

    def __init__(self, first: Place, limit: int, *, room: Room, feed: str = "\n") -> None:
        self.first = first
        self.lines: list[str] = []
        self.number = 1
        """The line that is being read."""
        self.full = False
        self.open = False
        """Whether the last of the lines goes on behind what was taken of it."""
        self._limit = limit
        self._room = room
        self._feed = feed
        self._left = MOST_CHARS * max(LEAST, room.share)
        self._line = ""
        self._begun = False
        self._skip_chars = first.column - 1

    def add(self, text: str) -> None:
        """Take what belongs on the page from the next part of the text."""
        at = self._skip_lines(text) if self.number < self.first.line else 0
        while not self.full and at < len(text):
            end = text.find(self._feed, at)
            stop = end if end >= 0 else len(text)
            self._extend(text, at, stop)
            at = stop + 1
            if end >= 0 and not self.full:
                self._finish()

    def close(self) -> None:
        """Take what was read of a last line without an end."""
        if self._begun and not self.full:
            self._finish()

    @property
    def missed(self) -> bool:
        """Whether the line was shorter than the column to begin at."""
        return self._skip_chars > 0

    def fit(self) -> Fitted:
        """Return as many whole lines as there is room for; a part of the first if it has none."""
        whole = self.lines[:-1] if self.open else self.lines
        count = most_that_fits(len(whole), self._size, tokens=self._tokens)
        if count:
            return Fitted(self._numbered(count), Place(self.first.line + count), count)
        line, number = self.lines[0], self.first.line
        most = min(self._tokens, self._room.cap)
        size = most_that_fits(len(line), lambda size: measure(shown(line[:size])), tokens=most)
        ended = size == len(line) and not self.open
        onward = Place(number + 1) if ended else Place(number, self.first.column + max(1, size))
        return Fitted(f"{number}\t{shown(line[: max(1, size)])}", onward, 1)

    @property
    def _tokens(self) -> int:
        return max(LEAST, self._room.share - AROUND)

    def _numbered(self, count: int) -> str:
        lines = enumerate(self.lines[:count], self.first.line)
        return shown("\n".join(f"{number}\t{line}" for number, line in lines))

    def _size(self, count: int) -> int:
        """The tokens of so many lines; more than there is room for if the tool's cap says so.

        The cap counts the file's own text, as nobody who asks for a file asks for numbers.
        """
        text = self._numbered(count)
        size = measure(text)
        first = self.first.line
        numbers = estimate("\t".join(map(str, range(first, first + count))))
        own = (size - numbers) * self._tokens / self._room.cap
        return round(max(size, own))

    def _skip_lines(self, text: str) -> int:
        """Where the first wanted line begins in this part; its end if it does not."""
        passed = text.count(self._feed)
        if self.number + passed < self.first.line:
            self.number += passed
            return len(text)
        at = 0
        while self.number < self.first.line:
            at = text.index(self._feed, at) + 1
            self.number += 1
        return at

    def _extend(self, text: str, start: int, stop: int) -> None:
        self._begun = True
        skipped = min(self._skip_chars, stop - start)
        self._skip_chars -= skipped
        self._line += text[start + skipped : stop]
        if len(self._line) > self._left:
            self.lines.append(self._line[: self._left])
            self.full = self.open = True

    def _finish(self) -> None:
        self.lines.append(self._line.removesuffix("\r"))
        self._left -= len(self._line)
        self.number += 1
        self._line, self._begun = "", False
        self.full = len(self.lines) >= self._limit or self.missed
