"""What a snapshot holds: a tree of nodes, and the ways in which two of them differ."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

HOLE = -1
OBJECT = re.compile(rb".*/objects(/[0-9a-f]{2}(/[0-9a-f]{38,62})?|/pack/pack-[0-9a-f]{40,64}\.\w+)")
"""Where git keeps what never changes under its name: more of it does no harm."""


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
    """Where the listings of folders are."""

    def listing(self, name: bytes) -> tuple[Node, ...]:
        """The nodes in a folder, by name; raises KeyError."""
        ...


class State:
    """What several snapshots, the most telling first, say about the disk."""

    def __init__(self, shelf: Shelf, snapshots: Iterable[Snapshot]) -> None:
        self._shelf = shelf
        self.roots = [root for snapshot in snapshots for root in snapshot.roots]

    @property
    def tops(self) -> dict[bytes, Node | None]:
        """The covered paths that are seen from no other one."""
        found: dict[bytes, Node | None] = {}
        for root in self.roots:
            outer = next((r for r in self.roots if within(root.path, r.path)), None)
            if outer is None or hole(self._below(outer, root.path.rpartition(b"/")[0])):
                found.setdefault(root.path, root.node)
        return found

    def covers(self, path: bytes) -> bool:
        """Whether anything is said about a path."""
        return any(path == root.path or within(path, root.path) for root in self.roots)

    def at(self, path: bytes) -> Node | None:
        """What was at a path."""
        for root in self.roots:
            if path == root.path or within(path, root.path):
                return self.filled(self._below(root, path), path)
        return None

    def filled(self, node: Node | None, path: bytes) -> Node | None:
        """The node, or what a snapshot that covers more says of a hole."""
        if not hole(node):
            return node
        for root in self.roots:
            if root.whole and (path == root.path or within(path, root.path)):
                found = self._below(root, path)
                if not hole(found):
                    return found
        return node

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


def changes(old: State, new: State) -> Iterator[Change]:
    """What to change to come from one state to the other; folders before what is in them."""
    for path, node in new.tops.items():
        if old.covers(path):
            yield from _below(Change(path, old.at(path), node), old, new)


def _below(top: Change, old: State, new: State) -> Iterator[Change]:
    waiting = [top]
    while waiting:
        change = waiting.pop()
        if change.old == change.new and (change.new is None or not change.new.holes):
            continue
        before, after = old.filled(change.old, change.path), new.filled(change.new, change.path)
        if hole(before) or hole(after):
            continue
        if before != after and not _alike(before, after):
            yield Change(change.path, before, after)
        inner, outer = old.children(before), new.children(after)
        for name in sorted(inner.keys() | outer.keys(), reverse=True):
            path = b"%s/%s" % (change.path.rstrip(b"/"), name)
            if name in outer or after is None or not OBJECT.fullmatch(path):
                waiting.append(Change(path, inner.get(name), outer.get(name)))


def hole(node: Node | None) -> bool:
    """Whether something is there that is not covered."""
    return node is not None and node.size == HOLE


def _alike(one: Node | None, other: Node | None) -> bool:
    """Whether two folders differ at most in what is in them."""
    if one is None or other is None or not (one.folder and other.folder):
        return False
    return (one.mode, one.owner) == (other.mode, other.owner)


def within(path: bytes, folder: bytes) -> bool:
    """Whether a path lies below a folder."""
    return path.startswith(folder.rstrip(b"/") + b"/") and path != folder
