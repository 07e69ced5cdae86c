"""The contents of a snapshot as a tree of nodes, and comparing two of them."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from hashlib import sha1
from typing import Protocol

import msgspec

HOLE_SIZE = -1
GIT_OBJECT_PATH = re.compile(
    rb".*/objects(/[0-9a-f]{2}(/[0-9a-f]{38,62})?|/pack/pack-[0-9a-f]{40,64}\.\w+)"
)
"""Paths of git objects, which never change under their name: additional ones do no harm."""


BLOB_PREFIX = b"g"
"""The prefix of the part name of a content that git holds, before the id of its blob."""
LOOSE_PREFIX = b"o"
"""The same for a file that is itself one of git's loose objects."""
GIT_PART_BYTES = 21
"""The length of those part names; all others are shorter."""


class SnapshotNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One name in a folder. Equal nodes are equal all the way down."""

    name: bytes
    mode: int
    owner: tuple[int, int]
    size: int = 0
    """A file's size in bytes; the number of uncovered paths in a folder; `HOLE_SIZE` if it is
    not covered itself."""
    parts: tuple[bytes, ...] = ()
    """The names of a file's pieces, the name of a folder's listing, or a link's target."""

    @property
    def is_folder(self) -> bool:
        """True if it is a folder that is covered."""
        return stat.S_ISDIR(self.mode) and self.size != HOLE_SIZE

    @property
    def is_link(self) -> bool:
        """True if it is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def git_blob(self) -> bytes:
        """The id of a file that git holds; empty for any other."""
        if len(self.parts) != 1 or not stat.S_ISREG(self.mode):
            return b""
        return self.parts[0][1:] if is_git_blob(self.parts[0]) else b""

    @property
    def has_holes(self) -> bool:
        """True if it, or something in it, is not covered."""
        return self.size == HOLE_SIZE or (self.size > 0 and stat.S_ISDIR(self.mode))


class SnapshotRoot(msgspec.Struct, frozen=True, array_like=True):
    """A path that a snapshot covers; no node if nothing was there."""

    path: bytes
    node: SnapshotNode | None
    whole: bool = False
    """Whether rebuildable files are covered too."""


class Snapshot(msgspec.Struct, frozen=True):
    """The state of some folders at one moment."""

    name: str
    at: float
    why: str
    roots: tuple[SnapshotRoot, ...]


class PathChange(msgspec.Struct, frozen=True):
    """One path that differs between two snapshot states."""

    path: bytes
    old: SnapshotNode | None
    new: SnapshotNode | None


class ContentSource(Protocol):
    """The store of folder listings and file contents."""

    def listing(self, name: bytes) -> tuple[SnapshotNode, ...]:
        """Return the nodes in a folder, by name; raises KeyError."""
        ...

    def get(self, name: bytes) -> bytes:
        """Return the bytes of that name; raises KeyError."""
        ...


class DiskState:
    """The state of the disk by several snapshots; of two that cover a path, the first counts.

    A snapshot may cover single files only; the next one may cover the rest.
    """

    def __init__(self, source: ContentSource, snapshots: Iterable[Snapshot]) -> None:
        self._source = source
        self.roots = [root for snapshot in snapshots for root in snapshot.roots]
        self.paths = {root.path for root in self.roots}
        self.above = {folder for path in self.paths for folder in _parent_paths(path)}
        """The folders that contain a covered path somewhere."""

    def list_covered_names(self, folder: bytes) -> set[bytes]:
        """Return the names in a folder that lead to a covered path, whatever its listing says."""
        if folder not in self.above:
            return set()
        known = (self.paths | self.above) - {b"/"}
        return {path.rpartition(b"/")[2] for path in known if _parent_path(path) == folder}

    def covers(self, path: bytes) -> bool:
        """Return whether a snapshot covers a path."""
        return path in self.paths or any(folder in self.paths for folder in _parent_paths(path))

    def node_at(self, path: bytes) -> SnapshotNode | None:
        """Return the node at a path; one marked as not covered only if no snapshot covers it."""
        found: SnapshotNode | None = None
        for root in self.roots:
            if path == root.path or is_below_folder(path, root.path):
                node = self._node_below(root, path)
                if not is_hole(node):
                    return node
                found = node
        return found

    def resolve(self, node: SnapshotNode | None, path: bytes) -> SnapshotNode | None:
        """Return the node that counts at a path, given the one in its folder's listing."""
        return self.node_at(path) if path in self.paths or is_hole(node) else node

    def _node_below(self, root: SnapshotRoot, path: bytes) -> SnapshotNode | None:
        """Return the node at a path below a root, or on the way to it one that is not covered."""
        node = root.node
        for name in path[len(root.path) :].split(b"/"):
            if name and not is_hole(node):
                node = self.children(node).get(name)
        return node

    def children(self, node: SnapshotNode | None) -> dict[bytes, SnapshotNode]:
        """Return the nodes in a folder by name."""
        if node is None or not node.is_folder:
            return {}
        return {child.name: child for child in self._source.listing(node.parts[0])}

    def has_git_content(self, node: SnapshotNode, blob: bytes) -> bool:
        """Return whether a file's stored content is the blob with this id."""
        try:
            content = b"".join(map(self._source.get, node.parts))
        except KeyError:  # it could not be read
            return False
        return hash_git_blob(content) == blob


def find_changes(old: DiskState, new: DiskState) -> Iterator[PathChange]:
    """Yield the changes between two snapshot states; folders before their contents."""
    both = {path for path in new.paths if old.covers(path)}
    both |= {path for path in old.paths if new.covers(path)}
    waiting = [
        PathChange(path, old.node_at(path), new.node_at(path)) for path in _outermost_paths(both)
    ]
    while waiting:
        change = waiting.pop()
        path = change.path
        mixed = any(path in state.above or path in state.paths for state in (old, new))
        if change.old == change.new and not mixed and not (change.new and change.new.has_holes):
            continue
        before, after = old.resolve(change.old, path), new.resolve(change.new, path)
        if is_hole(before) or is_hole(after):
            inside = _outermost_paths({other for other in both if is_below_folder(other, path)})
            waiting += (
                PathChange(other, old.node_at(other), new.node_at(other)) for other in inside
            )
            continue
        if before != after and not _are_equivalent(before, after, old):
            yield PathChange(path, before, after)
        waiting += _iterate_inside(PathChange(path, before, after), old, new)


def _iterate_inside(change: PathChange, old: DiskState, new: DiskState) -> Iterator[PathChange]:
    """Yield the names in a folder that may differ between snapshots, the last first."""
    inner, outer = old.children(change.old), new.children(change.new)
    names = (
        inner.keys()
        | outer.keys()
        | old.list_covered_names(change.path)
        | new.list_covered_names(change.path)
    )
    for name in sorted(names, reverse=True):
        below = b"%s/%s" % (change.path.rstrip(b"/"), name)
        if name in outer or change.new is None or not GIT_OBJECT_PATH.fullmatch(below):
            yield PathChange(below, inner.get(name), outer.get(name))


def _outermost_paths(paths: set[bytes]) -> list[bytes]:
    """Return the snapshot paths that lie in no other one, the last first."""
    tops = (path for path in paths if not any(folder in paths for folder in _parent_paths(path)))
    return sorted(tops, reverse=True)


def is_git_blob(part: bytes) -> bool:
    """Return whether a part of a snapshot's file is the content of a git blob."""
    return len(part) == GIT_PART_BYTES and part.startswith(BLOB_PREFIX)


def is_loose_object(part: bytes) -> bool:
    """Return whether a part of a snapshot's file is one of git's loose objects."""
    return len(part) == GIT_PART_BYTES and part.startswith(LOOSE_PREFIX)


def is_hole(node: SnapshotNode | None) -> bool:
    """Return whether a snapshot node marks something that exists but is not covered."""
    return node is not None and node.size == HOLE_SIZE


def _are_equivalent(
    node: SnapshotNode | None, other: SnapshotNode | None, state: DiskState
) -> bool:
    """Return whether two snapshot folders have equal metadata, or two files equal contents."""
    if node is None or other is None or (node.mode, node.owner) != (other.mode, other.owner):
        return False
    if node.is_folder and other.is_folder:
        return True
    if node.size != other.size or bool(node.git_blob) == bool(other.git_blob):
        return False
    read, held = (other, node) if node.git_blob else (node, other)
    return state.has_git_content(read, held.git_blob)


def hash_git_blob(content: bytes) -> bytes:
    """Return the git blob ID of a snapshot file's content."""
    return sha1(b"blob %d\0%s" % (len(content), content), usedforsecurity=False).digest()


def _parent_path(path: bytes) -> bytes:
    return path.rpartition(b"/")[0] or b"/"


def _parent_paths(path: bytes) -> Iterator[bytes]:
    """Yield the folders above a path of a snapshot, from the nearest up to the root."""
    while path != b"/":
        path = _parent_path(path)
        yield path


def is_below_folder(path: bytes, folder: bytes) -> bool:
    """Return whether a snapshot path lies below a folder."""
    return path.startswith(folder.rstrip(b"/") + b"/") and path != folder
