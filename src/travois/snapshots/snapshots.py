"""What the workspace was like at moments that one may want to go back to."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

import anyio.from_thread
import anyio.to_thread
import msgspec

from travois.core.content import words
from travois.core.facts import Changed, Ended, Entry, User
from travois.core.view import living
from travois.ports.world import Kept
from travois.sessions.home import verified_repository
from travois.snapshots.before_call import ENDED
from travois.snapshots.tree import Change, Node, Snapshot, State, changes, within

if TYPE_CHECKING:
    from travois.ports.world import Kept
    from travois.snapshots.restore import Outcome
    from travois.snapshots.take import Limits, Taken, Tree, Wanted
    from travois.snapshots.worker_client import Worker


LARGE = 5_000
"""A tree of more names than this is looked at in a process of its own."""
INDEX = struct.Struct(">4sII")


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
        self._limits = limits
        self._tree: Tree | None = None
        self._worker: Worker | None = None
        self._choosing = Lock()
        self._large: bool | None = None
        self._told: set[str] = set()
        self._left_out: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Begin to look at the workspace, if it is so large that this takes a while."""
        if self._large is None and self._worker is None:
            Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        self._here()  # an edit need not wait for what it takes to be loaded
        if self._is_large() and (worker := self._started()) is not None:
            with suppress(OSError):  # then the first snapshot says so
                worker.prepare(self._wanted(""))

    async def keep(
        self,
        *,
        why: str,
        also: tuple[str, ...] = (),
        files: tuple[str, ...] = (),
        heed: Callable[[int], None] | None = None,
    ) -> Kept:
        """Take a snapshot of the workspace, of all that is in some paths, and of single files.

        `heed` hears how many files were looked at, if it takes a while. Raises OSError.
        """
        wanted = self._wanted(why, also=map(os.fsencode, also), files=map(os.fsencode, files))
        tell = partial(anyio.from_thread.run_sync, heed) if heed is not None else None
        taken = await anyio.to_thread.run_sync(
            lambda: self._taken(wanted, tell), abandon_on_cancel=True
        )
        self._remark(taken.remarks)
        self._left_out = taken.left_out
        return Kept(taken.name, taken.uncovered)

    async def keep_files(self, paths: Iterable[str], *, why: str) -> tuple[str, tuple[str, ...]]:
        """Save these files as they are, or that they are not there, and nothing else.

        Returns the snapshot's name and the paths that it covers. Raises OSError.
        """
        from travois.snapshots.take import first_missing

        files = tuple(dict.fromkeys(first_missing(os.fsencode(path)) for path in paths))
        taken = await anyio.to_thread.run_sync(lambda: self.take_files(why, files))
        self._remark(taken.remarks)
        return taken.name, tuple(map(os.fsdecode, files))

    def _remark(self, remarks: Iterable[str]) -> None:
        for remark in remarks:
            if remark not in self._told:
                self._told.add(remark)
                self._tell(remark)

    def _taken(self, wanted: Wanted, heed: Callable[[int], None] | None) -> Taken:
        if self._is_large() and (worker := self._started()) is not None:
            return worker.take(wanted, heed or (lambda count: None))
        taken = self._here().take(wanted)
        self._here().remember()
        self._large = taken.count > LARGE
        return taken

    def take(
        self,
        why: str,
        also: Iterable[bytes] = (),
        remarks: list[str] | None = None,
        files: Iterable[bytes] = (),
    ) -> str:
        """Take a snapshot of the workspace, at once and in this process."""
        taken = self._here().take(self._wanted(why, also=also, files=files))
        self._here().remember()
        if remarks is not None:
            remarks += taken.remarks
        return taken.name

    def take_files(self, why: str, files: Iterable[bytes]) -> Taken:
        """Save these files alone."""
        from travois.snapshots.take import Wanted

        return self._here().take(Wanted(why, files=tuple(files)))

    def _wanted(self, why: str, also: Iterable[bytes] = (), files: Iterable[bytes] = ()) -> Wanted:
        from travois.snapshots.take import Wanted

        return Wanted(why, self._folders, tuple(also), tuple(files))

    def _here(self) -> Tree:
        from travois.snapshots.take import Limits, Tree

        if self._tree is None:
            limits = self._limits or Limits()
            self._tree = Tree(self._path, self._own, limits=limits, listens=False)
        return self._tree

    def _started(self) -> Worker | None:
        """The process that looks at large trees; none where none can be started."""
        from travois.snapshots.take import Limits
        from travois.snapshots.worker_client import Worker

        with self._choosing:
            if self._worker is None or not self._worker.alive:
                try:
                    self._worker = Worker(self._path, self._own, self._limits or Limits())
                except OSError:
                    self._large = False
                    return None
            return self._worker

    def _is_large(self) -> bool:
        """Whether to look at the workspace takes longer than to start a process for it."""
        if self._large is None:
            count = sum(_tracked_files(folder) for folder in self._folders)
            for folder in self._folders if count <= LARGE else ():
                count += _count(folder, LARGE - count)
            self._large = count > LARGE
        return self._large

    def left_out(self) -> tuple[str, ...]:
        """What is there in the workspace and not covered, as far as is known without a look."""
        from travois.snapshots.scan import AGAIN

        named = (os.path.join(folder, name) for folder in self._folders for name in AGAIN)
        known = dict.fromkeys((*map(os.fsdecode, named), *self._left_out))
        return tuple(path for path in known if os.path.lexists(path))

    def close(self) -> None:
        """End the process that looks at large trees, if there is one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def cover(self, paths: Iterable[bytes]) -> None:
        """Take these folders into account too, wherever this began."""
        self._folders = tuple(dict.fromkeys((*self._folders, *paths)))

    def find(self, name: str) -> Snapshot | None:
        """The snapshot of that name; None if it was dropped."""
        from travois.snapshots.database import opened

        with opened(self._path) as shelf:
            return shelf.find(name)

    def compare(self, old: Iterable[Snapshot], new: Iterable[Snapshot]) -> list[Change]:
        """What differs between what some snapshots say and what others say."""
        from travois.snapshots.database import opened

        with opened(self._path) as shelf:
            return list(changes(State(shelf, old), State(shelf, new)))

    def restore(self, wanted: list[Change]) -> Outcome:
        """Make these changes on the disk."""
        from travois.snapshots.database import opened
        from travois.snapshots.restore import restore

        with opened(self._path) as shelf, shelf.undisturbed():
            return restore(shelf, wanted)

    def content(self, node: Node | None) -> bytes:
        """The bytes of a file, or where a link leads; nothing for one that could not be read."""
        from travois.snapshots.database import opened

        if node is None or node.folder:
            return b""
        with opened(self._path) as shelf, suppress(KeyError):
            return b"".join(node.parts if node.link else map(shelf.get, node.parts))
        return b""


def _outermost(folders: Iterable[str]) -> Iterator[bytes]:
    """The folders that lie in no other one, with the repositories that they are part of."""
    found: dict[bytes, None] = {}
    for folder in map(os.path.realpath, folders):
        top, git = verified_repository(folder)
        found |= dict.fromkeys(os.fsencode(path) for path in (folder, top, git) if path)
    for path in found:
        if not any(within(path, other) for other in found):
            yield path


def _tracked_files(folder: bytes) -> int:
    """How many files git tracks in a folder, as far as its index says at once."""
    try:
        with open(folder + b"/.git/index", "rb") as file:
            magic, _, count = INDEX.unpack(file.read(INDEX.size))
            return count if magic == b"DIRC" else 0
    except (OSError, struct.error):
        return 0


def _count(folder: bytes, most: int) -> int:
    """How many names are in a folder, or a few more than so many."""
    count = 0
    for _, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > most:
            break
    return count


# Which snapshots belong to which turn, told from the log alone.


WHAT = "snapshot"
"""What the facts are called that say: here a snapshot was taken."""
REWOUND = "after a rewind"
REWINDING = "before a rewind"
"""Why a snapshot was taken, where that matters later."""
NONE = "-"
"""In place of a name, where only the conversation goes back."""


class Turn(msgspec.Struct, frozen=True):
    """Something that a person said; the conversation before it ends with entry `before`."""

    number: int
    before: int
    at: float
    text: str


class Mark(msgspec.Struct, frozen=True):
    """A snapshot and its place in the log."""

    seq: int
    ended: int
    """How many turns had ended before it."""
    name: str
    why: str

    @property
    def last(self) -> bool:
        """Whether the harness changed nothing from here to the next one."""
        return self.why in (ENDED, REWOUND)


def marked(name: str, why: str) -> Changed:
    """The fact that a snapshot was taken here."""
    return Changed(WHAT, f"{name} {why}")


def turns(entries: Iterable[Entry]) -> list[Turn]:
    """What people have said, as far as it still stands."""
    found: list[Turn] = []
    ended = 0
    for entry in living(list(entries)):
        match entry.fact:
            case User(origin="human", content=content):
                before = ended or entry.seq - 1
                found.append(Turn(len(found) + 1, before, entry.at, words(content)))
                ended = 0
            case Ended():
                ended = entry.seq
            case _:
                pass
    return found


def marks(entries: Iterable[Entry]) -> list[Mark]:
    """The snapshots that were taken on the way to what stands."""
    found: list[Mark] = []
    ended = 0
    for entry in living(list(entries)):
        match entry.fact:
            case Ended():
                ended += 1
            case Changed(what="snapshot", value=value):
                name, _, why = value.partition(" ")
                found += [Mark(entry.seq, ended, name, why)] if name != NONE else []
            case _:
                pass
    return found


def is_pause(one: Mark, other: Mark) -> bool:
    """Whether others may have changed files between two marks: no turn ran, or one crashed."""
    return one.last or one.ended != other.ended
