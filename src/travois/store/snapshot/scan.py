"""Walking over folders: one look at each name, and a read only of what has changed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from errno import EFBIG
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.store.snapshot.node import HOLE, Node, Root
from travois.store.snapshot.shelf import PIECE, Seen, Shelf, named

BIG = 64 << 20
"""Files over this many bytes are covered only where a command is about to destroy them."""
MANY = 500_000
"""How many names are looked at before a folder counts as too large to cover."""
AGAIN = frozenset(
    b"node_modules bower_components __pycache__ .venv .tox .nox .gradle .next .nuxt .terraform"
    b" .parcel-cache .pytest_cache .mypy_cache .ruff_cache .eggs".split()
)
TAGS = frozenset((b"CACHEDIR.TAG", b"pyvenv.cfg"))
"""A folder with one of these in it can be made again, like those that are called so."""
DRAFT = b".travois-restoring-"
"""How the name of a half restored file begins."""
PACK = re.compile(rb".*/objects/pack/pack-[0-9a-f]{40,64}\.(pack|idx|rev|bitmap)")
RACY = 50_000_000
"""A file that changed within so many nanoseconds may change again and look the same."""
TRIES = 5

Extent = Literal["work", "whole"]
"""Whether to leave out what can be made again or is big."""


class Bounds(msgspec.Struct, frozen=True):
    """How much one snapshot may take, and the folder that is never looked into: our own."""

    own: bytes
    room: int
    begun: int
    """When it began, in nanoseconds."""


class Scan:
    """One walk. What it had to leave out stands in `missed`."""

    def __init__(self, shelf: Shelf, seen: dict[bytes, Seen], bounds: Bounds) -> None:
        self._shelf = shelf
        self._seen = seen
        self._bounds = bounds
        self._room = bounds.room
        self.missed: list[bytes] = []
        self.drafts: list[bytes] = []
        """What a restore that was killed has left behind."""

    def root(self, path: bytes, extent: Extent) -> Root:
        """A path and everything in it. Raises OSError where there is too much."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return Root(path, None, extent == "whole")
        folder, _, name = path.rpartition(b"/")
        if not stat.S_ISDIR(found.st_mode):
            return Root(path, self._leaf(folder, name, extent), extent == "whole")
        listed = self._walk(path, extent)
        names: dict[bytes, Node] = {}
        for inner in reversed(listed):
            names[inner] = self._folder(inner, listed[inner], extent=extent, below=names)
        return Root(path, names[path], extent == "whole")

    def _walk(self, top: bytes, extent: Extent) -> dict[bytes, dict[bytes, int] | None]:
        """The marks of all names in all folders, outer ones first; None for those left out."""
        device = os.lstat(top).st_dev
        listed: dict[bytes, dict[bytes, int] | None] = {}
        waiting, count, weight = [top], 0, 0
        while waiting:
            folder = waiting.pop()
            entries, marks = self._look(folder)
            again = extent == "work" and folder != top and not TAGS.isdisjoint(marks or ())
            listed[folder] = None if again else marks
            count += len(entries)
            if extent == "whole":
                weight += sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
            if count > MANY or weight > self._bounds.room // 4:
                raise OSError(EFBIG, "there is too much in it", os.fsdecode(top))
            inner = [] if again else [e for e in entries if e.is_dir(follow_symlinks=False)]
            for entry in inner:
                if self._left_out(entry, device, extent):
                    listed[entry.path] = None
                else:
                    waiting.append(entry.path)
        return listed

    def _look(self, folder: bytes) -> tuple[list[os.DirEntry[bytes]], dict[bytes, int] | None]:
        """The names in a folder, each with a mark that is another one when the file is."""
        for _ in range(TRIES):
            try:
                with os.scandir(folder) as found:
                    entries = list(found)
                return entries, {
                    entry.name: hash(
                        (
                            (s := entry.stat(follow_symlinks=False)).st_mode,
                            s.st_size,
                            s.st_mtime_ns,
                            s.st_ctime_ns,
                            s.st_ino,
                        )
                    )
                    for entry in entries
                }
            except FileNotFoundError:
                continue  # a name went away between two looks
            except OSError:
                break
        self.missed.append(folder)
        return [], None

    def _left_out(self, entry: os.DirEntry[bytes], device: int, extent: Extent) -> bool:
        if entry.path == self._bounds.own or (extent == "work" and entry.name in AGAIN):
            return True
        found = _stat(entry.path)
        return found is None or found.st_dev != device

    def _folder(
        self,
        path: bytes,
        marks: dict[bytes, int] | None,
        *,
        extent: Extent,
        below: dict[bytes, Node],
    ) -> Node:
        """The node of a folder, once those of the folders in it are there."""
        found, name = _stat(path), path.rpartition(b"/")[2]
        if marks is None or found is None:
            return Node(name, stat.S_IFDIR, (0, 0), HOLE)
        inner = b"%s/" % path.rstrip(b"/")
        folders = tuple(below[inner + name] for name in marks if inner + name in below)
        known = self._seen.get(path)
        if known is not None and (known.marks != marks or not known.settled):
            known = None
        empty = Node(name, found.st_mode, _owner(found))
        if (
            known is not None
            and known.folders == folders
            and replace(known.node, size=0, parts=()) == empty
        ):
            return known.node
        leaves = known.leaves if known else self._leaves(path, marks, extent, skip=below)
        nodes = sorted((*leaves, *folders), key=lambda node: node.name)
        holes = sum(max(node.size, 1) for node in nodes if node.holes)
        listing = self._put(msgspec.msgpack.encode(nodes))
        node = replace(empty, size=holes, parts=(listing,))
        self._seen[path] = Seen(marks, leaves, folders, node)
        self._shelf.see(path, self._seen[path])
        return node

    def _leaves(
        self, path: bytes, marks: dict[bytes, int], extent: Extent, *, skip: dict[bytes, Node]
    ) -> tuple[Node, ...]:
        """What is in a folder besides folders; only what is not as it was is looked into."""
        known = self._seen.get(path)
        before = {node.name: node for node in known.leaves if not node.holes} if known else {}
        leaves: list[Node] = []
        for name, mark in list(marks.items()):
            if b"%s/%s" % (path.rstrip(b"/"), name) in skip or self._draft(path, name):
                continue
            same = known is not None and known.marks.get(name) == mark
            leaf = before.get(name) if same else None
            leaf = leaf or self._leaf(path, name, extent, marks)
            leaves += [leaf] if leaf is not None else []
        return tuple(leaves)

    def _draft(self, folder: bytes, name: bytes) -> bool:
        if name.startswith(DRAFT):
            self.drafts.append(b"%s/%s" % (folder, name))
        return name.startswith(DRAFT)

    def _leaf(
        self, folder: bytes, name: bytes, extent: Extent, marks: dict[bytes, int] | None = None
    ) -> Node | None:
        """The node of anything but a folder; None if it is gone."""
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
        hole = Node(name, found.st_mode, _owner(found), HOLE)
        if PACK.fullmatch(path):
            part = named(b"%s %d" % (name, found.st_size))
            if self._shelf.link(path, part):
                return Node(name, found.st_mode, _owner(found), found.st_size, (part,))
        if (extent == "work" and found.st_size > BIG) or found.st_size > self._room:
            self.missed.append(path)
            return hole
        try:
            return self._read(path, name)
        except OSError:
            self.missed.append(path)
            return hole

    def _read(self, path: bytes, name: bytes) -> Node:
        """The content of a file, read again if it changed meanwhile."""
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

    def _put(self, content: bytes) -> bytes:
        self._room -= len(content)
        return self._shelf.put(content)


def _stat(path: bytes) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _owner(found: os.stat_result) -> tuple[int, int]:
    return found.st_uid, found.st_gid


def _pieces(fd: int) -> Iterator[bytes]:
    os.lseek(fd, 0, os.SEEK_SET)
    while True:
        data = b""
        while len(data) < PIECE and (more := os.read(fd, PIECE - len(data))):
            data += more
        if not data:
            return
        yield data
