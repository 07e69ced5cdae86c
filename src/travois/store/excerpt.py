"""What matters of a log that is too long to be held in memory.

Summaries, searches and the screen look back on a session. Of a very long one they are given its
last entries, and of what came before those only the turns of events: what people said, heads,
compactions, rewinds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from pathlib import Path

from travois.kernel.facts import Entry
from travois.store import line
from travois.store.scan import NAME, READ, Mark, Reading, lineage

WHOLE = 24 << 20
"""Logs of so many bytes are read whole."""
TAIL = 8 << 20
"""How many bytes at the end of a longer one are."""
TURNS = 4 << 20
"""How many bytes of turns of events are taken from what comes before, the last ones."""
FIRST = 20
"""How many of the first turns of events are taken in any case."""
TURN = re.compile(rb'"fact":\{"type":"(?:opened|epoch|compacted|rewound|restored|user)"')
"""No string in a line can hold these bytes: its quotes would be escaped."""
NOT_HUMAN = b'"origin":"'


def excerpt(folder: Path) -> Iterator[Entry] | None:
    """The entries of a long log that matter; None if it is not long."""
    files = [(path / NAME, last) for path, last in lineage(folder)]
    sizes = [os.stat(path).st_size for path, _ in files]
    if sum(sizes) <= WHOLE:
        return None
    path, last = files[-1]
    begin = _next_line(path, max(0, sizes[-1] - TAIL))
    parts = [(each, size, until) for (each, until), size in zip(files, sizes, strict=True)]
    earlier = [*parts[:-1], (path, begin, last)]
    return chain(_turns(earlier), _tail(path, begin))


def _tail(path: Path, begin: int) -> Iterator[Entry]:
    return chain.from_iterable(Reading(path, [], start=Mark(size=begin)))


def _next_line(path: Path, offset: int) -> int:
    """Where the first line begins at or after an offset."""
    if not offset:
        return 0
    with path.open("rb") as file:
        file.seek(offset - 1)
        return offset - 1 + len(file.readline())


def _turns(parts: Iterable[tuple[Path, int, int]]) -> Iterator[Entry]:
    """The turns of events in the beginnings of these files; of too many, the first and the last."""
    found = [text for path, size, last in parts for text in _lines(path, size, last=last)]
    room, first = TURNS, found[:FIRST]
    kept: list[bytes] = []
    for text in reversed(found[FIRST:]):
        room -= len(text)
        if room < 0:
            break
        kept.append(text)
    for text in (*first, *reversed(kept)):
        try:
            yield line.decode(text)
        except line.Foreign:
            continue


def _lines(path: Path, size: int, *, last: int) -> Iterator[bytes]:
    found = chain.from_iterable(map(_in_block, _blocks(path, size)))
    return takewhile(lambda text: line.number(text) <= last, found)


def _blocks(path: Path, size: int) -> Iterator[bytes]:
    """The first bytes of a file in blocks of whole lines."""
    rest = b""
    with path.open("rb", buffering=0) as file:
        while size > 0 and (block := file.read(min(size, READ))):
            size -= len(block)
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
