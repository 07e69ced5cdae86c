"""Mirroring a running session to a store: what is synced to disk here is appended there.

A thread pushes, so that no turn waits for the network; it pushes whatever is new whenever the log
is synced or a reply comes in. Blobs and other files go first: a log in a store never refers to
something that is not there. While the store cannot be reached, the session goes on and is pushed
later. Once the session was claimed elsewhere, nothing can be appended here any more.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Condition, Thread

from msgspec.structs import replace

from travois.core.errors import UserError
from travois.ports.session_store import (
    OffsetTaken,
    SessionStore,
    StaleEpoch,
    StoredSession,
    StoreUnavailable,
)
from travois.sessions.blobs import BlobStore
from travois.sessions.scan import LOG_FILE_NAME, find_lineage

BLOB_NAME = re.compile(rb'"blob":"([0-9a-f]{64})"')
LOCAL_FILES = re.compile(r"lock.*|log\.(torn|superseded)-.*|mail|\..*")
"""Files and folders of a session that mean something on this machine alone."""
BASE_PREFIX = "base/"
"""Before the ids of the sessions that this one was forked from, whose logs travel with it."""
APPEND_BYTES = 8 << 20
RETRY_SECONDS = 2.0
"""Seconds until the next try while the store cannot be reached."""
SYNC_SECONDS = 2.0
"""The most that a request or a change waits for the store: then it goes on without."""
FLUSH_SECONDS = 30.0
"""Seconds to wait at the end for what is not pushed yet."""
TAKEN_OVER_CODE = 130


class SessionTakenOver(UserError):
    """A session that goes on elsewhere."""


def make_taken_over_error(id: str, *, why: str) -> SessionTakenOver:
    """Build the error for a mirrored session that was claimed under a newer epoch."""
    return SessionTakenOver(
        f"Session {id} goes on elsewhere",
        why=why,
        fix="Resume it to take it back, or use --fork-session for a copy.",
        code=TAKEN_OVER_CODE,
    )


class SessionMirror:
    """Pushes one session to a store, in a thread of its own."""

    def __init__(
        self,
        store: SessionStore,
        session: StoredSession,
        folder: Path,
        *,
        blobs: BlobStore,
        tell: Callable[[str], None],
        more_files: Callable[[], Iterable[tuple[str, bytes]]] = tuple,
    ) -> None:
        self._store = store
        self._session = session
        self._folder = folder
        self._blobs = blobs
        self._tell = tell
        self._more_files = more_files
        self._claimed = session.epoch > 0
        self._sizes: dict[str, int] = {}
        """How much of each log is in the store."""
        self._sent: dict[str, tuple[int, int]] = {}
        """The size and time of each file that is in the store."""
        self._known_blobs: set[bytes] = set()
        self._state = Condition()
        self._wanted = self._pushed = 0
        self._closing = self._failing = False
        self._lost = ""
        self._thread: Thread | None = None

    def push_soon(self) -> None:
        """Push what is new, soon."""
        with self._state:
            self._wanted += 1
            self._state.notify_all()
            if self._thread is None:
                self._thread = Thread(
                    target=self._push_until_closed, name="session-store", daemon=True
                )
                self._thread.start()

    def push_now(self) -> None:
        """Push what is new, and wait a moment for it; raises `SessionTakenOver`."""
        self.push_soon()
        if not self._failing:
            self.wait_until_pushed(SYNC_SECONDS)
        self.check_claim()

    def check_claim(self) -> None:
        """Raise `SessionTakenOver` if the session was claimed elsewhere."""
        if self._lost:
            raise make_taken_over_error(self._session.id, why=self._lost)

    def wait_until_pushed(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything is pushed; return whether it is."""
        with self._state:
            done = self._state.wait_for(
                lambda: self._pushed == self._wanted or bool(self._lost), seconds
            )
            return done and not self._lost

    def push_rest(self) -> str:
        """Push the rest, and end; return what to tell the user."""
        told = ""
        if self._thread is not None and not self._lost:
            self.push_soon()
            if not self.wait_until_pushed() and not self._lost:
                told = "the latest messages did not reach the session store; resume to send them"
        with self._state:
            self._closing = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(FLUSH_SECONDS)
        return told

    def _push_until_closed(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closing or self._wanted > self._pushed)
                if (self._closing and self._wanted == self._pushed) or (
                    self._failing and self._closing
                ):
                    return
                wanted = self._wanted
            if not self._try_push(self._push_session):
                return
            with self._state:
                self._pushed = self._pushed if self._failing else wanted
                self._state.notify_all()
            if not self._failing and not self._try_push(self._push_work):
                return

    def _try_push(self, push: Callable[[], None]) -> bool:
        """Push once; return whether another push makes sense."""
        try:
            push()
        except (StoreUnavailable, OSError) as fault:
            if not self._failing:
                why = str(fault).partition("\n")[0]
                self._tell(f"{why}. The session is saved here and sent later")
            self._failing = True
            time.sleep(RETRY_SECONDS)
        except (StaleEpoch, OffsetTaken) as gone:
            with self._state:
                self._lost = str(gone)
                self._state.notify_all()
            return False
        else:
            if self._failing:
                self._tell("the session store can be reached again; everything was sent")
            self._failing = False
        return True

    def _push_session(self) -> None:
        if not self._claimed:
            epoch = self._store.claim_session(self._session)
            self._session, self._claimed = replace(self._session, epoch=epoch), True
        if not self._sizes and not self._sent:
            self._load_known()
        for name, path in self._iterate_local_files():
            if path.suffix == ".jsonl":
                self._push_log(name, path)
            else:
                self._push_file(name, path)
        self._push_log(LOG_FILE_NAME, self._folder / LOG_FILE_NAME)

    def _push_work(self) -> None:
        """Push what takes longer, and what no log refers to."""
        for name, data in self._more_files():
            self._store.put_file(self._session.id, name, data, epoch=self._session.epoch)

    def _load_known(self) -> None:
        """Find out what the store has: files that it has are not sent again until they change."""
        self._sizes = self._store.list_stored_logs(self._session.id)
        stored = {*self._store.list_stored_files(self._session.id)}
        self._sent = {
            name: _stamp_file(path) for name, path in self._iterate_local_files() if name in stored
        }

    def _iterate_local_files(self) -> Iterator[tuple[str, Path]]:
        """Yield the session's files but its own log, and the logs of those it was forked from."""
        for folder, _ in find_lineage(self._folder)[:-1]:
            yield f"{BASE_PREFIX}{folder.name}.jsonl", folder / LOG_FILE_NAME
        for top, folders, files in os.walk(self._folder):
            folders[:] = [name for name in folders if not LOCAL_FILES.fullmatch(name)]
            for path in (Path(top, name) for name in files if not LOCAL_FILES.fullmatch(name)):
                name = path.relative_to(self._folder).as_posix()
                if name != LOG_FILE_NAME and path.is_file() and not path.is_symlink():
                    yield name, path

    def _push_file(self, name: str, path: Path) -> None:
        try:
            stamp = _stamp_file(path)
            if self._sent.get(name) == stamp:
                return
            data = path.read_bytes()
        except FileNotFoundError:
            return
        self._store.put_file(self._session.id, name, data, epoch=self._session.epoch)
        self._sent[name] = stamp

    def _push_log(self, name: str, path: Path) -> None:
        """Append the new whole lines of a log, after the blobs that they refer to."""
        end = path.stat().st_size  # what is written from here on waits for the next push
        offset = self._sizes.get(name, 0)
        while data := _read_whole_lines(path, offset, end):
            self._push_blobs(data)
            epoch = self._session.epoch
            self._store.append_log(self._session.id, name, data, offset=offset, epoch=epoch)
            offset = self._sizes[name] = offset + len(data)

    def _push_blobs(self, data: bytes) -> None:
        for name in {*BLOB_NAME.findall(data)} - self._known_blobs:
            try:
                self._store.put_blob(name.decode(), self._blobs.get(name.decode()))
            except KeyError:
                continue  # missing here, too
            self._known_blobs.add(name)


def _read_whole_lines(path: Path, start: int, end: int) -> bytes:
    """Read whole log lines to mirror, about as many as one append should have."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(min(APPEND_BYTES, max(0, end - start)))
        if b"\n" not in data:
            data += file.read(max(0, end - start - len(data)))
    return data[: data.rfind(b"\n") + 1]


def _stamp_file(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
