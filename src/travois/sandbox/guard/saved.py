"""The saved state of a protected path: reading it, comparing it, and restoring it.

Each part of a path is opened in the folder before it, and no link is ever followed: between the
save and the check, a hostile program may have replaced anything.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Literal

import msgspec

from travois.files.openat import OpenedPath, make_folders, open_parent

# The folder for files that had replaced protected ones.


MAX_SET_ASIDE_BYTES = 64 * 1024 * 1024
"""The most bytes copied where a file cannot be moved because it is on another disk."""
MAX_NAME_CHARS = 100
SET_ASIDE_SECONDS = 30 * 24 * 3600
"""Seconds for which removed files are kept."""


class SetAsideFolder:
    """A folder for the files that one check removes, created when there is one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.path = ""

    def move(self, opened: OpenedPath, *, root: str) -> None:
        """Move a replaced file or folder to the set-aside folder. Raises OSError."""
        target = self._choose_free_name(opened, root)
        try:
            os.rename(opened.name, target, src_dir_fd=opened.folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy_at_spot(opened, target, left=[MAX_SET_ASIDE_BYTES])
            _delete_at_spot(opened)

    def copy(self, opened: OpenedPath, *, root: str) -> None:
        """Keep a copy of a file or link that is about to be replaced."""
        _copy_at_spot(opened, self._choose_free_name(opened, root), left=[MAX_SET_ASIDE_BYTES])

    def _choose_free_name(self, opened: OpenedPath, root: str) -> str:
        """Return a free name in the set-aside folder.

        It is one flat name for the whole path: an earlier entry may be a link to anywhere.
        """
        if not self.path:
            make_folders(Path(self._folder))
            _remove_old_copies(self._folder)
            stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
            self.path = os.path.join(self._folder, f"{stamp}_{os.urandom(3).hex()}")
            os.mkdir(self.path, 0o700)
        below = os.path.relpath(opened.path, root).replace("/", "__")
        target = free = os.path.join(self.path, below[-MAX_NAME_CHARS:])
        number = 1
        while os.path.lexists(free):
            number += 1
            free = f"{target}~{number}"
        return free


def _remove_old_copies(folder: str) -> None:
    """Delete old copies of protected files that were set aside before their restore."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > SET_ASIDE_SECONDS:
                rmtree(path, ignore_errors=True)


def _copy_at_spot(opened: OpenedPath, target: str, *, left: list[int]) -> None:
    """Copy a file, link or folder to be set aside; of anything else only the name."""
    found = os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(opened.name, dir_fd=opened.folder), target)
    elif stat.S_ISDIR(found.st_mode):
        os.mkdir(target, 0o700)
        fd = opened.open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(fd):
                inner = OpenedPath(fd, name, f"{opened.path}/{name}")
                _copy_at_spot(inner, os.path.join(target, name), left=left)
        finally:
            os.close(fd)
    else:
        data = b""
        if stat.S_ISREG(found.st_mode) and found.st_size <= left[0]:
            with os.fdopen(opened.open(os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                data = file.read(left[0])
        left[0] -= len(data)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            copy.write(data)


def _delete_at_spot(opened: OpenedPath) -> None:
    """Delete a file or a whole folder at an opened path, before its saved state is restored."""
    try:
        os.unlink(opened.name, dir_fd=opened.folder)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        rmtree(opened.name, dir_fd=opened.folder)


MAX_SAVED_BYTES = 32 * 1024 * 1024
MAX_SAVED_NAMES = 5_000
"""The limits of one saved path. Beyond them a change is noticed but cannot be undone."""
CLOCK_SLACK_NS = 100_000_000
"""The nanoseconds by which the file system's clock may lag behind ours."""
CHECKOUTS_NAME = b"worktrees"
"""The folder in our own and Claude's settings that contains checkouts, where agents work."""
READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK

NodeKind = Literal["file", "link", "folder", "other"]


class SavedNode(msgspec.Struct, frozen=True, array_like=True):
    """The saved state of a file, link or folder; `data` is None where it was not saved."""

    kind: NodeKind
    mode: int
    owner: tuple[int, int]
    stamp: tuple[int, int, int, int, int]
    """Device, inode, size, mtime and ctime."""
    names: int
    """A file's number of hard links: a second name would be a way to change it later."""
    data: bytes | None = None

    def is_like(self, other: SavedNode) -> bool:
        """Return whether all that matters is equal; commands cannot choose an owner."""
        if (self.kind, self.mode) != (other.kind, other.mode):
            return False
        if self.kind == "folder":
            return True
        if self.data is None or other.data is None:
            return self.stamp == other.stamp
        return self.data == other.data and (self.names == other.names or other.names == 1)


SavedTree = Mapping[bytes, SavedNode]
"""The nodes at a path, by names relative to it; empty if nothing is there."""


class ParentFolder(msgspec.Struct, frozen=True, array_like=True):
    """A folder above a protected path, with its identity."""

    path: str
    device: int
    inode: int


class SavedPath(msgspec.Struct, frozen=True):
    """The state of a protected path at a moment."""

    path: str
    root: str
    """The folder that is writable and cannot be replaced itself."""
    at: int
    tree: tuple[tuple[bytes, SavedNode], ...]
    holders: tuple[ParentFolder, ...] = ()

    @property
    def nodes(self) -> SavedTree:
        """The nodes by name."""
        return dict(self.tree)


class SavedTreeReader:
    """Reads trees, and takes contents that cannot have changed from an earlier save."""

    def __init__(self, earlier: SavedPath | None, *, checkouts: bool) -> None:
        self._known: SavedTree = earlier.nodes if earlier else {}
        self._settled = earlier.at - CLOCK_SLACK_NS if earlier else 0
        self._skipped = (CHECKOUTS_NAME,) if checkouts else ()
        self._bytes, self._names = MAX_SAVED_BYTES, MAX_SAVED_NAMES

    def read(self, opened: OpenedPath, name: bytes = b"") -> Iterator[tuple[bytes, SavedNode]]:
        """Yield a name in an open folder, with everything in it."""
        self._names -= 1
        if self._names < 0:
            return
        try:
            found = os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return
        node = _node_from_stat(found)
        if node.kind == "folder":
            yield name, node
            yield from self._read_inside(opened, name)
            return
        with suppress(PermissionError):
            node = self._with_content(node, opened, name)
        yield name, node

    def _read_inside(self, opened: OpenedPath, name: bytes) -> Iterator[tuple[bytes, SavedNode]]:
        """Yield everything in a folder; nothing if it cannot be opened."""
        try:
            fd = opened.open(os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        try:
            for each in sorted(map(os.fsencode, os.listdir(fd))):
                below = name + b"/" + each if name else each
                if below not in self._skipped:
                    inner = OpenedPath(fd, os.fsdecode(each), f"{opened.path}/{os.fsdecode(each)}")
                    yield from self.read(inner, below)
        finally:
            os.close(fd)

    def _with_content(self, node: SavedNode, opened: OpenedPath, name: bytes) -> SavedNode:
        """Return the node with its content, taken from an earlier save if that still holds."""
        known = self._known.get(name)
        same = known is not None and (known.kind, known.stamp) == (node.kind, node.stamp)
        if same and known is not None and known.stamp[-1] < self._settled:
            return msgspec.structs.replace(node, data=known.data)
        if node.kind == "link":
            target = os.readlink(opened.name, dir_fd=opened.folder)
            return msgspec.structs.replace(node, data=os.fsencode(target))
        if node.kind == "other" or node.stamp[2] > self._bytes:
            return node
        with os.fdopen(opened.open(READ_FLAGS), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return node
            data = file.read(self._bytes + 1)
        self._bytes -= len(data)
        return msgspec.structs.replace(node, data=data) if self._bytes >= 0 else node


def save_path(
    path: str, root: str, earlier: SavedPath | None = None, *, names: tuple[str, ...] = ()
) -> SavedPath:
    """Save the current state of a guarded path; `earlier` avoids rereading what is unchanged.

    With names given, only these are read of a folder.
    """
    at = time.time_ns()
    tree = tuple(
        (read_names(path, names, earlier) if names else read_saved_tree(path, earlier)).items()
    )
    return SavedPath(path, root, at, tree, tuple(_find_parents(path, root)))


def read_saved_tree(path: str, earlier: SavedPath | None = None) -> SavedTree:
    """Return the nodes of a guarded path; none if it leads through a link or a file."""
    if not os.path.lexists(path):
        return {}  # most protected names are missing, and this is faster
    try:
        with open_parent(path) as place:
            tree = dict(SavedTreeReader(earlier, checkouts=_has_checkouts(path)).read(place))
            # A folder with nothing but checkouts counts as missing: we create it for those.
            bare = len(tree) == 1 and _has_checkouts(path) and tree[b""].kind == "folder"
            return {} if bare and _has_entry(place, os.fsdecode(CHECKOUTS_NAME)) else tree
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return {}
        raise


def read_names(path: str, names: tuple[str, ...], earlier: SavedPath | None = None) -> SavedTree:
    """Return the saved nodes of some names in a folder; anything else is read as itself."""
    reader, tree = SavedTreeReader(earlier, checkouts=False), dict[bytes, SavedNode]()
    with suppress(FileNotFoundError, NotADirectoryError), open_parent(path) as place:
        found = _stat_node(place)
        if found is None or found.kind != "folder":
            return dict(reader.read(place))
        fd = place.open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names:
                tree |= reader.read(OpenedPath(fd, name, f"{path}/{name}"), os.fsencode(name))
        finally:
            os.close(fd)
    return tree


def find_differences(before: SavedTree, now: SavedTree) -> Iterator[bytes]:
    """Yield the names that differ from the saved state, top down; a new folder once."""
    added = list[bytes]()
    for name in sorted(before.keys() | now.keys()):
        was, is_ = before.get(name), now.get(name)
        if was is not None and is_ is not None and was.is_like(is_):
            continue
        if was is None and any(_is_name_below(name, one) for one in added):
            continue
        if was is None or was.kind != "folder":
            added.append(name)
        yield name


def restore_parents(saved: SavedPath, folder: SetAsideFolder) -> Iterator[str]:
    """Restore renamed parent folders of a guarded path, if they lie beside their old name.

    A repository whose `.git` was moved away and replaced would otherwise be left in two pieces.
    """
    for holder in saved.holders:
        if _is_in_place(holder):
            continue
        with suppress(OSError), open_parent(holder.path) as place:
            if _is_same_folder(place, holder):
                _make_accessible(place)
                continue
            moved = next(
                (
                    name
                    for name in _list_parent_names(place)
                    if _is_same_folder(place.sibling(name), holder)
                ),
                None,
            )
            if moved is None:
                continue
            folder.move(place, root=saved.root)
            ends = {"src_dir_fd": place.folder, "dst_dir_fd": place.folder}
            os.rename(moved, place.name, **ends)
            yield holder.path


def restore_name(saved: SavedPath, name: bytes, folder: SetAsideFolder) -> None:
    """Restore one name to its saved state, after setting the present one aside. Raises OSError."""
    node = saved.nodes.get(name)
    path = os.path.join(saved.path, os.fsdecode(name)) if name else saved.path
    if node is not None:
        _clear_parents(path, saved, folder)
    with open_parent(path, missing="make" if node else "fail") as place:
        found = _stat_node(place)
        if node is None and found:
            _remove_new_path(place, found, saved, folder)
        elif node is None:
            return
        elif node.kind == "folder":
            if found and found.kind != "folder":
                folder.move(place, root=saved.root)
            _make_folder(place, node)
        else:
            if found and found.kind == "folder":
                folder.move(place, root=saved.root)
            elif found:
                folder.copy(place, root=saved.root)
            write_node(place, node)


def write_node(opened: OpenedPath, node: SavedNode) -> None:
    """Write a saved file atomically as a new inode: old hard links may lead elsewhere."""
    if node.data is None:
        raise OSError(errno.EFBIG, "it was too large to save", opened.path)
    draft = opened.sibling(f".travois-{os.getpid()}-{os.urandom(6).hex()}")
    try:
        if node.kind == "link":
            os.symlink(node.data, draft.name, dir_fd=draft.folder)
        else:
            fd = draft.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(fd, "wb") as file:
                file.write(node.data)
                file.flush()  # a write after utime would change the mtime again
                _set_owner_and_mode(fd, node)
                os.utime(fd, ns=(node.stamp[3], node.stamp[3]))
        ends = {"src_dir_fd": draft.folder, "dst_dir_fd": opened.folder}
        os.replace(draft.name, opened.name, **ends)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft.name, dir_fd=draft.folder)


def _remove_new_path(
    opened: OpenedPath, found: SavedNode, saved: SavedPath, folder: SetAsideFolder
) -> None:
    """Remove a path that was not in the saved state; agents' checkouts and their parents stay."""
    kept = os.fsdecode(CHECKOUTS_NAME)
    if found.kind != "folder" or opened.path != saved.path or not _has_checkouts(saved.path):
        folder.move(opened, root=saved.root)
        return
    if not _has_entry(opened, kept):
        folder.move(opened, root=saved.root)
        return
    fd = opened.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(fd):
            if name != kept:
                folder.move(OpenedPath(fd, name, f"{opened.path}/{name}"), root=saved.root)
    finally:
        os.close(fd)


def _has_checkouts(path: str) -> bool:
    return os.path.basename(path) in (".travois", ".claude")


def _make_folder(opened: OpenedPath, node: SavedNode) -> None:
    """Create a saved folder again and restore its owner and mode."""
    with suppress(FileExistsError):
        os.mkdir(opened.name, 0o700, dir_fd=opened.folder)
    fd = opened.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        _set_owner_and_mode(fd, node)
    finally:
        os.close(fd)


def _set_owner_and_mode(fd: int, node: SavedNode) -> None:
    """Restore the saved owner, where permitted, and the saved mode of an open file or folder."""
    with suppress(PermissionError):
        os.chown(fd, *node.owner)
    os.chmod(fd, stat.S_IMODE(node.mode))


def _clear_parents(path: str, saved: SavedPath, folder: SetAsideFolder) -> None:
    """Set aside every non-folder above a guarded path that is to be restored."""
    way = path.removeprefix(saved.root + "/").split("/")[:-1]
    for depth in range(1, len(way) + 1):
        with (
            suppress(FileNotFoundError),
            open_parent("/".join((saved.root, *way[:depth]))) as place,
        ):
            found = _stat_node(place)
            if found and found.kind != "folder":
                folder.move(place, root=saved.root)


def _find_parents(path: str, root: str) -> Iterator[ParentFolder]:
    """Yield the folders between a root and a guarded path."""
    way = path.removeprefix(root + "/").split("/")[:-1]
    for depth in range(1, len(way) + 1):
        at = "/".join((root, *way[:depth]))
        with suppress(OSError):
            found = os.lstat(at)
            if stat.S_ISDIR(found.st_mode):
                yield ParentFolder(at, found.st_dev, found.st_ino)


def _is_in_place(holder: ParentFolder) -> bool:
    """Return whether a guarded path's parent folder is in place and accessible."""
    try:
        found = os.lstat(holder.path)
    except OSError:
        return False
    same = (found.st_dev, found.st_ino) == (holder.device, holder.inode)
    return same and found.st_mode & 0o700 == 0o700


def _make_accessible(opened: OpenedPath) -> None:
    """Make the user's own folder accessible again to restore what is in it."""
    fd = opened.open(os.O_PATH | os.O_DIRECTORY)
    try:
        mode = os.fstat(fd).st_mode
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(mode) | 0o700)
    finally:
        os.close(fd)


def _is_same_folder(opened: OpenedPath, holder: ParentFolder) -> bool:
    """Return whether an opened folder is still the parent that was saved."""
    try:
        found = os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (holder.device, holder.inode)


def _list_parent_names(opened: OpenedPath) -> list[str]:
    """List the names in the folder that contains an opened guarded path."""
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=opened.folder)
    try:
        return os.listdir(fd)
    finally:
        os.close(fd)


def _has_entry(opened: OpenedPath, name: str) -> bool:
    """Return whether an opened folder has an entry of this name."""
    fd = opened.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return name in os.listdir(fd)
    finally:
        os.close(fd)


def _stat_node(opened: OpenedPath) -> SavedNode | None:
    """Read a guarded path's metadata as a saved node without content; None if it is missing."""
    try:
        return _node_from_stat(os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _node_from_stat(found: os.stat_result) -> SavedNode:
    """Build a saved node without content from a file's metadata."""
    stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    kind = _node_kind(found.st_mode)
    names = found.st_nlink if kind == "file" else 1
    return SavedNode(kind, found.st_mode, (found.st_uid, found.st_gid), stamp, names)


def _node_kind(mode: int) -> NodeKind:
    """Return a saved node's kind for a file mode: file, link, folder or other."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _is_name_below(name: bytes, folder: bytes) -> bool:
    return not folder or name.startswith(folder + b"/")
