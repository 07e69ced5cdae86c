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
from travois.memory.folder import LINK_REFUSED, MemoryFolder
from travois.memory.index import INDEX_FILE, PINNED_FOLDER
from travois.memory.memory import (
    CHANGED_MEANWHILE,
    AppliedChanges,
    DropMemory,
    Memory,
    MemoryChange,
    MemoryScope,
    PutMemory,
)
from travois.memory.text import (
    MAX_NAME_CHARS,
    MEMORY_NAME,
    parse_memory_file,
    render_memory_diff,
    render_memory_file,
    tidy_memory,
)
from travois.permissions import secrets
from travois.sessions import blobs, log_line
from travois.sessions.blobs import BlobStore, hash_blob

LOCK_WAIT_SECONDS = 30.0
"""Seconds for which a process waits for the change of another one."""
LOCK_POLL_SECONDS = 0.01
"""Seconds between two attempts to get the lock."""
WRITE_ERROR = "Memory cannot be written"


class TouchedFile(msgspec.Struct, frozen=True, array_like=True):
    """A changed file, and the digests of its bytes before and after; empty where it was missing."""

    folder: str
    file: str
    before: str
    after: str


class MemoryTransaction(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes that were made together."""

    id: str
    at: float
    why: str
    session: str = ""
    files: tuple[TouchedFile, ...] = ()
    undoes: str = ""
    """The id of the one that it takes back."""
    undone: bool = False


class JournalLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of the journal: a change begins, is done, or was rolled back."""

    state: Literal["begin", "done", "back"]
    id: str
    begun: MemoryTransaction | None = None


class FileWrite(msgspec.Struct, frozen=True):
    """The new bytes of a file; None to delete it."""

    folder: MemoryFolder
    file: str
    data: bytes | None


class MemoryHistory:
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
        self._all: dict[str, MemoryTransaction] = {}
        self._open: MemoryTransaction | None = None

    def transactions(self) -> list[MemoryTransaction]:
        """Return all transactions, oldest first."""
        self.recover()
        live: set[str] = set()
        made = list(self._all.values())
        for one in reversed(made):
            if one.undoes and one.id not in live:
                live.add(one.undoes)
        return [replace(one, undone=one.id in live) for one in made]

    def recover(self) -> None:
        """Wait for a running change; roll back one whose process died."""
        with self._mutex:
            self._read_new_lines()
            if self._open is not None:
                with suppress(UserError), self.lock():
                    pass

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the lock for changes: one thread of one process at a time."""
        with self._mutex:
            try:
                fd = self._acquire_lock()
            except OSError as error:
                raise blobs.make_storage_error(WRITE_ERROR, error, path=self.root) from error
            try:
                self._read_new_lines()
                if self._open is not None:
                    self._roll_back(self._open)
                yield
            except OSError as error:
                raise blobs.make_storage_error(WRITE_ERROR, error, path=self.root) from error
            finally:
                os.close(fd)

    def commit(
        self, writes: Sequence[FileWrite], *, why: str, session: str = "", undoes: str = ""
    ) -> MemoryTransaction:
        """Write all of these files or none, under the lock. Raises UserError and OSError."""
        files = tuple(
            TouchedFile(
                one.folder.key, one.file, self._store_bytes(before), self._store_bytes(one.data)
            )
            for one in writes
            for before in (one.folder.read_bytes(one.file),)
        )
        made = MemoryTransaction(os.urandom(4).hex(), self.clock(), why, session, files, undoes)
        self._append_line(JournalLine("begin", made.id, made))
        try:
            for one in writes:
                one.folder.write(one.file, one.data)
            _reindex_and_sync({one.folder.key: one.folder for one in writes}.values())
            self._append_line(JournalLine("done", made.id))
        except OSError:
            with suppress(OSError, UserError):
                self._roll_back(made)
            raise
        return made

    def record(self, files: Sequence[TouchedFile], *, why: str) -> MemoryTransaction:
        """Record changes that others made to files."""
        made = MemoryTransaction(os.urandom(4).hex(), self.clock(), why, files=tuple(files))
        self._append_line(JournalLine("done", made.id, made))
        return made

    def open_folder(self, key: str) -> MemoryFolder:
        """Return the folder of a key."""
        return MemoryFolder(key, self.root / key)

    def _store_bytes(self, data: bytes | None) -> str:
        return "" if data is None else self.blobs.put(data)

    def _roll_back(self, transaction: MemoryTransaction) -> None:
        """Restore the bytes from before a change; what others wrote since stays."""
        for key in dict.fromkeys(one.folder for one in transaction.files):
            folder = self.open_folder(key)
            try:
                self._restore_folder(folder, transaction)
            except OSError as error:
                if (
                    error.errno not in blobs.ACCESS_ERRORS
                ):  # there, nothing can be done: others may go on
                    raise
        self._append_line(JournalLine("back", transaction.id))

    def _restore_folder(self, folder: MemoryFolder, transaction: MemoryTransaction) -> None:
        if not folder.path.is_dir():
            return
        for one in transaction.files:
            if one.folder == folder.key and self.current_digest(folder, one.file) == one.after:
                with suppress(KeyError):
                    data = self.blobs.get(one.before) if one.before else None
                    folder.write(one.file, data)
        folder.remove_leftovers()
        _reindex_and_sync((folder,))

    def current_digest(self, folder: MemoryFolder, file: str) -> str:
        """Return the digest of a file's bytes; empty if the file is missing."""
        try:
            data = folder.read_bytes(file)
        except OSError:
            return "unreadable"
        return "" if data is None else hash_blob(data)

    def _acquire_lock(self) -> int:
        """Acquire the file lock, with a time limit."""
        blobs.make_folders(self._path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self._path.with_name("lock"), flags, 0o600)
        until = time.monotonic() + LOCK_WAIT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() > until:
                    os.close(fd)
                    fix = "Try again when it has finished."
                    raise UserError(
                        WRITE_ERROR, why="another process is changing it", fix=fix
                    ) from None
                time.sleep(LOCK_POLL_SECONDS)
            except OSError:
                os.close(fd)
                raise

    def _append_line(self, line: JournalLine) -> None:
        """Write a line after the last complete one, and sync it to disk."""
        text = log_line.add_checksum(msgspec.json.encode(line))
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
        self._apply_line(line)

    def _read_new_lines(self) -> None:
        """Read the lines added to the journal; an incomplete line is ignored."""
        try:
            with self._path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._end:
                    self._forget_all()
                file.seek(self._end)
                data = file.read()
        except FileNotFoundError:
            self._forget_all()
            return
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._end += len(whole)
        for text in whole.splitlines(keepends=True):
            for record in log_line.split_records(text)[0]:
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    self._apply_line(msgspec.json.decode(record, type=JournalLine))

    def _forget_all(self) -> None:
        """Forget everything: the journal was deleted, so only the folders count."""
        self._end, self._all, self._open = 0, {}, None
        self.known.clear()

    def _apply_line(self, line: JournalLine) -> None:
        """Update the state with one line of the journal."""
        made = line.begun or self._all.get(line.id) or self._open
        self._open = made if line.state == "begin" else None
        if made is None or made.id != line.id or line.state == "begin":
            return
        if line.state == "done":
            self._all[made.id] = made
        else:
            self._all.pop(made.id, None)
        for one in made.files:
            self.known[one.folder, one.file] = one.after if line.state == "done" else one.before


def _reindex_and_sync(folders: Iterable[MemoryFolder]) -> None:
    """Rebuild the indexes of folders, and sync their names to disk."""
    for folder in folders:
        folder.reindex()
        blobs.sync_folder(folder.path)


# The folders of all scopes with their history: the one place from which memories are written.


ChangeMaker = Literal["agent", "person"]
"""The author of a change: only a person may change pinned memories."""
OUTSIDE_EDIT = "edited outside"
MAX_DIFF_LINES = 100
"""Lines of a diff, at most."""
MAX_MEMORY_CHARS = 16_000
"""Characters of a memory, at most."""


class ChangeRefused(Exception):
    """The reason why a change is refused."""


class MemoryArchive:
    """The memory folders of all scopes with their history: the only writer of memories."""

    def __init__(self, history: MemoryHistory, folders: Mapping[MemoryScope, MemoryFolder]) -> None:
        self.past = history
        self.folders = folders

    def read_all(self) -> tuple[Memory, ...]:
        """Read every memory as it is on disk."""
        self.past.recover()
        for folder in self.folders.values():
            folder.read_all()
        return tuple(one for folder in self.folders.values() for one in folder.memories())

    def apply(
        self,
        wanted: Sequence[MemoryChange],
        *,
        why: str,
        session: str = "",
        by: ChangeMaker,
        based: Sequence[Memory] | None = None,
    ) -> AppliedChanges:
        """Apply changes in one transaction; refused changes are left out and reported.

        Changes that are `based` on memories as they were are applied all together or not at all.
        """
        with self.past.lock():
            self.record_outside_edits()
            writes, refused = dict[tuple[str, str], FileWrite](), list[str]()
            for change in wanted:
                try:
                    self._plan_change(change, writes, by=by)
                except (ChangeRefused, OSError) as error:
                    refused.append(f"{_get_change_name(change)}: {error}")
            refused += [
                f"{one.name}: {CHANGED_MEANWHILE}"
                for one in based or ()
                if not self._is_unchanged(one)
            ]
            if not writes or (based is not None and refused):
                return AppliedChanges("", "", tuple(refused))
            made = self.past.commit(tuple(writes.values()), why=why, session=session)
        return AppliedChanges(made.id, self.diff(made), tuple(refused))

    def _is_unchanged(self, memory: Memory) -> bool:
        """Return whether a memory is unchanged, as far as was just read."""
        folder = self.folders.get(memory.scope)
        return folder is not None and memory in folder.memories()

    def record_outside_edits(self) -> MemoryTransaction | None:
        """Record the changes that people and other programs made to the files."""
        found = [
            one for folder in self.folders.values() for one in self._find_outside_edits(folder)
        ]
        return self.past.record(found, why=OUTSIDE_EDIT) if found else None

    def _find_outside_edits(self, folder: MemoryFolder) -> Iterator[TouchedFile]:
        """Yield the files that differ from the history, with their bytes stored."""
        seen = folder.read_all()
        known = {file: name for (key, file), name in self.past.known.items() if key == folder.key}
        for file in sorted({*seen, *known}):
            before, after = known.get(file, ""), seen[file].digest if file in seen else ""
            if before == after or (file in seen and not after):
                continue
            data = folder.read_bytes(file)
            yield TouchedFile(
                folder.key, file, before, "" if data is None else self.past.blobs.put(data)
            )

    def history(self) -> list[MemoryTransaction]:
        """Return the transactions in these folders, latest first."""
        self.past.recover()
        keys = {folder.key for folder in self.folders.values()}
        made = reversed(self.past.transactions())
        return [one for one in made if not keys.isdisjoint(file.folder for file in one.files)]

    def undo(self, id: str) -> AppliedChanges:
        """Restore the state before a transaction; by default the latest of ours."""
        with self.past.lock():
            self.record_outside_edits()
            meant = self._find_transaction(id)
            keyed = {folder.key: folder for folder in self.folders.values()}
            writes: list[FileWrite] = []
            for one in meant.files:
                folder = keyed.get(one.folder) or self.past.open_folder(one.folder)
                found = self.past.current_digest(folder, one.file)
                if found not in (one.before, one.after):
                    raise self._build_undo_error(meant, one)
                if found != one.before:
                    writes.append(FileWrite(folder, one.file, self._read_blob(one.before)))
            made = self.past.commit(writes, why=f"undo: {meant.why}", undoes=meant.id)
        return AppliedChanges(made.id, self.diff(made))

    def diff(self, transaction: MemoryTransaction) -> str:
        """Render the changes of a transaction as a short diff."""
        shown = (
            render_memory_diff(before, after)
            for one in transaction.files
            for before, after in (
                (self._read_version(one, one.before), self._read_version(one, one.after)),
            )
            if before or after
        )
        lines = "\n".join(filter(None, shown)).split("\n")
        more = (
            [f"… {len(lines) - MAX_DIFF_LINES} more lines"] if len(lines) > MAX_DIFF_LINES else []
        )
        return "\n".join((*lines[:MAX_DIFF_LINES], *more))

    def _plan_change(
        self, change: MemoryChange, writes: dict[tuple[str, str], FileWrite], *, by: ChangeMaker
    ) -> None:
        """Add the writes for one change, or raise why it is refused."""
        match change:
            case PutMemory(memory):
                self._plan_put(memory, writes, by=by)
            case DropMemory(name, scope):
                folder = self._require_folder(scope)
                file = self._choose_file_name(folder, name)
                if _is_pinned(file) and by == "agent":
                    raise ChangeRefused("it is pinned; only the user can change it")
                if self._read_planned(folder, file, writes) is None:
                    raise ChangeRefused("no memory has that name")
                writes[folder.key, file] = FileWrite(folder, file, None)
            case _:
                assert_never(change)

    def _plan_put(
        self, memory: Memory, writes: dict[tuple[str, str], FileWrite], *, by: ChangeMaker
    ) -> None:
        """Add the writes that store a memory, or raise why it is refused."""
        folder = self._require_folder(memory.scope)
        file = self._choose_file_name(folder, memory.name)
        if by == "agent" and (memory.pinned or _is_pinned(file)):
            raise ChangeRefused("it is pinned; only the user can change it")
        data = self._read_planned(folder, file, writes)
        text = "" if data is None else data.decode("utf-8-sig", errors="replace")
        before = parse_memory_file(memory.name, text, scope=memory.scope).memory if text else None
        memory = tidy_memory(self._set_times(memory, before))
        _check_memory(memory)
        after = render_memory_file(memory, text)
        if (
            parse_memory_file(memory.name, after, scope=memory.scope, pinned=memory.pinned).memory
            != memory
        ):
            raise ChangeRefused("its file could not be read back; shorten its evidence")
        place = f"{PINNED_FOLDER}/{memory.name}.md" if memory.pinned else f"{memory.name}.md"
        if place != file and data is not None:
            writes[folder.key, file] = FileWrite(folder, file, None)
        elif before and replace(memory, modified=before.modified, pinned=False) == before:
            return
        writes[folder.key, place] = FileWrite(folder, place, after.encode())

    def _set_times(self, memory: Memory, before: Memory | None) -> Memory:
        """Set the times of a memory; those it has count unless they come from what it replaces."""
        now, old = self.past.clock(), before or memory
        fresh = memory.modified and (before is None or memory.modified != before.modified)
        return replace(
            memory,
            created=old.created or memory.created or now,
            modified=memory.modified if fresh else now,
            verified=memory.verified or now,
        )

    def _require_folder(self, scope: MemoryScope) -> MemoryFolder:
        if scope in self.folders:
            return self.folders[scope]
        raise ChangeRefused(f"{scope} memory is not available here")

    def _choose_file_name(self, folder: MemoryFolder, name: str) -> str:
        """Return the file for a memory of this name, existing or new."""
        stems = {file: PurePosixPath(file).stem for file in list(folder.seen)}
        for file, stem in stems.items():
            if stem == name:
                return file
        for stem in stems.values():
            if stem.casefold() == name.casefold():
                raise ChangeRefused(f"{stem} exists and differs only in case; use that name")
        if (
            not MEMORY_NAME.fullmatch(name)
            or len(name) > MAX_NAME_CHARS
            or f"{name}.md" == INDEX_FILE.lower()
        ):
            raise ChangeRefused(
                f"a name is up to {MAX_NAME_CHARS} lowercase letters, digits and single dashes"
            )
        return f"{name}.md"

    def _read_planned(
        self, folder: MemoryFolder, file: str, writes: Mapping[tuple[str, str], FileWrite]
    ) -> bytes | None:
        """Return what a file will contain after the changes so far. Raises OSError."""
        if (planned := writes.get((folder.key, file))) is not None:
            return planned.data
        if _is_pinned(file) and (folder.path / PINNED_FOLDER).is_symlink():
            raise OSError(LINK_REFUSED)
        return folder.read_bytes(file)

    def _read_version(self, touched: TouchedFile, name: str) -> Memory | None:
        data = self._read_blob(name) if name else None
        if data is None:
            return None
        path = PurePosixPath(touched.file)
        text = data.decode("utf-8-sig", errors="replace")
        return parse_memory_file(path.stem, text, pinned=_is_pinned(touched.file)).memory

    def _read_blob(self, name: str) -> bytes | None:
        try:
            return self.past.blobs.get(name) if name else None
        except KeyError:
            fix = "The file itself was not changed."
            raise UserError(
                "The earlier version is lost", why="its stored copy is damaged", fix=fix
            ) from None

    def _find_transaction(self, id: str) -> MemoryTransaction:
        """Return the transaction to undo."""
        made = self.history()
        for one in made:
            if one.id == id or not (id or one.undone or one.undoes or one.why == OUTSIDE_EDIT):
                if one.undone:
                    raise UserError(f"{one.id} was already undone")
                return one
        fix = "Run `travois memory history` to see what can be undone."
        raise UserError(f"There is no change {id}" if id else "There is nothing to undo", fix=fix)

    def _build_undo_error(self, transaction: MemoryTransaction, one: TouchedFile) -> UserError:
        """Build the error for a file that changed since the transaction."""
        later = [
            f"{each.id} ({each.why})"
            for each in self.history()
            if each.at >= transaction.at and each.id != transaction.id
            if any((file.folder, file.file) == (one.folder, one.file) for file in each.files)
        ]
        by = f" by {', '.join(later[:3])}" if later else ""
        fix = "Undo that change first, or edit the file by hand."
        return UserError(
            f"{transaction.id} cannot be undone", why=f"{one.file} was changed since{by}", fix=fix
        )


def _check_memory(memory: Memory) -> None:
    """Raise if a memory contains a secret or is too long."""
    said = "\n".join((memory.description, memory.body, *(one.words for one in memory.evidence)))
    if found := secrets.find_secrets(said):
        raise ChangeRefused(f"it seems to contain a secret ({found[0].kind})")
    if len(memory.body) > MAX_MEMORY_CHARS:
        raise ChangeRefused(
            f"it has {len(memory.body):,} characters (limit {MAX_MEMORY_CHARS:,}); split it"
        )


def _is_pinned(file: str) -> bool:
    return file.startswith(f"{PINNED_FOLDER}/")


def _get_change_name(change: MemoryChange) -> str:
    name = change.memory.name if isinstance(change, PutMemory) else change.name
    return name[:MAX_NAME_CHARS]
