"""A log that goes on in memory while the disk takes nothing, and catches up when it does again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from travois.core.errors import Fault
from travois.core.facts import AnyFact, Entry
from travois.sessions import log_line as line
from travois.sessions.log_file import Log


class Enduring(Log):
    """What cannot be saved is held, in order, and saved before anything that comes after it."""

    unsaved: tuple[Entry, ...] = ()
    """What is not on the disk."""
    _news: str = ""

    def append(self, fact: AnyFact) -> Entry:
        """Write one entry; where the disk refuses, hold it in memory."""
        self._catch_up()
        if not self.unsaved:
            try:
                return super().append(fact)
            except Fault as fault:
                self._news = (
                    f"{fault.what}: {fault.why}. The session goes on in memory only, "
                    "and is saved when that is possible again"
                )
        last = self.unsaved[-1].seq if self.unsaved else self._tail[0]
        entry, _ = line.encode(Entry(last + 1, self._clock(), fact))
        self.unsaved = (*self.unsaved, entry)
        return entry

    def sync(self) -> None:
        """Bring what could be saved to the disk itself; a disk that refuses is told of once."""
        self._catch_up()
        if not self.unsaved:
            try:
                super().sync()
            except Fault as fault:
                told = f"{fault.what}: {fault.why}. What was said last may be lost in a crash"
                self._news = "" if self._is_told else told
                self._is_told = True

    _is_told: bool = False

    def read_blocks(self) -> Iterator[list[Entry]]:
        """All entries, also those that are not on the disk."""
        return chain(super().read_blocks(), (list(self.unsaved),))

    def resume(self) -> tuple[bytes, Iterator[list[Entry]]]:
        """The same from where it was kept on."""
        if self.unsaved:
            return b"", self.read_blocks()
        return super().resume()

    def recent(self) -> Iterator[Entry] | None:
        """What matters of a very long log."""
        found = super().recent()
        return chain(found, self.unsaved) if found is not None else None

    def news(self) -> str:
        """What the user should be told now of what is saved; each thing is told once."""
        told, self._news = self._news, ""
        return told

    def close(self) -> None:
        """Try once more, then let go of the file."""
        if self._fd >= 0:
            self._catch_up()
        super().close()

    def _catch_up(self) -> None:
        """Save what is held, as far as the disk takes it."""
        held = len(self.unsaved)
        while self.unsaved:
            try:
                self._save(self.unsaved[0])
            except Fault:
                return
            self.unsaved = self.unsaved[1:]
        if held:
            self._news = "The session is saved again, with all that was held in memory"
