"""Scanning session logs in blocks, from the start or a mark, and excerpts of very long ones."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from io import BytesIO, FileIO
from itertools import chain, takewhile
from operator import lt
from pathlib import Path
from zlib import crc32

import msgspec

from travois.core.errors import UserError
from travois.core.facts import Compacted, Entry, Epoch, Opened, Restored, Rewound, User
from travois.sessions import blobs, log_line

LOG_FILE_NAME = "log.jsonl"
READ_BLOCK_BYTES = 1 << 18
"""The bytes that are read at once: their decoded form still fits in a processor's cache."""
MAX_WHOLE_LOG_BYTES = 24 << 20
"""Logs of up to so many bytes are read whole; of longer ones, an excerpt."""


class DamagedPlace(msgspec.Struct, frozen=True):
    """A damaged place in a log: file, line (from 1), byte offset, and the reason."""

    file: str
    line: int
    offset: int
    reason: str


class ReadMark(msgspec.Struct, frozen=True, array_like=True):
    """A position in a file: bytes, lines, the last entry, and a checksum of those bytes."""

    size: int = 0
    lines: int = 0
    seq: int = 0
    crc: int = 0


START_MARK = ReadMark()


def read_history(folder: Path, skipped: list[DamagedPlace]) -> Iterator[Entry]:
    """Return all entries of a session, read-only; damaged places are added to `skipped`."""
    return chain.from_iterable(LineageReader(folder, skipped))


class LineageReader:
    """A pass over a session and those that it was forked from, oldest first.

    `marks` holds how far each of them was read, by session id.
    """

    def __init__(
        self, folder: Path, skipped: list[DamagedPlace], *, mark: ReadMark = START_MARK
    ) -> None:
        """Start a pass; from a mark on, only the rest of the session's own file is read."""
        files = find_lineage(folder)
        self._files = files[-1:] if mark.size else files
        self.start = mark
        self._skipped = skipped
        self.marks: dict[str, ReadMark] = {}

    def __iter__(self) -> Iterator[list[Entry]]:
        for folder, last in self._files:
            reading = LogReader(folder / LOG_FILE_NAME, self._skipped, mark=self.start)
            for found in reading:
                self.marks[folder.name] = reading.mark
                if found and found[-1].seq > last:
                    yield [entry for entry in found if entry.seq <= last]
                    break
                yield found


def read_entries(path: Path, skipped: list[DamagedPlace]) -> Iterator[Entry]:
    """Yield a session log's entries in rising order; damage is skipped and reported."""
    return chain.from_iterable(LogReader(path, skipped))


class LogReader:
    """A pass over the entries of a file in blocks, from a place where a line begins.

    Blocks of lines that are all whole are decoded together; only a damaged block is read line by
    line. `mark` is always the place where another pass can begin.
    """

    def __init__(
        self, path: Path, skipped: list[DamagedPlace], *, mark: ReadMark = START_MARK
    ) -> None:
        self.mark = mark
        self._path = path
        self._skipped = skipped
        self._version = "another version"

    def __iter__(self) -> Iterator[list[Entry]]:
        try:
            with self._path.open("rb", buffering=0) as file:
                file.seek(self.mark.size)
                for block in _iterate_line_blocks(file):
                    yield self._decode_block(block)
        except OSError as error:
            raise blobs.make_storage_error(
                "The session cannot be read", error, path=self._path
            ) from error

    def _decode_block(self, block: bytes) -> list[Entry]:
        whole = _decode_whole_block(block, last=self.mark.seq)
        lines = len(whole) if whole else block.count(b"\n")
        found = self._decode_line_by_line(block) if whole is None else whole
        if found and isinstance(found[0].fact, Opened):
            self._version = f"version {found[0].fact.version}"
        mark = self.mark
        self.mark = ReadMark(
            mark.size + len(block),
            mark.lines + lines,
            found[-1].seq if found else mark.seq,
            crc32(block, mark.crc),
        )
        return found

    def _decode_line_by_line(self, block: bytes) -> list[Entry]:
        found: list[Entry] = []
        last = self.mark.seq
        for record, where in self._split_block(block):
            entry = _decode_or_explain(record, path=self._path, version=self._version)
            if entry.seq <= last:
                reason = f"entry {entry.seq} after entry {last}"
                self._skipped.append(msgspec.structs.replace(where, reason=reason))
                continue
            last = entry.seq
            if isinstance(entry.fact, Opened):
                self._version = f"version {entry.fact.version}"
            found.append(entry)
        return found

    def _split_block(self, block: bytes) -> Iterator[tuple[bytes, DamagedPlace]]:
        """Yield the whole records of a block, each with its place."""
        name, offset = str(self._path), self.mark.size
        for number, text in enumerate(BytesIO(block), self.mark.lines + 1):
            found, reason = log_line.split_records(text)
            where = DamagedPlace(name, number, offset, reason)
            if reason:
                self._skipped.append(where)
            for record in found:
                yield record, where
            offset += len(text)


def _iterate_line_blocks(file: FileIO) -> Iterator[bytes]:
    """Yield the rest of a session log in blocks of whole lines; the last may be torn."""
    rest: list[bytes] = []
    while block := file.read(READ_BLOCK_BYTES):
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest.append(block)
            continue
        yield b"".join((*rest, block[:cut]))
        rest = [block[cut:]] if cut < len(block) else []
    if rest:
        yield b"".join(rest)


def _decode_whole_block(block: bytes, *, last: int) -> list[Entry] | None:
    """Return the entries of an undamaged log block; None if anything is wrong."""
    if not log_line.is_block_whole(block):
        return None
    try:
        found = log_line.decode_block(block)
    except log_line.UnknownFactError:
        return None
    numbers = [entry.seq for entry in found]
    rising = all(map(lt, (last, *numbers), numbers))
    return found if rising else None


def read_opening(folder: Path) -> Entry | None:
    """Return a session log's first entry; None if its line is damaged."""
    try:
        with (folder / LOG_FILE_NAME).open("rb") as file:
            found, _ = log_line.split_records(file.readline())
    except OSError as error:
        raise blobs.make_storage_error("The session cannot be read", error, path=folder) from error
    entry = (
        _decode_or_explain(found[0], path=folder / LOG_FILE_NAME, version="another version")
        if found
        else None
    )
    return entry if entry is not None and isinstance(entry.fact, Opened) else None


def find_lineage(folder: Path) -> list[tuple[Path, int]]:
    """Return this session and those it was forked from, oldest first, each with its last entry."""
    chain: list[tuple[Path, int]] = []
    last = 1 << 62
    while all(folder != known for known, _ in chain):
        chain.append((folder, last))
        first = read_opening(folder)
        if first is None or not isinstance(first.fact, Opened) or not first.fact.parent:
            break
        last = min(last, first.fact.at)
        folder = _find_parent_folder(folder, first.fact.parent)
    chain.reverse()
    return chain


def _find_parent_folder(folder: Path, id: str) -> Path:
    """Find a forked session's parent: around this one, beside it, or in another project."""
    around = [path for path in folder.parents if path.name == id]
    beside = [folder.with_name(id)] if id == Path(id).name else []
    others: Iterable[Path] = folder.parent.parent.glob(f"*/{id}") if beside else ()
    for path in (*around, *beside, *others):
        if (path / LOG_FILE_NAME).is_file():
            return path
    raise UserError(
        f"Session {folder.name} cannot be read",
        why=f"it is a fork of {id}, which is missing",
        fix="Restore it from the trash folder in your Travois home.",
    )


def _decode_or_explain(record: bytes, *, path: Path, version: str) -> Entry:
    """Decode a log record; raise an error that tells to update if its type is unknown."""
    try:
        return log_line.decode_record(record)
    except log_line.UnknownFactError as error:
        raise UserError(
            f"Session {path.parent.name} was written by {version} of Travois, not this one",
            why=f"it contains a fact of type {error.kind!r} ({error.problem})",
            fix="Update Travois to read it.",
        ) from None


# What matters of a log that is too long to be held in memory.


EXCERPT_TAIL_BYTES = 8 << 20
"""The bytes at the end of a very long log that are read in full."""
TAIL_STEP_BYTES = 1 << 16
"""The bytes at the end of a log in which its newest entries are looked for first."""
MAX_KEY_ENTRY_BYTES = 4 << 20
"""The most bytes of key entries that are taken from what comes before, the last ones."""
FIRST_KEY_ENTRIES = 20
"""The number of first key entries that are always taken."""
KEY_FACTS = frozenset((Opened, Epoch, Compacted, Rewound, Restored, User))
KEY_LINE = re.compile(rb'"fact":\{"type":"(?:opened|epoch|compacted|rewound|restored|user)"')
"""No string in a line can hold these bytes: its quotes would be escaped."""
ORIGIN_FIELD = b'"origin":"'


class KeyEntries:
    """The key entries of a log (openings, prompts, compactions, rewinds): first and last ones."""

    def __init__(self) -> None:
        self._first: list[Entry] = []
        self._last: deque[tuple[Entry, int]] = deque()
        self._room = MAX_KEY_ENTRY_BYTES

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep the key entries among these."""
        for entry in [entry for entry in entries if type(entry.fact) in KEY_FACTS]:
            if isinstance(entry.fact, User) and entry.fact.origin != "human":
                continue
            if len(self._first) < FIRST_KEY_ENTRIES:
                self._first.append(entry)
            else:
                self._keep(entry, len(msgspec.json.encode(entry)))

    def before(self, seq: int) -> Iterator[Entry]:
        """Yield the key entries before an entry."""
        found = (*self._first, *(entry for entry, _ in self._last))
        return takewhile(lambda entry: entry.seq < seq, found)

    def _keep(self, entry: Entry, size: int) -> None:
        self._last.append((entry, size))
        self._room -= size
        while self._room < 0:
            self._room += self._last.popleft()[1]


def is_long_log(folder: Path) -> bool:
    """Return whether a log is so long that only an excerpt of it is read."""
    return (
        sum(os.stat(path / LOG_FILE_NAME).st_size for path, _ in find_lineage(folder))
        > MAX_WHOLE_LOG_BYTES
    )


def find_key_entries(folder: Path) -> KeyEntries:
    """Find a long session log's key entries, without decoding anything else."""
    found = KeyEntries()
    for path, last in find_lineage(folder):
        for text in _key_lines(path / LOG_FILE_NAME, last=last):
            with suppress(log_line.UnknownFactError):
                found.add((log_line.decode_record(text),))
    return found


def read_excerpt(folder: Path, turns: Callable[[], KeyEntries]) -> Iterator[Entry]:
    """Yield the key entries of a long log, and then its last entries."""
    path = folder / LOG_FILE_NAME
    tail = _read_entries_from(
        path, _find_line_start(path, max(0, os.stat(path).st_size - EXCERPT_TAIL_BYTES))
    )
    first = next(tail, None)
    yield from turns().before(first.seq if first else 1 << 62)
    if first is not None:
        yield first
        yield from tail


def read_tail(folder: Path, seq: int) -> list[Entry] | None:
    """Return a session log's entries after this one, read backwards; None if some are elsewhere.

    Elsewhere is the session that this one was forked from.
    """
    path, size = folder / LOG_FILE_NAME, TAIL_STEP_BYTES
    while True:
        begin = _find_line_start(path, max(0, os.stat(path).st_size - size))
        found = list(_read_entries_from(path, begin))
        if found and found[0].seq <= seq + 1:
            return [entry for entry in found if entry.seq > seq]
        if not begin:
            return None
        size *= 4


def _read_entries_from(path: Path, begin: int) -> Iterator[Entry]:
    return chain.from_iterable(LogReader(path, [], mark=ReadMark(size=begin)))


def _find_line_start(path: Path, offset: int) -> int:
    """Return where a session log's first line begins at or after an offset."""
    if not offset:
        return 0
    with path.open("rb") as file:
        file.seek(offset - 1)
        return offset - 1 + len(file.readline())


def _key_lines(path: Path, *, last: int) -> Iterator[bytes]:
    found = chain.from_iterable(map(_key_lines_in_block, _whole_line_blocks(path)))
    return takewhile(lambda text: log_line.read_entry_number(text) <= last, found)


def _whole_line_blocks(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a session log, in blocks."""
    rest = b""
    with path.open("rb", buffering=0) as file:
        while block := file.read(READ_BLOCK_BYTES):
            cut = block.rfind(b"\n") + 1
            if cut:
                yield rest + block[:cut]
                rest = b""
            rest += block[cut:]


def _key_lines_in_block(block: bytes) -> Iterator[bytes]:
    """Yield the undamaged log lines of a block that an excerpt of a long session needs."""
    end = 0
    for match in KEY_LINE.finditer(block):
        if match.start() < end:
            continue
        begin = block.rfind(b"\n", 0, match.start()) + 1
        end = block.find(b"\n", begin) + 1
        text = block[begin:end]
        person = b'"type":"user"' not in match[0] or ORIGIN_FIELD not in text
        if person and log_line.split_records(text)[0] == [text]:
            yield text
