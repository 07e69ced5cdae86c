"""The history of all memory folders: each change is made as a whole or not at all, and stays known.

Before a file is touched, its bytes and those to come are kept by their content, and a line says
what is about to happen; a second line says that it did. Whoever finds the first without the second
finds the work of a process that died, and takes it back.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.errors import Fault
from travois.memory.folder import Folder
from travois.sessions import disk
from travois.sessions import log_line as line
from travois.sessions.blobs import Blobs, digest

PATIENCE, PAUSE = 30.0, 0.01
"""How long a process waits for another one's change, in seconds, and how often it looks."""
WHAT = "Memory cannot be written"


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A file, and the names of its bytes before and after; empty where there was none."""

    folder: str
    file: str
    before: str
    after: str


class Transaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes that were made together."""

    id: str
    at: float
    why: str
    session: str = ""
    files: tuple[Touched, ...] = ()
    undoes: str = ""
    """The id of the one that it takes back."""
    undone: bool = False


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the journal: what is about to happen, that it did, or that it was taken back."""

    state: Literal["begin", "done", "back"]
    id: str
    begun: Transaction | None = None


class Write(msgspec.Struct, frozen=True):
    """What a file is to have; None if it is to go."""

    folder: Folder
    file: str
    data: bytes | None


class History:
    """One journal for all folders below a root, so that a change in several of them is one."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self.blobs = Blobs(root / ".history" / "blobs")
        self.known: dict[tuple[str, str], str] = {}
        """The name of the bytes that each file has, as far as the journal tells."""
        self._path = root / ".history" / "journal.jsonl"
        self.clock = clock
        self._mutex = RLock()
        self._end = 0
        self._all: dict[str, Transaction] = {}
        self._open: Transaction | None = None

    def transactions(self) -> list[Transaction]:
        """All that were made, the oldest first."""
        self.settle()
        live: set[str] = set()
        made = list(self._all.values())
        for one in reversed(made):
            if one.undoes and one.id not in live:
                live.add(one.undoes)
        return [replace(one, undone=one.id in live) for one in made]

    def settle(self) -> None:
        """Wait for a change that is being made; take back one whose process died."""
        with self._mutex:
            self._catch_up()
            if self._open is not None:
                with suppress(Fault), self.locked():
                    pass

    @contextmanager
    def locked(self) -> Generator[None]:
        """The right to change files, for one thread of one process at a time."""
        with self._mutex:
            try:
                fd = self._lock()
            except OSError as error:
                raise disk.fault(WHAT, error, path=self.root) from error
            try:
                self._catch_up()
                if self._open is not None:
                    self._take_back(self._open)
                yield
            except OSError as error:
                raise disk.fault(WHAT, error, path=self.root) from error
            finally:
                os.close(fd)

    def commit(
        self, writes: Sequence[Write], *, why: str, session: str = "", undoes: str = ""
    ) -> Transaction:
        """Write all of these or none, while the right is held. Raises Fault and OSError."""
        files = tuple(
            Touched(one.folder.key, one.file, self._kept(before), self._kept(one.data))
            for one in writes
            for before in (one.folder.bytes(one.file),)
        )
        made = Transaction(os.urandom(4).hex(), self.clock(), why, session, files, undoes)
        self._append(Line("begin", made.id, made))
        try:
            for one in writes:
                one.folder.write(one.file, one.data)
            _finish({one.folder.key: one.folder for one in writes}.values())
            self._append(Line("done", made.id))
        except OSError:
            with suppress(OSError, Fault):
                self._take_back(made)
            raise
        return made

    def record(self, files: Sequence[Touched], *, why: str) -> Transaction:
        """Make known what others did to files."""
        made = Transaction(os.urandom(4).hex(), self.clock(), why, files=tuple(files))
        self._append(Line("done", made.id, made))
        return made

    def locate(self, key: str) -> Folder:
        """The folder of a key."""
        return Folder(key, self.root / key)

    def _kept(self, data: bytes | None) -> str:
        return "" if data is None else self.blobs.put(data)

    def _take_back(self, made: Transaction) -> None:
        """Put the bytes back that were there before; what somebody else wrote since stays."""
        for key in dict.fromkeys(one.folder for one in made.files):
            folder = self.locate(key)
            try:
                self._restore(folder, made)
            except OSError as error:
                if error.errno not in disk.DENIED:  # there, nothing can be done: others may go on
                    raise
        self._append(Line("back", made.id))

    def _restore(self, folder: Folder, made: Transaction) -> None:
        if not folder.path.is_dir():
            return
        for one in made.files:
            if one.folder == folder.key and self.current(folder, one.file) == one.after:
                with suppress(KeyError):
                    data = self.blobs.get(one.before) if one.before else None
                    folder.write(one.file, data)
        folder.sweep()
        _finish((folder,))

    def current(self, folder: Folder, file: str) -> str:
        """The name of the bytes that a file has; empty if there is none."""
        try:
            data = folder.bytes(file)
        except OSError:
            return "unreadable"
        return "" if data is None else digest(data)

    def _lock(self) -> int:
        disk.make_folders(self._path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path.with_name("lock"), flags, 0o600)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(fd)
                    fix = "Try again when it has ended."
                    raise Fault(WHAT, why="another process changes it", fix=fix) from None
                time.sleep(PAUSE)
            except OSError:
                os.close(fd)
                raise

    def _append(self, said: Line) -> None:
        """Put a line after the last whole one, on the disk itself."""
        text = line.sealed(msgspec.json.encode(said))
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path, flags, 0o600)
        try:
            os.ftruncate(fd, self._end)
            os.lseek(fd, self._end, os.SEEK_SET)
            rest = text
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.fsync(fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, self._end)
            raise
        finally:
            os.close(fd)
        self._end += len(text)
        self._learn(said)

    def _catch_up(self) -> None:
        """Read what was added to the journal since; a line that does not end is not there."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._end:
                    self._start_over()
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            self._start_over()
            return
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._end += len(whole)
        for text in whole.splitlines(keepends=True):
            for record in line.records(text)[0]:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._learn(msgspec.json.decode(record, type=Line))

    def _start_over(self) -> None:
        """Somebody took the journal away: what lies in the folders is all that is known."""
        self._end, self._all, self._open = 0, {}, None
        self.known.clear()

    def _learn(self, said: Line) -> None:
        made = said.begun or self._all.get(said.id) or self._open
        self._open = made if said.state == "begin" else None
        if made is None or made.id != said.id or said.state == "begin":
            return
        if said.state == "done":
            self._all[made.id] = made
        else:
            self._all.pop(made.id, None)
        for one in made.files:
            self.known[one.folder, one.file] = one.after if said.state == "done" else one.before


def _finish(folders: Iterable[Folder]) -> None:
    """Bring the indexes of folders up to date, and all names in them to the disk."""
    for folder in folders:
        folder.reindex()
        disk.sync_folder(folder.path)
