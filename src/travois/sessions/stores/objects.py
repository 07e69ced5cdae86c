"""A session store of objects: S3-compatible storage, or any other file system of `fsspec`.

A session is a journal: numbered objects, each created only if its number is free. So the order of
all changes is one that every machine agrees on, and a claim is a number like any other: what an
older epoch tries to add comes too late, without locks or clocks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from zlib import crc32

import fsspec.core  # pyright: ignore[reportMissingTypeStubs] - it has none
import msgspec

from travois.core.errors import UserError
from travois.ports.session_store import OffsetTaken, StaleEpoch, StoredSession, StoreUnavailable
from travois.sessions import blobs

CREATING_SCHEMES = ("s3", "gs", "s3a", "gcs", "memory")
"""File systems that create an object in one request, only where there is none."""
LOCAL_SCHEMES = ("file", "local")


def _open_file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a session store's URL and the path in it."""
    core: Any = fsspec.core
    fs, root = core.url_to_fs(url)
    return fs, str(root).rstrip("/")


def _library_errors() -> tuple[type[Exception], ...]:
    """Return the errors beside OSError that an object store's libraries raise, if loaded."""
    named = (("botocore.exceptions", "BotoCoreError"), ("aiohttp", "ClientError"))
    loaded = ((sys.modules[name], error) for name, error in named if name in sys.modules)
    return (OSError, *(getattr(module, error) for module, error in loaded))


@contextmanager
def _report_failures(place: str) -> Generator[None]:
    """Convert object storage failures to `StoreUnavailable`, except missing or taken names."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except _library_errors() as error:
        raise StoreUnavailable(
            "The session store cannot be used",
            why=f"{place}: {str(error) or type(error).__name__}",
            fix="Check its address and credentials, or choose another --session-store.",
        ) from error


class Change(msgspec.Struct, frozen=True, array_like=True):
    """The head of a journal object; the bytes follow it."""

    kind: Literal["claim", "append", "put"]
    epoch: int
    file: str = ""
    offset: int = 0
    project: str = ""
    size: int = 0
    crc: int = 0


class Journal:
    """The known state of a session's journal."""

    def __init__(self) -> None:
        self.number = 0
        """The number of the next object."""
        self.epoch = 0
        self.project = ""
        self.sizes: dict[str, int] = {}
        self.parts: dict[str, list[tuple[int, int]]] = {}
        """The number and offset of each part of a log."""
        self.files: dict[str, int] = {}
        """The number of the last object of each other file."""

    def apply_change(self, change: Change) -> None:
        """Add the next object of the journal; one of an older epoch came too late."""
        number, self.number = self.number, self.number + 1
        if change.epoch < self.epoch:
            return
        match change.kind:
            case "claim":
                self.epoch, self.project = change.epoch, change.project or self.project
            case "append" if change.offset == self.sizes.get(change.file, 0):
                self.parts.setdefault(change.file, []).append((number, change.offset))
                self.sizes[change.file] = change.offset + change.size
            case "put":
                self.files[change.file] = number
            case _:
                pass


class ObjectStore:
    """Journals and blobs below a URL of `fsspec`."""

    def __init__(self, url: str) -> None:
        scheme = url.partition("://")[0]
        if scheme not in (*CREATING_SCHEMES, *LOCAL_SCHEMES):
            raise UserError(
                f"Sessions cannot be stored at {scheme}://",
                why="it cannot create an object only where there is none",
                fix=f"Use one of: {', '.join((*CREATING_SCHEMES[:2], 'a folder', 'postgresql'))}.",
            )
        self._fs, self._root = _open_file_system(url)
        self._is_local = scheme in LOCAL_SCHEMES
        self._known: dict[str, Journal] = {}

    def claim_session(self, session: StoredSession) -> int:
        """Claim a session under the given epoch, or the next one."""
        while True:
            journal = self._refresh_journal(session.id)
            epoch = session.epoch or journal.epoch + 1
            _refuse_stale_journal(journal, epoch)
            if self._create_next_object(
                session.id, Change("claim", epoch, project=session.project), b""
            ):
                return epoch

    def append_log(self, session: str, file: str, data: bytes, *, offset: int, epoch: int) -> None:
        """Append to a log that ends at `offset`."""
        journal = self._known.get(session) or self._refresh_journal(session)
        change = Change("append", epoch, file, offset, "", len(data), crc32(data))
        while True:
            _refuse_stale_journal(journal, epoch)
            size = journal.sizes.get(file, 0)
            if size != offset:
                if offset < size and self._read_parts(session, file, offset)[: len(data)] == data:
                    return
                raise OffsetTaken(f"{file} has {size} bytes")
            if self._create_next_object(session, change, data):
                return
            journal = self._refresh_journal(session)

    def put_file(self, session: str, file: str, data: bytes, *, epoch: int) -> None:
        """Replace a file."""
        journal = self._known.get(session) or self._refresh_journal(session)
        change = Change("put", epoch, file, 0, "", len(data), crc32(data))
        while True:
            _refuse_stale_journal(journal, epoch)
            if self._create_next_object(session, change, data):
                return
            journal = self._refresh_journal(session)

    def list_stored_logs(self, session: str) -> dict[str, int]:
        """Return the logs of a session with their sizes."""
        return dict(self._refresh_journal(session).sizes)

    def list_stored_files(self, session: str) -> tuple[str, ...]:
        """Return the other files of a session."""
        return tuple(sorted(self._refresh_journal(session).files))

    def read_stored_log(self, session: str, file: str, *, offset: int = 0) -> bytes:
        """Return a log from an offset."""
        self._refresh_journal(session)
        return self._read_parts(session, file, offset)

    def read_stored_file(self, session: str, file: str) -> bytes:
        """Return a file."""
        number = self._refresh_journal(session).files[file]
        return self._read_object(session, number)[1]

    def put_blob(self, name: str, data: bytes) -> None:
        """Keep bytes under the digest that names them."""
        path = f"{self._root}/blobs/{name}"
        with _report_failures(self._root):
            if not self._fs.exists(path):
                self._fs.makedirs(f"{self._root}/blobs", exist_ok=True)
                self._fs.pipe_file(path, data)

    def get_blob(self, name: str) -> bytes:
        """Return the bytes of a digest."""
        try:
            with _report_failures(self._root):
                return self._fs.cat_file(f"{self._root}/blobs/{name}")
        except FileNotFoundError:
            raise KeyError(name) from None

    def list_stored_sessions(self) -> tuple[StoredSession, ...]:
        """Return all sessions."""
        found: list[StoredSession] = []
        for id in self._list_object_names(f"{self._root}/sessions"):
            journal = self._refresh_journal(id)
            last = self._journal_path(id, journal.number - 1)
            with _report_failures(self._root):
                info: dict[str, Any] = self._fs.info(last)
            changed = info.get("mtime") or info.get("LastModified") or info.get("created") or 0.0
            stamp = changed if isinstance(changed, int | float) else changed.timestamp()
            found.append(StoredSession(id, journal.project, journal.epoch, stamp))
        return tuple(found)

    def _read_parts(self, session: str, file: str, offset: int) -> bytes:
        journal = self._known[session]
        if file not in journal.parts:
            raise KeyError(file)
        ends = [*(start for _, start in journal.parts[file][1:]), journal.sizes[file]]
        parts = zip(journal.parts[file], ends, strict=True)
        needed = [(number, start) for (number, start), end in parts if end > offset]
        whole = b"".join(self._read_object(session, number)[1] for number, _ in needed)
        return whole[offset - needed[0][1] :] if needed else b""

    def _create_next_object(self, session: str, change: Change, data: bytes) -> bool:
        """Create the next object; return False if another writer was faster."""
        journal = self._known[session]
        head = msgspec.msgpack.encode(change)
        body = len(head).to_bytes(4, "big") + head + data
        try:
            self._create_object(self._journal_path(session, journal.number), body)
        except FileExistsError:
            return False
        journal.apply_change(change)
        return True

    def _create_object(self, path: str, body: bytes) -> None:
        """Create an object in one step, if there is none of its name."""
        with _report_failures(self._root):
            if not self._is_local:
                self._fs.pipe_file(path, body, mode="create")
                return
            blobs.make_folders(Path(path).parent)
            draft = Path(f"{path}.{os.getpid()}-{os.urandom(4).hex()}")
            try:
                blobs.replace_file(draft, body)
                os.link(draft, path)
            finally:
                draft.unlink(missing_ok=True)

    def _refresh_journal(self, session: str) -> Journal:
        """Read what was added to a journal since the last look."""
        journal = self._known.setdefault(session, Journal())
        folder = self._journal_path(session, 0).rpartition("/")[0]
        numbers = {int(name) for name in self._list_object_names(folder) if name.isdigit()}
        while journal.number in numbers:
            journal.apply_change(self._read_object(session, journal.number)[0])
        return journal

    def _read_object(self, session: str, number: int) -> tuple[Change, bytes]:
        """Return an object of a journal; one that was cut counts as a change of nothing."""
        with _report_failures(self._root):
            body: bytes = self._fs.cat_file(self._journal_path(session, number))
        size = int.from_bytes(body[:4], "big")
        try:
            change = msgspec.msgpack.decode(body[4 : 4 + size], type=Change)
        except msgspec.DecodeError:
            return Change("append", -1), b""
        data = body[4 + size :]
        whole = (len(data), crc32(data)) == (change.size, change.crc) or change.kind == "claim"
        return (change, data) if whole else (Change("append", -1), b"")

    def _journal_path(self, session: str, number: int) -> str:
        return f"{self._root}/sessions/{quote(session, safe='')}/{number:08d}"

    def _list_object_names(self, folder: str) -> list[str]:
        with _report_failures(self._root):
            self._fs.invalidate_cache()
            try:
                found: list[str] = self._fs.ls(folder, detail=False)
            except FileNotFoundError:
                return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)


def _refuse_stale_journal(journal: Journal, epoch: int) -> None:
    if epoch < journal.epoch:
        raise StaleEpoch(f"epoch {epoch} is over: the session was claimed under {journal.epoch}")
