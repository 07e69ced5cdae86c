"""Running a command in a copy of the workspace, for `travois try`."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from filecmp import cmp
from shutil import copyfileobj, rmtree
from tempfile import mkdtemp
from typing import BinaryIO

import msgspec
from anyio import to_thread
from msgspec.structs import replace

from travois.files.openat import OpenedPath, open_parent
from travois.permissions.protected_paths import makes_repository, protected_names
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.world import ProcessResult, StaleFile, WorkspaceChange
from travois.sandbox import launch

# A throw-away layer over each folder that a profile may write to, and its contents afterwards.


OPAQUE, OWN = "user.overlay.opaque", "user.overlay."
"""The overlay attribute that hides everything below a folder, and the prefix of all such
attributes."""

PREFIX, LOCK = "travois-try-", "lock"
YOUNG = 60.0


class Mark(msgspec.Struct, frozen=True):
    """The state of one path in the layer, and of the real path.

    `before` is the real file and `after` the layer's, as they were found; None for a missing one.
    """

    path: str
    source: str = ""
    before: os.stat_result | None = None
    after: os.stat_result | None = None
    same: bool = False
    """Whether it was only copied up into the layer, not changed."""

    @property
    def folder(self) -> bool:
        """Whether it is a folder itself, not an entry in one."""
        found = self.after or self.before
        return found is not None and stat.S_ISDIR(found.st_mode)


class Layers(msgspec.Struct, frozen=True):
    """The overlay layers of one attempt. Changes of real files after `since` are not its doing."""

    place: str
    folders: tuple[str, ...]
    since: int
    lock: BinaryIO
    """Locked as long as somebody may want the layers: unlocked layers are swept away."""

    def around(self) -> tuple[str, ...]:
        """Return the words before a program that make it see the layers."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", launch.__file__, self.place, *self.folders, "--")

    def marks(self) -> Iterator[Mark]:
        """Yield everything in the layers; folders before their contents."""
        for number, folder in enumerate(self.folders):
            upper = os.path.join(self.place, str(number), "upper")
            before, after = os.stat(folder), os.stat(upper)
            same = _essence(before) == _essence(after)
            yield Mark(folder, upper, before, after, same)
            os.chmod(upper, 0o700)
            yield from _compared(upper, folder)

    def remove(self) -> None:
        """Remove the layers from the disk."""
        _remove(self.place)
        self.lock.close()


def prepare(cage: SandboxProfile) -> Layers:
    """Create empty layers for the folders that a profile may write to."""
    home = os.path.dirname(cage.temp)
    _sweep(home)
    paths = {os.path.realpath(path) for path in (*cage.folders, *cage.writable)}
    folders = sorted(path for path in paths if os.path.isdir(path))
    # The layer over a folder covers the folders in it as well.
    outer = tuple(p for p in folders if not any(p.startswith(f"{o}/") for o in folders))
    place = mkdtemp(prefix=PREFIX, dir=home)
    lock = open(os.path.join(place, LOCK), "wb")  # noqa: SIM115 - it lives as long as the layers
    fcntl.flock(lock, fcntl.LOCK_EX)
    for number, folder in enumerate(outer):
        layer, model = os.path.join(place, str(number)), os.stat(folder)
        os.makedirs(os.path.join(layer, "work"))
        os.mkdir(os.path.join(layer, "upper"))
        with suppress(PermissionError):
            os.chown(os.path.join(layer, "upper"), model.st_uid, model.st_gid)
        os.chmod(os.path.join(layer, "upper"), stat.S_IMODE(model.st_mode))
    return Layers(place, outer, _tick(place), lock)


def _sweep(home: str) -> None:
    """Remove layers that a killed process left; young ones may not have been locked yet."""
    for name in os.listdir(home):
        path = os.path.join(home, name)
        found = seen(path) if name.startswith(PREFIX) else None
        if not found or found.st_uid != os.geteuid() or time.time() - found.st_mtime < YOUNG:
            continue
        with suppress(OSError), open(os.path.join(path, LOCK), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)


def _remove(place: str) -> None:
    """Remove a folder, whatever modes those in it have."""
    for root, folders, _ in os.walk(place):
        for path in (os.path.join(root, name) for name in folders):
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    rmtree(place, ignore_errors=True)


def _tick(place: str) -> int:
    """Return a time that is not before any earlier change of a file, and before every later one."""
    first = os.stat(place).st_ctime_ns
    while os.stat(place).st_ctime_ns <= first:
        os.utime(place)
    return first


def _compared(upper: str, real: str) -> Iterator[Mark]:
    """Yield the contents of a folder of the layer; `real` may be missing or no folder."""
    with os.scandir(upper) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if OPAQUE in _listed(upper):
        yield from _gone(real, but={entry.name for entry in entries})
    for entry in entries:
        path = os.path.join(real, entry.name)
        before, after = seen(path), entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(after.st_mode) and not after.st_rdev:
            yield from _removed(path, before)
            continue
        inner = stat.S_ISDIR(after.st_mode)
        if before and inner != stat.S_ISDIR(before.st_mode):
            yield from _removed(path, before)
            before = None
        if not stat.S_ISLNK(after.st_mode):
            os.chmod(entry.path, after.st_mode | (0o700 if inner else 0o400))
        same = before is not None and _same(path, entry.path, before=before, after=after)
        yield Mark(path, entry.path, before, after, same)
        if inner:
            yield from _compared(entry.path, path)


def _removed(path: str, before: os.stat_result | None) -> Iterator[Mark]:
    if before is None:
        return
    yield Mark(path, before=before)
    if stat.S_ISDIR(before.st_mode):
        yield from _gone(path)


def _gone(folder: str, but: Iterable[str] = ()) -> Iterator[Mark]:
    """Yield everything in a folder that no longer exists."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(set(os.listdir(folder)).difference(but)):
            path = os.path.join(folder, name)
            yield from _removed(path, seen(path))


def _same(real: str, source: str, *, before: os.stat_result, after: os.stat_result) -> bool:
    """Return whether a file of the layer is the real one, byte for byte and with equal metadata."""
    one, two = _essence(before), _essence(after)
    if one != two or attributes(real) != attributes(source):
        return False
    if stat.S_ISLNK(after.st_mode):
        return os.readlink(real) == os.readlink(source)
    if not stat.S_ISREG(after.st_mode):
        return True
    return cmp(real, source, shallow=False)


def _essence(found: os.stat_result) -> tuple[int, ...]:
    """Return the metadata to compare; times and size of a folder follow from its contents."""
    rest = () if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
    return (found.st_mode, found.st_uid, found.st_gid, *rest)


def seen(path: str) -> os.stat_result | None:
    """Return the status of a path; None if it is missing."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def attributes(path: str) -> Mapping[str, bytes]:
    """Return the user's own attributes of a file, without those of the layer."""
    return {
        name: os.getxattr(path, name, follow_symlinks=False)
        for name in _listed(path)
        if name.startswith("user.") and not name.startswith(OWN)
    }


def _listed(path: str) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


# Applying the changes of an attempt: each file atomically, and none that changed meanwhile.


Links = dict[tuple[int, int], str]
"""The real path of a file's first name, by device and inode, for files with several names."""


def check(marks: Sequence[Mark], since: int) -> None:
    """Raise `Stale` if a real file has changed since the attempt began."""
    gone = {mark.path for mark in marks if mark.after is None}
    for mark in marks:
        found = seen(mark.path)
        if mark.before is None:
            fresh = found is None or mark.path in gone
        else:
            fresh = found is not None and _identity(found) == _identity(mark.before)
            stays = mark.folder and mark.after is not None
            fresh = fresh and (stays or mark.before.st_ctime_ns <= since)
        if fresh and mark.after is None and mark.folder:
            fresh = {os.path.join(mark.path, name) for name in os.listdir(mark.path)} <= gone
        if not fresh:
            raise StaleFile(f"{mark.path} has changed since the attempt began; nothing was kept")


def apply(marks: Sequence[Mark]) -> None:
    """Make the real folders equal to the layers; equal files are not touched."""
    links: Links = {_inode(m.after): m.path for m in marks if m.same and m.after and not m.folder}
    changed = [mark for mark in marks if not mark.same]
    modes = _opened(changed)
    for mark in reversed(changed):
        if mark.after is None:
            _delete(mark)
    for mark in changed:
        if mark.after is not None:
            _put(mark, mark.after, links)
    for path, mode in modes.items():
        with suppress(FileNotFoundError):
            _chmod(path, mode)
    # Folders last, the inner ones first: writing into a folder changes its times.
    for mark in reversed(changed):
        if mark.folder and mark.after:
            with open_parent(mark.path) as place:
                _dress(place, mark.after)


def _opened(marks: Sequence[Mark]) -> dict[str, int]:
    """Make our own closed folders accessible; return the modes that they had."""
    modes: dict[str, int] = {}
    for path in {os.path.dirname(mark.path) for mark in marks}:
        found = seen(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            continue
        if found.st_mode & 0o700 != 0o700 and found.st_uid == os.geteuid():
            modes[path] = stat.S_IMODE(found.st_mode)
            _chmod(path, modes[path] | 0o700)
    return modes


def _chmod(path: str, mode: int) -> None:
    with open_parent(os.path.join(path, ".")) as place:
        os.chmod(f"/proc/self/fd/{place.folder}", mode)


def _delete(mark: Mark) -> None:
    with open_parent(mark.path) as place:
        _still(place, mark)
        remove = os.rmdir if mark.folder else os.unlink
        remove(place.name, dir_fd=place.folder)


def _put(mark: Mark, after: os.stat_result, links: Links) -> None:
    """Create or replace one real path with the layer's."""
    with open_parent(mark.path) as place:
        if mark.folder:
            if mark.before is None:
                os.mkdir(place.name, 0o700, dir_fd=place.folder)
            return
        draft = place.sibling(f".travois-{os.getpid()}-{os.urandom(6).hex()}")
        try:
            _draw(mark, after, draft=draft, links=links)
            _still(place, mark)
            _name(draft, place, mark)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft.name, dir_fd=draft.folder)


def _name(draft: OpenedPath, place: OpenedPath, mark: Mark) -> None:
    """Rename the draft over what has its name, or link it where nothing has."""
    ends = {"src_dir_fd": draft.folder, "dst_dir_fd": place.folder}
    if mark.before is not None:
        os.replace(draft.name, place.name, **ends)
        return
    try:
        os.link(draft.name, place.name, **ends, follow_symlinks=False)
    except FileExistsError:
        raise StaleFile(f"{mark.path} has just been made by another program") from None


def _still(place: OpenedPath, mark: Mark) -> None:
    """Check at the last moment that the real file is unchanged."""
    try:
        found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if (found and _identity(found)[:-1]) != (mark.before and _identity(mark.before)[:-1]):
        raise StaleFile(f"{mark.path} has just been changed by another program")


def _draw(mark: Mark, after: os.stat_result, *, draft: OpenedPath, links: Links) -> None:
    """Create the layer's file under another name in the real folder."""
    first = links.setdefault(_inode(after), mark.path)
    if first != mark.path and after.st_nlink > 1:
        with open_parent(first) as other:
            ends = {"src_dir_fd": other.folder, "dst_dir_fd": draft.folder}
            os.link(other.name, draft.name, **ends, follow_symlinks=False)
        return
    if stat.S_ISLNK(after.st_mode):
        os.symlink(os.readlink(mark.source), draft.name, dir_fd=draft.folder)
    elif stat.S_ISFIFO(after.st_mode):
        os.mkfifo(draft.name, 0o600, dir_fd=draft.folder)
    else:
        _copy(mark.source, draft)
    _dress(draft, after)


def _copy(source: str, draft: OpenedPath) -> None:
    fd = draft.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(fd, "wb") as target, open(source, "rb") as file:
        copyfileobj(file, target, 1024 * 1024)
        for name, value in attributes(source).items():
            with suppress(OSError):
                os.setxattr(fd, name, value)


def _dress(place: OpenedPath, after: os.stat_result) -> None:
    """Set owner, mode and time of exactly this file, never of a link's target."""
    fd = place.open(os.O_PATH)
    target = f"/proc/self/fd/{fd}"
    try:
        with suppress(PermissionError):
            os.chown(target, after.st_uid, after.st_gid)
        if not stat.S_ISLNK(after.st_mode):
            os.chmod(target, stat.S_IMODE(after.st_mode))
        os.utime(target, ns=(after.st_atime_ns, after.st_mtime_ns))
    finally:
        os.close(fd)


def _inode(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    if stat.S_ISDIR(found.st_mode):
        return (found.st_ino, stat.S_IFMT(found.st_mode), 0)
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def inner(cage: SandboxProfile, layers: Layers) -> SandboxProfile:
    """Return the profile for the copy, in which only paths with a layer may be written.

    Missing pins need no stand-in in the real folders: what a command creates in their place is not
    kept.
    """
    writable = tuple(path for path in cage.writable if os.path.realpath(path) in layers.folders)
    pinned = tuple(path for path in cage.pinned if os.path.lexists(path))
    changes = {"writable": writable, "pinned": pinned, "git_written": (), "lifted": ()}
    return replace(cage, profile="work", **changes)


class Overlay:
    """The changes of a command in a copy of the workspace, until they are kept or dropped."""

    def __init__(self, completed: ProcessResult, cage: SandboxProfile, layers: Layers) -> None:
        self.completed = completed
        self._cage = cage
        self._layers = layers
        self._marks = tuple(layers.marks())
        self.changes = tuple(_told(mark for mark in self._marks if not mark.same))

    async def read(self, path: str) -> bytes:
        """Return the contents of a path in the copy."""
        mark = next(mark for mark in self._marks if mark.path == path and mark.after)
        return await to_thread.run_sync(_content, mark)

    async def keep(self, *, named: Collection[str] = ()) -> tuple[WorkspaceChange, ...]:
        """Make the changes real, then drop the copy; return the changes that were not kept.

        Pinned and protected paths are kept only if they, or a folder above them, are named. Raises
        `Stale`, with nothing kept, if the real files changed since the attempt began.
        """
        held = self._held(named)
        wanted = [mark for mark in self._marks if mark.path not in held]
        await to_thread.run_sync(self._make_real, wanted)
        await self.drop()
        return tuple(change for change in self.changes if change.path in held)

    async def drop(self) -> None:
        """Remove the copy."""
        await to_thread.run_sync(self._layers.remove)

    def _make_real(self, marks: Sequence[Mark]) -> None:
        check([mark for mark in marks if not mark.same], self._layers.since)
        apply(marks)

    def _held(self, named: Collection[str]) -> set[str]:
        """Return the paths not to keep, with the folders that must stay because of them."""
        guarded = (m.path for m in self._marks if not m.same and self._guarded(m.path))
        held = {path for path in guarded if not any(_at(path, name) for name in named)}
        above = {one for path in held for one in _parents(path)}
        return held | {m.path for m in self._marks if m.after is None and m.path in above}

    def _guarded(self, path: str) -> bool:
        folder = next(one for one in self._layers.folders if _at(path, one))
        inside = os.path.relpath(path, folder)
        pinned = any(_at(path, os.path.realpath(pin)) for pin in self._cage.pinned)
        return pinned or bool(protected_names(inside)) or makes_repository(inside)


def _told(marks: Iterable[Mark]) -> Iterator[WorkspaceChange]:
    """Yield the changes for the user: a file that vanished and came back renamed is one change."""
    found = list(marks)
    pairs = dict(_renamed(found))
    old = {mark.path for mark in pairs.values()}
    for mark in found:
        size = mark.after.st_size if mark.after and not mark.folder else 0
        if mark.after is None:
            if mark.path not in old:
                yield WorkspaceChange(mark.path, "deleted", 0)
        elif mark.path in pairs:
            yield WorkspaceChange(mark.path, "renamed", size, was=pairs[mark.path].path)
        else:
            yield WorkspaceChange(mark.path, "changed" if mark.before else "added", size)


def _renamed(marks: Sequence[Mark]) -> Iterator[tuple[str, Mark]]:
    """Yield new files, each with a removed one of equal contents."""
    went: dict[int, list[Mark]] = {}
    for mark in marks:
        if mark.after is None and mark.before and stat.S_ISREG(mark.before.st_mode):
            went.setdefault(mark.before.st_size, []).append(mark)
    for mark in marks:
        if mark.before or not mark.after or not stat.S_ISREG(mark.after.st_mode):
            continue
        for old in went.get(mark.after.st_size, ()) if mark.after.st_size else ():
            if cmp(old.path, mark.source, shallow=False):
                went[mark.after.st_size].remove(old)
                yield mark.path, old
                break


def _content(mark: Mark) -> bytes:
    """Return the contents of a file; of a link its target, which is not followed."""
    assert mark.after is not None
    if stat.S_ISLNK(mark.after.st_mode):
        return os.fsencode(os.readlink(mark.source))
    if not stat.S_ISREG(mark.after.st_mode):
        return b""
    with open(mark.source, "rb") as file:
        return file.read()


def _at(path: str, place: str) -> bool:
    """Return whether a path is a place or below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _parents(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != "/":
        yield path
