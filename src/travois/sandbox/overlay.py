"""Overlays: running a command in a copy of the workspace, for `travois try`."""

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


OPAQUE_ATTRIBUTE, OVERLAY_ATTRIBUTE_PREFIX = "user.overlay.opaque", "user.overlay."
"""The overlay attribute that hides everything below a folder, and the prefix of all such
attributes."""

LAYER_FOLDER_PREFIX, LAYER_LOCK_NAME = "travois-try-", "lock"
MIN_STALE_SECONDS = 60.0


class OverlayEntry(msgspec.Struct, frozen=True):
    """The state of one path in the overlay layer, and of the real path.

    `before` is the real file and `after` the layer's, as they were found; None for a missing one.
    """

    path: str
    source: str = ""
    before: os.stat_result | None = None
    after: os.stat_result | None = None
    same: bool = False
    """Whether it was only copied up into the layer, not changed."""

    @property
    def is_folder(self) -> bool:
        """True if it is a folder itself, not an entry in one."""
        found = self.after or self.before
        return found is not None and stat.S_ISDIR(found.st_mode)


class OverlayLayers(msgspec.Struct, frozen=True):
    """The overlay layers of one attempt. Changes of real files after `since` are not its doing."""

    place: str
    folders: tuple[str, ...]
    since: int
    lock: BinaryIO
    """Locked as long as somebody may want the layers: unlocked layers are swept away."""

    def launch_prefix(self) -> tuple[str, ...]:
        """Return the words to put before a command so that it works on the overlay layers."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", launch.__file__, self.place, *self.folders, "--")

    def list_entries(self) -> Iterator[OverlayEntry]:
        """Yield everything in the layers; folders before their contents."""
        for number, folder in enumerate(self.folders):
            upper = os.path.join(self.place, str(number), "upper")
            before, after = os.stat(folder), os.stat(upper)
            same = _comparable_stat(before) == _comparable_stat(after)
            yield OverlayEntry(folder, upper, before, after, same)
            os.chmod(upper, 0o700)
            yield from _compare_folder(upper, folder)

    def remove(self) -> None:
        """Remove the layers from the disk."""
        _remove_folder(self.place)
        self.lock.close()


def prepare_layers(profile: SandboxProfile) -> OverlayLayers:
    """Create empty overlay layers for the folders that a sandbox profile may write to."""
    home = os.path.dirname(profile.temp)
    _remove_stale_layers(home)
    paths = {os.path.realpath(path) for path in (*profile.folders, *profile.writable)}
    folders = sorted(path for path in paths if os.path.isdir(path))
    # The layer over a folder covers the folders in it as well.
    outer = tuple(p for p in folders if not any(p.startswith(f"{o}/") for o in folders))
    place = mkdtemp(prefix=LAYER_FOLDER_PREFIX, dir=home)
    lock = open(os.path.join(place, LAYER_LOCK_NAME), "wb")  # noqa: SIM115 - it lives as long as the layers
    fcntl.flock(lock, fcntl.LOCK_EX)
    for number, folder in enumerate(outer):
        layer, model = os.path.join(place, str(number)), os.stat(folder)
        os.makedirs(os.path.join(layer, "work"))
        os.mkdir(os.path.join(layer, "upper"))
        with suppress(PermissionError):
            os.chown(os.path.join(layer, "upper"), model.st_uid, model.st_gid)
        os.chmod(os.path.join(layer, "upper"), stat.S_IMODE(model.st_mode))
    return OverlayLayers(place, outer, _wait_for_clock_tick(place), lock)


def _remove_stale_layers(home: str) -> None:
    """Remove overlay layers that a killed process left; young ones may not be locked yet."""
    for name in os.listdir(home):
        path = os.path.join(home, name)
        found = lstat_if_present(path) if name.startswith(LAYER_FOLDER_PREFIX) else None
        if (
            not found
            or found.st_uid != os.geteuid()
            or time.time() - found.st_mtime < MIN_STALE_SECONDS
        ):
            continue
        with suppress(OSError), open(os.path.join(path, LAYER_LOCK_NAME), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_folder(path)


def _remove_folder(place: str) -> None:
    """Remove an overlay folder, whatever modes its contents have."""
    for root, folders, _ in os.walk(place):
        for path in (os.path.join(root, name) for name in folders):
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    rmtree(place, ignore_errors=True)


def _wait_for_clock_tick(place: str) -> int:
    """Return a time after every earlier file change and not after any later one."""
    first = os.stat(place).st_ctime_ns
    while os.stat(place).st_ctime_ns <= first:
        os.utime(place)
    return first


def _compare_folder(upper: str, real: str) -> Iterator[OverlayEntry]:
    """Yield what a tried command changed in an overlay folder; `real` may be missing or a file."""
    with os.scandir(upper) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    if OPAQUE_ATTRIBUTE in _list_attributes(upper):
        yield from _list_missing(real, but={entry.name for entry in entries})
    for entry in entries:
        path = os.path.join(real, entry.name)
        before, after = lstat_if_present(path), entry.stat(follow_symlinks=False)
        if stat.S_ISCHR(after.st_mode) and not after.st_rdev:
            yield from _list_removed(path, before)
            continue
        inner = stat.S_ISDIR(after.st_mode)
        if before and inner != stat.S_ISDIR(before.st_mode):
            yield from _list_removed(path, before)
            before = None
        if not stat.S_ISLNK(after.st_mode):
            os.chmod(entry.path, after.st_mode | (0o700 if inner else 0o400))
        same = before is not None and _is_same_file(path, entry.path, before=before, after=after)
        yield OverlayEntry(path, entry.path, before, after, same)
        if inner:
            yield from _compare_folder(entry.path, path)


def _list_removed(path: str, before: os.stat_result | None) -> Iterator[OverlayEntry]:
    """Yield a path that a tried command removed, with everything that was in it."""
    if before is None:
        return
    yield OverlayEntry(path, before=before)
    if stat.S_ISDIR(before.st_mode):
        yield from _list_missing(path)


def _list_missing(folder: str, but: Iterable[str] = ()) -> Iterator[OverlayEntry]:
    """Yield everything in a folder that a tried command removed."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(set(os.listdir(folder)).difference(but)):
            path = os.path.join(folder, name)
            yield from _list_removed(path, lstat_if_present(path))


def _is_same_file(real: str, source: str, *, before: os.stat_result, after: os.stat_result) -> bool:
    """Return whether an overlay file equals the real one in bytes and metadata."""
    one, two = _comparable_stat(before), _comparable_stat(after)
    if one != two or read_user_attributes(real) != read_user_attributes(source):
        return False
    if stat.S_ISLNK(after.st_mode):
        return os.readlink(real) == os.readlink(source)
    if not stat.S_ISREG(after.st_mode):
        return True
    return cmp(real, source, shallow=False)


def _comparable_stat(found: os.stat_result) -> tuple[int, ...]:
    """Return the metadata to compare in an overlay; a folder's times and size do not count."""
    rest = () if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
    return (found.st_mode, found.st_uid, found.st_gid, *rest)


def lstat_if_present(path: str) -> os.stat_result | None:
    """Return the status of a path in an overlay; None if it is missing."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_user_attributes(path: str) -> Mapping[str, bytes]:
    """Return the user's own attributes of an overlay file, without those of the layer."""
    return {
        name: os.getxattr(path, name, follow_symlinks=False)
        for name in _list_attributes(path)
        if name.startswith("user.") and not name.startswith(OVERLAY_ATTRIBUTE_PREFIX)
    }


def _list_attributes(path: str) -> list[str]:
    """List the names of a file's extended attributes; empty if they cannot be read."""
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:
        return []


# Applying the changes of an attempt: each file atomically, and none that changed meanwhile.


LinkedPaths = dict[tuple[int, int], str]
"""The real path of a file's first name, by device and inode, for files with several names."""


def check_unchanged(marks: Sequence[OverlayEntry], since: int) -> None:
    """Raise `StaleFile` if a real file has changed since `travois try` began."""
    gone = {mark.path for mark in marks if mark.after is None}
    for mark in marks:
        found = lstat_if_present(mark.path)
        if mark.before is None:
            fresh = found is None or mark.path in gone
        else:
            fresh = found is not None and _file_identity(found) == _file_identity(mark.before)
            stays = mark.is_folder and mark.after is not None
            fresh = fresh and (stays or mark.before.st_ctime_ns <= since)
        if fresh and mark.after is None and mark.is_folder:
            fresh = {os.path.join(mark.path, name) for name in os.listdir(mark.path)} <= gone
        if not fresh:
            raise StaleFile(f"{mark.path} has changed since the attempt began; nothing was kept")


def apply_entries(marks: Sequence[OverlayEntry]) -> None:
    """Make the real folders equal to the overlay layers; equal files are not touched."""
    links: LinkedPaths = {
        _inode_key(m.after): m.path for m in marks if m.same and m.after and not m.is_folder
    }
    changed = [mark for mark in marks if not mark.same]
    modes = _open_closed_folders(changed)
    for mark in reversed(changed):
        if mark.after is None:
            _delete_real(mark)
    for mark in changed:
        if mark.after is not None:
            _write_real(mark, mark.after, links)
    for path, mode in modes.items():
        with suppress(FileNotFoundError):
            _chmod_folder(path, mode)
    # Folders last, the inner ones first: writing into a folder changes its times.
    for mark in reversed(changed):
        if mark.is_folder and mark.after:
            with open_parent(mark.path) as place:
                _copy_metadata(place, mark.after)


def _open_closed_folders(marks: Sequence[OverlayEntry]) -> dict[str, int]:
    """Make the user's closed folders accessible to apply an overlay; return their old modes."""
    modes: dict[str, int] = {}
    for path in {os.path.dirname(mark.path) for mark in marks}:
        found = lstat_if_present(path)
        if found is None or not stat.S_ISDIR(found.st_mode):
            continue
        if found.st_mode & 0o700 != 0o700 and found.st_uid == os.geteuid():
            modes[path] = stat.S_IMODE(found.st_mode)
            _chmod_folder(path, modes[path] | 0o700)
    return modes


def _chmod_folder(path: str, mode: int) -> None:
    with open_parent(os.path.join(path, ".")) as place:
        os.chmod(f"/proc/self/fd/{place.folder}", mode)


def _delete_real(mark: OverlayEntry) -> None:
    """Delete the real path that a tried command removed, when its changes are kept."""
    with open_parent(mark.path) as place:
        _check_still_same(place, mark)
        remove = os.rmdir if mark.is_folder else os.unlink
        remove(place.name, dir_fd=place.folder)


def _write_real(mark: OverlayEntry, after: os.stat_result, links: LinkedPaths) -> None:
    """Create or replace one real path with the overlay layer's."""
    with open_parent(mark.path) as place:
        if mark.is_folder:
            if mark.before is None:
                os.mkdir(place.name, 0o700, dir_fd=place.folder)
            return
        draft = place.sibling(f".travois-{os.getpid()}-{os.urandom(6).hex()}")
        try:
            _write_draft(mark, after, draft=draft, links=links)
            _check_still_same(place, mark)
            _rename_draft(draft, place, mark)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft.name, dir_fd=draft.folder)


def _rename_draft(draft: OpenedPath, opened: OpenedPath, mark: OverlayEntry) -> None:
    """Rename the draft of a kept change over the real file, or link it where there is none."""
    ends = {"src_dir_fd": draft.folder, "dst_dir_fd": opened.folder}
    if mark.before is not None:
        os.replace(draft.name, opened.name, **ends)
        return
    try:
        os.link(draft.name, opened.name, **ends, follow_symlinks=False)
    except FileExistsError:
        raise StaleFile(f"{mark.path} has just been made by another program") from None


def _check_still_same(opened: OpenedPath, mark: OverlayEntry) -> None:
    """Check just before keeping a change that the real file is unchanged."""
    try:
        found = os.stat(opened.name, dir_fd=opened.folder, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if (found and _file_identity(found)[:-1]) != (mark.before and _file_identity(mark.before)[:-1]):
        raise StaleFile(f"{mark.path} has just been changed by another program")


def _write_draft(
    mark: OverlayEntry, after: os.stat_result, *, draft: OpenedPath, links: LinkedPaths
) -> None:
    """Write a kept change under another name in the real folder first."""
    first = links.setdefault(_inode_key(after), mark.path)
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
        _copy_to_draft(mark.source, draft)
    _copy_metadata(draft, after)


def _copy_to_draft(source: str, draft: OpenedPath) -> None:
    """Copy a file with its user attributes to a draft that will replace the real one."""
    fd = draft.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(fd, "wb") as target, open(source, "rb") as file:
        copyfileobj(file, target, 1024 * 1024)
        for name, value in read_user_attributes(source).items():
            with suppress(OSError):
                os.setxattr(fd, name, value)


def _copy_metadata(opened: OpenedPath, after: os.stat_result) -> None:
    """Set the overlay file's owner, mode and time on a draft, never on a link's target."""
    fd = opened.open(os.O_PATH)
    target = f"/proc/self/fd/{fd}"
    try:
        with suppress(PermissionError):
            os.chown(target, after.st_uid, after.st_gid)
        if not stat.S_ISLNK(after.st_mode):
            os.chmod(target, stat.S_IMODE(after.st_mode))
        os.utime(target, ns=(after.st_atime_ns, after.st_mtime_ns))
    finally:
        os.close(fd)


def _inode_key(found: os.stat_result) -> tuple[int, int]:
    return (found.st_dev, found.st_ino)


def _file_identity(found: os.stat_result) -> tuple[int, ...]:
    """Return the metadata that shows whether a real file is unchanged since a try began."""
    if stat.S_ISDIR(found.st_mode):
        return (found.st_ino, stat.S_IFMT(found.st_mode), 0)
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def profile_for_copy(profile: SandboxProfile, layers: OverlayLayers) -> SandboxProfile:
    """Return the sandbox profile for an overlay, in which only paths with a layer are writable.

    Missing pins need no stand-in in the real folders: what a command creates in their place is not
    kept.
    """
    writable = tuple(path for path in profile.writable if os.path.realpath(path) in layers.folders)
    pinned = tuple(path for path in profile.pinned if os.path.lexists(path))
    changes = {"writable": writable, "pinned": pinned, "git_written": (), "lifted": ()}
    return replace(profile, profile="work", **changes)


class Overlay:
    """The changes of a command in a copy of the workspace, until they are kept or dropped."""

    def __init__(
        self, completed: ProcessResult, profile: SandboxProfile, layers: OverlayLayers
    ) -> None:
        self.completed = completed
        self._sandbox = profile
        self._layers = layers
        self._marks = tuple(layers.list_entries())
        self.changes = tuple(_summarise_changes(mark for mark in self._marks if not mark.same))

    async def read(self, path: str) -> bytes:
        """Return the contents of a path in the copy."""
        mark = next(mark for mark in self._marks if mark.path == path and mark.after)
        return await to_thread.run_sync(_read_entry, mark)

    async def keep(self, *, named: Collection[str] = ()) -> tuple[WorkspaceChange, ...]:
        """Make the changes real, then drop the copy; return the changes that were not kept.

        Pinned and protected paths are kept only if they, or a folder above them, are named. Raises
        `StaleFile`, with nothing kept, if the real files changed since the attempt began.
        """
        held = self._find_held_back(named)
        wanted = [mark for mark in self._marks if mark.path not in held]
        await to_thread.run_sync(self._make_real, wanted)
        await self.drop()
        return tuple(change for change in self.changes if change.path in held)

    async def drop(self) -> None:
        """Remove the copy."""
        await to_thread.run_sync(self._layers.remove)

    def _make_real(self, marks: Sequence[OverlayEntry]) -> None:
        check_unchanged([mark for mark in marks if not mark.same], self._layers.since)
        apply_entries(marks)

    def _find_held_back(self, named: Collection[str]) -> set[str]:
        """Return the paths not to keep, with the folders that must stay because of them."""
        guarded = (m.path for m in self._marks if not m.same and self._is_guarded(m.path))
        held = {path for path in guarded if not any(_is_path_within(path, name) for name in named)}
        above = {one for path in held for one in _list_parents(path)}
        return held | {m.path for m in self._marks if m.after is None and m.path in above}

    def _is_guarded(self, path: str) -> bool:
        folder = next(one for one in self._layers.folders if _is_path_within(path, one))
        inside = os.path.relpath(path, folder)
        pinned = any(_is_path_within(path, os.path.realpath(pin)) for pin in self._sandbox.pinned)
        return pinned or bool(protected_names(inside)) or makes_repository(inside)


def _summarise_changes(marks: Iterable[OverlayEntry]) -> Iterator[WorkspaceChange]:
    """Yield the changes of a try for the user; a file that reappears elsewhere is a rename."""
    found = list(marks)
    pairs = dict(_find_renames(found))
    old = {mark.path for mark in pairs.values()}
    for mark in found:
        size = mark.after.st_size if mark.after and not mark.is_folder else 0
        if mark.after is None:
            if mark.path not in old:
                yield WorkspaceChange(mark.path, "deleted", 0)
        elif mark.path in pairs:
            yield WorkspaceChange(mark.path, "renamed", size, was=pairs[mark.path].path)
        else:
            yield WorkspaceChange(mark.path, "changed" if mark.before else "added", size)


def _find_renames(marks: Sequence[OverlayEntry]) -> Iterator[tuple[str, OverlayEntry]]:
    """Yield new files in an overlay, each with a removed one of equal content."""
    went: dict[int, list[OverlayEntry]] = {}
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


def _read_entry(mark: OverlayEntry) -> bytes:
    """Return an overlay file's contents; of a link its target, which is not followed."""
    assert mark.after is not None
    if stat.S_ISLNK(mark.after.st_mode):
        return os.fsencode(os.readlink(mark.source))
    if not stat.S_ISREG(mark.after.st_mode):
        return b""
    with open(mark.source, "rb") as file:
        return file.read()


def _is_path_within(path: str, place: str) -> bool:
    """Return whether a path of an overlay is a folder or below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


def _list_parents(path: str) -> Iterator[str]:
    while (path := os.path.dirname(path)) != "/":
        yield path
