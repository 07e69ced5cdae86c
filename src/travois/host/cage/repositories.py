"""The git repositories below a folder: `.git` at any depth, and folders that git takes for one.

Git runs programs that the configuration and the hooks of a repository name. A command may make
one anywhere in the workspace, so each folder is listed once and again whenever it changes.
"""

from __future__ import annotations

import os
from threading import Lock

import msgspec

from travois.host.cage.folders import KernelChanges, TimedChanges, Unheard

BELOW_GIT = ("modules", "worktrees")
"""The folders of a repository that hold others: of submodules and of linked worktrees."""


class Folder(msgspec.Struct):
    """A folder as it was listed: the folders in it by inode, and the repositories."""

    is_git: bool
    inner: dict[str, int]
    repositories: tuple[str, ...]


class Repositories:
    """The repositories below one folder, kept up to date by what changes."""

    def __init__(self, root: str, *, timed: bool = False) -> None:
        self._root, self._timed = root, timed
        self._changes: KernelChanges | TimedChanges | None = None
        self._folders: dict[str, Folder] = {}
        self._found: dict[str, tuple[str, ...]] = {}
        self._closed: set[str] = set()
        """Folders that could not be listed, to be tried again."""
        self._lock = Lock()

    def find(self) -> frozenset[str]:
        """The paths of all repositories that are there now; a `.git` may be a file or a link."""
        with self._lock:
            try:
                self._update() if self._changes is not None else self._begin()
            except Unheard:
                self._begin()
            return frozenset(path for paths in self._found.values() for path in paths)

    def close(self) -> None:
        """Watch nothing any more; the next search lists everything anew."""
        with self._lock:
            if self._changes is not None:
                self._changes.close()
            self._changes = None

    def _begin(self) -> None:
        """List everything anew; by time where there are more folders than may be watched."""
        if self._changes is not None:
            self._changes.close()
        self._folders, self._found, self._closed = {}, {}, set()
        try:
            self._changes = TimedChanges() if self._timed else KernelChanges(self._root)
        except OSError:
            self._changes = TimedChanges()
        try:
            self._scan(self._root, is_git=False)
        except Unheard:
            self._timed = True
            self._begin()

    def _update(self) -> None:
        assert self._changes is not None
        changed, gone = self._changes.changed()
        for folder in gone:
            self._drop(folder)
            changed.add(os.path.dirname(folder))
        for folder in changed | self._closed:
            if (known := self._folders.get(folder)) is not None:
                self._list(folder, is_git=known.is_git)
        if self._root not in self._folders:
            self._scan(self._root, is_git=False)

    def _scan(self, folder: str, *, is_git: bool) -> None:
        """List a folder and all below it."""
        waiting = [(folder, is_git)]
        while waiting:
            path, git = waiting.pop()
            waiting += self._read(path, is_git=git)

    def _list(self, folder: str, *, is_git: bool) -> None:
        """List one folder again, and all that is new in it."""
        before = dict(self._folders[folder].inner)
        for path, git in self._read(folder, is_git=is_git):
            self._scan(path, is_git=git)
        now = self._folders[folder].inner if folder in self._folders else {}
        for path in before.keys() - now.keys():
            self._drop(path)

    def _read(self, folder: str, *, is_git: bool) -> list[tuple[str, bool]]:
        """Take note of what a folder holds; returns the folders in it that are to be listed."""
        assert self._changes is not None
        known = self._folders.get(folder)
        try:
            self._changes.watch(folder)  # before it is listed, so that nothing slips between
            names, inner = _entries(folder)
        except OSError:
            self._folders[folder] = Folder(is_git, {}, ())
            self._closed.add(folder)
            return []
        self._closed.discard(folder)
        if is_git:
            inner = {path: i for path, i in inner.items() if os.path.basename(path) in BELOW_GIT}
        self._note(folder, Folder(is_git, inner, _repositories(folder, names, is_git=is_git)))
        old = known.inner if known else {}
        new = [p for p, inode in inner.items() if old.get(p) != inode or p not in self._folders]
        return [(path, not is_git and _is_git_name(os.path.basename(path))) for path in new]

    def _note(self, folder: str, listed: Folder) -> None:
        self._folders[folder] = listed
        if listed.repositories:
            self._found[folder] = listed.repositories
        else:
            self._found.pop(folder, None)

    def _drop(self, folder: str) -> None:
        """Forget a folder and all below it."""
        waiting = [folder]
        while waiting:
            path = waiting.pop()
            known = self._folders.pop(path, None)
            self._found.pop(path, None)
            self._closed.discard(path)
            if known is not None:
                assert self._changes is not None
                self._changes.forget(path)
                waiting += known.inner


def _entries(folder: str) -> tuple[set[str], dict[str, int]]:
    """The names in a folder, and the folders among them by their paths, with their inodes."""
    names, inner = set[str](), dict[str, int]()
    with os.scandir(folder) as entries:
        for entry in entries:
            names.add(entry.name)
            if entry.is_dir(follow_symlinks=False):
                inner[entry.path] = entry.inode()
    return names, inner


def _repositories(folder: str, names: set[str], *, is_git: bool) -> tuple[str, ...]:
    """The repositories that a folder is or names; see `is_git_directory` in git's setup.c."""
    linked = "commondir" in names
    whole = "HEAD" in names and (linked or ("objects" in names and "refs" in names))
    own = (folder,) if is_git or whole else ()
    files = () if is_git else (os.path.join(folder, n) for n in names if _is_git_name(n))
    return tuple(dict.fromkeys((*own, *files)))


def _is_git_name(name: str) -> bool:
    """Whether git finds a repository by this name, on a disk that ignores case too."""
    return name.casefold() == ".git"
