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

from travois.snapshots.database import Dropped, Seen, Shelf, opened
from travois.snapshots.git_index import Tracked
from travois.snapshots.scan import Bounds, Scan, Unheard, Watch
from travois.snapshots.tree import Root, Snapshot, within

ROOM = 1 << 30
"""The most bytes that the snapshots of one project take."""
COUNT = 2000
SHALLOW = 1
"""A path with no more slashes than this is part of the system: too much to cover."""
TRIES = 3


class Limits(msgspec.Struct, frozen=True):
    """The limits of the snapshots of one project."""

    room: int = ROOM
    count: int = COUNT


class Taken(msgspec.Struct, frozen=True):
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


class Wanted(msgspec.Struct, frozen=True):
    """A request for a snapshot: the paths to cover, and the reason."""

    why: str
    folders: tuple[bytes, ...] = ()
    also: tuple[bytes, ...] = ()
    """Paths that are covered with everything in them."""
    files: tuple[bytes, ...] = ()
    """Paths that are covered even if nothing else is."""
    number: int = 0
    """Identifies the reply of a worker process."""


class Tree:
    """The folders of a project as they were last scanned. One snapshot is taken at a time."""

    def __init__(self, path: Path, own: bytes, *, limits: Limits, listens: bool) -> None:
        self._path = path
        self._own = own
        self._limits = limits
        self._listens = listens
        self._watch: Watch | None = None
        self._busy = Lock()
        self._seen: dict[bytes, Seen] = {}
        self._left_out: dict[bytes, None] = {}
        self._fresh: dict[bytes, Seen] = {}
        """Folders whose records are not yet written."""
        self._age = 0

    def take(self, wanted: Wanted, *, heed: Callable[[int], None] = lambda count: None) -> Taken:
        """Take a snapshot; the last one counts if nothing has changed. Raises OSError."""
        with self._busy, opened(self._path) as shelf:
            for _ in range(TRIES):
                with suppress(Dropped):
                    return self._take(shelf, wanted, heed)
        raise OSError("snapshots: another session keeps removing old ones")

    def remember(self) -> None:
        """Write down what was scanned, for the next session. Raises OSError."""
        with self._busy, opened(self._path) as shelf:
            fresh, self._fresh = self._fresh, {}
            if fresh and self._age:
                shelf.remember(fresh, age=self._age)

    def _take(self, shelf: Shelf, wanted: Wanted, heed: Callable[[int], None]) -> Taken:
        """Scan, save and prune. Raises `SnapshotsDropped` if another session pruned meanwhile."""
        age = shelf.age()
        if wanted.folders and self._age != age:
            self._seen, self._fresh = shelf.seen(), {}
            self._hear_nothing()
        if wanted.folders:
            self._age = 0  # an interrupted scan leaves no valid record
        scan, remarks, uncovered = self._scan(shelf, wanted, heed), list[str](), list[str]()
        roots = [scan.root(path, "work") for path in wanted.folders]
        roots += self._also(scan, wanted, uncovered, remarks)
        roots += [root for path in wanted.files if (root := _file(scan, path)) is not None]
        remarks += self._tidied(scan)
        last = next(shelf.newest(1), None)
        found = tuple(dict.fromkeys(roots))
        name = last.name if last is not None and last.roots == found else os.urandom(6).hex()
        fresh = bool(wanted.why) and (last is None or last.name != name)
        shelf.save(Snapshot(name, time.time(), wanted.why, found) if fresh else None, age=age)
        if scan.watch is not None:
            scan.watch.settle()
        elif wanted.folders:
            self._hear_nothing()
        gone = shelf.prune(limit=self._limits.room, count=self._limits.count)
        if gone:
            remarks.append(f"Removed the {gone} oldest snapshots to make room.")
        if wanted.folders:
            self._age = 0 if gone else age
            self._fresh |= scan.fresh
        self._left_out |= dict.fromkeys((*scan.left_out, *scan.missed))
        return Taken(
            name=name if wanted.why else "",
            remarks=tuple(remarks),
            uncovered=tuple(uncovered),
            left_out=tuple(map(os.fsdecode, self._left_out)),
            count=scan.count,
        )

    def _scan(self, shelf: Shelf, wanted: Wanted, heed: Callable[[int], None]) -> Scan:
        bounds = Bounds(self._own, self._limits.room, time.time_ns(), heed)
        if not wanted.folders:
            return Scan(shelf, {}, bounds)
        tracked = Tracked(wanted.folders, shelf.objects)
        return Scan(shelf, self._seen, bounds, tracked=tracked, watch=self._listening())

    def _listening(self) -> Watch | None:
        """Return the watch, with all changes up to now; a new one where it missed some."""
        if not self._listens:
            return None
        try:
            if self._watch is not None:
                self._watch.read()
        except Unheard:
            self._hear_nothing()
        try:
            self._watch = self._watch or Watch()
        except OSError:
            self._listens = False
        return self._watch

    def _hear_nothing(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _also(
        self, scan: Scan, wanted: Wanted, uncovered: list[str], remarks: list[str]
    ) -> Iterable[Root]:
        """Yield the roots of extra paths; note those that cannot be covered."""
        for path in map(os.path.normpath, wanted.also):
            inside = any(within(path, folder) for folder in wanted.folders)
            try:
                if os.path.lexists(path) or not inside:
                    yield scan.root(self._bearable(path, wanted.folders), "whole")
            except OSError as error:
                uncovered.append(os.fsdecode(path))
                remarks.append(f"Snapshots do not cover {os.fsdecode(path)}: {error.strerror}.")

    def _bearable(self, path: bytes, folders: tuple[bytes, ...]) -> bytes:
        """Return a path that can be covered whole. Raises OSError for one that is too large."""
        holds = any(within(folder, path) for folder in (*folders, self._own))
        if holds or (path.count(b"/") <= SHALLOW and path not in folders):
            raise OSError(EFBIG, "it is a system folder or contains the workspace", path)
        return path

    def _tidied(self, scan: Scan) -> Iterable[str]:
        """Remove the drafts of a killed restore; yield a notice about what is not covered."""
        for draft in scan.drafts:
            with suppress(OSError):
                os.unlink(draft)
        if scan.missed:
            some = ", ".join(map(os.fsdecode, scan.missed[:3]))
            more = f" and {len(scan.missed) - 3} more" if len(scan.missed) > 3 else ""
            yield f"Snapshots do not cover {some}{more}: too large or unreadable."


def first_missing(path: bytes) -> bytes:
    """Return the outermost part of a path that is missing, or the path itself."""
    folder = os.path.dirname(path)
    while folder != path and not os.path.lexists(folder):
        path, folder = folder, os.path.dirname(folder)
    return path


def _file(scan: Scan, path: bytes) -> Root | None:
    """Cover a file, or its absence; a folder only as far as other folders are covered."""
    whole = not os.path.isdir(path) or os.path.islink(path)
    if path.count(b"/") <= SHALLOW and not whole:
        return None
    root = scan.root(path, "whole" if whole else "work")
    return Root(root.path, root.node, True)
