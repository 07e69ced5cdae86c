"""What the workspace was like at moments that one may want to go back to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from errno import EFBIG
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec

from travois.store.project import repository
from travois.store.snapshot.node import Change, Node, Root, Snapshot, State, changes, within

if TYPE_CHECKING:
    from travois.store.snapshot.restore import Outcome
    from travois.store.snapshot.shelf import Seen, Shelf

ROOM = 1 << 30
"""How many bytes the snapshots of one project take at most."""
COUNT = 500
SHALLOW = 1
"""A path with no more slashes than this is part of the system: too much to cover."""


class Limits(msgspec.Struct, frozen=True):
    """How much may be kept for one project."""

    room: int = ROOM
    count: int = COUNT


class Snapshots:
    """The snapshots of one project. `tell` gets what the user should know, in the event loop."""

    def __init__(
        self,
        home: Path,
        key: str,
        *,
        folders: Iterable[str],
        tell: Callable[[str], None] = lambda text: None,
        limits: Limits | None = None,
    ) -> None:
        self._path = home / "snapshots" / f"{key}.db"
        self._own = os.fsencode(os.path.realpath(home))
        self._folders = tuple(_outermost(folders))
        self._tell = tell
        self._limits = limits or Limits()
        self._busy = Lock()
        self._seen: dict[bytes, Seen] = {}
        self._age = 0
        self._told: set[str] = set()

    async def keep(self, *, why: str, also: tuple[str, ...] = ()) -> str:
        """Take a snapshot of the workspace, and of all that is in the paths given besides.

        Returns its name: that of the last one, if nothing has changed. Raises OSError.
        """
        remarks: list[str] = []
        paths = tuple(map(os.fsencode, also))
        try:
            return await anyio.to_thread.run_sync(lambda: self.take(why, paths, remarks))
        finally:
            for remark in remarks:
                if remark not in self._told:
                    self._told.add(remark)
                    self._tell(remark)

    def take(self, why: str, also: Iterable[bytes] = (), remarks: list[str] | None = None) -> str:
        """The same, at once; what the user should know is added to the remarks."""
        from travois.store.snapshot.shelf import opened

        told = remarks if remarks is not None else []
        with self._busy, opened(self._path) as shelf:
            if self._age != shelf.age():
                self._age, self._seen = shelf.age(), shelf.seen()
            self._age, age = 0, self._age  # nothing seen counts if this is not carried through
            roots = self._roots(shelf, tuple(also), told)
            last = next(shelf.newest(), None)
            if last is not None and roots == last.roots:
                name = last.name
            else:
                name = os.urandom(6).hex()
                shelf.add(Snapshot(name, time.time(), why, roots))
            gone = shelf.prune(limit=self._limits.room, count=self._limits.count)
            if gone:
                told.append(f"The {gone} oldest snapshots were dropped to make room.")
        self._age = 0 if gone else age
        return name

    def _roots(self, shelf: Shelf, also: tuple[bytes, ...], told: list[str]) -> tuple[Root, ...]:
        from travois.store.snapshot.scan import Bounds, Scan

        scan = Scan(shelf, self._seen, Bounds(self._own, self._limits.room, time.time_ns()))
        roots = [scan.root(path, "work") for path in self._folders]
        for path in map(os.path.normpath, also):
            inside = any(within(path, folder) for folder in self._folders)
            try:
                if os.path.lexists(path) or not inside:
                    roots.append(scan.root(self._bearable(path), "whole"))
            except OSError as error:
                told.append(f"Snapshots do not cover {os.fsdecode(path)}: {error.strerror}.")
        for draft in scan.drafts:
            with suppress(OSError):
                os.unlink(draft)
        if scan.missed:
            some = ", ".join(map(os.fsdecode, scan.missed[:3]))
            more = f" and {len(scan.missed) - 3} more" if len(scan.missed) > 3 else ""
            told.append(f"Snapshots do not cover {some}{more}: too large, or not readable.")
        return tuple(dict.fromkeys(roots))

    def _bearable(self, path: bytes) -> bytes:
        holds = any(within(folder, path) for folder in (*self._folders, self._own))
        if holds or (path.count(b"/") <= SHALLOW and path not in self._folders):
            raise OSError(EFBIG, "it is too much", path)
        return path

    def cover(self, paths: Iterable[bytes]) -> None:
        """Take these folders into account too, wherever this began."""
        self._folders = tuple(dict.fromkeys((*self._folders, *paths)))

    def find(self, name: str) -> Snapshot | None:
        """The snapshot of that name; None if it was dropped."""
        from travois.store.snapshot.shelf import opened

        with opened(self._path) as shelf:
            return shelf.find(name)

    def compare(self, old: Iterable[Snapshot], new: Iterable[Snapshot]) -> list[Change]:
        """What differs between what some snapshots say and what others say."""
        from travois.store.snapshot.shelf import opened

        with opened(self._path) as shelf:
            return list(changes(State(shelf, old), State(shelf, new)))

    def restore(self, wanted: list[Change]) -> Outcome:
        """Make these changes on the disk."""
        from travois.store.snapshot.restore import restore
        from travois.store.snapshot.shelf import opened

        with self._busy, opened(self._path) as shelf:
            return restore(shelf, wanted)

    def content(self, node: Node | None) -> bytes:
        """The bytes of a file, or where a link leads."""
        from travois.store.snapshot.shelf import opened

        if node is None or node.folder:
            return b""
        with opened(self._path) as shelf:
            return b"".join(node.parts if node.link else map(shelf.get, node.parts))


def _outermost(folders: Iterable[str]) -> Iterator[bytes]:
    """The folders that lie in no other one, with the repositories that they are part of."""
    found: dict[bytes, None] = {}
    for folder in map(os.path.realpath, folders):
        top, git = repository(folder)
        found |= dict.fromkeys(os.fsencode(path) for path in (folder, top, git) if path)
    for path in found:
        if not any(within(path, other) for other in found):
            yield path
