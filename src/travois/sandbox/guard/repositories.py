"""Finding the git repositories below a folder, at any depth, and guarding what git runs in them.

Git runs programs that a repository's configuration and hooks name. A command may create a
repository anywhere in the workspace, so each folder is listed once, and again whenever it changes.
The same listing finds protected project files at any depth: instructions and CI definitions.
"""

from __future__ import annotations

import ctypes
import os
import time
from functools import partial
from struct import Struct
from threading import Lock
from typing import Literal

import msgspec

from travois.permissions.git_config import is_harmless_hook, undo_harmful_changes
from travois.permissions.paths import is_inside
from travois.permissions.protected_paths import DEPENDENCY_FOLDERS, is_checked_name
from travois.sandbox.guard.check import (
    CheckResult,
    ProtectedFileChange,
    make_printable,
    undo_unsafe_config,
)
from travois.sandbox.guard.saved import (
    SavedNode,
    SavedPath,
    SavedTree,
    SetAsideFolder,
    read_names,
    restore_name,
)

NESTED_GIT_FOLDERS = ("modules", "worktrees")
"""The folders of a repository that contain others: submodules and linked worktrees."""
CHECKOUT_FOLDERS = ((".claude", "worktrees"), (".travois", "worktrees"))
"""Settings folders, with the folder in them that contains checkouts, which are workspaces."""
FolderKind = Literal["plain", "git", "protected", "dependencies"]
"""The kind of a folder: of the project, a repository, one of protected files only, or one with
files of other projects or of git, which is only searched for repositories."""
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF, IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED = (
    0x400,
    0x800,
    0x2000,
    0x4000,
    0x8000,
)
IN_ONLYDIR, IN_DONT_FOLLOW = 0x1000000, 0x2000000
ENTRY_EVENTS = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
WATCH_MASK = ENTRY_EVENTS | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW
INOTIFY_EVENT = Struct("iIII")
WATCH_SHARE = 4
"""The fraction of the user's inotify watches for us: editors and snapshots need some."""
LOCAL_FILE_SYSTEMS = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E)
)
"""ext, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs: the kernel sees every change."""
FOLDER_TIME_SLACK_NS = 100_000_000
"""The nanoseconds in which a second change may leave the timestamp of a folder unchanged."""


class ListedFolder(msgspec.Struct):
    """A folder as it was listed: its folders by inode, repositories and protected files."""

    kind: FolderKind
    inner: dict[str, int]
    repositories: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


class RepositoryFinder:
    """The repositories below one folder, kept up to date as folders change."""

    def __init__(self, root: str, *, timed: bool = False) -> None:
        self._root, self._timed = root, timed
        self._changes: InotifyFolderChanges | TimestampFolderChanges | None = None
        self._folders: dict[str, ListedFolder] = {}
        self._found: dict[str, tuple[str, ...]] = {}
        self._protected: dict[str, tuple[str, ...]] = {}
        self._closed: set[str] = set()
        """Folders that could not be listed, tried again later."""
        self._lock = Lock()

    def find(self) -> frozenset[str]:
        """Return the paths of all repositories that exist now; a `.git` may be a file or a link."""
        with self._lock:
            try:
                if self._changes is not None:
                    self._apply_folder_changes()
                else:
                    self._list_everything()
            except MissedChanges:
                self._list_everything()
            return frozenset(path for paths in self._found.values() for path in paths)

    def list_protected_files(self) -> list[str]:
        """Return the protected files of the project, as of the last search for repositories."""
        with self._lock:
            return [path for paths in self._protected.values() for path in paths]

    def close(self) -> None:
        """Stop watching; the next search lists everything anew."""
        with self._lock:
            if self._changes is not None:
                self._changes.close()
            self._changes = None

    def _list_everything(self) -> None:
        """List everything anew; by timestamps where there are more folders than may be watched."""
        if self._changes is not None:
            self._changes.close()
        self._folders, self._found, self._protected, self._closed = {}, {}, {}, set()
        try:
            self._changes = (
                TimestampFolderChanges() if self._timed else InotifyFolderChanges(self._root)
            )
        except OSError:
            self._changes = TimestampFolderChanges()
        try:
            self._scan_below(self._root, "plain")
        except MissedChanges:
            self._timed = True
            self._list_everything()

    def _apply_folder_changes(self) -> None:
        """List again the folders that changed, and forget those that are gone."""
        assert self._changes is not None
        changed, gone = self._changes.take_changes()
        for folder in gone:
            self._forget_below(folder)
            changed.add(os.path.dirname(folder))
        for folder in changed | self._closed:
            if (known := self._folders.get(folder)) is not None:
                self._list_again(folder, known.kind)
        if self._root not in self._folders:
            self._scan_below(self._root, "plain")

    def _scan_below(self, folder: str, kind: FolderKind) -> None:
        """List a folder and all below it."""
        waiting: list[tuple[str, FolderKind]] = [(folder, kind)]
        while waiting:
            waiting += self._read_folder(*waiting.pop())

    def _list_again(self, folder: str, kind: FolderKind) -> None:
        """List one folder again, and everything new in it."""
        before = dict(self._folders[folder].inner)
        for path, inner in self._read_folder(folder, kind):
            self._scan_below(path, inner)
        now = self._folders[folder].inner if folder in self._folders else {}
        for path in before.keys() - now.keys():
            self._forget_below(path)

    def _read_folder(self, folder: str, kind: FolderKind) -> list[tuple[str, FolderKind]]:
        """List one folder; return the folders in it that are to be listed next."""
        assert self._changes is not None
        known = self._folders.get(folder)
        try:
            self._changes.watch(
                folder
            )  # before the listing, so that no change between the two is missed
            names, inner = _scan_entries(folder)
        except OSError:
            self._folders[folder] = ListedFolder(kind, {})
            self._closed.add(folder)
            return []
        self._closed.discard(folder)
        if kind == "git":
            inner = {
                path: i for path, i in inner.items() if os.path.basename(path) in NESTED_GIT_FOLDERS
            }
        found = _find_repositories_in(folder, names, is_git=kind == "git")
        self._store_listing(
            folder,
            ListedFolder(kind, inner, found, _find_protected_in(folder, names, inner, kind=kind)),
        )
        old = known.inner if known else {}
        new = [p for p, inode in inner.items() if old.get(p) != inode or p not in self._folders]
        above = os.path.basename(folder)
        return [(path, _classify_folder(os.path.basename(path), above, kind)) for path in new]

    def _store_listing(self, folder: str, listed: ListedFolder) -> None:
        self._folders[folder] = listed
        for found, paths in (
            (self._found, listed.repositories),
            (self._protected, listed.protected),
        ):
            if paths:
                found[folder] = paths
            else:
                found.pop(folder, None)

    def _forget_below(self, folder: str) -> None:
        """Forget a folder and everything below it."""
        waiting = [folder]
        while waiting:
            path = waiting.pop()
            known = self._folders.pop(path, None)
            self._found.pop(path, None)
            self._protected.pop(path, None)
            self._closed.discard(path)
            if known is not None:
                assert self._changes is not None
                self._changes.forget(path)
                waiting += known.inner


def _scan_entries(folder: str) -> tuple[set[str], dict[str, int]]:
    """List a folder while searching for repositories: its names, and its folders' inodes."""
    names, inner = set[str](), dict[str, int]()
    with os.scandir(folder) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.is_dir(follow_symlinks=False):
                inner[entry.path] = entry.inode()
    return names, inner


def _find_repositories_in(folder: str, names: set[str], *, is_git: bool) -> tuple[str, ...]:
    """Return the repositories that a folder is or names, by git's own `is_git_directory` test."""
    linked = "commondir" in names
    whole = "HEAD" in names and (linked or ("objects" in names and "refs" in names))
    own = (folder,) if is_git or whole else ()
    files = () if is_git else (os.path.join(folder, n) for n in names if _is_git_name(n))
    return tuple(dict.fromkeys((*own, *files)))


def _find_protected_in(
    folder: str, names: set[str], inner: dict[str, int], *, kind: FolderKind
) -> tuple[str, ...]:
    """Return the protected project files in a folder; a link counts as itself."""
    if kind in ("git", "dependencies"):
        return ()
    above, whole = os.path.basename(folder), kind == "protected"
    chosen = names if whole else {name for name in names if is_checked_name(name, above)}
    paths = (os.path.join(folder, name) for name in chosen)
    return tuple(path for path in paths if path not in inner)


def _classify_folder(name: str, above: str, around: FolderKind) -> FolderKind:
    """Decide how the search for repositories treats a folder inside another one."""
    if around != "git" and _is_git_name(name):
        return "git"
    if around in ("git", "dependencies") or name in DEPENDENCY_FOLDERS:
        return "dependencies"
    if (above, name) in CHECKOUT_FOLDERS:
        return "plain"
    return "protected" if around == "protected" or is_checked_name(name, above) else "plain"


def _is_git_name(name: str) -> bool:
    """Return whether git takes this name for a repository's, even on a case-insensitive disk."""
    return name.casefold() == ".git"


# Repositories inside a workspace: the changes that a command may make, and undoing the others.


GUARDED_GIT_NAMES = ("config", "config.worktree", "commondir", "hooks")
"""Names in a repository that make git start programs, or point to where more of that is."""
GIT_CONFIG_NAMES = (b"config", b"config.worktree")
GITDIR_PREFIX = b"gitdir:"


class RepositoryContext(msgspec.Struct, frozen=True):
    """The parts of the workspace that checking one repository needs to know."""

    roots: tuple[str, ...] = ()
    """The folders that belong to the workspace."""
    known: frozenset[str] = frozenset()
    """All repositories there: one that another points to is checked as well."""
    lifted: tuple[str, ...] = ()
    """Paths that the command was allowed to write by name."""


def check_repository(
    saved: SavedPath, folder: SetAsideFolder, *, repository: RepositoryContext
) -> CheckResult:
    """Undo what would start programs in a guarded repository, and accept all other changes."""
    if not os.path.lexists(saved.path):
        return CheckResult((), msgspec.structs.replace(saved, tree=()))
    now = read_names(saved.path, GUARDED_GIT_NAMES, saved)
    tree, changes = dict(saved.nodes), list[ProtectedFileChange]()
    for name in sorted(saved.nodes.keys() | now.keys()):
        was, is_ = saved.nodes.get(name), now.get(name)
        if was is not None and is_ is not None and was.is_like(is_):
            continue
        path = os.path.join(saved.path, os.fsdecode(name)) if name else saved.path
        if _is_lifted(path, name, repository) or _is_acceptable_node(
            name, now, path=saved.path, repository=repository
        ):
            _accept_node(tree, name, is_)
        elif (
            name in GIT_CONFIG_NAMES
            and is_ is not None
            and is_.kind == "file"
            and is_.data is not None
        ):
            allowed = partial(_names_inner_worktree, saved.path, repository.roots)
            found, data = undo_unsafe_config(saved, is_, folder, name=name, allowed=allowed)
            changes += found
            tree[name] = msgspec.structs.replace(is_, data=data)
        else:
            changes.append(_undo_change(saved, name, folder, path=path))
    return CheckResult(tuple(changes), msgspec.structs.replace(saved, tree=tuple(tree.items())))


def find_dangerous_settings(path: str, *, repository: RepositoryContext) -> tuple[str, ...]:
    """Return what would start programs in a new repository; change nothing."""
    now = read_names(path, GUARDED_GIT_NAMES)
    allowed = partial(_names_inner_worktree, path, repository.roots)
    found = list[str]()
    for name, node in sorted(now.items()):
        if name in GIT_CONFIG_NAMES and node.data is not None:
            undone = undo_harmful_changes(b"", node.data, allowed=allowed).undone
            found += (
                [f"{os.fsdecode(name)} ({', '.join(map(make_printable, undone))})"]
                if undone
                else []
            )
        elif not _is_acceptable_node(name, now, path=path, repository=repository):
            found.append(make_printable(os.fsdecode(name)) or "its target")
    return tuple(found)


def _accept_node(tree: dict[bytes, SavedNode], name: bytes, node: SavedNode | None) -> None:
    """Accept the present state of one name into a repository's saved state."""
    if node is None:
        tree.pop(name, None)
    else:
        tree[name] = node


def _undo_change(
    saved: SavedPath, name: bytes, folder: SetAsideFolder, *, path: str
) -> ProtectedFileChange:
    """Restore one name in a repository to its saved state and report the change."""
    done = True
    try:
        restore_name(saved, name, folder)
    except OSError:
        done = False
    return ProtectedFileChange(make_printable(os.path.relpath(path, saved.root)), restored=done)


def _is_lifted(path: str, name: bytes, repository: RepositoryContext) -> bool:
    """Return whether the command had permission to change this path of a repository."""
    # `git config` was allowed; it may have been told to work in another repository.
    if name in GIT_CONFIG_NAMES and any(one.endswith("/.git/config") for one in repository.lifted):
        return True
    return any(is_inside(path, one) or is_inside(one, path) for one in repository.lifted)


def _is_acceptable_node(
    name: bytes, now: SavedTree, *, path: str, repository: RepositoryContext
) -> bool:
    """Return whether a changed repository entry cannot make git run a program."""
    node = now.get(name)
    if not name:
        return node is None or _resolve_git_pointer(node, path) in repository.known
    if name in GIT_CONFIG_NAMES:
        return node is None
    if name == b"commondir":
        return node is None or (node.kind == "file" and _is_own_worktree(path, node.data or b""))
    if node is None:
        return False  # the user's own hook was removed
    if node.kind == "folder":
        return True
    if node.kind != "file" or node.data is None or name.count(b"/") != 1:
        return False
    return is_harmless_hook(os.fsdecode(name.rpartition(b"/")[2]), node.data)


def _resolve_git_pointer(node: SavedNode, path: str) -> str:
    """Return the repository that a `.git` file or link names; empty if it names none."""
    if node.kind == "link":
        return os.path.realpath(path)
    data = (node.data or b"").strip() if node.kind == "file" else b""
    if not data.startswith(GITDIR_PREFIX) or b"\0" in data:
        return ""
    target = os.fsdecode(data.removeprefix(GITDIR_PREFIX).strip())
    return os.path.realpath(os.path.join(os.path.dirname(path), target))


def _is_own_worktree(path: str, data: bytes) -> bool:
    """Return whether a linked worktree shares the files of the repository that it lies in."""
    folder, above = os.path.split(os.path.dirname(path))[::-1]
    target = os.path.join(path, os.fsdecode(data.strip()))
    return folder == "worktrees" and b"\0" not in data and os.path.realpath(target) == above


def _names_inner_worktree(
    path: str, roots: tuple[str, ...], key: str, values: tuple[str | None, ...]
) -> bool:
    """Return whether a setting names a working tree inside the workspace, as a submodule's does."""
    if key != "core.worktree":
        return False
    trees = (os.path.realpath(os.path.join(path, value or "/")) for value in values)
    return all(any(is_inside(tree, root) for root in roots) for tree in trees)


class MissedChanges(Exception):
    """Changes may have been missed: everything has to be listed again."""


class InotifyFolderChanges:
    """Folder changes reported by inotify. Raises OSError where it cannot be used."""

    def __init__(self, root: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        if not hasattr(self._libc, "inotify_init1") or not self._is_local_disk(root):
            raise OSError("inotify does not report all changes on this file system")
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._most = _get_max_watches() // WATCH_SHARE

    def watch(self, folder: str) -> None:
        """Watch a folder from here on. Raises OSError if that is not possible."""
        if len(self._paths) >= self._most:
            raise MissedChanges
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), WATCH_MASK)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", folder)
        self._paths[number] = folder
        self._numbers[folder] = number

    def forget(self, folder: str) -> None:
        """Stop watching a folder, unless it has another path by now."""
        number = self._numbers.pop(folder, None)
        if number is not None and self._paths.get(number) == folder:
            del self._paths[number]
            self._libc.inotify_rm_watch(self._fd, number)

    def take_changes(self) -> tuple[set[str], set[str]]:
        """Return the folders to list again, and those that are gone. Raises `MissedChanges`."""
        changed, gone = set[str](), set[str]()
        while data := self._read_events():
            at = 0
            while at < len(data):
                number, mask, _, length = INOTIFY_EVENT.unpack_from(data, at)
                at += INOTIFY_EVENT.size + length
                if mask & (IN_Q_OVERFLOW | IN_UNMOUNT):
                    raise MissedChanges
                path = self._paths.get(number)
                if path is None:
                    continue
                if mask & IN_IGNORED:
                    del self._paths[number]
                    gone.add(path)
                changed.add(path)
        return changed, gone

    def close(self) -> None:
        """Stop watching all folders."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _read_events(self) -> bytes:
        try:
            return os.read(self._fd, 1 << 18)
        except BlockingIOError:
            return b""

    def _is_local_disk(self, folder: str) -> bool:
        found = ctypes.create_string_buffer(256)
        if self._libc.statfs(os.fsencode(folder), found):
            return False
        size = ctypes.sizeof(ctypes.c_long)
        return int.from_bytes(found.raw[:size], "little") & 0xFFFFFFFF in LOCAL_FILE_SYSTEMS


class TimestampFolderChanges:
    """Folder changes by timestamps, which no program can set back: slower, but always available."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def watch(self, folder: str) -> None:
        """Record the timestamp of a folder before it is listed."""
        changed = os.lstat(folder).st_ctime_ns
        self._times[folder] = changed if time.time_ns() - changed > FOLDER_TIME_SLACK_NS else -1

    def forget(self, folder: str) -> None:
        """Stop checking a folder."""
        self._times.pop(folder, None)

    def take_changes(self) -> tuple[set[str], set[str]]:
        """Return the folders to list again, and those that are gone."""
        found = {folder: _folder_ctime(folder) for folder in self._times}
        gone = {folder for folder, when in found.items() if when < 0}
        return {folder for folder, when in found.items() if when != self._times[folder]}, gone

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _folder_ctime(folder: str) -> int:
    """Return a watched folder's change time in nanoseconds; -2 if it is missing."""
    try:
        return os.lstat(folder).st_ctime_ns
    except OSError:
        return -2


def _get_max_watches() -> int:
    """Return the number of folders that inotify lets a user watch."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
