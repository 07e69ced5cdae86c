"""Some lines out of a long text, numbered, however long the text and its lines are."""

from __future__ import annotations

WIDTH = 2_000
"""Longer lines are cut."""
ROOM = 50_000
"""How many bytes of lines one page holds."""
LINES = 2_000


class Page:
    """The lines from number `first` on, taken from text that comes in parts."""

    def __init__(self, first: int, limit: int, *, feed: str = "\n") -> None:
        self.first = first
        self.limit = limit
        self.lines: list[str] = []
        self.number = 1
        """The line that is being read."""
        self.full = False
        self._feed = feed
        self._room = ROOM
        self._line = ""
        self._length = 0

    def add(self, text: str) -> None:
        """Take what belongs on the page from the next part of the text."""
        at = self._skip(text) if self.number < self.first else 0
        while not self.full and at < len(text):
            end = text.find(self._feed, at)
            stop = end if end >= 0 else len(text)
            self._extend(text, at, stop)
            at = stop + 1
            if end >= 0:
                self._finish()

    def close(self) -> None:
        """The text is over: what was read of its last line is a line too."""
        if self._length and not self.full:
            self._finish()

    def __str__(self) -> str:
        numbered = enumerate(self.lines, self.first)
        return "\n".join(f"{number}\t{line}" for number, line in numbered)

    @property
    def last(self) -> int:
        """The number of the last line on the page."""
        return self.first + len(self.lines) - 1

    def _skip(self, text: str) -> int:
        """Where the first wanted line begins in this part; its end if it does not."""
        passed = text.count(self._feed)
        if self.number + passed < self.first:
            self.number += passed
            return len(text)
        at = 0
        while self.number < self.first:
            at = text.index(self._feed, at) + 1
            self.number += 1
        return at

    def _extend(self, text: str, start: int, stop: int) -> None:
        self._length += stop - start
        self._line += text[start : min(stop, start + WIDTH + 1 - len(self._line))]

    def _finish(self) -> None:
        line, rest = self._line, self._length - WIDTH
        ended = line.removesuffix("\r") if self._length == len(line) else line
        shown = ended if len(ended) <= WIDTH else f"{ended[:WIDTH]}… [{rest} more characters]"
        size = len(shown.encode(errors="surrogatepass")) + 1
        if self.lines and size > self._room:
            self.full = True
            return
        self.lines.append(shown)
        self.number += 1
        self._room -= size
        self._line, self._length = "", 0
        self.full = len(self.lines) >= self.limit or self._room <= 0
