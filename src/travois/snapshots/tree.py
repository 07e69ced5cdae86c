"""The contents of a snapshot as a tree of nodes, and comparing two of them."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha1
from typing import Protocol

import msgspec

HOLE = -1
OBJECT = re.compile(rb".*/objects(/[0-9a-f]{2}(/[0-9a-f]{38,62})?|/pack/pack-[0-9a-f]{40,64}\.\w+)")
"""Paths of git objects, which never change under their name: additional ones do no harm."""


BLOB = b"g"
"""The prefix of the part name of a content that git holds, before the id of its blob."""
LOOSE = b"o"
"""The same for a file that is itself one of git's loose objects."""
LONGER = 21
"""The length of those part names; all others are shorter."""


class Node(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder. Equal nodes are equal all the way down."""

    name: bytes
    mode: int
    owner: tuple[int, int]
    size: int = 0
    """A file's size in bytes; the number of holes in a folder; `HOLE_SIZE` if it is not covered
    itself."""
    parts: tuple[bytes, ...] = ()
    """The names of a file's pieces, the name of a folder's listing, or a link's target."""

    @property
    def folder(self) -> bool:
        """Whether it is a folder that is covered."""
        return stat.S_ISDIR(self.mode) and self.size != HOLE

    @property
    def link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def blob(self) -> bytes:
        """The id of a file that git holds; empty for any other."""
        if len(self.parts) != 1 or not stat.S_ISREG(self.mode):
            return b""
        return self.parts[0][1:] if is_blob(self.parts[0]) else b""

    @property
    def holes(self) -> bool:
        """Whether it, or something in it, is not covered."""
        return self.size == HOLE or (self.size > 0 and stat.S_ISDIR(self.mode))


class Root(msgspec.Struct, frozen=True, array_like=True):
    """A path that a snapshot covers; no node if nothing was there."""

    path: bytes
    node: Node | None
    whole: bool = False
    """Whether rebuildable files are covered too."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state of some folders at one moment."""

    name: str
    at: float
    why: str
    roots: tuple[Root, ...]


class Change(msgspec.Struct, frozen=True):
    """One path that differs between two states."""

    path: bytes
    old: Node | None
    new: Node | None


class Shelf(Protocol):
    """The store of folder listings and file contents."""

    def listing(self, name: bytes) -> tuple[Node, ...]:
        """Return the nodes in a folder, by name; raises KeyError."""
        ...

    def get(self, name: bytes) -> bytes:
        """Return the bytes of that name; raises KeyError."""
        ...


class State:
    """The state of the disk by several snapshots; of two that cover a path, the first counts.

    A snapshot may cover single files only; the next one may cover the rest.
    """

    def __init__(self, shelf: Shelf, snapshots: Iterable[Snapshot]) -> None:
        self._shelf = shelf
        self.roots = [root for snapshot in snapshots for root in snapshot.roots]
        self.paths = {root.path for root in self.roots}
        self.above = {folder for path in self.paths for folder in _parents(path)}
        """The folders that contain a covered path somewhere."""

    def named(self, folder: bytes) -> set[bytes]:
        """Return the names in a folder that lead to a covered path, whatever its listing says."""
        if folder not in self.above:
            return set()
        known = (self.paths | self.above) - {b"/"}
        return {path.rpartition(b"/")[2] for path in known if _parent(path) == folder}

    def covers(self, path: bytes) -> bool:
        """Return whether a snapshot covers a path."""
        return path in self.paths or any(folder in self.paths for folder in _parents(path))

    def at(self, path: bytes) -> Node | None:
        """Return the node at a path; a hole only if no snapshot covers it."""
        found: Node | None = None
        for root in self.roots:
            if path == root.path or within(path, root.path):
                node = self._below(root, path)
                if not hole(node):
                    return node
                found = node
        return found

    def resolve(self, node: Node | None, path: bytes) -> Node | None:
        """Return the node that counts at a path, given the one in its folder's listing."""
        return self.at(path) if path in self.paths or hole(node) else node

    def _below(self, root: Root, path: bytes) -> Node | None:
        """Return a root's node for a path in it; the hole, if it lies in one."""
        node = root.node
        for name in path[len(root.path) :].split(b"/"):
            if name and not hole(node):
                node = self.children(node).get(name)
        return node

    def children(self, node: Node | None) -> dict[bytes, Node]:
        """Return the nodes in a folder by name."""
        if node is None or not node.folder:
            return {}
        return {child.name: child for child in self._shelf.listing(node.parts[0])}

    def has_content(self, node: Node, blob: bytes) -> bool:
        """Return whether a file's stored content is the blob with this id."""
        try:
            content = b"".join(map(self._shelf.get, node.parts))
        except KeyError:  # it could not be read
            return False
        return blob_id(content) == blob


def changes(old: State, new: State) -> Iterator[Change]:
    """Yield the changes that turn one state into the other; folders before their contents."""
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
    """Yield what may differ in a folder, the last name first."""
    inner, outer = old.children(change.old), new.children(change.new)
    names = inner.keys() | outer.keys() | old.named(change.path) | new.named(change.path)
    for name in sorted(names, reverse=True):
        below = b"%s/%s" % (change.path.rstrip(b"/"), name)
        if name in outer or change.new is None or not OBJECT.fullmatch(below):
            yield Change(below, inner.get(name), outer.get(name))


def _outermost(paths: set[bytes]) -> list[bytes]:
    """Return the paths that lie in no other one, the last first."""
    tops = (path for path in paths if not any(folder in paths for folder in _parents(path)))
    return sorted(tops, reverse=True)


def is_blob(part: bytes) -> bool:
    """Return whether a part is the content of a git blob."""
    return len(part) == LONGER and part.startswith(BLOB)


def is_loose(part: bytes) -> bool:
    """Return whether a part is one of git's loose objects."""
    return len(part) == LONGER and part.startswith(LOOSE)


def hole(node: Node | None) -> bool:
    """Return whether something is there that is not covered."""
    return node is not None and node.size == HOLE


def _alike(one: Node | None, other: Node | None, state: State) -> bool:
    """Return whether two folders have equal metadata, or two files equal contents."""
    if one is None or other is None or (one.mode, one.owner) != (other.mode, other.owner):
        return False
    if one.folder and other.folder:
        return True
    if one.size != other.size or bool(one.blob) == bool(other.blob):
        return False
    read, held = (other, one) if one.blob else (one, other)
    return state.has_content(read, held.blob)


def blob_id(content: bytes) -> bytes:
    """Return git's blob id of some content."""
    return sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).digest()


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _parents(path: bytes) -> Iterator[bytes]:
    while path != b"/":
        path = _parent(path)
        yield path


def within(path: bytes, folder: bytes) -> bool:
    """Return whether a path lies below a folder."""
    return path.startswith(folder.rstrip(b"/") + b"/") and path != folder
