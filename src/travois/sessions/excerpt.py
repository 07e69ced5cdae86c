"""What matters of a log that is too long to be held in memory.

Summaries, searches and the screen look back on a session. Of a very long one they are given its
last entries, and of what came before those only the turns of events: what people said, heads,
compactions, rewinds.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, takewhile
from pathlib import Path

import msgspec

from travois.core.facts import Compacted, Entry, Epoch, Opened, Restored, Rewound, User
from travois.sessions import log_line as line
from travois.sessions.scan import LARGEST_WHOLE, NAME, READ, Mark, Reading, lineage

TAIL = 8 << 20
"""How many bytes at the end of a log are read whole, if all of it is too long for that."""
TURNS = 4 << 20
"""How many bytes of turns of events are taken from what comes before, the last ones."""
FIRST = 20
"""How many of the first turns of events are taken in any case."""
KINDS = frozenset((Opened, Epoch, Compacted, Rewound, Restored, User))
TURN = re.compile(rb'"fact":\{"type":"(?:opened|epoch|compacted|rewound|restored|user)"')
"""No string in a line can hold these bytes: its quotes would be escaped."""
NOT_HUMAN = b'"origin":"'


class Turns:
    """The turns of events of a log: the first ones, and of the others the last."""

    def __init__(self) -> None:
        self._first: list[Entry] = []
        self._last: deque[tuple[Entry, int]] = deque()
        self._room = TURNS

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep those of these entries that are turns of events."""
        for entry in [entry for entry in entries if type(entry.fact) in KINDS]:
            if isinstance(entry.fact, User) and entry.fact.origin != "human":
                continue
            if len(self._first) < FIRST:
                self._first.append(entry)
            else:
                self._keep(entry, len(msgspec.json.encode(entry)))

    def before(self, seq: int) -> Iterator[Entry]:
        """Those that came before an entry."""
        found = (*self._first, *(entry for entry, _ in self._last))
        return takewhile(lambda entry: entry.seq < seq, found)

    def _keep(self, entry: Entry, size: int) -> None:
        self._last.append((entry, size))
        self._room -= size
        while self._room < 0:
            self._room += self._last.popleft()[1]


def is_long(folder: Path) -> bool:
    """Whether a log is so long that only an excerpt of it is looked at."""
    return sum(os.stat(path / NAME).st_size for path, _ in lineage(folder)) > LARGEST_WHOLE


def find_turns(folder: Path) -> Turns:
    """Look through a log for its turns of events, without decoding anything else."""
    found = Turns()
    for path, last in lineage(folder):
        for text in _lines(path / NAME, last=last):
            with suppress(line.Foreign):
                found.add((line.decode(text),))
    return found


def excerpt(folder: Path, turns: Callable[[], Turns]) -> Iterator[Entry]:
    """The turns of events of a long log, and then its last entries."""
    path = folder / NAME
    tail = _tail(path, _next_line(path, max(0, os.stat(path).st_size - TAIL)))
    first = next(tail, None)
    yield from turns().before(first.seq if first else 1 << 62)
    if first is not None:
        yield first
        yield from tail


def _tail(path: Path, begin: int) -> Iterator[Entry]:
    return chain.from_iterable(Reading(path, [], start=Mark(size=begin)))


def _next_line(path: Path, offset: int) -> int:
    """Where the first line begins at or after an offset."""
    if not offset:
        return 0
    with path.open("rb") as file:
        file.seek(offset - 1)
        return offset - 1 + len(file.readline())


def _lines(path: Path, *, last: int) -> Iterator[bytes]:
    found = chain.from_iterable(map(_in_block, _blocks(path)))
    return takewhile(lambda text: line.number(text) <= last, found)


def _blocks(path: Path) -> Iterator[bytes]:
    """The whole lines of a file, in blocks."""
    rest = b""
    with path.open("rb", buffering=0) as file:
        while block := file.read(READ):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut]
                rest = b""
            rest += block[cut:]


def _in_block(block: bytes) -> Iterator[bytes]:
    end = 0
    for match in TURN.finditer(block):
        if match.start() < end:
            continue
        begin = block.rfind(b"\n", 0, match.start()) + 1
        end = block.find(b"\n", begin) + 1
        text = block[begin:end]
        person = b'"type":"user"' not in match[0] or NOT_HUMAN not in text
        if person and line.records(text)[0] == [text]:
            yield text
