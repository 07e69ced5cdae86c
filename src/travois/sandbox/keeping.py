"""Making real what an attempt did: each file at once, and none that changed meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from travois.files.openat import Spot, spot
from travois.ports.world import Stale
from travois.sandbox.layers import Mark, attributes, seen

Links = dict[tuple[int, int], str]
"""The real path that a file of the layer with several names has under its first one."""


def check(marks: Sequence[Mark], since: int) -> None:
    """Raise `Stale` if something is not what it was when the attempt began."""
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
            raise Stale(f"{mark.path} has changed since the attempt began; nothing was kept")


def apply(marks: Sequence[Mark]) -> None:
    """Do to the real folders what was done to the layers; nothing that is the same is touched."""
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
    for mark in reversed(changed):
        if mark.folder and mark.after:
            with spot(mark.path) as place:
                _dress(place, mark.after)


def _opened(marks: Sequence[Mark]) -> dict[str, int]:
    """Let ourselves into folders of ours that are closed to us; returns the modes they had."""
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
    with spot(os.path.join(path, ".")) as place:
        os.chmod(f"/proc/self/fd/{place.folder}", mode)


def _delete(mark: Mark) -> None:
    with spot(mark.path) as place:
        _still(place, mark)
        remove = os.rmdir if mark.folder else os.unlink
        remove(place.name, dir_fd=place.folder)


def _put(mark: Mark, after: os.stat_result, links: Links) -> None:
    with spot(mark.path) as place:
        if mark.folder:
            if mark.before is None:
                os.mkdir(place.name, 0o700, dir_fd=place.folder)
            return
        draft = place.beside(f".travois-{os.getpid()}-{os.urandom(6).hex()}")
        try:
            _draw(mark, after, draft=draft, links=links)
            _still(place, mark)
            _name(draft, place, mark)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft.name, dir_fd=draft.folder)


def _name(draft: Spot, place: Spot, mark: Mark) -> None:
    """Give the draft its name: over what has it, or where nothing has."""
    ends = {"src_dir_fd": draft.folder, "dst_dir_fd": place.folder}
    if mark.before is not None:
        os.replace(draft.name, place.name, **ends)
        return
    try:
        os.link(draft.name, place.name, **ends, follow_symlinks=False)
    except FileExistsError:
        raise Stale(f"{mark.path} has just been made by another program") from None


def _still(place: Spot, mark: Mark) -> None:
    """Look once more, at the last moment."""
    try:
        found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        found = None
    if (found and _identity(found)[:-1]) != (mark.before and _identity(mark.before)[:-1]):
        raise Stale(f"{mark.path} has just been changed by another program")


def _draw(mark: Mark, after: os.stat_result, *, draft: Spot, links: Links) -> None:
    """What the layer has, under another name in the real folder."""
    first = links.setdefault(_inode(after), mark.path)
    if first != mark.path and after.st_nlink > 1:
        with spot(first) as other:
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


def _copy(source: str, draft: Spot) -> None:
    from shutil import copyfileobj

    fd = draft.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with open(fd, "wb") as target, open(source, "rb") as file:
        copyfileobj(file, target, 1024 * 1024)
        for name, value in attributes(source).items():
            with suppress(OSError):
                os.setxattr(fd, name, value)


def _dress(place: Spot, after: os.stat_result) -> None:
    """Owner, mode and time, given to exactly what has the name and to nothing that it leads to."""
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
