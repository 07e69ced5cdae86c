"""Where things go that were put in the place of protected files."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from travois.files.openat import Spot, make_folders

MOST_BYTES = 64 * 1024 * 1024
"""How much is copied where it cannot be moved, because it lies on another disk."""
LONGEST = 100
KEPT = 30 * 24 * 3600
"""How many seconds it stays."""


class Aside:
    """A folder for what one check takes away; it is made when there is something."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.path = ""

    def move(self, place: Spot, *, root: str) -> None:
        """Take what has a name away. Raises OSError."""
        target = self._target(place, root)
        try:
            os.rename(place.name, target, src_dir_fd=place.folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(place, target, left=[MOST_BYTES])
            _delete(place)

    def copy(self, place: Spot, *, root: str) -> None:
        """Keep a copy of a file or link, which is about to be replaced."""
        _copy(place, self._target(place, root), left=[MOST_BYTES])

    def _target(self, place: Spot, root: str) -> str:
        """A free name in our folder.

        It is one name for the whole path: what was moved here before may be a link to anywhere.
        """
        if not self.path:
            make_folders(Path(self._folder))
            _sweep(self._folder)
            stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
            self.path = os.path.join(self._folder, f"{stamp}_{os.urandom(3).hex()}")
            os.mkdir(self.path, 0o700)
        below = os.path.relpath(place.path, root).replace("/", "__")
        target = free = os.path.join(self.path, below[-LONGEST:])
        number = 1
        while os.path.lexists(free):
            number += 1
            free = f"{target}~{number}"
        return free


def _sweep(folder: str) -> None:
    from shutil import rmtree

    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > KEPT:
                rmtree(path, ignore_errors=True)


def _copy(place: Spot, target: str, *, left: list[int]) -> None:
    """Copy a file, a link or a folder; of anything else only the name stays."""
    found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(place.name, dir_fd=place.folder), target)
    elif stat.S_ISDIR(found.st_mode):
        os.mkdir(target, 0o700)
        fd = place.open(os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in os.listdir(fd):
                inner = Spot(fd, name, f"{place.path}/{name}")
                _copy(inner, os.path.join(target, name), left=left)
        finally:
            os.close(fd)
    else:
        data = b""
        if stat.S_ISREG(found.st_mode) and found.st_size <= left[0]:
            with os.fdopen(place.open(os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                data = file.read(left[0])
        left[0] -= len(data)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
            copy.write(data)


def _delete(place: Spot) -> None:
    from shutil import rmtree

    try:
        os.unlink(place.name, dir_fd=place.folder)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
        rmtree(place.name, dir_fd=place.folder)
