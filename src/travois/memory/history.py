"""The history of all memory folders: each change is applied completely or not at all.

Before a file is changed, its old and new bytes are stored by content, and a journal line says what
is about to happen; a second line says that it did. A first line without the second belongs to a
process that died; its work is rolled back.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from threading import RLock
from typing import Literal, assert_never

import msgspec
from msgspec.structs import replace

from travois.core.errors import UserError
from travois.memory.folder import LINK, Folder
from travois.memory.index import INDEX, PINNED
from travois.memory.memory import Change, Drop, Memory, Put, Scope
from travois.memory.port import MOVED, Applied
from travois.memory.text import LONGEST_NAME, NAME, changes, parse, render, tidy
from travois.permissions import secrets
from travois.sessions import blobs, log_line
from travois.sessions.blobs import BlobStore, hash_blob

PATIENCE = 30.0
"""Seconds for which a process waits for the change of another one."""
PAUSE = 0.01
"""Seconds between two attempts to get the lock."""
WHAT = "Memory cannot be written"


class Touched(msgspec.Struct, frozen=True, array_like=True):
    """A changed file, and the digests of its bytes before and after; empty where it was missing."""

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
    """A line of the journal: a change begins, is done, or was rolled back."""

    state: Literal["begin", "done", "back"]
    id: str
    begun: Transaction | None = None


class Write(msgspec.Struct, frozen=True):
    """The new bytes of a file; None to delete it."""

    folder: Folder
    file: str
    data: bytes | None


class History:
    """One journal for all folders below a root, so that a change in several of them is atomic."""

    def __init__(self, root: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self.blobs = BlobStore(root / ".history" / "blobs")
        self.known: dict[tuple[str, str], str] = {}
        """The name of the bytes that each file has, as far as the journal tells."""
        self._path = root / ".history" / "journal.jsonl"
        self.clock = clock
        self._mutex = RLock()
        self._end = 0
        self._all: dict[str, Transaction] = {}
        self._open: Transaction | None = None

    def transactions(self) -> list[Transaction]:
        """Return all transactions, oldest first."""
        self.settle()
        live: set[str] = set()
        made = list(self._all.values())
        for one in reversed(made):
            if one.undoes and one.id not in live:
                live.add(one.undoes)
        return [replace(one, undone=one.id in live) for one in made]

    def settle(self) -> None:
        """Wait for a running change; roll back one whose process died."""
        with self._mutex:
            self._catch_up()
            if self._open is not None:
                with suppress(UserError), self.locked():
                    pass

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock for changes: one thread of one process at a time."""
        with self._mutex:
            try:
                fd = self._lock()
            except OSError as error:
                raise blobs.make_storage_error(WHAT, error, path=self.root) from error
            try:
                self._catch_up()
                if self._open is not None:
                    self._take_back(self._open)
                yield
            except OSError as error:
                raise blobs.make_storage_error(WHAT, error, path=self.root) from error
            finally:
                os.close(fd)

    def commit(
        self, writes: Sequence[Write], *, why: str, session: str = "", undoes: str = ""
    ) -> Transaction:
        """Write all of these files or none, under the lock. Raises UserError and OSError."""
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
            with suppress(OSError, UserError):
                self._take_back(made)
            raise
        return made

    def record(self, files: Sequence[Touched], *, why: str) -> Transaction:
        """Record changes that others made to files."""
        made = Transaction(os.urandom(4).hex(), self.clock(), why, files=tuple(files))
        self._append(Line("done", made.id, made))
        return made

    def locate(self, key: str) -> Folder:
        """Return the folder of a key."""
        return Folder(key, self.root / key)

    def _kept(self, data: bytes | None) -> str:
        return "" if data is None else self.blobs.put(data)

    def _take_back(self, made: Transaction) -> None:
        """Restore the bytes from before a change; what others wrote since stays."""
        for key in dict.fromkeys(one.folder for one in made.files):
            folder = self.locate(key)
            try:
                self._restore(folder, made)
            except OSError as error:
                if (
                    error.errno not in blobs.ACCESS_ERRORS
                ):  # there, nothing can be done: others may go on
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
        """Return the digest of a file's bytes; empty if the file is missing."""
        try:
            data = folder.bytes(file)
        except OSError:
            return "unreadable"
        return "" if data is None else hash_blob(data)

    def _lock(self) -> int:
        """Acquire the file lock, with a time limit."""
        blobs.make_folders(self._path.parent)
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
                    fix = "Try again when it has finished."
                    raise UserError(WHAT, why="another process is changing it", fix=fix) from None
                time.sleep(PAUSE)
            except OSError:
                os.close(fd)
                raise

    def _append(self, said: Line) -> None:
        """Write a line after the last complete one, and sync it to disk."""
        text = log_line.add_checksum(msgspec.json.encode(said))
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
        """Read the lines added to the journal; an incomplete line is ignored."""
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
            for record in log_line.split_records(text)[0]:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._learn(msgspec.json.decode(record, type=Line))

    def _start_over(self) -> None:
        """Forget everything: the journal was deleted, so only the folders count."""
        self._end, self._all, self._open = 0, {}, None
        self.known.clear()

    def _learn(self, said: Line) -> None:
        """Update the state with one line of the journal."""
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
    """Rebuild the indexes of folders, and sync their names to disk."""
    for folder in folders:
        folder.reindex()
        blobs.sync_folder(folder.path)


# The folders of all scopes with their history: the one place from which memories are written.


By = Literal["agent", "person"]
"""The author of a change: only a person may change pinned memories."""
OUTSIDE = "edited outside"
SHOWN = 100
"""Lines of a diff, at most."""
LONGEST = 16_000
"""Characters of a memory, at most."""


class Unfit(Exception):
    """The reason why a change is refused."""


class Archive:
    """The memory folders of all scopes with their history: the only writer of memories."""

    def __init__(self, history: History, folders: Mapping[Scope, Folder]) -> None:
        self.past = history
        self.folders = folders

    def read(self) -> tuple[Memory, ...]:
        """Read every memory as it is on disk."""
        self.past.settle()
        for folder in self.folders.values():
            folder.read()
        return tuple(one for folder in self.folders.values() for one in folder.memories())

    def make(
        self,
        wanted: Sequence[Change],
        *,
        why: str,
        session: str = "",
        by: By,
        based: Sequence[Memory] | None = None,
    ) -> Applied:
        """Apply changes in one transaction; refused changes are left out and reported.

        Changes that are `based` on memories as they were are applied all together or not at all.
        """
        with self.past.locked():
            self.take_in()
            writes, refused = dict[tuple[str, str], Write](), list[str]()
            for change in wanted:
                try:
                    self._plan(change, writes, by=by)
                except (Unfit, OSError) as error:
                    refused.append(f"{_named(change)}: {error}")
            refused += [f"{one.name}: {MOVED}" for one in based or () if not self._holds(one)]
            if not writes or (based is not None and refused):
                return Applied("", "", tuple(refused))
            made = self.past.commit(tuple(writes.values()), why=why, session=session)
        return Applied(made.id, self.diff(made), tuple(refused))

    def _holds(self, memory: Memory) -> bool:
        """Return whether a memory is unchanged, as far as was just read."""
        folder = self.folders.get(memory.scope)
        return folder is not None and memory in folder.memories()

    def take_in(self) -> Transaction | None:
        """Record the changes that people and other programs made to the files."""
        found = [one for folder in self.folders.values() for one in self._strange(folder)]
        return self.past.record(found, why=OUTSIDE) if found else None

    def _strange(self, folder: Folder) -> Iterator[Touched]:
        """Yield the files that differ from the history, with their bytes stored."""
        seen = folder.read()
        known = {file: name for (key, file), name in self.past.known.items() if key == folder.key}
        for file in sorted({*seen, *known}):
            before, after = known.get(file, ""), seen[file].digest if file in seen else ""
            if before == after or (file in seen and not after):
                continue
            data = folder.bytes(file)
            yield Touched(
                folder.key, file, before, "" if data is None else self.past.blobs.put(data)
            )

    def history(self) -> list[Transaction]:
        """Return the transactions in these folders, latest first."""
        self.past.settle()
        keys = {folder.key for folder in self.folders.values()}
        made = reversed(self.past.transactions())
        return [one for one in made if not keys.isdisjoint(file.folder for file in one.files)]

    def undo(self, id: str) -> Applied:
        """Restore the state before a transaction; by default the latest of ours."""
        with self.past.locked():
            self.take_in()
            meant = self._meant(id)
            keyed = {folder.key: folder for folder in self.folders.values()}
            writes: list[Write] = []
            for one in meant.files:
                folder = keyed.get(one.folder) or self.past.locate(one.folder)
                found = self.past.current(folder, one.file)
                if found not in (one.before, one.after):
                    raise self._changed(meant, one)
                if found != one.before:
                    writes.append(Write(folder, one.file, self._bytes(one.before)))
            made = self.past.commit(writes, why=f"undo: {meant.why}", undoes=meant.id)
        return Applied(made.id, self.diff(made))

    def diff(self, made: Transaction) -> str:
        """Render the changes of a transaction as a short diff."""
        shown = (
            changes(before, after)
            for one in made.files
            for before, after in ((self._memory(one, one.before), self._memory(one, one.after)),)
            if before or after
        )
        lines = "\n".join(filter(None, shown)).split("\n")
        more = [f"… {len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
        return "\n".join((*lines[:SHOWN], *more))

    def _plan(self, change: Change, writes: dict[tuple[str, str], Write], *, by: By) -> None:
        """Add the writes for one change, or raise why it is refused."""
        match change:
            case Put(memory):
                self._plan_put(memory, writes, by=by)
            case Drop(name, scope):
                folder = self._folder(scope)
                file = self._file(folder, name)
                if _pinned(file) and by == "agent":
                    raise Unfit("it is pinned; only the user can change it")
                if self._planned(folder, file, writes) is None:
                    raise Unfit("no memory has that name")
                writes[folder.key, file] = Write(folder, file, None)
            case _:
                assert_never(change)

    def _plan_put(self, memory: Memory, writes: dict[tuple[str, str], Write], *, by: By) -> None:
        """Add the writes that store a memory, or raise why it is refused."""
        folder = self._folder(memory.scope)
        file = self._file(folder, memory.name)
        if by == "agent" and (memory.pinned or _pinned(file)):
            raise Unfit("it is pinned; only the user can change it")
        data = self._planned(folder, file, writes)
        text = "" if data is None else data.decode("utf-8-sig", errors="replace")
        before = parse(memory.name, text, scope=memory.scope).memory if text else None
        memory = tidy(self._stamped(memory, before))
        _check(memory)
        after = render(memory, text)
        if parse(memory.name, after, scope=memory.scope, pinned=memory.pinned).memory != memory:
            raise Unfit("its file could not be read back; shorten its evidence")
        place = f"{PINNED}/{memory.name}.md" if memory.pinned else f"{memory.name}.md"
        if place != file and data is not None:
            writes[folder.key, file] = Write(folder, file, None)
        elif before and replace(memory, modified=before.modified, pinned=False) == before:
            return
        writes[folder.key, place] = Write(folder, place, after.encode())

    def _stamped(self, memory: Memory, before: Memory | None) -> Memory:
        """Set the times of a memory; those it has count unless they come from what it replaces."""
        now, old = self.past.clock(), before or memory
        fresh = memory.modified and (before is None or memory.modified != before.modified)
        return replace(
            memory,
            created=old.created or memory.created or now,
            modified=memory.modified if fresh else now,
            verified=memory.verified or now,
        )

    def _folder(self, scope: Scope) -> Folder:
        if scope in self.folders:
            return self.folders[scope]
        raise Unfit(f"{scope} memory is not available here")

    def _file(self, folder: Folder, name: str) -> str:
        """Return the file for a memory of this name, existing or new."""
        stems = {file: PurePosixPath(file).stem for file in list(folder.seen)}
        for file, stem in stems.items():
            if stem == name:
                return file
        for stem in stems.values():
            if stem.casefold() == name.casefold():
                raise Unfit(f"{stem} exists and differs only in case; use that name")
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME or f"{name}.md" == INDEX.lower():
            raise Unfit(
                f"a name is up to {LONGEST_NAME} lowercase letters, digits and single dashes"
            )
        return f"{name}.md"

    def _planned(
        self, folder: Folder, file: str, writes: Mapping[tuple[str, str], Write]
    ) -> bytes | None:
        """Return what a file will contain after the changes so far. Raises OSError."""
        if (planned := writes.get((folder.key, file))) is not None:
            return planned.data
        if _pinned(file) and (folder.path / PINNED).is_symlink():
            raise OSError(LINK)
        return folder.bytes(file)

    def _memory(self, touched: Touched, name: str) -> Memory | None:
        data = self._bytes(name) if name else None
        if data is None:
            return None
        path = PurePosixPath(touched.file)
        text = data.decode("utf-8-sig", errors="replace")
        return parse(path.stem, text, pinned=_pinned(touched.file)).memory

    def _bytes(self, name: str) -> bytes | None:
        try:
            return self.past.blobs.get(name) if name else None
        except KeyError:
            fix = "The file itself was not changed."
            raise UserError(
                "The earlier version is lost", why="its stored copy is damaged", fix=fix
            ) from None

    def _meant(self, id: str) -> Transaction:
        """Return the transaction to undo."""
        made = self.history()
        for one in made:
            if one.id == id or not (id or one.undone or one.undoes or one.why == OUTSIDE):
                if one.undone:
                    raise UserError(f"{one.id} was already undone")
                return one
        fix = "Run `travois memory history` to see what can be undone."
        raise UserError(f"There is no change {id}" if id else "There is nothing to undo", fix=fix)

    def _changed(self, meant: Transaction, one: Touched) -> UserError:
        """Build the error for a file that changed since the transaction."""
        later = [
            f"{each.id} ({each.why})"
            for each in self.history()
            if each.at >= meant.at and each.id != meant.id
            if any((file.folder, file.file) == (one.folder, one.file) for file in each.files)
        ]
        by = f" by {', '.join(later[:3])}" if later else ""
        fix = "Undo that change first, or edit the file by hand."
        return UserError(
            f"{meant.id} cannot be undone", why=f"{one.file} was changed since{by}", fix=fix
        )


def _check(memory: Memory) -> None:
    """Raise if a memory contains a secret or is too long."""
    said = "\n".join((memory.description, memory.body, *(one.words for one in memory.evidence)))
    if found := secrets.find_secrets(said):
        raise Unfit(f"it seems to contain a secret ({found[0].kind})")
    if len(memory.body) > LONGEST:
        raise Unfit(f"it has {len(memory.body):,} characters (limit {LONGEST:,}); split it")


def _pinned(file: str) -> bool:
    return file.startswith(f"{PINNED}/")


def _named(change: Change) -> str:
    name = change.memory.name if isinstance(change, Put) else change.name
    return name[:LONGEST_NAME]
