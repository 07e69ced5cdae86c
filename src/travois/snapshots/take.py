"""Taking snapshots in this process: of whole trees, or of single files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from errno import EFBIG
from pathlib import Path
from threading import Lock

import msgspec

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

    def __init__(self, path: Path, own: bytes, *, limits: SnapshotLimits, listens: bool) -> None:
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
        self, wanted: SnapshotRequest, *, heed: Callable[[int], None] = lambda count: None
    ) -> TakenSnapshot:
        """Take a snapshot; the last one counts if nothing has changed. Raises OSError."""
        with self._busy, open_snapshot_database(self._path) as shelf:
            for _ in range(TAKE_TRIES):
                with suppress(SnapshotsDropped):
                    return self._take_once(shelf, wanted, heed)
        raise OSError("snapshots: another session keeps removing old ones")

    def save_seen(self) -> None:
        """Write down what was scanned, for the next session. Raises OSError."""
        with self._busy, open_snapshot_database(self._path) as shelf:
            fresh, self._fresh = self._fresh, {}
            if fresh and self._age:
                shelf.save_seen(fresh, age=self._age)

    def _take_once(
        self, shelf: SnapshotDatabase, wanted: SnapshotRequest, heed: Callable[[int], None]
    ) -> TakenSnapshot:
        """Scan, save and prune. Raises `SnapshotsDropped` if another session pruned meanwhile."""
        age = shelf.read_generation()
        if wanted.folders and self._age != age:
            self._seen, self._fresh = shelf.load_seen(), {}
            self._close_watch()
        if wanted.folders:
            self._age = 0  # an interrupted scan leaves no valid record
        scan, remarks, uncovered = self._start_scan(shelf, wanted, heed), list[str](), list[str]()
        roots = [scan.scan_root(path, "work") for path in wanted.folders]
        roots += self._scan_extra_paths(scan, wanted, uncovered, remarks)
        roots += [
            root for path in wanted.files if (root := _scan_single_file(scan, path)) is not None
        ]
        remarks += self._remove_drafts(scan)
        last = next(shelf.newest(1), None)
        found = tuple(dict.fromkeys(roots))
        name = last.name if last is not None and last.roots == found else os.urandom(6).hex()
        fresh = bool(wanted.why) and (last is None or last.name != name)
        shelf.save_snapshot(
            Snapshot(name, time.time(), wanted.why, found) if fresh else None, age=age
        )
        if scan.watch is not None:
            scan.watch.clear_dirty()
        elif wanted.folders:
            self._close_watch()
        gone = shelf.prune(limit=self._limits.room, count=self._limits.count)
        if gone:
            remarks.append(f"Removed the {gone} oldest snapshots to make room.")
        if wanted.folders:
            self._age = 0 if gone else age
            self._fresh |= scan.fresh
        self._left_out |= dict.fromkeys((*scan.left_out, *scan.missed))
        return TakenSnapshot(
            name=name if wanted.why else "",
            remarks=tuple(remarks),
            uncovered=tuple(uncovered),
            left_out=tuple(map(os.fsdecode, self._left_out)),
            count=scan.count,
        )

    def _start_scan(
        self, shelf: SnapshotDatabase, wanted: SnapshotRequest, heed: Callable[[int], None]
    ) -> TreeScan:
        bounds = ScanBounds(self._own, self._limits.room, time.time_ns(), heed)
        if not wanted.folders:
            return TreeScan(shelf, {}, bounds)
        tracked = TrackedFiles(wanted.folders, shelf.objects)
        return TreeScan(shelf, self._seen, bounds, tracked=tracked, watch=self._get_watch())

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
        self, scan: TreeScan, wanted: SnapshotRequest, uncovered: list[str], remarks: list[str]
    ) -> Iterable[SnapshotRoot]:
        """Yield the roots of extra paths; note those that cannot be covered."""
        for path in map(os.path.normpath, wanted.also):
            inside = any(is_below_folder(path, folder) for folder in wanted.folders)
            try:
                if os.path.lexists(path) or not inside:
                    yield scan.scan_root(self._require_coverable(path, wanted.folders), "whole")
            except OSError as error:
                uncovered.append(os.fsdecode(path))
                remarks.append(f"Snapshots do not cover {os.fsdecode(path)}: {error.strerror}.")

    def _require_coverable(self, path: bytes, folders: tuple[bytes, ...]) -> bytes:
        """Return a path that can be covered whole. Raises OSError for one that is too large."""
        holds = any(is_below_folder(folder, path) for folder in (*folders, self._own))
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
    """Return the outermost part of a path that is missing, or the path itself."""
    folder = os.path.dirname(path)
    while folder != path and not os.path.lexists(folder):
        path, folder = folder, os.path.dirname(folder)
    return path


def _scan_single_file(scan: TreeScan, path: bytes) -> SnapshotRoot | None:
    """Cover a file, or its absence; a folder only as far as other folders are covered."""
    whole = not os.path.isdir(path) or os.path.islink(path)
    if path.count(b"/") <= MAX_SYSTEM_DEPTH and not whole:
        return None
    root = scan.scan_root(path, "whole" if whole else "work")
    return SnapshotRoot(root.path, root.node, True)
