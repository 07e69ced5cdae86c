"""A log that is read as it grows: what was read once is never read again."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from travois.core.facts import Entry, Opened
from travois.inspector.story import Story
from travois.sessions import disk
from travois.sessions import log_line as line
from travois.sessions.log_file import NAME, Skipped, history, opened


class Reading:
    """The story of one log as far as it is on file. A fork begins with what it branched off."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.story = Story()
        self.skipped: list[Skipped] = []
        self._offset = 0
        self._lines = 0
        self._last = 0
        first = opened(folder)
        if first and isinstance(first.fact, Opened) and first.fact.parent:
            for entry in history(folder, self.skipped):
                if entry.seq > first.fact.at:
                    break
                self.story.take(entry)
        self.update()

    @property
    def size(self) -> int:
        """How many bytes there are on file."""
        return (self.folder / NAME).stat().st_size

    def update(self) -> None:
        """Take what was added since; a last line that is not whole yet can wait."""
        try:
            with (self.folder / NAME).open("rb") as file:
                file.seek(self._offset)
                for text in takewhile(_ended, file):
                    self._take(text)
        except OSError as error:
            raise disk.fault("The session cannot be read", error, path=self.folder) from error

    def _take(self, text: bytes) -> None:
        found, reason = line.records(text)
        self._lines += 1
        if reason:
            name = str(self.folder / NAME)
            self.skipped.append(Skipped(name, self._lines, self._offset, reason))
        self._offset += len(text)
        for record in found:
            entry = _decoded(record)
            if entry and entry.seq > self._last:
                self._last = entry.seq
                self.story.take(entry)


def _ended(text: bytes) -> bool:
    return text.endswith(b"\n")


def _decoded(record: bytes) -> Entry | None:
    """A page is there to look: what only a later version knows is left out."""
    try:
        return line.decode(record)
    except line.Foreign:
        return None
