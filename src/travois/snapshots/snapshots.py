"""The snapshots of a workspace: taking, finding, comparing and restoring them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from travois.core.content import extract_text
from travois.core.facts import Changed, Ended, Entry, User
from travois.core.view import keep_live_entries
from travois.lazy_imports import lazy_imports
from travois.ports.world import SnapshotTaken
from travois.sessions.home import find_verified_repository
from travois.snapshots.before_call import AFTER_TURN
from travois.snapshots.tree import (
    DiskState,
    PathChange,
    Snapshot,
    SnapshotNode,
    find_changes,
    is_below_folder,
)

if TYPE_CHECKING:
    from travois.snapshots.database import SnapshotDatabase
    from travois.snapshots.restore import RestoreOutcome
    from travois.snapshots.take import (
        SnapshotLimits,
        SnapshotRequest,
        SnapshotWorker,
        TakenSnapshot,
        WatchedTree,
    )

with lazy_imports():
    from travois.snapshots import database, scan
    from travois.snapshots import restore as snapshots_restore
    from travois.snapshots import take as snapshots_take


LARGE_TREE_NAMES = 5_000
"""A tree with more names than this is scanned in a worker process."""
PREPARE_DELAY_SECONDS = 0.05
"""The first command starts undisturbed: loading what a scan needs takes as long as that does."""
GIT_INDEX_HEADER = struct.Struct(">4sII")


class Snapshots:
    """The snapshots of a project. `tell` gets notices for the user, in the event loop.

    Nothing in `own`, the folders of Travois besides its home, is part of a snapshot.
    """

    def __init__(
        self,
        home: Path,
        key: str,
        *,
        folders: Iterable[str],
        tell: Callable[[str], None] = lambda text: None,
        limits: SnapshotLimits | None = None,
        own: Iterable[str] = (),
    ) -> None:
        self._path = home / "snapshots" / f"{key}.db"
        self._own = tuple(os.fsencode(os.path.realpath(path)) for path in (home, *own))
        self._folders = tuple(_outermost_folders(folders))
        self._tell = tell
        self._limits = limits
        self._tree: WatchedTree | None = None
        self._worker: SnapshotWorker | None = None
        self._preparation: Timer | None = None
        self._choosing = Lock()
        self._large: bool | None = None
        self._told: set[str] = set()
        self._left_out: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Start to scan the workspace, if it is so large that this takes a while."""
        if self._large is None and self._worker is None and self._preparation is None:
            self._preparation = Timer(PREPARE_DELAY_SECONDS, self._prepare_tree)
            self._preparation.daemon = True
            self._preparation.start()

    def _prepare_tree(self) -> None:
        self._get_tree()  # loads its modules here, so that no edit waits for them
        if self._is_large() and (worker := self._get_worker()) is not None:
            with suppress(OSError):  # the first snapshot will report the error
                worker.prepare(self._build_request(""))

    async def snapshot_workspace(
        self,
        *,
        why: str,
        also: tuple[str, ...] = (),
        files: tuple[str, ...] = (),
        heed: Callable[[int], None] | None = None,
    ) -> SnapshotTaken:
        """Take a snapshot of the workspace, of everything in some paths, and of single files.

        `heed` gets the number of visited files, if it takes a while. Raises OSError.
        """
        wanted = self._build_request(
            why, also=map(os.fsencode, also), files=map(os.fsencode, files)
        )
        tell = partial(anyio.from_thread.run_sync, heed) if heed is not None else None
        taken = await anyio.to_thread.run_sync(
            lambda: self._take_snapshot(wanted, tell), abandon_on_cancel=True
        )
        self._report_remarks(taken.remarks)
        self._left_out = taken.left_out
        return SnapshotTaken(taken.name, taken.uncovered)

    async def snapshot_files(
        self, paths: Iterable[str], *, why: str
    ) -> tuple[str, tuple[str, ...]]:
        """Save these files as they are, or the fact that they are missing, and nothing else.

        Returns the snapshot's name and the paths that it covers. Raises OSError.
        """
        files = tuple(
            dict.fromkeys(snapshots_take.find_first_missing(os.fsencode(path)) for path in paths)
        )
        taken = await anyio.to_thread.run_sync(lambda: self.take_files(why, files))
        self._report_remarks(taken.remarks)
        return taken.name, tuple(map(os.fsdecode, files))

    def _report_remarks(self, remarks: Iterable[str]) -> None:
        for remark in remarks:
            if remark not in self._told:
                self._told.add(remark)
                self._tell(remark)

    def _take_snapshot(
        self, request: SnapshotRequest, heed: Callable[[int], None] | None
    ) -> TakenSnapshot:
        if self._is_large() and (worker := self._get_worker()) is not None:
            return worker.take(request, heed or (lambda count: None))
        taken = self._get_tree().take(request)
        self._get_tree().save_seen()
        self._large = taken.count > LARGE_TREE_NAMES
        return taken

    def take(
        self,
        why: str,
        also: Iterable[bytes] = (),
        remarks: list[str] | None = None,
        files: Iterable[bytes] = (),
    ) -> str:
        """Take a snapshot of the workspace, at once and in this process."""
        taken = self._get_tree().take(self._build_request(why, also=also, files=files))
        self._get_tree().save_seen()
        if remarks is not None:
            remarks += taken.remarks
        return taken.name

    def take_files(self, why: str, files: Iterable[bytes]) -> TakenSnapshot:
        """Save these files alone."""
        return self._get_tree().take(replace(self._build_request(why, files=files), folders=()))

    def _build_request(
        self, why: str, also: Iterable[bytes] = (), files: Iterable[bytes] = ()
    ) -> snapshots_take.SnapshotRequest:
        return snapshots_take.SnapshotRequest(why, self._folders, tuple(also), tuple(files))

    def _get_tree(self) -> snapshots_take.WatchedTree:
        if self._tree is None:
            limits = self._limits or snapshots_take.SnapshotLimits()
            self._tree = snapshots_take.WatchedTree(
                self._path, self._own, limits=limits, listens=False
            )
        return self._tree

    def _get_worker(self) -> snapshots_take.SnapshotWorker | None:
        """Return the worker process for large trees; None where none can be started."""
        with self._choosing:
            if self._worker is None or not self._worker.is_alive:
                try:
                    self._worker = snapshots_take.SnapshotWorker(
                        self._path, self._own, self._limits or snapshots_take.SnapshotLimits()
                    )
                except OSError:
                    self._large = False
                    return None
            return self._worker

    def _is_large(self) -> bool:
        """Return whether scanning the workspace takes longer than starting a process for it."""
        if self._large is None:
            count = sum(_count_tracked_files(folder) for folder in self._folders)
            for folder in self._folders if count <= LARGE_TREE_NAMES else ():
                count += _count_names(folder, LARGE_TREE_NAMES - count)
            self._large = count > LARGE_TREE_NAMES
        return self._large

    def list_uncovered(self) -> tuple[str, ...]:
        """Return the existing paths of the workspace that are not covered, without a new scan."""
        named = (
            os.path.join(folder, name)
            for folder in self._folders
            for name in scan.REBUILDABLE_FOLDERS
        )
        known = dict.fromkeys((*map(os.fsdecode, named), *self._left_out))
        return tuple(path for path in known if os.path.lexists(path))

    def close(self) -> None:
        """End the worker process, if there is one."""
        if self._preparation is not None:
            self._preparation.cancel()
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def add_folders(self, paths: Iterable[bytes]) -> None:
        """Cover these folders too, wherever this session began."""
        self._folders = tuple(dict.fromkeys((*self._folders, *paths)))

    def find(self, name: str) -> Snapshot | None:
        """Return the snapshot of that name; None if it was removed."""
        with self._open() as database:
            return database.find(name)

    def compare(self, old: Iterable[Snapshot], new: Iterable[Snapshot]) -> list[PathChange]:
        """Return the differences between two sets of snapshots."""
        with self._open() as database:
            return list(find_changes(DiskState(database, old), DiskState(database, new)))

    def restore(self, wanted: list[PathChange]) -> RestoreOutcome:
        """Apply these changes to the disk."""
        with self._open() as database, database.block_pruning():
            return snapshots_restore.restore_changes(database, wanted)

    def _open(self) -> AbstractContextManager[SnapshotDatabase]:
        # Late, since it loads sqlite3: most sessions start without a look at their snapshots.
        return database.open_snapshot_database(self._path)

    def read_content(self, node: SnapshotNode | None) -> bytes:
        """Return a file's content or a link's target; empty for one that could not be read."""
        if node is None or node.is_folder:
            return b""
        with self._open() as database, suppress(KeyError):
            return b"".join(node.parts if node.is_link else map(database.get, node.parts))
        return b""


def _outermost_folders(folders: Iterable[str]) -> Iterator[bytes]:
    """Yield the folders to snapshot that lie in no other one, with their git repositories."""
    found: dict[bytes, None] = {}
    for folder in map(os.path.realpath, folders):
        top, git = find_verified_repository(folder)
        found |= dict.fromkeys(os.fsencode(path) for path in (folder, top, git) if path)
    for path in found:
        if not any(is_below_folder(path, other) for other in found):
            yield path


def _count_tracked_files(folder: bytes) -> int:
    """Count the files that git tracks in a folder to snapshot, by its index header."""
    try:
        with open(folder + b"/.git/index", "rb") as file:
            magic, _, count = GIT_INDEX_HEADER.unpack(file.read(GIT_INDEX_HEADER.size))
            return count if magic == b"DIRC" else 0
    except (OSError, struct.error):
        return 0


def _count_names(folder: bytes, most: int) -> int:
    """Count the names in a folder to snapshot, up to a few more than `most`."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > most:
            break
    return count


# The snapshots of each turn, derived from the log alone.


SNAPSHOT_FACT = "snapshot"
"""The key of the facts that record a snapshot."""
AFTER_REWIND = "after a rewind"
BEFORE_REWIND = "before a rewind"
"""The reasons of snapshots around a rewind, which matter later."""
NO_SNAPSHOT = "-"
"""In place of a snapshot's name, where only the conversation is rewound."""


class ConversationTurn(msgspec.Struct, frozen=True):
    """A user message; the conversation before it ends with entry `before`."""

    number: int
    before: int
    at: float
    text: str


class SnapshotMark(msgspec.Struct, frozen=True):
    """A snapshot and its place in the log."""

    seq: int
    ended: int
    """The number of turns that had ended before it."""
    name: str
    why: str

    @property
    def is_last_of_turn(self) -> bool:
        """True if the harness changed nothing from here to the next one."""
        return self.why in (AFTER_TURN, AFTER_REWIND)


def build_snapshot_fact(name: str, why: str) -> Changed:
    """Build the log fact that a snapshot was taken here."""
    return Changed(SNAPSHOT_FACT, f"{name} {why}")


def list_turns(entries: Iterable[Entry]) -> list[ConversationTurn]:
    """Return the user messages that one can rewind to."""
    found: list[ConversationTurn] = []
    ended = 0
    for entry in keep_live_entries(list(entries)):
        match entry.fact:
            case User(origin="human", content=content):
                before = ended or entry.seq - 1
                found.append(
                    ConversationTurn(len(found) + 1, before, entry.at, extract_text(content))
                )
                ended = 0
            case Ended():
                ended = entry.seq
            case _:
                pass
    return found


def list_snapshot_marks(entries: Iterable[Entry]) -> list[SnapshotMark]:
    """Return the snapshots in the log that were not rewound."""
    found: list[SnapshotMark] = []
    ended = 0
    for entry in keep_live_entries(list(entries)):
        match entry.fact:
            case Ended():
                ended += 1
            case Changed(what="snapshot", value=value):
                name, _, why = value.partition(" ")
                found += [SnapshotMark(entry.seq, ended, name, why)] if name != NO_SNAPSHOT else []
            case _:
                pass
    return found


def has_pause_between(one: SnapshotMark, other: SnapshotMark) -> bool:
    """Return whether others may have changed files between two snapshots, outside any turn."""
    return one.is_last_of_turn or one.ended != other.ended
