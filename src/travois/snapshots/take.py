"""Taking snapshots of whole trees or single files, here or in a worker process.

A worker takes those of large trees, so that a session can go on meanwhile. It reads requests, one
line of JSON each, and reports progress and results. It ends at once when the session does: a
half-finished snapshot leaves the store unchanged.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import EFBIG, EPIPE
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread

import msgspec
from msgspec.structs import replace

from travois.sessions import blobs
from travois.snapshots.database import (
    SeenFolder,
    SnapshotDatabase,
    SnapshotsDropped,
    open_snapshot_database,
)
from travois.snapshots.git_index import TrackedFiles
from travois.snapshots.scan import FolderWatch, MissedEvents, ScanBounds, TreeScan
from travois.snapshots.tree import Snapshot, SnapshotRoot, is_below_folder

MAX_PROJECT_BYTES = 1 << 30
"""The most bytes that the snapshots of one project take."""
MAX_SNAPSHOTS = 2000
MAX_SYSTEM_DEPTH = 1
"""A path with no more slashes than this is part of the system: too much to cover."""
TAKE_TRIES = 3
WORKER_COMMAND = (sys.executable, "-I", "-m", "travois.snapshots.take")


class SnapshotLimits(msgspec.Struct, frozen=True):
    """The limits of the snapshots of one project."""

    room: int = MAX_PROJECT_BYTES
    count: int = MAX_SNAPSHOTS


class TakenSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that was taken; its name is empty if the tree was only scanned."""

    name: str
    remarks: tuple[str, ...] = ()
    """Notices for the user."""
    uncovered: tuple[str, ...] = ()
    """Requested paths that are not in it."""
    left_out: tuple[str, ...] = ()
    """Paths in the workspace that are not covered: rebuildable ones, and those that are too
    large."""
    count: int = 0
    """The number of visited names."""


class SnapshotRequest(msgspec.Struct, frozen=True):
    """A request for a snapshot: the paths to cover, and the reason."""

    why: str
    folders: tuple[bytes, ...] = ()
    also: tuple[bytes, ...] = ()
    """Paths that are covered with everything in them."""
    files: tuple[bytes, ...] = ()
    """Paths that are covered even if nothing else is."""
    number: int = 0
    """Identifies the reply of a worker process."""


class WatchedTree:
    """The folders of a project as they were last scanned. One snapshot is taken at a time."""

    def __init__(
        self, path: Path, own: tuple[bytes, ...], *, limits: SnapshotLimits, listens: bool
    ) -> None:
        self._path = path
        self._own = own
        self._limits = limits
        self._listens = listens
        self._watch: FolderWatch | None = None
        self._busy = Lock()
        self._seen: dict[bytes, SeenFolder] = {}
        self._left_out: dict[bytes, None] = {}
        self._fresh: dict[bytes, SeenFolder] = {}
        """Folders whose records are not yet written."""
        self._age = 0

    def take(
        self, request: SnapshotRequest, *, heed: Callable[[int], None] = lambda count: None
    ) -> TakenSnapshot:
        """Take a snapshot; the last one counts if nothing has changed. Raises OSError."""
        with self._busy, open_snapshot_database(self._path) as database:
            for _ in range(TAKE_TRIES):
                with suppress(SnapshotsDropped):
                    return self._take_once(database, request, heed)
        raise OSError("snapshots: another session keeps removing old ones")

    def save_seen(self) -> None:
        """Write down what was scanned, for the next session. Raises OSError."""
        with self._busy, open_snapshot_database(self._path) as database:
            fresh, self._fresh = self._fresh, {}
            if fresh and self._age:
                database.save_seen(fresh, age=self._age)

    def _take_once(
        self, database: SnapshotDatabase, request: SnapshotRequest, heed: Callable[[int], None]
    ) -> TakenSnapshot:
        """Scan, save and prune. Raises `SnapshotsDropped` if another session pruned meanwhile."""
        age = database.read_generation()
        if request.folders and self._age != age:
            self._seen, self._fresh = database.load_seen(), {}
            self._close_watch()
        if request.folders:
            self._age = 0  # an interrupted scan leaves no valid record
        scan, remarks, uncovered = (
            self._start_scan(database, request, heed),
            list[str](),
            list[str](),
        )
        roots = [scan.scan_root(path, "work") for path in request.folders]
        roots += self._scan_extra_paths(scan, request, uncovered, remarks)
        roots += [
            root for path in request.files if (root := _scan_single_file(scan, path)) is not None
        ]
        remarks += self._remove_drafts(scan)
        last = next(database.newest(1), None)
        found = tuple(dict.fromkeys(roots))
        name = last.name if last is not None and last.roots == found else os.urandom(6).hex()
        fresh = bool(request.why) and (last is None or last.name != name)
        database.save_snapshot(
            Snapshot(name, time.time(), request.why, found) if fresh else None, age=age
        )
        if scan.watch is not None:
            scan.watch.clear_dirty()
        elif request.folders:
            self._close_watch()
        gone = database.prune(limit=self._limits.room, count=self._limits.count)
        if gone:
            remarks.append(f"Removed the {gone} oldest snapshots to make room.")
        if request.folders:
            self._age = 0 if gone else age
            self._fresh |= scan.fresh
        self._left_out |= dict.fromkeys((*scan.left_out, *scan.missed))
        return TakenSnapshot(
            name=name if request.why else "",
            remarks=tuple(remarks),
            uncovered=tuple(uncovered),
            left_out=tuple(map(os.fsdecode, self._left_out)),
            count=scan.count,
        )

    def _start_scan(
        self, database: SnapshotDatabase, request: SnapshotRequest, heed: Callable[[int], None]
    ) -> TreeScan:
        bounds = ScanBounds(self._own, self._limits.room, time.time_ns(), heed)
        if not request.folders:
            return TreeScan(database, {}, bounds)
        tracked = TrackedFiles(request.folders, database.objects)
        return TreeScan(database, self._seen, bounds, tracked=tracked, watch=self._get_watch())

    def _get_watch(self) -> FolderWatch | None:
        """Return the watch, with all changes up to now; a new one where it missed some."""
        if not self._listens:
            return None
        try:
            if self._watch is not None:
                self._watch.read_events()
        except MissedEvents:
            self._close_watch()
        try:
            self._watch = self._watch or FolderWatch()
        except OSError:
            self._listens = False
        return self._watch

    def _close_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _scan_extra_paths(
        self, scan: TreeScan, request: SnapshotRequest, uncovered: list[str], remarks: list[str]
    ) -> Iterable[SnapshotRoot]:
        """Yield the roots of extra paths; note those that cannot be covered."""
        for path in map(os.path.normpath, request.also):
            inside = any(is_below_folder(path, folder) for folder in request.folders)
            try:
                if os.path.lexists(path) or not inside:
                    yield scan.scan_root(self._require_coverable(path, request.folders), "whole")
            except OSError as error:
                uncovered.append(os.fsdecode(path))
                remarks.append(f"Snapshots do not cover {os.fsdecode(path)}: {error.strerror}.")

    def _require_coverable(self, path: bytes, folders: tuple[bytes, ...]) -> bytes:
        """Return a path that can be covered whole. Raises OSError for one that is too large."""
        holds = any(is_below_folder(folder, path) for folder in (*folders, *self._own))
        if holds or (path.count(b"/") <= MAX_SYSTEM_DEPTH and path not in folders):
            raise OSError(EFBIG, "it is a system folder or contains the workspace", path)
        return path

    def _remove_drafts(self, scan: TreeScan) -> Iterable[str]:
        """Remove the drafts of a killed restore; yield a notice about what is not covered."""
        for draft in scan.drafts:
            with suppress(OSError):
                os.unlink(draft)
        if scan.missed:
            some = ", ".join(map(os.fsdecode, scan.missed[:3]))
            more = f" and {len(scan.missed) - 3} more" if len(scan.missed) > 3 else ""
            yield f"Snapshots do not cover {some}{more}: too large or unreadable."


def find_first_missing(path: bytes) -> bytes:
    """Return the outermost missing part of a path to snapshot, or the path itself."""
    folder = os.path.dirname(path)
    while folder != path and not os.path.lexists(folder):
        path, folder = folder, os.path.dirname(folder)
    return path


def _scan_single_file(scan: TreeScan, path: bytes) -> SnapshotRoot | None:
    """Scan a file, or its absence, for a snapshot; of a folder only what others cover."""
    whole = not os.path.isdir(path) or os.path.islink(path)
    if path.count(b"/") <= MAX_SYSTEM_DEPTH and not whole:
        return None
    root = scan.scan_root(path, "whole" if whole else "work")
    return SnapshotRoot(root.path, root.node, True)


class SnapshotWorker:
    """A process that scans a tree, and keeps watching it. Raises OSError if none starts."""

    def __init__(self, path: Path, own: tuple[bytes, ...], limits: SnapshotLimits) -> None:
        blobs.make_folders(path.parent)
        self._busy = Lock()
        self._number = 0
        self._process = subprocess.Popen(
            WORKER_COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=path.parent,
            start_new_session=True,
        )
        self._send(WorkerSetup(str(path), own, limits))

    @property
    def is_alive(self) -> bool:
        """True if it still runs."""
        return self._process.poll() is None

    def prepare(self, request: SnapshotRequest) -> None:
        """Let it scan everything once, without waiting for it. Raises OSError."""
        with self._busy:
            self._send_request(request)

    def take(self, request: SnapshotRequest, heed: Callable[[int], None]) -> TakenSnapshot:
        """Take a snapshot. Raises OSError."""
        with self._busy:
            reply = self._receive_reply(self._send_request(request), heed)
        if reply.taken is None:
            raise OSError(reply.errno, reply.error)
        return reply.taken

    def close(self) -> None:
        """Kill it, whatever it is doing."""
        self._process.kill()
        self._process.communicate()

    def _send(self, message: WorkerSetup | SnapshotRequest) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(message) + b"\n")
        self._process.stdin.flush()

    def _send_request(self, request: SnapshotRequest) -> int:
        self._number += 1
        self._send(replace(request, number=self._number))
        return self._number

    def _receive_reply(self, number: int, heed: Callable[[int], None]) -> WorkerReply:
        """Return the reply to one request, skipping replies that nobody waits for."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            reply = msgspec.json.decode(line, type=WorkerReply)
            if reply.number == number:
                return reply
            if reply.count:
                heed(reply.count)
        raise OSError(EPIPE, "the snapshot worker process has ended")


PROGRESS_INTERVAL_SECONDS = 0.1
"""Seconds between two progress reports."""


class WorkerSetup(msgspec.Struct, frozen=True):
    """The tree and the limits of a worker, its first input line."""

    path: str
    own: tuple[bytes, ...]
    limits: SnapshotLimits


class WorkerReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A progress report, a snapshot that was taken, or an error."""

    number: int = 0
    """The number of the request that it answers."""
    count: int = 0
    taken: TakenSnapshot | None = None
    error: str = ""
    errno: int = 0


def main() -> None:
    """Run the snapshot worker: take one snapshot after the other until standard input ends."""
    gc.disable()  # a hundred thousand lasting small objects without cycles
    started = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerSetup)
    tree = WatchedTree(Path(started.path), started.own, limits=started.limits, listens=True)
    waiting: SimpleQueue[SnapshotRequest] = SimpleQueue()
    Thread(target=_read_requests, args=(waiting,), daemon=True).start()
    while True:
        wanted = waiting.get()
        try:
            _send_reply(
                WorkerReply(wanted.number, taken=tree.take(wanted, heed=_ProgressReporter()))
            )
            if waiting.empty():  # no request waits
                tree.save_seen()
        except OSError as error:
            why = error.strerror or str(error)
            _send_reply(WorkerReply(wanted.number, error=why, errno=error.errno or 0))


def _read_requests(waiting: SimpleQueue[SnapshotRequest]) -> None:
    """Pass requests from standard input to the snapshot worker; exit when the input ends."""
    for line in sys.stdin.buffer:
        waiting.put(msgspec.json.decode(line, type=SnapshotRequest))
    os._exit(0)


class _ProgressReporter:
    """Reports the number of visited files at intervals."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PROGRESS_INTERVAL_SECONDS

    def __call__(self, count: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_INTERVAL_SECONDS
            _send_reply(WorkerReply(count=count))


def _send_reply(reply: WorkerReply) -> None:
    """Write a reply of the snapshot worker to standard output; exit if nobody reads it."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main()
