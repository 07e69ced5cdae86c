"""What a snapshot holds: a tree of nodes, and the ways in which two of them differ."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha1
from typing import Protocol

import msgspec

HOLE = -1
OBJECT = re.compile(rb".*/objects(/[0-9a-f]{2}(/[0-9a-f]{38,62})?|/pack/pack-[0-9a-f]{40,64}\.\w+)")
"""Where git keeps what never changes under its name: more of it does no harm."""


BLOB = b"g"
"""How the name of a file's content begins that lies in git's objects, before the id of its blob."""
LOOSE = b"o"
"""The same for a file that is one of git's loose objects itself."""
LONGER = 21
"""How long those names are; all others are shorter."""


class Node(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder. Equal nodes are equal all the way down."""

    name: bytes
    mode: int
    owner: tuple[int, int]
    size: int = 0
    """Of a file, its bytes; of a folder, the holes in it; `HOLE` if it is not covered itself."""
    parts: tuple[bytes, ...] = ()
    """The names of a file's pieces, the name of a folder's listing, or where a link leads."""

    @property
    def folder(self) -> bool:
        """Whether it holds other nodes."""
        return stat.S_ISDIR(self.mode) and self.size != HOLE

    @property
    def link(self) -> bool:
        """Whether it leads elsewhere."""
        return stat.S_ISLNK(self.mode)

    @property
    def blob(self) -> bytes:
        """The id of a file that git holds; empty for any other."""
        if len(self.parts) != 1 or not stat.S_ISREG(self.mode):
            return b""
        return self.parts[0][1:] if is_blob(self.parts[0]) else b""

    @property
    def holes(self) -> bool:
        """Whether it is not covered, or something in it."""
        return self.size == HOLE or (self.size > 0 and stat.S_ISDIR(self.mode))


class Root(msgspec.Struct, frozen=True, array_like=True):
    """A path that a snapshot covers; no node if nothing was there."""

    path: bytes
    node: Node | None
    whole: bool = False
    """Whether what can be made again is covered too."""


class Snapshot(msgspec.Struct, frozen=True):
    """What some folders were like at one moment."""

    name: str
    at: float
    why: str
    roots: tuple[Root, ...]


class Change(msgspec.Struct, frozen=True):
    """One path that is not the same in two states."""

    path: bytes
    old: Node | None
    new: Node | None


class Shelf(Protocol):
    """Where the listings of folders and the contents of files are."""

    def listing(self, name: bytes) -> tuple[Node, ...]:
        """The nodes in a folder, by name; raises KeyError."""
        ...

    def get(self, name: bytes) -> bytes:
        """The bytes of that name; raises KeyError."""
        ...


class State:
    """What several snapshots say about the disk. Of two that cover a path, the first one counts.

    A snapshot may cover single files only; whatever it is silent about, the next one may tell.
    """

    def __init__(self, shelf: Shelf, snapshots: Iterable[Snapshot]) -> None:
        self._shelf = shelf
        self.roots = [root for snapshot in snapshots for root in snapshot.roots]
        self.paths = {root.path for root in self.roots}
        self.above = {folder for path in self.paths for folder in _parents(path)}
        """The folders that have a covered path somewhere in them."""

    def named(self, folder: bytes) -> set[bytes]:
        """The names in a folder that lead to a covered path, whatever its listing says."""
        if folder not in self.above:
            return set()
        known = (self.paths | self.above) - {b"/"}
        return {path.rpartition(b"/")[2] for path in known if _parent(path) == folder}

    def covers(self, path: bytes) -> bool:
        """Whether anything is said about a path."""
        return path in self.paths or any(folder in self.paths for folder in _parents(path))

    def at(self, path: bytes) -> Node | None:
        """What was at a path; a hole only if no snapshot covers it."""
        found: Node | None = None
        for root in self.roots:
            if path == root.path or within(path, root.path):
                node = self._below(root, path)
                if not hole(node):
                    return node
                found = node
        return found

    def resolve(self, node: Node | None, path: bytes) -> Node | None:
        """The node that counts at a path, given what its folder's listing says."""
        return self.at(path) if path in self.paths or hole(node) else node

    def _below(self, root: Root, path: bytes) -> Node | None:
        """What a root says of a path in it; the hole, if it lies in one."""
        node = root.node
        for name in path[len(root.path) :].split(b"/"):
            if name and not hole(node):
                node = self.children(node).get(name)
        return node

    def children(self, node: Node | None) -> dict[bytes, Node]:
        """What is in a folder."""
        if node is None or not node.folder:
            return {}
        return {child.name: child for child in self._shelf.listing(node.parts[0])}

    def has_content(self, node: Node, blob: bytes) -> bool:
        """Whether a file that was read holds what git calls by this id."""
        try:
            content = b"".join(map(self._shelf.get, node.parts))
        except KeyError:  # it could not be read
            return False
        return blob_id(content) == blob


def changes(old: State, new: State) -> Iterator[Change]:
    """What to change to come from one state to the other; folders before what is in them."""
    both = {path for path in new.paths if old.covers(path)}
    both |= {path for path in old.paths if new.covers(path)}
    waiting = [Change(path, old.at(path), new.at(path)) for path in _outermost(both)]
    while waiting:
        change = waiting.pop()
        path = change.path
        mixed = any(path in state.above or path in state.paths for state in (old, new))
        if change.old == change.new and not mixed and not (change.new and change.new.holes):
            continue
        before, after = old.resolve(change.old, path), new.resolve(change.new, path)
        if hole(before) or hole(after):
            inside = _outermost({other for other in both if within(other, path)})
            waiting += (Change(other, old.at(other), new.at(other)) for other in inside)
            continue
        if before != after and not _alike(before, after, old):
            yield Change(path, before, after)
        waiting += _inside(Change(path, before, after), old, new)


def _inside(change: Change, old: State, new: State) -> Iterator[Change]:
    """What may differ in a folder, the last name first."""
    inner, outer = old.children(change.old), new.children(change.new)
    names = inner.keys() | outer.keys() | old.named(change.path) | new.named(change.path)
    for name in sorted(names, reverse=True):
        below = b"%s/%s" % (change.path.rstrip(b"/"), name)
        if name in outer or change.new is None or not OBJECT.fullmatch(below):
            yield Change(below, inner.get(name), outer.get(name))


def _outermost(paths: set[bytes]) -> list[bytes]:
    """The paths that lie in no other one, the last first."""
    tops = (path for path in paths if not any(folder in paths for folder in _parents(path)))
    return sorted(tops, reverse=True)


def is_blob(part: bytes) -> bool:
    """Whether a part is the content of one of git's blobs."""
    return len(part) == LONGER and part.startswith(BLOB)


def is_loose(part: bytes) -> bool:
    """Whether a part is one of git's loose objects."""
    return len(part) == LONGER and part.startswith(LOOSE)


def hole(node: Node | None) -> bool:
    """Whether something is there that is not covered."""
    return node is not None and node.size == HOLE


def _alike(one: Node | None, other: Node | None, state: State) -> bool:
    """Whether two folders differ at most in what is in them, or two files in how they are kept."""
    if one is None or other is None or (one.mode, one.owner) != (other.mode, other.owner):
        return False
    if one.folder and other.folder:
        return True
    if one.size != other.size or bool(one.blob) == bool(other.blob):
        return False
    read, held = (other, one) if one.blob else (one, other)
    return state.has_content(read, held.blob)


def blob_id(content: bytes) -> bytes:
    """The name that git has for these bytes."""
    return sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).digest()


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _parents(path: bytes) -> Iterator[bytes]:
    while path != b"/":
        path = _parent(path)
        yield path


def within(path: bytes, folder: bytes) -> bool:
    """Whether a path lies below a folder."""
    return path.startswith(folder.rstrip(b"/") + b"/") and path != folder
