"""The session log file: entries are appended, a torn end is repaired, nothing is rewritten."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from zlib import crc32

from travois.core.errors import UserError
from travois.core.facts import AnyFact, Assistant, Entry, Opened, Sent
from travois.sessions import (
    blobs,
    checkpoint,
    lock,
    log_line,
    scan,  # for very long logs alone
)
from travois.sessions.checkpoint import LogCheckpoint
from travois.sessions.scan import LOG_FILE_NAME as LOG_FILE_NAME
from travois.sessions.scan import MAX_WHOLE_LOG_BYTES, KeyEntries, LineageReader, ReadMark
from travois.sessions.scan import DamagedPlace as DamagedPlace
from travois.sessions.scan import read_entries as read_entries
from travois.sessions.scan import read_history as read_history
from travois.sessions.scan import read_opening as read_opening

if TYPE_CHECKING:
    from travois.sessions.mirror import SessionMirror

TAIL_BLOCK_BYTES = 1 << 16
Clock = Callable[[], float]
WriteFunction = Callable[[int, bytes], int]


class SessionLog:
    """The log of a session, open for writing by this process alone."""

    def __init__(
        self, folder: Path, fd: int, *, held: lock.SessionLock, clock: Clock, write: WriteFunction
    ) -> None:
        self.folder = folder
        self.torn: Path | None = None
        """The file with the torn end that was cut off when the log was opened."""
        self._skipped: list[DamagedPlace] = []
        self._fd = fd
        self._held = held
        self._clock = clock
        self._write = write
        self._tail = (0, 0)
        """The number of the last entry, and how many bytes of the file are whole."""
        self._synced = -1
        self._dirty = False
        self._marks: dict[str, ReadMark] = {}
        """Read positions of the file and those it was forked from; empty before a whole pass."""
        self._kept = 0
        """The number of bytes that the checkpoint covers."""
        self._turns: KeyEntries | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        opened: Opened,
        *,
        clock: Clock = time.time,
        write: WriteFunction = os.write,
    ) -> SessionLog:
        """Create a session in a folder of its own; a fork goes on counting after its base."""
        log = cls._lock_and_open(folder, clock=clock, write=write)
        with ExitStack() as undo:
            undo.callback(log.close)
            log._write_first_entry(opened)
            undo.pop_all()
        return log

    @classmethod
    def open(
        cls, folder: Path, *, clock: Clock = time.time, write: WriteFunction = os.write
    ) -> SessionLog:
        """Open a session to resume it; a torn end is cut off and saved in the same folder."""
        if not (folder / LOG_FILE_NAME).is_file():
            raise UserError(
                f"There is no session {folder.name}",
                fix="List sessions with `travois sessions`.",
            )
        log = cls._lock_and_open(folder, clock=clock, write=write)
        with ExitStack() as undo:
            undo.callback(log.close)
            log._cut_torn_end()
            undo.pop_all()
        return log

    @classmethod
    def _lock_and_open(cls, folder: Path, *, clock: Clock, write: WriteFunction) -> SessionLog:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        with ExitStack() as undo:
            try:
                blobs.make_folders(folder)
                held = lock.acquire_lock(folder)
                undo.callback(held.release)
                fd = os.open(folder / LOG_FILE_NAME, flags, 0o600)
            except OSError as error:
                raise blobs.make_storage_error(
                    "The session cannot be saved", error, path=folder
                ) from error
            undo.pop_all()
        return cls(folder, fd, held=held, clock=clock, write=write)

    def append(self, fact: AnyFact) -> Entry:
        """Append one entry in one write; once this returns, a crash of ours does not lose it.

        When it raises, nothing of the entry is left in the file and it can be tried again.
        """
        return self._append_entry(Entry(self._tail[0] + 1, self._clock(), fact))

    def _append_entry(self, entry: Entry) -> Entry:
        size = self._tail[1]
        entry, data = log_line.encode_entry(entry)
        try:
            if self._dirty:
                self._truncate(size)
            self._write_all(data)
            self._tail = (entry.seq, size + len(data))
            self._advance_mark(entry.seq, data)
            if self._turns is not None:
                self._turns.add((entry,))
        except OSError as error:
            raise blobs.make_storage_error(
                "The session could not be saved", error, path=self.folder
            ) from error
        finally:
            if self._tail[1] == size:
                self._dirty = True
                with suppress(OSError):
                    self._truncate(size)
        return entry

    def sync(self) -> None:
        """Flush what was appended to the disk itself."""
        size = self._tail[1]
        if size == self._synced:
            return
        try:
            getattr(os, "fdatasync", os.fsync)(self._fd)
            if self._synced < 0:
                blobs.sync_folder(self.folder)
                blobs.sync_folder(self.folder.parent)
        except OSError as error:
            raise blobs.make_storage_error(
                "The session could not be saved", error, path=self.folder
            ) from error
        self._synced = size

    def read(self) -> Iterator[Entry]:
        """Return all entries, those of the session that this one was forked from first.

        Damaged places are in `skipped` once this has come to its end.
        """
        return chain.from_iterable(self.read_blocks())

    def read_blocks(self) -> Iterator[list[Entry]]:
        """Return all entries, many at once."""
        self._skipped = []
        return self._read_lineage(LineageReader(self.folder, self._skipped))

    def resume(self) -> tuple[bytes, Iterator[list[Entry]]]:
        """Return the checkpointed state, and all entries after it.

        Without a checkpoint that still matches: an empty state, and all entries.
        """
        kept = checkpoint.load_checkpoint(self.folder)
        if kept is None:
            return b"", self.read_blocks()
        *_, mark = kept.marks.values()
        self._skipped, self._marks, self._kept = list(kept.skipped), kept.marks, mark.size
        pass_ = LineageReader(self.folder, self._skipped, mark=mark)
        return kept.state, self._read_lineage(pass_)

    @property
    def new_bytes(self) -> int:
        """The bytes added since the last checkpoint; 0 if that is unknown."""
        return self._tail[1] - self._kept if self._marks else 0

    def save_state(self, state: bytes) -> None:
        """Save what was derived from all entries so far; it can always be derived again."""
        marks = self._marks
        if marks and list(marks.values())[-1].size == self._tail[1]:
            checkpoint.save_checkpoint(self.folder, LogCheckpoint(marks, self.skipped, state))
            self._kept = self._tail[1]

    def take_notices(self) -> str:
        """Return nothing: here, a failure to save is an error."""
        return ""

    def discard_state(self) -> None:
        """Delete the checkpoint."""
        checkpoint.delete_checkpoint(self.folder)
        self._kept = 0

    def read_recent(self) -> Iterator[Entry] | None:
        """Return an excerpt of a very long log: its last entries and older key entries.

        None if the log is not that long: all of it can be read.
        """
        return (
            scan.read_excerpt(self.folder, self._find_own_key_entries)
            if scan.is_long_log(self.folder)
            else None
        )

    def read_since(self, seq: int) -> list[Entry]:
        """Return the entries after this one; only the end of the file is read."""
        found = scan.read_tail(self.folder, seq)
        if found is None:
            return [entry for entry in self.read() if entry.seq > seq]
        return found

    def _find_own_key_entries(self) -> KeyEntries:
        """Return the key entries so far, searched for unless the log was read from its start."""
        if self._turns is None:
            self._turns = scan.find_key_entries(self.folder)
        return self._turns

    def _read_lineage(self, reading: LineageReader) -> Iterator[list[Entry]]:
        turns = self._start_key_entries() if not reading.start.size else None
        for found in reading:
            seq, size = self._tail
            self._tail = (max(seq, found[-1].seq if found else 0), size)
            if turns is not None:
                turns.add(found)
            yield found
        self._marks = {**self._marks, **reading.marks}
        self._turns = turns or self._turns

    def _start_key_entries(self) -> KeyEntries | None:
        """Start collecting key entries while a very long log is read, which saves another pass."""
        if self._tail[1] <= MAX_WHOLE_LOG_BYTES:
            return None
        return KeyEntries()

    @property
    def skipped(self) -> tuple[DamagedPlace, ...]:
        """The damaged places that the last `read` met."""
        return tuple(self._skipped)

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._held.release()
            self._fd = -1

    def __enter__(self) -> SessionLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_all(self, data: bytes) -> None:
        while data:
            data = data[self._write(self._fd, data) :]

    def _advance_mark(self, seq: int, data: bytes) -> None:
        """Advance the mark of this file past what was appended to it."""
        if (mark := self._marks.get(self.folder.name)) is not None:
            size, crc = mark.size + len(data), crc32(data, mark.crc)
            self._marks[self.folder.name] = ReadMark(size, mark.lines + 1, seq, crc)

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._dirty = False

    def _write_first_entry(self, opened: Opened) -> None:
        self._cut_torn_end()  # of one that was killed while it wrote its first entry
        if self._tail[1]:
            raise UserError(
                f"Session {self.folder.name} already exists",
                fix=f"Use --resume {self.folder.name}, or another --session-id.",
            )
        self._tail = (opened.at if opened.parent else 0, 0)
        self.append(opened)

    def reread_end(self) -> None:
        """Find the end again after the file was changed under our lock."""
        self._cut_torn_end()

    def _cut_torn_end(self) -> None:
        """Find the last whole line; save what stands after it and cut it off."""
        try:
            with (self.folder / LOG_FILE_NAME).open("rb") as file:
                seq, end = _find_last_entry(file, file.seek(0, os.SEEK_END))
                file.seek(end)
                rest = file.read()
            if rest:
                self.torn = _save_torn_end(self.folder, rest)
                self._truncate(end)
        except OSError as error:
            raise blobs.make_storage_error(
                "The session log could not be repaired", error, path=self.folder
            ) from error
        self._tail = (seq, end)


def _find_last_entry(file: BinaryIO, end: int) -> tuple[int, int]:
    """Return the number of a session log's last entry, and the end of its line."""
    while end:
        begin, text = _line_before(file, end)
        found, _ = log_line.split_records(text)
        if found:
            return log_line.read_entry_number(found[-1]), end
        end = begin
    return 0, 0


def _line_before(file: BinaryIO, end: int) -> tuple[int, bytes]:
    """Return the session log's line that ends at `end`, and where it begins."""
    size = TAIL_BLOCK_BYTES
    while True:
        start = max(0, end - size)
        file.seek(start)
        data = file.read(end - start)
        cut = data.rfind(b"\n", 0, -1)
        if cut >= 0 or start == 0:
            return start + cut + 1, data[cut + 1 :]
        size *= 4


def _save_torn_end(folder: Path, data: bytes) -> Path:
    """Save the incomplete end of a session log in a file beside it; return its path."""
    taken = len(list(folder.glob("log.torn-*")))
    path = folder / f"log.torn-{taken + 1}"
    blobs.replace_file(path, data)
    return path


# A log that goes on in memory while the disk takes nothing, and catches up when it does again.


class ResilientSessionLog(SessionLog):
    """A log that holds entries in memory while the disk refuses them, and saves them later."""

    unsaved: tuple[Entry, ...] = ()
    """The entries that are not on disk."""
    mirror: SessionMirror | None = None
    """Sends the session to a store."""
    _news: str = ""

    def append(self, fact: AnyFact) -> Entry:
        """Append one entry; if the disk refuses, hold it in memory.

        Raises `SessionTakenOver` once the session goes on elsewhere.
        """
        if self.mirror is None:
            return self._append_or_hold(fact)
        self.mirror.check_claim()
        entry = self._append_or_hold(fact)
        match fact:
            case Assistant():  # a lost one would be paid for twice
                self.mirror.push_soon()
            case Sent():  # nothing is sent for a session that goes on elsewhere
                self.mirror.push_now()
            case _:
                pass
        return entry

    def add_saving_notice(self, text: str) -> None:
        """Add a notice for the user."""
        self._news = text

    def _append_or_hold(self, fact: AnyFact) -> Entry:
        self._save_pending()
        if not self.unsaved:
            try:
                return super().append(fact)
            except UserError as fault:
                self._news = (
                    f"{fault.what}: {fault.why}. The session continues in memory only "
                    "and will be saved as soon as that works again"
                )
        last = self.unsaved[-1].seq if self.unsaved else self._tail[0]
        entry, _ = log_line.encode_entry(Entry(last + 1, self._clock(), fact))
        self.unsaved = (*self.unsaved, entry)
        return entry

    def sync(self) -> None:
        """Flush what could be saved to the disk itself; a disk that refuses is reported once."""
        self._save_pending()
        if not self.unsaved:
            try:
                super().sync()
            except UserError as fault:
                told = f"{fault.what}: {fault.why}. The latest messages may be lost in a crash"
                self._news = "" if self._is_told else told
                self._is_told = True
        if self.mirror is not None:
            self.mirror.push_now()

    _is_told: bool = False

    def read_blocks(self) -> Iterator[list[Entry]]:
        """Return all entries, including those that are not on disk."""
        return chain(super().read_blocks(), (list(self.unsaved),))

    def resume(self) -> tuple[bytes, Iterator[list[Entry]]]:
        """Return the checkpointed state and all entries after it, including those not on disk."""
        if self.unsaved:
            return b"", self.read_blocks()
        return super().resume()

    def read_recent(self) -> Iterator[Entry] | None:
        """Return an excerpt of a very long log, including entries that are not on disk."""
        found = super().read_recent()
        return chain(found, self.unsaved) if found is not None else None

    def read_since(self, seq: int) -> list[Entry]:
        """Return the entries after this one, including those that are not on disk."""
        held = [entry for entry in self.unsaved if entry.seq > seq]
        if held and held[0] is self.unsaved[0] and seq >= self._tail[0]:
            return held
        return [*(one for one in super().read_since(seq) if one not in held), *held]

    def take_notices(self) -> str:
        """Return news about saving for the user, each once."""
        told, self._news = self._news, ""
        return told

    def close(self) -> None:
        """Try once more, then let go of the file."""
        if self._fd >= 0:
            self._save_pending()
        super().close()

    def _save_pending(self) -> None:
        """Save the entries held in memory, as far as the disk accepts them."""
        held = len(self.unsaved)
        while self.unsaved:
            try:
                self._append_entry(self.unsaved[0])
            except UserError:
                return
            self.unsaved = self.unsaved[1:]
        if held:
            self._news = "The session is being saved again; everything held in memory was written"
