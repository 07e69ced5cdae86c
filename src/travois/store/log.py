"""The file of entries of one session: appended to, repaired at its end, never rewritten."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from travois.kernel.facts import AnyFact, Entry, Opened
from travois.kernel.faults import Fault
from travois.store import disk, line, lock

NAME = "log.jsonl"
BLOCK = 1 << 16
Clock = Callable[[], float]
Write = Callable[[int, bytes], int]


class Skipped(msgspec.Struct, frozen=True):
    """A damaged place in a log: which file, line (from 1) and byte, and what is wrong there."""

    file: str
    line: int
    offset: int
    reason: str


class Log:
    """A session's log, open for writing by this process alone."""

    def __init__(
        self, folder: Path, fd: int, *, held: lock.Lock, clock: Clock, write: Write
    ) -> None:
        self.folder = folder
        self.torn: Path | None = None
        """Where the torn end of the log was kept aside when it was opened."""
        self._skipped: list[Skipped] = []
        self._fd = fd
        self._held = held
        self._clock = clock
        self._write = write
        self._tail = (0, 0)
        """The number of the last entry, and how many bytes of the file are whole."""
        self._synced = -1
        self._dirty = False

    @classmethod
    def create(
        cls, folder: Path, opened: Opened, *, clock: Clock = time.time, write: Write = os.write
    ) -> Log:
        """Begin a session in a folder of its own; a fork goes on counting after its base."""
        log = cls._claim(folder, clock=clock, write=write)
        with ExitStack() as undo:
            undo.callback(log.close)
            log._begin(opened)
            undo.pop_all()
        return log

    @classmethod
    def open(cls, folder: Path, *, clock: Clock = time.time, write: Write = os.write) -> Log:
        """Go on with a session; a torn end is cut off and kept aside in the same folder."""
        if not (folder / NAME).is_file():
            raise Fault(
                f"There is no session {folder.name}",
                fix="`travois sessions` lists those that there are.",
            )
        log = cls._claim(folder, clock=clock, write=write)
        with ExitStack() as undo:
            undo.callback(log.close)
            log._repair()
            undo.pop_all()
        return log

    @classmethod
    def _claim(cls, folder: Path, *, clock: Clock, write: Write) -> Log:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with ExitStack() as undo:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                held = lock.acquire(folder)
                undo.callback(held.release)
                fd = os.open(folder / NAME, flags, 0o600)
            except OSError as error:
                raise disk.fault("The session cannot be kept", error, path=folder) from error
            undo.pop_all()
        return cls(folder, fd, held=held, clock=clock, write=write)

    def append(self, fact: AnyFact) -> Entry:
        """Write one entry in one go; when this returns, a crash of ours does not lose it.

        When it raises, nothing of the entry is left in the file and it can be tried again.
        """
        seq, size = self._tail
        entry, data = line.encode(Entry(seq + 1, self._clock(), fact))
        try:
            if self._dirty:
                self._cut(size)
            self._put(data)
            self._tail = (entry.seq, size + len(data))
        except OSError as error:
            raise disk.fault("The session could not be saved", error, path=self.folder) from error
        finally:
            if self._tail[1] == size:
                self._dirty = True
                with suppress(OSError):
                    self._cut(size)
        return entry

    def sync(self) -> None:
        """Bring what was appended to the disk itself."""
        size = self._tail[1]
        if size == self._synced:
            return
        try:
            getattr(os, "fdatasync", os.fsync)(self._fd)
            if self._synced < 0:
                disk.sync_folder(self.folder)
                disk.sync_folder(self.folder.parent)
        except OSError as error:
            raise disk.fault("The session could not be saved", error, path=self.folder) from error
        self._synced = size

    def read(self) -> Iterator[Entry]:
        """All entries, those of the session that this one was forked from first.

        What could not be read stands in `skipped` when this has come to its end.
        """
        self._skipped = []
        for entry in history(self.folder, self._skipped):
            seq, size = self._tail
            self._tail = (max(seq, entry.seq), size)
            yield entry

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The damaged places that the last `read` met."""
        return tuple(self._skipped)

    def close(self) -> None:
        """Let go of the file and of the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._held.release()
            self._fd = -1

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, data: bytes) -> None:
        while data:
            data = data[self._write(self._fd, data) :]

    def _cut(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._dirty = False

    def _begin(self, opened: Opened) -> None:
        if os.fstat(self._fd).st_size:
            raise Fault(
                f"Session {self.folder.name} exists already",
                fix=f"Use --resume {self.folder.name}, or another --session-id.",
            )
        self._tail = (opened.at if opened.parent else 0, 0)
        self.append(opened)

    def _repair(self) -> None:
        """Find the last whole line; what stands after it is kept aside and cut off."""
        try:
            with (self.folder / NAME).open("rb") as file:
                seq, end = _last(file, file.seek(0, os.SEEK_END))
                file.seek(end)
                rest = file.read()
            if rest:
                self.torn = _aside(self.folder, rest)
                self._cut(end)
        except OSError as error:
            raise disk.fault("The log could not be mended", error, path=self.folder) from error
        self._tail = (seq, end)


def history(folder: Path, skipped: list[Skipped]) -> Iterator[Entry]:
    """All entries of a session without opening it for writing; damage is added to `skipped`."""
    for ancestor, last in _lineage(folder):
        for entry in entries(ancestor / NAME, skipped):
            if entry.seq > last:
                break
            yield entry


def entries(path: Path, skipped: list[Skipped]) -> Iterator[Entry]:
    """The entries of one file, in rising order; what is damaged is skipped and reported."""
    last, version = 0, "another version"
    try:
        for record, where in _records(path, skipped):
            entry = _decode(record, path=path, version=version)
            if entry.seq <= last:
                reason = f"entry {entry.seq} after entry {last}"
                skipped.append(msgspec.structs.replace(where, reason=reason))
                continue
            last = entry.seq
            if isinstance(entry.fact, Opened):
                version = f"version {entry.fact.version}"
            yield entry
    except OSError as error:
        raise disk.fault("The session cannot be read", error, path=path) from error


def _records(path: Path, skipped: list[Skipped]) -> Iterator[tuple[bytes, Skipped]]:
    """The whole records of a file, each with the place where it stands."""
    name, offset = str(path), 0
    with path.open("rb", buffering=1 << 20) as file:
        for number, text in enumerate(file, 1):
            found, reason = line.records(text)
            where = Skipped(name, number, offset, reason)
            if reason:
                skipped.append(where)
            for record in found:
                yield record, where
            offset += len(text)


def opened(folder: Path) -> Entry | None:
    """How a session began; None if its first line is damaged."""
    try:
        with (folder / NAME).open("rb") as file:
            found, _ = line.records(file.readline())
    except OSError as error:
        raise disk.fault("The session cannot be read", error, path=folder) from error
    entry = _decode(found[0], path=folder / NAME, version="another version") if found else None
    return entry if entry is not None and isinstance(entry.fact, Opened) else None


def _lineage(folder: Path) -> list[tuple[Path, int]]:
    """The sessions that this one stands on, oldest first, each with its last entry that counts."""
    chain: list[tuple[Path, int]] = []
    last = 1 << 62
    while all(folder != known for known, _ in chain):
        chain.append((folder, last))
        first = opened(folder)
        if first is None or not isinstance(first.fact, Opened) or not first.fact.parent:
            break
        last = min(last, first.fact.at)
        folder = _elsewhere(folder, first.fact.parent)
    chain.reverse()
    return chain


def _elsewhere(folder: Path, id: str) -> Path:
    """The folder of another session: around this one, beside it, or in another project."""
    around = [path for path in folder.parents if path.name == id]
    beside = [folder.with_name(id)] if id == Path(id).name else []
    others: Iterable[Path] = folder.parent.parent.glob(f"*/{id}") if beside else ()
    for path in (*around, *beside, *others):
        if (path / NAME).is_file():
            return path
    raise Fault(
        f"Session {folder.name} cannot be read",
        why=f"it is a fork of {id}, which is missing",
        fix="Bring it back from the trash folder of your Travois home.",
    )


def _decode(record: bytes, *, path: Path, version: str) -> Entry:
    try:
        return line.decode(record)
    except line.Foreign as error:
        raise Fault(
            f"Session {path.parent.name} was written by {version} of Travois, not this one",
            why=f"it has a fact of type {error.kind!r} ({error.problem})",
            fix="Update Travois to read it.",
        ) from None


def _last(file: BinaryIO, end: int) -> tuple[int, int]:
    """The number of the last entry, and where its line ends."""
    while end:
        begin, text = _line_before(file, end)
        found, _ = line.records(text)
        if found:
            return line.number(found[-1]), end
        end = begin
    return 0, 0


def _line_before(file: BinaryIO, end: int) -> tuple[int, bytes]:
    """Where the line that ends at `end` begins, and the line."""
    size = BLOCK
    while True:
        start = max(0, end - size)
        file.seek(start)
        data = file.read(end - start)
        cut = data.rfind(b"\n", 0, -1)
        if cut >= 0 or start == 0:
            return start + cut + 1, data[cut + 1 :]
        size *= 4


def _aside(folder: Path, data: bytes) -> Path:
    taken = len(list(folder.glob("log.torn-*")))
    path = folder / f"log.torn-{taken + 1}"
    disk.replace(path, data)
    return path
