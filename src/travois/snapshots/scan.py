"""Scanning folders for a snapshot: one look at each name, reading only what has changed."""

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

from travois.snapshots.database import PIECE_BYTES, SeenFolder, SnapshotDatabase, hash_content
from travois.snapshots.git_index import LOOSE_OBJECT_PATH, PACK_PATH, TrackedFiles, hold_object
from travois.snapshots.tree import BLOB_PREFIX, HOLE_SIZE, SnapshotNode, SnapshotRoot

# Folders that have changed since their last scan, reported by inotify.


IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE = 0x2, 0x4, 0x8
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF, IN_UNMOUNT, IN_Q_OVERFLOW = 0x400, 0x800, 0x2000, 0x4000
IN_IGNORED, IN_ONLYDIR, IN_DONT_FOLLOW, IN_ISDIR = 0x8000, 0x1000000, 0x2000000, 0x40000000
CHANGE_EVENTS = (
    IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
)
WATCH_MASK = CHANGE_EVENTS | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW
INOTIFY_EVENT = Struct("iIII")
WATCH_SHARE = 2
"""The fraction of the user's inotify watches for us at most."""
LOCAL_FILE_SYSTEMS = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E)
)
"""ext, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs: not changed by other machines."""


class MissedEvents(Exception):
    """Changes may have been missed."""


class FolderWatch:
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
        self._most = _read_max_watches() // WATCH_SHARE
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
        if len(self._paths) >= self._most or not self._is_local_disk(folder):
            raise MissedEvents
        number = self._libc.inotify_add_watch(self._fd, folder, WATCH_MASK)
        if number < 0 or self._paths.get(number, folder) != folder:
            raise MissedEvents  # too many watches, a missing folder, or one folder at two paths
        self._paths[number], self._numbers[folder] = folder, number

    def is_clean(self, folder: bytes) -> bool:
        """Return whether nothing has changed in a folder, nor below it, since it was watched."""
        return folder in self._numbers and folder not in self.dirty

    def read_events(self) -> None:
        """Read the changes up to now. Raises `MissedEvents`."""
        while True:
            try:
                data = os.read(self._fd, 1 << 18)
            except BlockingIOError:
                return
            except OSError as error:
                raise MissedEvents from error
            at = 0
            while at < len(data):
                number, mask, _, length = INOTIFY_EVENT.unpack_from(data, at)
                at += INOTIFY_EVENT.size + length
                self._handle_event(number, mask)

    def set_doubtful(self, folder: bytes, *, holds: bool) -> None:
        """Set whether a folder must be scanned each time, because inotify misses its changes."""
        (self._doubted.add if holds else self._doubted.discard)(folder)

    def clear_dirty(self) -> None:
        """Forget the changes: they were scanned."""
        self.dirty.clear()
        for folder in self._doubted:
            self._mark_dirty(folder)

    def _handle_event(self, number: int, mask: int) -> None:
        """Mark the folder of one event as changed. Raises `MissedEvents`."""
        moved = mask & IN_MOVE_SELF or (mask & IN_ISDIR and mask & IN_MOVED_FROM)
        if mask & (IN_Q_OVERFLOW | IN_UNMOUNT) or moved:
            raise MissedEvents
        path = self._paths.get(number)
        if path is None:
            return
        if mask & (IN_IGNORED | IN_DELETE_SELF):
            self._paths.pop(number)
            self._numbers.pop(path, None)
        self._mark_dirty(path)

    def _mark_dirty(self, path: bytes) -> None:
        while path and path not in self.dirty:
            self.dirty.add(path)
            path = path.rpartition(b"/")[0]

    def _is_local_disk(self, folder: bytes) -> bool:
        device = os.lstat(folder).st_dev
        if device not in self._local:
            self._local[device] = _file_system_type(self._libc, folder) in LOCAL_FILE_SYSTEMS
        return self._local[device]


def _file_system_type(libc: ctypes.CDLL, path: bytes) -> int:
    """Return the file system type at a scanned path; 0 if it is unknown."""
    found = ctypes.create_string_buffer(256)
    if libc.statfs(path, found):
        return 0
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], "little") & 0xFFFFFFFF


def _read_max_watches() -> int:
    """Return the number of folders that inotify lets a user watch for snapshots."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


MAX_WORK_FILE_BYTES = 64 << 20
"""Files over this many bytes are covered only where a command is about to destroy them."""
MAX_COVERED_NAMES = 500_000
"""A folder with more names than this counts as too large to cover."""
REBUILDABLE_FOLDERS = frozenset(
    b"node_modules bower_components __pycache__ .venv .tox .nox .gradle .next .nuxt .terraform"
    b" .parcel-cache .pytest_cache .mypy_cache .ruff_cache .eggs".split()
)
REBUILDABLE_TAGS = frozenset((b"CACHEDIR.TAG", b"pyvenv.cfg"))
"""Files that mark their folder as one that can be rebuilt."""
DRAFT_PREFIX = b".travois-restoring-"
"""The prefix of the name of a half restored file."""
UNTRACKED_READS = 300
"""The changed files after which git's index is consulted instead of reading more."""
RACY_NANOSECONDS = 50_000_000
"""A file that changed within so many nanoseconds may change again and look the same."""
READ_TRIES = 5
UNREAD_PREFIX = b"unread "
"""The prefix of the stand-in for unreadable content: nothing is stored under its name."""

ScanExtent = Literal["work", "whole"]
"""Whether to leave out what can be rebuilt or is big."""


class ScanBounds(msgspec.Struct, frozen=True):
    """The limits of one scan, and the folders that are never scanned: our own."""

    own: tuple[bytes, ...]
    room: int
    begun: int
    """The time of its start, in nanoseconds."""
    heed: Callable[[int], None] = lambda count: None
    """Called with the number of visited names; may raise to stop the scan."""


class TreeScan:
    """One scan of folders. Paths that it could not cover are in `missed`."""

    def __init__(
        self,
        database: SnapshotDatabase,
        seen: dict[bytes, SeenFolder],
        bounds: ScanBounds,
        *,
        tracked: TrackedFiles | None = None,
        watch: FolderWatch | None = None,
    ) -> None:
        self._shelf = database
        self._seen = seen
        self._bounds = bounds
        self._tracked = tracked
        self.watch = watch
        """None once changes may have been missed."""
        self._room = bounds.room
        self._unknown = self.count = 0
        self._held: dict[bytes, dict[bytes, SnapshotNode]] = {}
        """Files that git holds if their blobs turn out to be their contents, by folder and name."""
        self._inner: dict[bytes, list[bytes]] = {}
        """The paths of the folders in each folder."""
        self._unchanged: dict[bytes, SnapshotNode] = {}
        self.fresh: dict[bytes, SeenFolder] = {}
        """Folders that have changed."""
        self.missed: list[bytes] = []
        self.left_out: list[bytes] = []
        """Folders that are not covered because they can be rebuilt or are on another disk."""
        self.drafts: list[bytes] = []
        """Files that a killed restore has left behind."""

    def scan_root(self, path: bytes, extent: ScanExtent) -> SnapshotRoot:
        """Scan a path and everything in it. Raises OSError where there is too much."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return SnapshotRoot(path, None, extent == "whole")
        folder, _, name = path.rpartition(b"/")
        if not stat.S_ISDIR(found.st_mode):
            return SnapshotRoot(path, self._build_leaf(folder, name, extent), extent == "whole")
        if self._is_unchanged(path, extent):
            return SnapshotRoot(path, self._seen[path].node)
        listed = self._walk_folders(path, extent)
        names = dict(self._unchanged)
        for inner in reversed(listed):
            names[inner] = self._build_folder_node(inner, listed[inner], extent=extent, below=names)
        return SnapshotRoot(path, names[path], extent == "whole")

    def _is_unchanged(self, folder: bytes, extent: ScanExtent) -> bool:
        """Return whether inotify reported no change in a folder since it was scanned."""
        heard = extent == "work" and self.watch is not None and self.watch.is_clean(folder)
        return heard and folder in self._seen

    def _walk_folders(self, top: bytes, extent: ScanExtent) -> dict[bytes, dict[bytes, int] | None]:
        """Return the marks of all names in all folders, outer first; None for those left out."""
        device = os.lstat(top).st_dev
        listed: dict[bytes, dict[bytes, int] | None] = {}
        waiting, count, weight = [top], 0, 0
        while waiting:
            folder = waiting.pop()
            entries, marks = self._scan_folder(folder, extent)
            again = (
                extent == "work" and folder != top and not REBUILDABLE_TAGS.isdisjoint(marks or ())
            )
            listed[folder] = None if again else marks
            if listed[folder] is None:
                self._seen.pop(folder, None)
                self.left_out += [folder] if again else []
            count += len(entries)
            if extent == "whole":
                weight += sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            if count > MAX_COVERED_NAMES or weight > self._bounds.room // 4:
                raise OSError(
                    EFBIG, "it contains too many files or too much data", os.fsdecode(top)
                )
            inner = [] if again else [e for e in entries if e.is_dir(follow_symlinks=False)]
            self._inner[folder] = [entry.path for entry in inner]
            for entry in inner:
                if self._is_left_out(entry, device, extent):
                    listed[entry.path] = None
                    self.left_out.append(entry.path)
                elif self._is_unchanged(entry.path, extent):
                    self._unchanged[entry.path] = self._seen[entry.path].node
                else:
                    waiting.append(entry.path)
        return listed

    def _scan_folder(
        self, folder: bytes, extent: ScanExtent
    ) -> tuple[list[os.DirEntry[bytes]], dict[bytes, int] | None]:
        """Return the names in a folder, each with a mark that changes when the file does."""
        self._watch_folder(folder, extent)
        for _ in range(READ_TRIES):
            try:
                with os.scandir(folder) as found:
                    entries = list(found)
                marks = self._mark_entries(folder, entries)
            except FileNotFoundError:
                continue  # a name vanished between listing and lstat
            except OSError:
                break
            self.count += len(entries)
            self._bounds.heed(self.count)
            if self._tracked is not None and b".gitattributes" in marks:
                self._tracked.add_attributes_file(folder + b"/.gitattributes")
            return entries, marks
        self.missed.append(folder)
        return [], None

    def _watch_folder(self, folder: bytes, extent: ScanExtent) -> None:
        if self.watch is not None and extent == "work":
            try:
                self.watch.add(folder)
                self.watch.set_doubtful(folder, holds=False)
            except (MissedEvents, OSError):
                self.watch = None

    def _mark_entries(self, folder: bytes, entries: list[os.DirEntry[bytes]]) -> dict[bytes, int]:
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
                self._distrust_hard_links(folder, entry)
        self._unknown += len(unknown)
        if unknown and self._tracked is not None and self._unknown > UNTRACKED_READS:
            self._match_git_files(folder, unknown, self._tracked)
        return marks

    def _distrust_hard_links(self, folder: bytes, entry: os.DirEntry[bytes]) -> None:
        """Rescan the folder of a hard-linked file each time: it may change by another name."""
        is_object = PACK_PATH.fullmatch(entry.path) or LOOSE_OBJECT_PATH.fullmatch(entry.path)
        if self.watch is not None and not is_object and entry.is_file(follow_symlinks=False):
            self.watch.set_doubtful(folder, holds=True)

    def _match_git_files(
        self, folder: bytes, files: list[tuple[bytes, os.stat_result]], tracked: TrackedFiles
    ) -> None:
        """Collect the unknown files of a folder that git may hold."""
        if not tracked.loaded:
            tracked.load()
        latest = self._bounds.begun - RACY_NANOSECONDS
        self._held[folder] = {
            name: SnapshotNode(
                name, s.st_mode, (s.st_uid, s.st_gid), s.st_size, (BLOB_PREFIX + blob,)
            )
            for name, s, blob in tracked.match_index(folder, files)
            if s.st_ctime_ns <= latest
        }

    def _is_left_out(self, entry: os.DirEntry[bytes], device: int, extent: ScanExtent) -> bool:
        if entry.path in self._bounds.own or (
            extent == "work" and entry.name in REBUILDABLE_FOLDERS
        ):
            return True
        return entry.stat(follow_symlinks=False).st_dev != device

    def _build_folder_node(
        self,
        path: bytes,
        marks: dict[bytes, int] | None,
        *,
        extent: ScanExtent,
        below: dict[bytes, SnapshotNode],
    ) -> SnapshotNode:
        """Build the node of a folder, once those of the folders in it exist."""
        found, name = _lstat_or_none(path), path.rpartition(b"/")[2]
        if marks is None or found is None:
            return SnapshotNode(name, stat.S_IFDIR, (0, 0), HOLE_SIZE)
        folders = tuple(below[inner] for inner in self._inner[path] if inner in below)
        known = self._find_seen(path, extent)
        if known is not None and (known.marks != marks or not known.is_complete):
            known = None
        empty = SnapshotNode(name, found.st_mode, _owner_ids(found))
        if (
            known is not None
            and known.folders == folders
            and replace(known.node, size=0, parts=()) == empty
        ):
            return known.node
        leaves = known.leaves if known else self._build_leaves(path, marks, extent)
        nodes = sorted((*leaves, *folders), key=lambda node: node.name)
        holes = sum(max(node.size, 1) for node in folders if node.has_holes)
        holes += sum(node.size == HOLE_SIZE for node in leaves)
        listing = self._store_content(msgspec.msgpack.encode(nodes), packed=False)
        node = replace(empty, size=holes, parts=(listing,))
        seen, key = SeenFolder(marks, leaves, folders, node), _make_seen_key(path, extent)
        self._seen[key] = seen
        self.fresh[key] = seen
        if self.watch is not None and extent == "work" and not seen.is_complete:
            self.watch.set_doubtful(path, holds=True)
        return node

    def _find_seen(self, path: bytes, extent: ScanExtent) -> SeenFolder | None:
        return self._seen.get(_make_seen_key(path, extent)) or self._seen.get(path)

    def _build_leaves(
        self, path: bytes, marks: dict[bytes, int], extent: ScanExtent
    ) -> tuple[SnapshotNode, ...]:
        """Return the nodes in a folder that are not folders; only changed ones are read."""
        known = self._find_seen(path, extent)
        before = {node.name: node for node in known.leaves if not node.has_holes} if known else {}
        old = known.marks if known else {}
        same = {name: node for name, node in before.items() if old.get(name) == marks.get(name)}
        held = self._find_held_files(path)
        if len(held) + len(self._inner[path]) == len(marks):
            return tuple(held.values())
        folders = {inner.rpartition(b"/")[2] for inner in self._inner[path]}
        leaves: list[SnapshotNode] = []
        for name in list(marks):
            if name in folders or (name.startswith(DRAFT_PREFIX) and self._note_draft(path, name)):
                continue
            leaf = same.get(name) or held.get(name) or self._build_leaf(path, name, extent, marks)
            if leaf is not None:
                leaves.append(leaf)
        return tuple(leaves)

    def _find_held_files(self, folder: bytes) -> dict[bytes, SnapshotNode]:
        """Return the files in a folder that git holds, byte for byte."""
        found = self._held.get(folder)
        return (
            self._tracked.select_held(folder, found) if found and self._tracked is not None else {}
        )

    def _note_draft(self, folder: bytes, name: bytes) -> bool:
        self.drafts.append(b"%s/%s" % (folder, name))
        return True

    def _build_leaf(
        self, folder: bytes, name: bytes, extent: ScanExtent, marks: dict[bytes, int] | None = None
    ) -> SnapshotNode | None:
        """Build the node of anything but a folder; None if it is gone."""
        path = b"%s/%s" % (folder.rstrip(b"/"), name)
        found = _lstat_or_none(path)
        if found is None:
            return None
        if marks is not None and found.st_ctime_ns > self._bounds.begun - RACY_NANOSECONDS:
            marks[name] = 0
        if stat.S_ISLNK(found.st_mode):
            with suppress(OSError):
                return SnapshotNode(name, found.st_mode, _owner_ids(found), 0, (os.readlink(path),))
        if stat.S_ISREG(found.st_mode):
            return self._build_file_node(path, name, found, extent)
        return SnapshotNode(name, found.st_mode, _owner_ids(found), HOLE_SIZE)

    def _build_file_node(
        self, path: bytes, name: bytes, found: os.stat_result, extent: ScanExtent
    ) -> SnapshotNode:
        """Build the node of a file: linked if git holds it, stored, or marked as not covered."""
        hole = SnapshotNode(name, found.st_mode, _owner_ids(found), HOLE_SIZE)
        if PACK_PATH.fullmatch(path) or LOOSE_OBJECT_PATH.fullmatch(path):
            with suppress(OSError):
                part = hold_object(self._shelf.objects, path, found.st_size)
                return SnapshotNode(name, found.st_mode, _owner_ids(found), found.st_size, (part,))
        if (extent == "work" and found.st_size > MAX_WORK_FILE_BYTES) or found.st_size > self._room:
            self.missed.append(path)
            return hole
        try:
            return self._read_file_node(path, name)
        except OSError:
            self.missed.append(path)
        if found.st_uid != os.geteuid():
            return hole
        # An owner can make an unreadable file readable again: after `chmod 000` a rewind brings
        # back the mode and the content from an earlier snapshot.
        state = f"{found.st_ino} {found.st_size} {found.st_mtime_ns}".encode()
        return SnapshotNode(
            name,
            found.st_mode,
            _owner_ids(found),
            found.st_size,
            (hash_content(UNREAD_PREFIX + state),),
        )

    def _read_file_node(self, path: bytes, name: bytes) -> SnapshotNode:
        """Store the content of a file, read again if it changed meanwhile."""
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            after, parts = os.fstat(fd), tuple[bytes, ...]()
            for _ in range(READ_TRIES):
                before = after
                parts = tuple(self._store_content(piece) for piece in _read_pieces(fd))
                after = os.fstat(fd)
                if (before.st_size, before.st_ctime_ns) == (after.st_size, after.st_ctime_ns):
                    break
            return SnapshotNode(name, after.st_mode, _owner_ids(after), after.st_size, parts)
        finally:
            os.close(fd)

    def _store_content(self, content: bytes, *, packed: bool = True) -> bytes:
        self._room -= len(content)
        return self._shelf.put(content, packed=packed)


def _lstat_or_none(path: bytes) -> os.stat_result | None:
    """Return a scanned path's metadata without following links; None if it is missing."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _make_seen_key(path: bytes, extent: ScanExtent) -> bytes:
    """Return the key of a folder's scan record, separate for folders covered completely."""
    return path if extent == "work" else path + b"\0whole"


def _owner_ids(found: os.stat_result) -> tuple[int, int]:
    return found.st_uid, found.st_gid


def _read_pieces(fd: int) -> Iterator[bytes]:
    """Yield a scanned file's content in pieces."""
    os.lseek(fd, 0, os.SEEK_SET)
    while True:
        data = b""
        while len(data) < PIECE_BYTES and (more := os.read(fd, PIECE_BYTES - len(data))):
            data += more
        if not data:
            return
        yield data
