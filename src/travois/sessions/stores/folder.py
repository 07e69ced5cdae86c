"""A session store in a folder, for example on a network file system."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from travois.ports.session_store import OffsetTaken, StaleEpoch, StoredSession, StoreUnavailable
from travois.sessions import blobs

HEAD_FILE = "head.json"


class SessionHead(msgspec.Struct):
    """The valid part of a session's folder: bytes behind these sizes were never acknowledged."""

    project: str = ""
    epoch: int = 0
    updated: float = 0.0
    logs: dict[str, int] = {}


class FolderStore:
    """A folder with one folder per session; a lock makes each change one step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._blobs = blobs.BlobStore(folder / "blobs")

    def claim_session(self, session: StoredSession) -> int:
        """Claim a session under the given epoch, or the next one."""
        with self._change_session_head(session.id) as head:
            epoch = session.epoch or head.epoch + 1
            _refuse_stale_head(head, epoch)
            head.epoch, head.project = epoch, session.project or head.project
        return epoch

    def append_log(self, session: str, file: str, data: bytes, *, offset: int, epoch: int) -> None:
        """Append to a log that ends at `offset`."""
        with self._change_session_head(session) as head:
            _refuse_stale_head(head, epoch)
            size = head.logs.get(file, 0)
            path = self._locate_stored_file(session, "logs", file)
            if size != offset:
                known = _read_prefix(path, size)[offset : offset + len(data)] if size else b""
                if offset > size or known != data:
                    raise OffsetTaken(f"{file} has {size} bytes")
                return
            blobs.make_folders(path.parent)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as log:
                os.ftruncate(fd, offset)  # what a killed writer left behind
                log.seek(offset)
                log.write(data)
                log.flush()
                os.fsync(fd)
            head.logs[file] = offset + len(data)

    def put_file(self, session: str, file: str, data: bytes, *, epoch: int) -> None:
        """Replace a file."""
        with self._change_session_head(session) as head:
            _refuse_stale_head(head, epoch)
            path = self._locate_stored_file(session, "files", file)
            blobs.make_folders(path.parent)
            blobs.replace_file(path, data)

    def list_stored_logs(self, session: str) -> dict[str, int]:
        """Return the logs of a session with their sizes."""
        return dict(self._read_head(session).logs)

    def list_stored_files(self, session: str) -> tuple[str, ...]:
        """Return the other files of a session."""
        try:
            names = os.listdir(self._folder / session / "files")
        except FileNotFoundError:
            return ()
        return tuple(unquote(name) for name in sorted(names) if not name.startswith("."))

    def read_stored_log(self, session: str, file: str, *, offset: int = 0) -> bytes:
        """Return a log from an offset."""
        size = self._read_head(session).logs[file]
        return _read_prefix(self._locate_stored_file(session, "logs", file), size)[offset:]

    def read_stored_file(self, session: str, file: str) -> bytes:
        """Return a file."""
        try:
            return self._locate_stored_file(session, "files", file).read_bytes()
        except FileNotFoundError:
            raise KeyError(file) from None

    def put_blob(self, name: str, data: bytes) -> None:
        """Keep bytes under the digest that names them."""
        assert self._blobs.put(data) == name

    def get_blob(self, name: str) -> bytes:
        """Return the bytes of a digest."""
        return self._blobs.get(name)

    def list_stored_sessions(self) -> tuple[StoredSession, ...]:
        """Return all sessions."""
        if not self._folder.is_dir():
            return ()
        ids = [path.parent.name for path in self._folder.glob(f"*/{HEAD_FILE}")]
        return tuple(
            StoredSession(id, head.project, head.epoch, head.updated)
            for id, head in ((id, self._read_head(id)) for id in ids)
        )

    def _locate_stored_file(self, session: str, kind: str, file: str) -> Path:
        return self._folder / session / kind / quote(file, safe="")

    def _read_head(self, session: str) -> SessionHead:
        try:
            data = (self._folder / session / HEAD_FILE).read_bytes()
        except FileNotFoundError:
            return SessionHead()
        except OSError as error:
            raise _unavailable(self._folder, error) from error
        return msgspec.json.decode(data, type=SessionHead)

    @contextmanager
    def _change_session_head(self, session: str) -> Generator[SessionHead]:
        """Change a session as one step: the head is replaced last."""
        folder = self._folder / session
        try:
            blobs.make_folders(folder)
            fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unavailable(self._folder, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            head = self._read_head(session)
            before = msgspec.json.encode(head)
            yield head
            if msgspec.json.encode(head) != before:
                head.updated = time.time()
                blobs.replace_file(folder / HEAD_FILE, msgspec.json.encode(head))
        except OSError as error:
            raise _unavailable(self._folder, error) from error
        finally:
            with suppress(OSError):
                os.close(fd)


def _refuse_stale_head(head: SessionHead, epoch: int) -> None:
    if epoch < head.epoch:
        raise StaleEpoch(f"epoch {epoch} is over: the session was claimed under {head.epoch}")


def _read_prefix(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _unavailable(folder: Path, error: OSError) -> StoreUnavailable:
    told = blobs.make_storage_error("The session store cannot be used", error, path=folder)
    return StoreUnavailable(told.what, why=told.why, fix=told.fix)
