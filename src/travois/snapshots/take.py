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
"""How many bytes the snapshots of one project take at most."""
COUNT = 2000
SHALLOW = 1
"""A path with no more slashes than this is part of the system: too much to cover."""
TRIES = 3


class Limits(msgspec.Struct, frozen=True):
    """How much may be kept for one project."""

    room: int = ROOM
    count: int = COUNT


class Taken(msgspec.Struct, frozen=True):
    """A snapshot that was taken; its name is empty if it was only prepared."""

    name: str
    remarks: tuple[str, ...] = ()
    """What the user should know."""
    uncovered: tuple[str, ...] = ()
    """Paths that were asked for and are not in it."""
    left_out: tuple[str, ...] = ()
    """What in the workspace is not covered: what can be made again, and what is too large."""
    count: int = 0
    """How many names were looked at."""


class Wanted(msgspec.Struct, frozen=True):
    """What a snapshot shall cover, and why it is taken."""

    why: str
    folders: tuple[bytes, ...] = ()
    also: tuple[bytes, ...] = ()
    """Paths that are covered with all that is in them."""
    files: tuple[bytes, ...] = ()
    """Paths that are covered even if nothing else is."""
    number: int = 0
    """By which the answer of another process is known."""


class Tree:
    """The folders of a project as they were last seen. One snapshot is taken at a time."""

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
        """Folders that are not written down as they are."""
        self._age = 0

    def take(self, wanted: Wanted, *, heed: Callable[[int], None] = lambda count: None) -> Taken:
        """Take a snapshot; the last one counts if nothing has changed. Raises OSError."""
        with self._busy, opened(self._path) as shelf:
            for _ in range(TRIES):
                with suppress(Dropped):
                    return self._take(shelf, wanted, heed)
        raise OSError("snapshots: another session keeps dropping them")

    def remember(self) -> None:
        """Write down what was seen, for the next session. Raises OSError."""
        with self._busy, opened(self._path) as shelf:
            fresh, self._fresh = self._fresh, {}
            if fresh and self._age:
                shelf.remember(fresh, age=self._age)

    def _take(self, shelf: Shelf, wanted: Wanted, heed: Callable[[int], None]) -> Taken:
        age = shelf.age()
        if wanted.folders and self._age != age:
            self._seen, self._fresh = shelf.seen(), {}
            self._hear_nothing()
        if wanted.folders:
            self._age = 0  # nothing seen counts if this is not carried through
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
            remarks.append(f"The {gone} oldest snapshots were dropped to make room.")
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
        """The watch, with all that has changed until now; a new one where it missed something."""
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
        for path in map(os.path.normpath, wanted.also):
            inside = any(within(path, folder) for folder in wanted.folders)
            try:
                if os.path.lexists(path) or not inside:
                    yield scan.root(self._bearable(path, wanted.folders), "whole")
            except OSError as error:
                uncovered.append(os.fsdecode(path))
                remarks.append(f"Snapshots do not cover {os.fsdecode(path)}: {error.strerror}.")

    def _bearable(self, path: bytes, folders: tuple[bytes, ...]) -> bytes:
        holds = any(within(folder, path) for folder in (*folders, self._own))
        if holds or (path.count(b"/") <= SHALLOW and path not in folders):
            raise OSError(EFBIG, "it is too much", path)
        return path

    def _tidied(self, scan: Scan) -> Iterable[str]:
        """Take away what a killed restore has left; says what is not covered."""
        for draft in scan.drafts:
            with suppress(OSError):
                os.unlink(draft)
        if scan.missed:
            some = ", ".join(map(os.fsdecode, scan.missed[:3]))
            more = f" and {len(scan.missed) - 3} more" if len(scan.missed) > 3 else ""
            yield f"Snapshots do not cover {some}{more}: too large, or not readable."


def first_missing(path: bytes) -> bytes:
    """The outermost part of a path that is not there, or the path itself."""
    folder = os.path.dirname(path)
    while folder != path and not os.path.lexists(folder):
        path, folder = folder, os.path.dirname(folder)
    return path


def _file(scan: Scan, path: bytes) -> Root | None:
    """A file, or that nothing is there; a folder only as far as others are covered."""
    whole = not os.path.isdir(path) or os.path.islink(path)
    if path.count(b"/") <= SHALLOW and not whole:
        return None
    root = scan.root(path, "whole" if whole else "work")
    return Root(root.path, root.node, True)
