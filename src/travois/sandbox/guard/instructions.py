"""Protected project files: agent instructions and CI definitions, at any depth.

A command may write anywhere in the workspace, and git changes these files in ordinary work, so no
mount protects them. Their state is noted before a command that runs without approval and restored
after it, unless somebody approved the change or it comes out of the repository: content that git
had under that very path before the command began.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b, sha1
from itertools import islice
from struct import Struct, error

import msgspec

from travois.files.git_index import blob_hash_at, iterate_entries
from travois.files.openat import open_parent
from travois.permissions.paths import pattern_allows_path
from travois.permissions.protected_paths import is_checked_name, protected_names
from travois.permissions.sandbox_profile import UnapprovedChanges
from travois.sandbox.guard.check import ProtectedFileChange, join_first_names, make_printable
from travois.sandbox.guard.saved import (
    CLOCK_SLACK_NS,
    SavedNode,
    SavedPath,
    SetAsideFolder,
    read_saved_tree,
    restore_name,
    restore_parents,
    save_path,
)

MAX_NOTED_BYTES = 32 * 1024 * 1024
"""The bytes of contents that are kept. Beyond that a change is noticed but cannot be undone."""
MAX_READ_ONLY_MOUNTS = 100
"""The most files mounted read-only for one command: each costs the sandbox a millisecond."""
MAX_GIT_INDEX_BYTES = 512 * 1024 * 1024
"""The most bytes of a git index that are read."""
RESTORED_NOTICE = (
    "Protected project files changed during a command that ran without approval and were restored: "
    "{}.{} To change one, use Edit or Write, or a shell command that writes only this file; the "
    "user is then asked to approve it. A permission rule such as Edit({}) lets commands write it."
)
NOT_RESTORED_NOTICE = (
    "Protected project files changed during a command that ran without approval, and could NOT be "
    "restored: {}. Review them before you continue."
)
CHANGED_SINCE_KILL_NOTICE = (
    "Protected project files differ from what they were before a command whose session was killed: "
    "{}. Unless you changed them yourself, review them."
)
PACK_FANOUT = Struct(">II")
ROOT_NAME = b""
"""The name of a path itself in its saved tree."""
MISSING_DIGEST = b""
"""Stands for the digest of a missing file."""
ACCEPTED_FILE = "accepted"
"""The file that tells other processes which of our changes are agreed to."""


class NotedFile(msgspec.Struct, frozen=True):
    """The noted state of a file, when it was read, and the folder that it belonged to."""

    node: SavedNode
    at: int
    root: str
    owner: tuple[int, int]
    """Device and inode of the folder that the file guides: it may move with that."""


class UnaskedRun(msgspec.Struct, frozen=True):
    """A command that runs without approval: its start, the rules that allow it, and its folders."""

    at: int
    unasked: UnapprovedChanges
    roots: tuple[str, ...]


class ProtectedProjectFiles:
    """The protected project files and the state that they must keep while commands run.

    `folder` is one that no command can write; `find` lists such files below some folders.
    """

    def __init__(self, folder: str, find: Callable[[tuple[str, ...]], list[str]]) -> None:
        self._folder, self._find = folder, find
        self._noted: dict[str, NotedFile] = {}
        self._running: dict[str, UnaskedRun] = {}
        self._left = MAX_NOTED_BYTES

    def note_files(self, roots: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
        """Note the state of files, except those that another command must not change.

        Returns the digests of all of them.
        """
        fresh = {
            path: self._read_noted(path, roots)
            for path in self._list_unguarded(self._find(roots), roots)
        }
        gone = dict.fromkeys(
            path for path in self._list_unguarded(self._noted, roots) if path not in fresh
        )
        for path, noted in (fresh | gone).items():
            self._update_noted(path, noted)
        self._left = MAX_NOTED_BYTES - sum(
            len(one.node.data or b"") for one in self._noted.values()
        )
        held = (item for item in self._noted.items() if _is_below_any(item[0], roots))
        return tuple((path, _digest_node(noted.node)) for path, noted in held)

    def begin_run(self, name: str, running: UnaskedRun) -> None:
        """Keep a command from changing files from its start on."""
        self._running[name] = running

    def check_all_runs(self) -> list[str]:
        """Check the changes of all running commands; return the notices."""
        return [words for name in self._running for words in self.check_run(name)]

    def check_run(self, name: str) -> tuple[str, ...]:
        """Restore the files whose changes nobody approved, and accept all other changes."""
        if name not in self._running:
            return ()
        aside = SetAsideFolder(os.path.join(self._folder, "replaced"))
        changes = list(self._check_files(self._running[name].roots, aside))
        return tuple(_render_notices(changes, aside))

    def end_run(self, name: str, roots: tuple[str, ...]) -> tuple[str, ...]:
        """Check the changes of a command for the last time.

        Approved changes are accepted for the commands that still run.
        """
        told = self.check_run(name)
        if self._running.pop(name, None) is None and self._running:
            known = (path for path in self._noted if _is_below_any(path, roots))
            for path in {*_with_link_targets(self._find(roots), roots), *known}:
                self._update_noted(path, self._read_noted(path, roots))
        return told

    def accept_change(self, path: str, data: bytes | None) -> None:
        """Accept an approved change as the state to keep, in all processes."""
        if not protected_names(path):
            return
        roots = tuple(root for one in self._running.values() for root in one.roots)
        is_ = self._read_noted(path, (*roots, os.path.dirname(path)))
        if is_ is not None and data is not None:
            node = msgspec.structs.replace(is_.node, data=data)
            is_ = msgspec.structs.replace(is_, node=node)
        if _is_below_any(path, roots):
            self._update_noted(path, is_)
        with open(os.path.join(self._folder, ACCEPTED_FILE), "ab", opener=_open_private) as file:
            file.write(_digest_record(path, _digest_node(is_.node) if is_ else MISSING_DIGEST))

    def forget_accepted(self) -> None:
        """Forget the changes approved during commands that have ended."""
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder, ACCEPTED_FILE))

    def _check_files(
        self, roots: tuple[str, ...], folder: SetAsideFolder
    ) -> Iterator[ProtectedFileChange]:
        """Accept the legitimate changes and restore the other files."""
        known = (path for path in self._noted if _is_below_any(path, roots))
        found = {*_with_link_targets(self._find(roots), roots), *known}
        now = {path: self._read_noted(path, roots) for path in sorted(found)}
        moved = dict(self._find_moved(now))
        expected = {*moved, *moved.values()}
        for path, is_ in now.items():
            was = self._noted.get(path)
            same = _has_same_content(was, is_) or path in expected
            if same or self._is_agreed(path, was, is_):
                self._update_noted(path, is_)
            elif was or os.path.lexists(path):  # else it went with what was in the way of another
                yield self._restore_file(path, was, is_, folder)

    def _list_unguarded(self, paths: Iterable[str], roots: tuple[str, ...]) -> list[str]:
        """Return the files in some folders that no running command is kept from changing."""
        held = tuple(root for one in self._running.values() for root in one.roots)
        inner = (path for path in _with_link_targets(paths, roots) if _is_below_any(path, roots))
        return [path for path in inner if not _is_below_any(path, held)]

    def _read_noted(self, path: str, roots: tuple[str, ...]) -> NotedFile | None:
        """Return a file's state, without rereading one that cannot have changed."""
        root = next((root for root in roots if _is_below_any(path, (root,))), "")
        known = self._noted.get(path)
        if (
            known is not None
            and known.node.stamp[-1] < known.at - CLOCK_SLACK_NS
            and _has_stamp(path, known)
        ):
            return known
        at = time.time_ns()
        try:
            node = read_saved_tree(path).get(ROOT_NAME)
        except OSError:
            return known
        if node is None or node.kind == "folder" or not root:
            return None
        if len(node.data or b"") > self._left:
            node = msgspec.structs.replace(node, data=None)
        self._left -= len(node.data or b"")
        return NotedFile(node, at, root, _folder_identity(_find_owning_folder(path, root)))

    def _find_moved(self, now: dict[str, NotedFile | None]) -> Iterator[tuple[str, str]]:
        """Find instruction files that moved together with the folder they apply to.

        A file moved by itself does not count: that would apply its instructions to another folder.
        """
        fresh = {path: is_ for path, is_ in now.items() if is_ and path not in self._noted}
        if not fresh:
            return
        lost = {
            (was.owner, was.node.stamp[:2], os.path.basename(path)): path
            for path, was in self._noted.items()
            if now.get(path) is None
        }
        for path, is_ in fresh.items():
            old = lost.get((is_.owner, is_.node.stamp[:2], os.path.basename(path)))
            if (
                old
                and _is_path_free(_find_owning_folder(old, is_.root))
                and _has_same_content(self._noted[old], is_)
            ):
                yield path, old

    def _is_agreed(self, path: str, was: NotedFile | None, is_: NotedFile | None) -> bool:
        """Return whether a user, a rule or git made this change legitimate."""
        running = [one for one in self._running.values() if _is_below_any(path, one.roots)]
        if all(path in one.unasked.held for one in running):
            return True
        if any(_rules_permit(one.unasked, path, root=_get_noted_root(was, is_)) for one in running):
            return True
        if self._is_accepted(
            _digest_record(path, _digest_node(is_.node) if is_ else MISSING_DIGEST)
        ):
            return True
        since = min(one.at for one in running)
        return is_from_git(path, was and was.node, is_ and is_.node, since=since)

    def _is_accepted(self, record: bytes) -> bool:
        try:
            with open(os.path.join(self._folder, ACCEPTED_FILE), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return False
        size = len(record)
        return any(data[at : at + size] == record for at in range(0, len(data), size))

    def _update_noted(self, path: str, is_: NotedFile | None) -> None:
        if is_ is None:
            self._noted.pop(path, None)
        else:
            self._noted[path] = is_

    def _restore_file(
        self, path: str, was: NotedFile | None, is_: NotedFile | None, folder: SetAsideFolder
    ) -> ProtectedFileChange:
        """Restore a file to its noted state, or remove it if there was none."""
        root = _get_noted_root(was, is_)
        tree = ((ROOT_NAME, was.node),) if was else ()
        done = True
        try:
            _restore_despite_modes(SavedPath(path, root, 0, tree), folder)
        except OSError:
            done = False
        if done:
            self._update_noted(path, self._read_noted(path, (root,)))
        return ProtectedFileChange(make_printable(os.path.relpath(path, root)), restored=done)


def _restore_despite_modes(saved: SavedPath, folder: SetAsideFolder) -> None:
    """Restore a project file, even if a command made it or its folder inaccessible."""
    tuple(restore_parents(save_path(saved.path, saved.root), folder))
    try:
        restore_name(saved, ROOT_NAME, folder)
    except PermissionError:  # what cannot be read can be moved
        with open_parent(saved.path) as place:
            folder.move(place, root=saved.root)
        restore_name(saved, ROOT_NAME, folder)


def _render_notices(changes: list[ProtectedFileChange], folder: SetAsideFolder) -> Iterator[str]:
    """Yield notices about restored project files, for the user and the model."""
    done = [change.words for change in changes if change.restored]
    failed = [change.words for change in changes if not change.restored]
    if done:
        kept = f" The command's versions are in {folder.path}." if folder.path else ""
        yield RESTORED_NOTICE.format(join_first_names(done), kept, done[0])
    if failed:
        yield NOT_RESTORED_NOTICE.format(join_first_names(failed))


def find_mountable_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the project files that a read-only mount protects: those with one hard link."""
    plain_ones = (path for path in paths if _has_one_name(path))
    return tuple(islice(plain_ones, MAX_READ_ONLY_MOUNTS))


def _has_one_name(path: str) -> bool:
    """Return whether a protected project file is a regular file with a single hard link."""
    with suppress(OSError):
        found = os.lstat(path)
        return stat.S_ISREG(found.st_mode) and found.st_nlink == 1
    return False


def report_changes_since_kill(
    before: Iterable[tuple[str, bytes]], paths: Iterable[str]
) -> Iterator[str]:
    """Report project files that differ from what a killed session noted, without restoring them.

    The user may have changed them since, and content that git has in its index is expected.
    """
    known = dict(before)
    now = {path: read_saved_tree(path).get(ROOT_NAME) for path in {*known, *paths}}
    differing = (
        path
        for path, node in sorted(now.items())
        if (_digest_node(node) if node else MISSING_DIGEST) != known.get(path, MISSING_DIGEST)
        and not is_from_git(path, None, node, since=time.time_ns())
    )
    if found := [make_printable(path) for path in differing]:
        yield CHANGED_SINCE_KILL_NOTICE.format(join_first_names(found))


def is_from_git(path: str, was: SavedNode | None, is_: SavedNode | None, *, since: int) -> bool:
    """Return whether a project file's change is one that git makes when it checks out a commit.

    The index must list the path with this content, or no longer list it, and the content must have
    been among git's objects before the command began, by the kernel's clock, which no program can
    set back.
    """
    node = is_ or was
    top = _find_working_tree(path)
    if node is None or node.data is None or not top:
        return False
    git, common = _find_git_folders(top)
    try:
        listed = _find_index_blob(f"{git}/index", os.fsencode(os.path.relpath(path, top)))
    except (OSError, error, ValueError, IndexError):
        return False
    names = {_git_blob_id(data) for data in (node.data, node.data.replace(b"\r\n", b"\n"))}
    wanted = listed in names if is_ else listed is None
    return wanted and any(_object_existed(f"{common}/objects", name, since=since) for name in names)


def _find_working_tree(path: str) -> str:
    """Return the git working tree that a project file belongs to; empty if none."""
    parts = path.split("/")
    folders = ("/".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1))
    return next((folder for folder in folders if os.path.lexists(f"{folder}/.git")), "")


def _find_git_folders(top: str) -> tuple[str, str]:
    """Return the git folder with a working tree's index, and the one with its objects."""
    git = f"{top}/.git"
    if os.path.isfile(git):
        git = os.path.join(top, _read_pointer_text(git).removeprefix("gitdir:").strip())
    common = _read_pointer_text(f"{git}/commondir").strip()
    return git, os.path.join(git, common) if common else git


def _read_pointer_text(path: str) -> str:
    """Read the text of a `.git` file or similar pointer; empty if it is unreadable."""
    try:
        return os.fsdecode(_read_regular_file(path, 4096)).replace("\0", "")
    except OSError:
        return ""


def _read_regular_file(path: str, most: int) -> bytes:
    """Read a regular project file, never one that could block. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a file", path)
        return file.read(most)


def _find_index_blob(index: str, wanted: bytes) -> bytes | None:
    """Return the blob that a git index lists for a path. Raises if it cannot be parsed."""
    data = _read_regular_file(index, MAX_GIT_INDEX_BYTES)
    return next(
        (blob_hash_at(data, at) for at, name in iterate_entries(data) if name == wanted), None
    )


def _git_blob_id(data: bytes) -> bytes:
    return sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).digest()


def _object_existed(objects: str, name: bytes, *, since: int) -> bool:
    """Return whether a git object existed at a given time, loose or in a pack."""
    text = name.hex()
    loose = f"{objects}/{text[:2]}/{text[2:]}"
    packs = (
        f"{objects}/pack/{one}"
        for one in _list_folder_names(f"{objects}/pack")
        if one.endswith(".idx")
    )
    return _is_unchanged_since(loose, since) or any(
        _is_unchanged_since(pack, since) and _pack_has_object(pack, name) for pack in packs
    )


def _is_unchanged_since(path: str, since: int) -> bool:
    """Return whether a file is unchanged since a time: any change sets its ctime."""
    with suppress(OSError):
        return os.lstat(path).st_ctime_ns < since
    return False


def _pack_has_object(pack: str, name: bytes) -> bool:
    """Return whether a git pack's index, version 2, contains an object."""
    with suppress(OSError, error), open(pack, "rb") as file:
        file.seek(8 + 4 * max(0, name[0] - 1))
        first, last = PACK_FANOUT.unpack(file.read(8))
        first, last = (0, first) if name[0] == 0 else (first, last)
        file.seek(8 + 1024 + 20 * first)
        names = file.read(20 * (last - first))
        return any(names[at : at + 20] == name for at in range(0, len(names), 20))
    return False


def _list_folder_names(folder: str) -> list[str]:
    """List the names in a git objects folder; empty if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _with_link_targets(paths: Iterable[str], roots: tuple[str, ...]) -> Iterator[str]:
    """Yield the project files, and the targets of links among them in the workspace."""
    for path in paths:
        yield path
        if os.path.islink(path):
            real = os.path.realpath(path)
            if any(real.startswith(f"{root}/") for root in roots) and os.path.isfile(real):
                yield real


def _find_owning_folder(path: str, root: str) -> str:
    """Return the folder that a protected project file applies to."""
    above, owner = os.path.basename(root), root
    for name in path.removeprefix(f"{root}/").split("/")[:-1]:
        if is_checked_name(name, above):
            return os.path.dirname(owner) if above == ".github" else owner
        above, owner = name, f"{owner}/{name}"
    return owner


def _is_path_free(folder: str) -> bool:
    """Return whether nothing replaced a project file's folder, or one above it."""
    return not os.path.lexists(folder) and os.path.realpath(folder) == folder


def _rules_permit(unasked: UnapprovedChanges, path: str, *, root: str) -> bool:
    """Return whether permission rules let an unapproved command change a protected project file."""
    names = protected_names(os.path.relpath(path, root))
    by_name = bool(names) and names <= {*unasked.names}
    return by_name or any(
        pattern_allows_path(what, path, root=base, home=home) and names <= protected_names(what)
        for what, base, home in unasked.patterns
    )


def _is_below_any(path: str, roots: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{root}/") for root in roots)


def _has_same_content(was: NotedFile | None, is_: NotedFile | None) -> bool:
    """Return whether a project file has the same content; its mode does not count."""
    if was is None or is_ is None:
        return was is is_
    if was.node.data is None or is_.node.data is None:
        return was.node.stamp == is_.node.stamp
    return (was.node.kind, was.node.data) == (is_.node.kind, is_.node.data)


def _get_noted_root(was: NotedFile | None, is_: NotedFile | None) -> str:
    one = was or is_
    return one.root if one else ""


def _digest_node(node: SavedNode) -> bytes:
    content = node.data if node.data is not None else repr(node.stamp).encode()
    return blake2b(content, digest_size=16).digest()


def _has_stamp(path: str, known: NotedFile) -> bool:
    """Return whether a protected project file has the inode, size and times that were noted."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    stamp = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return stamp == known.node.stamp


def _folder_identity(folder: str) -> tuple[int, int]:
    """Return a project folder's device and inode; zeros if it is missing."""
    try:
        found = os.lstat(folder)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _digest_record(path: str, digest: bytes) -> bytes:
    return blake2b(os.fsencode(path) + b"\0" + digest, digest_size=16).digest()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
