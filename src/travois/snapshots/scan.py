"""Scanning folders for a snapshot: one look at each name, and a read only of what has changed."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from errno import EFBIG
from struct import Struct
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.snapshots.database import PIECE, Seen, Shelf, named
from travois.snapshots.git_index import LOOSE, PACK, Tracked, hold
from travois.snapshots.tree import BLOB, HOLE, Node, Root

# Folders that have changed since their last scan, reported by inotify.


MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW = 0x400, 0x800, 0x2000, 0x4000
IGNORED, ONLY_FOLDER, NO_FOLLOW, IS_FOLDER = 0x8000, 0x1000000, 0x2000000, 0x40000000
CHANGED = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
WATCHED = CHANGED | DELETE_SELF | MOVE_SELF | ONLY_FOLDER | NO_FOLLOW
EVENT = Struct("iIII")
SHARE = 2
"""The fraction of the user's inotify watches for us at most."""
LOCAL = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E)
)
"""ext, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs: not changed by other machines."""


class Unheard(Exception):
    """Changes may have been missed."""


class Watch:
    """Folders watched by inotify. Raises OSError where it is not available."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError("inotify is not available")
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._paths: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        self._most = _allowed() // SHARE
        self._local: dict[int, bool] = {}
        self._doubted: set[bytes] = set()
        self.dirty: set[bytes] = set()
        """Folders in which something changed, with all folders above them."""

    def close(self) -> None:
        """Stop watching all folders."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def add(self, folder: bytes) -> None:
        """Watch a folder. Raises `MissedEvents`."""
        if len(self._paths) >= self._most or not self._is_local(folder):
            raise Unheard
        number = self._libc.inotify_add_watch(self._fd, folder, WATCHED)
        if number < 0 or self._paths.get(number, folder) != folder:
            raise Unheard  # too many watches, a missing folder, or one folder at two paths
        self._paths[number], self._numbers[folder] = folder, number

    def is_clean(self, folder: bytes) -> bool:
        """Return whether nothing has changed in a folder, nor below it, since it was watched."""
        return folder in self._numbers and folder not in self.dirty

    def read(self) -> None:
        """Read the changes up to now. Raises `MissedEvents`."""
        while True:
            try:
                data = os.read(self._fd, 1 << 18)
            except BlockingIOError:
                return
            except OSError as error:
                raise Unheard from error
            at = 0
            while at < len(data):
                number, mask, _, length = EVENT.unpack_from(data, at)
                at += EVENT.size + length
                self._note(number, mask)

    def doubt(self, folder: bytes, *, holds: bool) -> None:
        """Set whether a folder must be scanned each time, because inotify misses its changes."""
        (self._doubted.add if holds else self._doubted.discard)(folder)

    def settle(self) -> None:
        """Forget the changes: they were scanned."""
        self.dirty.clear()
        for folder in self._doubted:
            self._soil(folder)

    def _note(self, number: int, mask: int) -> None:
        """Mark the folder of one event as changed. Raises `MissedEvents`."""
        moved = mask & MOVE_SELF or (mask & IS_FOLDER and mask & MOVED_FROM)
        if mask & (OVERFLOW | UNMOUNT) or moved:
            raise Unheard
        path = self._paths.get(number)
        if path is None:
            return
        if mask & (IGNORED | DELETE_SELF):
            self._paths.pop(number)
            self._numbers.pop(path, None)
        self._soil(path)

    def _soil(self, path: bytes) -> None:
        while path and path not in self.dirty:
            self.dirty.add(path)
            path = path.rpartition(b"/")[0]

    def _is_local(self, folder: bytes) -> bool:
        device = os.lstat(folder).st_dev
        if device not in self._local:
            self._local[device] = _kind_of_system(self._libc, folder) in LOCAL
        return self._local[device]


def _kind_of_system(libc: ctypes.CDLL, path: bytes) -> int:
    found = ctypes.create_string_buffer(256)
    if libc.statfs(path, found):
        return 0
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], "little") & 0xFFFFFFFF


def _allowed() -> int:
    """Return the number of folders that a user may watch."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


BIG = 64 << 20
"""Files over this many bytes are covered only where a command is about to destroy them."""
MANY = 500_000
"""A folder with more names than this counts as too large to cover."""
AGAIN = frozenset(
    b"node_modules bower_components __pycache__ .venv .tox .nox .gradle .next .nuxt .terraform"
    b" .parcel-cache .pytest_cache .mypy_cache .ruff_cache .eggs".split()
)
TAGS = frozenset((b"CACHEDIR.TAG", b"pyvenv.cfg"))
"""Files that mark their folder as one that can be rebuilt."""
DRAFT = b".travois-restoring-"
"""The prefix of the name of a half restored file."""
FEW = 300
"""The changed files after which git's index is consulted instead of reading more."""
RACY = 50_000_000
"""A file that changed within so many nanoseconds may change again and look the same."""
TRIES = 5
UNREAD = b"unread "
"""The prefix of the stand-in for unreadable content: nothing is stored under its name."""

Extent = Literal["work", "whole"]
"""Whether to leave out what can be rebuilt or is big."""


class Bounds(msgspec.Struct, frozen=True):
    """The limits of one scan, and the folder that is never scanned: our own."""

    own: bytes
    room: int
    begun: int
    """The time of its start, in nanoseconds."""
    heed: Callable[[int], None] = lambda count: None
    """Called with the number of visited names; may raise to stop the scan."""


class Scan:
    """One scan of folders. Paths that it could not cover are in `missed`."""

    def __init__(
        self,
        shelf: Shelf,
        seen: dict[bytes, Seen],
        bounds: Bounds,
        *,
        tracked: Tracked | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._shelf = shelf
        self._seen = seen
        self._bounds = bounds
        self._tracked = tracked
        self.watch = watch
        """None once changes may have been missed."""
        self._room = bounds.room
        self._unknown = self.count = 0
        self._held: dict[bytes, dict[bytes, Node]] = {}
        """Files that git holds if their blobs turn out to be their contents, by folder and name."""
        self._inner: dict[bytes, list[bytes]] = {}
        """The paths of the folders in each folder."""
        self._unchanged: dict[bytes, Node] = {}
        self.fresh: dict[bytes, Seen] = {}
        """Folders that have changed."""
        self.missed: list[bytes] = []
        self.left_out: list[bytes] = []
        """Folders that are not covered because they can be rebuilt or are on another disk."""
        self.drafts: list[bytes] = []
        """Files that a killed restore has left behind."""

    def root(self, path: bytes, extent: Extent) -> Root:
        """Scan a path and everything in it. Raises OSError where there is too much."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return Root(path, None, extent == "whole")
        folder, _, name = path.rpartition(b"/")
        if not stat.S_ISDIR(found.st_mode):
            return Root(path, self._leaf(folder, name, extent), extent == "whole")
        if self._is_unchanged(path, extent):
            return Root(path, self._seen[path].node)
        listed = self._walk(path, extent)
        names = dict(self._unchanged)
        for inner in reversed(listed):
            names[inner] = self._folder(inner, listed[inner], extent=extent, below=names)
        return Root(path, names[path], extent == "whole")

    def _is_unchanged(self, folder: bytes, extent: Extent) -> bool:
        """Return whether inotify reported no change in a folder since it was scanned."""
        heard = extent == "work" and self.watch is not None and self.watch.is_clean(folder)
        return heard and folder in self._seen

    def _walk(self, top: bytes, extent: Extent) -> dict[bytes, dict[bytes, int] | None]:
        """Return the marks of all names in all folders, outer first; None for those left out."""
        device = os.lstat(top).st_dev
        listed: dict[bytes, dict[bytes, int] | None] = {}
        waiting, count, weight = [top], 0, 0
        while waiting:
            folder = waiting.pop()
            entries, marks = self._look(folder, extent)
            again = extent == "work" and folder != top and not TAGS.isdisjoint(marks or ())
            listed[folder] = None if again else marks
            if listed[folder] is None:
                self._seen.pop(folder, None)
                self.left_out += [folder] if again else []
            count += len(entries)
            if extent == "whole":
                weight += sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            if count > MANY or weight > self._bounds.room // 4:
                raise OSError(
                    EFBIG, "it contains too many files or too much data", os.fsdecode(top)
                )
            inner = [] if again else [e for e in entries if e.is_dir(follow_symlinks=False)]
            self._inner[folder] = [entry.path for entry in inner]
            for entry in inner:
                if self._left_out(entry, device, extent):
                    listed[entry.path] = None
                    self.left_out.append(entry.path)
                elif self._is_unchanged(entry.path, extent):
                    self._unchanged[entry.path] = self._seen[entry.path].node
                else:
                    waiting.append(entry.path)
        return listed

    def _look(
        self, folder: bytes, extent: Extent
    ) -> tuple[list[os.DirEntry[bytes]], dict[bytes, int] | None]:
        """Return the names in a folder, each with a mark that changes when the file does."""
        self._listen(folder, extent)
        for _ in range(TRIES):
            try:
                with os.scandir(folder) as found:
                    entries = list(found)
                marks = self._marks(folder, entries)
            except FileNotFoundError:
                continue  # a name vanished between listing and lstat
            except OSError:
                break
            self.count += len(entries)
            self._bounds.heed(self.count)
            if self._tracked is not None and b".gitattributes" in marks:
                self._tracked.see_attributes(folder + b"/.gitattributes")
            return entries, marks
        self.missed.append(folder)
        return [], None

    def _listen(self, folder: bytes, extent: Extent) -> None:
        if self.watch is not None and extent == "work":
            try:
                self.watch.add(folder)
                self.watch.doubt(folder, holds=False)
            except (Unheard, OSError):
                self.watch = None

    def _marks(self, folder: bytes, entries: list[os.DirEntry[bytes]]) -> dict[bytes, int]:
        """Return a mark of each entry's state, and note the files that git may hold."""
        known = self._seen.get(folder)
        before = known.marks if known is not None else {}
        marks: dict[bytes, int] = {}
        unknown: list[tuple[bytes, os.stat_result]] = []
        for entry in entries:
            found, name = entry.stat(follow_symlinks=False), entry.name
            times = found.st_mtime_ns, found.st_ctime_ns
            marks[name] = mark = hash((found.st_mode, found.st_size, *times, found.st_ino))
            if before.get(name) != mark:
                unknown.append((name, found))
            if found.st_nlink > 1 and self.watch is not None:
                self._doubt(folder, entry)
        self._unknown += len(unknown)
        if unknown and self._tracked is not None and self._unknown > FEW:
            self._consider(folder, unknown, self._tracked)
        return marks

    def _doubt(self, folder: bytes, entry: os.DirEntry[bytes]) -> None:
        """Distrust the watch where a file may be changed through another name, elsewhere."""
        is_object = PACK.fullmatch(entry.path) or LOOSE.fullmatch(entry.path)
        if self.watch is not None and not is_object and entry.is_file(follow_symlinks=False):
            self.watch.doubt(folder, holds=True)

    def _consider(
        self, folder: bytes, files: list[tuple[bytes, os.stat_result]], tracked: Tracked
    ) -> None:
        """Collect the unknown files of a folder that git may hold."""
        if not tracked.loaded:
            tracked.load()
        latest = self._bounds.begun - RACY
        self._held[folder] = {
            name: Node(name, s.st_mode, (s.st_uid, s.st_gid), s.st_size, (BLOB + blob,))
            for name, s, blob in tracked.match(folder, files)
            if s.st_ctime_ns <= latest
        }

    def _left_out(self, entry: os.DirEntry[bytes], device: int, extent: Extent) -> bool:
        if entry.path == self._bounds.own or (extent == "work" and entry.name in AGAIN):
            return True
        return entry.stat(follow_symlinks=False).st_dev != device

    def _folder(
        self,
        path: bytes,
        marks: dict[bytes, int] | None,
        *,
        extent: Extent,
        below: dict[bytes, Node],
    ) -> Node:
        """Build the node of a folder, once those of the folders in it exist."""
        found, name = _stat(path), path.rpartition(b"/")[2]
        if marks is None or found is None:
            return Node(name, stat.S_IFDIR, (0, 0), HOLE)
        folders = tuple(below[inner] for inner in self._inner[path] if inner in below)
        known = self._known(path, extent)
        if known is not None and (known.marks != marks or not known.settled):
            known = None
        empty = Node(name, found.st_mode, _owner(found))
        if (
            known is not None
            and known.folders == folders
            and replace(known.node, size=0, parts=()) == empty
        ):
            return known.node
        leaves = known.leaves if known else self._leaves(path, marks, extent)
        nodes = sorted((*leaves, *folders), key=lambda node: node.name)
        holes = sum(max(node.size, 1) for node in folders if node.holes)
        holes += sum(node.size == HOLE for node in leaves)
        listing = self._put(msgspec.msgpack.encode(nodes), packed=False)
        node = replace(empty, size=holes, parts=(listing,))
        seen, key = Seen(marks, leaves, folders, node), _key(path, extent)
        self._seen[key] = seen
        self.fresh[key] = seen
        if self.watch is not None and extent == "work" and not seen.settled:
            self.watch.doubt(path, holds=True)
        return node

    def _known(self, path: bytes, extent: Extent) -> Seen | None:
        return self._seen.get(_key(path, extent)) or self._seen.get(path)

    def _leaves(self, path: bytes, marks: dict[bytes, int], extent: Extent) -> tuple[Node, ...]:
        """Return the nodes in a folder that are not folders; only changed ones are read."""
        known = self._known(path, extent)
        before = {node.name: node for node in known.leaves if not node.holes} if known else {}
        old = known.marks if known else {}
        same = {name: node for name, node in before.items() if old.get(name) == marks.get(name)}
        held = self._held_in(path)
        if len(held) + len(self._inner[path]) == len(marks):
            return tuple(held.values())
        folders = {inner.rpartition(b"/")[2] for inner in self._inner[path]}
        leaves: list[Node] = []
        for name in list(marks):
            if name in folders or (name.startswith(DRAFT) and self._draft(path, name)):
                continue
            leaf = same.get(name) or held.get(name) or self._leaf(path, name, extent, marks)
            if leaf is not None:
                leaves.append(leaf)
        return tuple(leaves)

    def _held_in(self, folder: bytes) -> dict[bytes, Node]:
        """Return the files in a folder that git holds, byte for byte."""
        found = self._held.get(folder)
        return self._tracked.held(folder, found) if found and self._tracked is not None else {}

    def _draft(self, folder: bytes, name: bytes) -> bool:
        self.drafts.append(b"%s/%s" % (folder, name))
        return True

    def _leaf(
        self, folder: bytes, name: bytes, extent: Extent, marks: dict[bytes, int] | None = None
    ) -> Node | None:
        """Build the node of anything but a folder; None if it is gone."""
        path = b"%s/%s" % (folder.rstrip(b"/"), name)
        found = _stat(path)
        if found is None:
            return None
        if marks is not None and found.st_ctime_ns > self._bounds.begun - RACY:
            marks[name] = 0
        if stat.S_ISLNK(found.st_mode):
            with suppress(OSError):
                return Node(name, found.st_mode, _owner(found), 0, (os.readlink(path),))
        if stat.S_ISREG(found.st_mode):
            return self._file(path, name, found, extent)
        return Node(name, found.st_mode, _owner(found), HOLE)

    def _file(self, path: bytes, name: bytes, found: os.stat_result, extent: Extent) -> Node:
        """Build the node of a file: linked if it is a git object, stored, or a hole."""
        hole = Node(name, found.st_mode, _owner(found), HOLE)
        if PACK.fullmatch(path) or LOOSE.fullmatch(path):
            with suppress(OSError):
                part = hold(self._shelf.objects, path, found.st_size)
                return Node(name, found.st_mode, _owner(found), found.st_size, (part,))
        if (extent == "work" and found.st_size > BIG) or found.st_size > self._room:
            self.missed.append(path)
            return hole
        try:
            return self._read(path, name)
        except OSError:
            self.missed.append(path)
        if found.st_uid != os.geteuid():
            return hole
        # An owner can make an unreadable file readable again: after `chmod 000` a rewind brings
        # back the mode and the content from an earlier snapshot.
        state = f"{found.st_ino} {found.st_size} {found.st_mtime_ns}".encode()
        return Node(name, found.st_mode, _owner(found), found.st_size, (named(UNREAD + state),))

    def _read(self, path: bytes, name: bytes) -> Node:
        """Store the content of a file, read again if it changed meanwhile."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            after, parts = os.fstat(fd), tuple[bytes, ...]()
            for _ in range(TRIES):
                before = after
                parts = tuple(self._put(piece) for piece in _pieces(fd))
                after = os.fstat(fd)
                if (before.st_size, before.st_ctime_ns) == (after.st_size, after.st_ctime_ns):
                    break
            return Node(name, after.st_mode, _owner(after), after.st_size, parts)
        finally:
            os.close(fd)

    def _put(self, content: bytes, *, packed: bool = True) -> bytes:
        self._room -= len(content)
        return self._shelf.put(content, packed=packed)


def _stat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _key(path: bytes, extent: Extent) -> bytes:
    """Return the key of a folder's record: covered with all its contents, it is another record."""
    return path if extent == "work" else path + b"\0whole"


def _owner(found: os.stat_result) -> tuple[int, int]:
    return found.st_uid, found.st_gid


def _pieces(fd: int) -> Iterator[bytes]:
    """Yield the content of an open file in pieces."""
    os.lseek(fd, 0, os.SEEK_SET)
    while True:
        data = b""
        while len(data) < PIECE and (more := os.read(fd, PIECE - len(data))):
            data += more
        if not data:
            return
        yield data
