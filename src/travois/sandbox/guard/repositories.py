"""The git repositories below a folder: `.git` at any depth, and folders that git takes for one.

Git runs programs that the configuration and the hooks of a repository name. A command may make
one anywhere in the workspace, so each folder is listed once and again whenever it changes. The same
listing finds protected files of the project at any depth: instructions, definitions of CI.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import Literal

import msgspec

from travois.permissions.protected_paths import DEPENDENCIES, is_checked
from travois.sandbox.guard.folders import KernelChanges, TimedChanges, Unheard

BELOW_GIT = ("modules", "worktrees")
"""The folders of a repository that hold others: of submodules and of linked worktrees."""
CHECKOUTS = ((".claude", "worktrees"), (".travois", "worktrees"))
"""Folders of settings, and what in them holds checkouts: those are workspaces of their own."""
Kind = Literal["plain", "git", "protected", "dependencies"]
"""What a folder is: one of the project, a repository, one whose files are all protected, or one
with files of other projects or of git, which are only searched for repositories."""


class Folder(msgspec.Struct):
    """A folder as it was listed: the folders in it by inode, repositories and protected files."""

    kind: Kind
    inner: dict[str, int]
    repositories: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


class Repositories:
    """The repositories below one folder, kept up to date by what changes."""

    def __init__(self, root: str, *, timed: bool = False) -> None:
        self._root, self._timed = root, timed
        self._changes: KernelChanges | TimedChanges | None = None
        self._folders: dict[str, Folder] = {}
        self._found: dict[str, tuple[str, ...]] = {}
        self._protected: dict[str, tuple[str, ...]] = {}
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

    def list_protected(self) -> list[str]:
        """Return the protected files of the project, as of the last search for repositories."""
        with self._lock:
            return [path for paths in self._protected.values() for path in paths]

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
        self._folders, self._found, self._protected, self._closed = {}, {}, {}, set()
        try:
            self._changes = TimedChanges() if self._timed else KernelChanges(self._root)
        except OSError:
            self._changes = TimedChanges()
        try:
            self._scan(self._root, "plain")
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
                self._list(folder, known.kind)
        if self._root not in self._folders:
            self._scan(self._root, "plain")

    def _scan(self, folder: str, kind: Kind) -> None:
        """List a folder and all below it."""
        waiting: list[tuple[str, Kind]] = [(folder, kind)]
        while waiting:
            waiting += self._read(*waiting.pop())

    def _list(self, folder: str, kind: Kind) -> None:
        """List one folder again, and all that is new in it."""
        before = dict(self._folders[folder].inner)
        for path, inner in self._read(folder, kind):
            self._scan(path, inner)
        now = self._folders[folder].inner if folder in self._folders else {}
        for path in before.keys() - now.keys():
            self._drop(path)

    def _read(self, folder: str, kind: Kind) -> list[tuple[str, Kind]]:
        """Take note of what a folder holds; returns the folders in it that are to be listed."""
        assert self._changes is not None
        known = self._folders.get(folder)
        try:
            self._changes.watch(folder)  # before it is listed, so that nothing slips between
            names, inner = _entries(folder)
        except OSError:
            self._folders[folder] = Folder(kind, {})
            self._closed.add(folder)
            return []
        self._closed.discard(folder)
        if kind == "git":
            inner = {path: i for path, i in inner.items() if os.path.basename(path) in BELOW_GIT}
        found = _repositories(folder, names, is_git=kind == "git")
        self._note(folder, Folder(kind, inner, found, _protected(folder, names, inner, kind=kind)))
        old = known.inner if known else {}
        new = [p for p, inode in inner.items() if old.get(p) != inode or p not in self._folders]
        above = os.path.basename(folder)
        return [(path, _kind(os.path.basename(path), above, kind)) for path in new]

    def _note(self, folder: str, listed: Folder) -> None:
        self._folders[folder] = listed
        for found, paths in (
            (self._found, listed.repositories),
            (self._protected, listed.protected),
        ):
            if paths:
                found[folder] = paths
            else:
                found.pop(folder, None)

    def _drop(self, folder: str) -> None:
        """Forget a folder and all below it."""
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


def _protected(
    folder: str, names: set[str], inner: dict[str, int], *, kind: Kind
) -> tuple[str, ...]:
    """Return the protected files in a folder; a link counts as itself."""
    if kind in ("git", "dependencies"):
        return ()
    above, whole = os.path.basename(folder), kind == "protected"
    chosen = names if whole else {name for name in names if is_checked(name, above)}
    paths = (os.path.join(folder, name) for name in chosen)
    return tuple(path for path in paths if path not in inner)


def _kind(name: str, above: str, around: Kind) -> Kind:
    """Return what a folder in another one is."""
    if around != "git" and _is_git_name(name):
        return "git"
    if around in ("git", "dependencies") or name in DEPENDENCIES:
        return "dependencies"
    if (above, name) in CHECKOUTS:
        return "plain"
    return "protected" if around == "protected" or is_checked(name, above) else "plain"


def _is_git_name(name: str) -> bool:
    """Whether git finds a repository by this name, on a disk that ignores case too."""
    return name.casefold() == ".git"
