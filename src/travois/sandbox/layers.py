"""A throw-away layer over each folder that a cage may write to, and what is in it afterwards."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import BinaryIO

import msgspec

from travois.sandbox import launch
from travois.sandbox.profile import Cage

OPAQUE, OWN = "user.overlay.opaque", "user.overlay."
"""How the layer says that nothing of the folder below shows through; marks of the layer itself."""

PREFIX, LOCK = "travois-try-", "lock"
YOUNG = 60.0


class Mark(msgspec.Struct, frozen=True):
    """What the layer has for one path of the real folder.

    `before` is the real thing and `after` the layer's, as they were found; None for nothing.
    """

    path: str
    source: str = ""
    before: os.stat_result | None = None
    after: os.stat_result | None = None
    same: bool = False
    """Whether it was only taken up into the layer, not changed."""

    @property
    def folder(self) -> bool:
        """Whether it is about a folder, not about what has a name in one."""
        found = self.after or self.before
        return found is not None and stat.S_ISDIR(found.st_mode)


class Layers(msgspec.Struct, frozen=True):
    """Where the layers of one attempt are. `since` is a time: later changes are not its doing."""

    place: str
    folders: tuple[str, ...]
    since: int
    lock: BinaryIO
    """Held as long as somebody may still want them: layers that nobody holds are swept away."""

    def around(self) -> tuple[str, ...]:
        """The words to put before a program so that it sees the layers."""
        python = os.path.realpath(sys.executable)
        return (python, "-I", "-S", launch.__file__, self.place, *self.folders, "--")

    def marks(self) -> Iterator[Mark]:
        """Everything that the layers hold; what is in a folder comes after it."""
        for number, folder in enumerate(self.folders):
            upper = os.path.join(self.place, str(number), "upper")
            before, after = os.stat(folder), os.stat(upper)
            same = _essence(before) == _essence(after)
            yield Mark(folder, upper, before, after, same)
            os.chmod(upper, 0o700)
            yield from _compared(upper, folder)

    def remove(self) -> None:
        """Leave no trace."""
        _remove(self.place)
        self.lock.close()


def prepare(cage: Cage) -> Layers:
    """Empty layers for the folders that a cage may write to."""
    from tempfile import mkdtemp

    home = os.path.dirname(cage.temp)
    _sweep(home)
    paths = {os.path.realpath(path) for path in (*cage.folders, *cage.writable)}
    folders = sorted(path for path in paths if os.path.isdir(path))
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
    from shutil import rmtree

    for root, folders, _ in os.walk(place):
        for path in (os.path.join(root, name) for name in folders):
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    rmtree(place, ignore_errors=True)


def _tick(place: str) -> int:
    """A time that no earlier change of a file is after, and every later one is."""
    first = os.stat(place).st_ctime_ns
    while os.stat(place).st_ctime_ns <= first:
        os.utime(place)
    return first


def _compared(upper: str, real: str) -> Iterator[Mark]:
    """What a folder of the layer holds; `real` may be missing or no folder."""
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
    """Everything in a folder that is there no more."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(set(os.listdir(folder)).difference(but)):
            path = os.path.join(folder, name)
            yield from _removed(path, seen(path))


def _same(real: str, source: str, *, before: os.stat_result, after: os.stat_result) -> bool:
    one, two = _essence(before), _essence(after)
    if one != two or attributes(real) != attributes(source):
        return False
    if stat.S_ISLNK(after.st_mode):
        return os.readlink(real) == os.readlink(source)
    if not stat.S_ISREG(after.st_mode):
        return True
    from filecmp import cmp

    return cmp(real, source, shallow=False)


def _essence(found: os.stat_result) -> tuple[int, ...]:
    """What must be equal; when a folder changed and how large it is, follows from the rest."""
    rest = () if stat.S_ISDIR(found.st_mode) else (found.st_size, found.st_mtime_ns)
    return (found.st_mode, found.st_uid, found.st_gid, *rest)


def seen(path: str) -> os.stat_result | None:
    """What has this name; None if nothing has."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def attributes(path: str) -> Mapping[str, bytes]:
    """The user's own attributes of a file, without those of the layer."""
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
