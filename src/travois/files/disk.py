"""File access on disk by real paths: a link in a path is an error."""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Literal

import anyio
import msgspec
from anyio import to_thread

from travois.files import atomic
from travois.files.openat import Spot, spot
from travois.ports.world import FileStat, content_digest

# What our processes left in folders when they were killed while they replaced a file.


DRAFT = re.compile(r"\.travois-(\d+)-[0-9a-f]{12}")
OLD = 600.0
"""A younger draft may be of a process that cannot be seen from here, as in another container."""


def sweep(folder: str) -> None:
    """Remove drafts of ours in a folder whose writers are dead."""
    with suppress(OSError), spot(os.path.join(folder, ".")) as place:
        for draft in _drafts(place):
            with suppress(FileNotFoundError):
                _drop(draft)


def _drafts(place: Spot) -> list[Spot]:
    fd = place.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [place.beside(name) for name in os.listdir(fd) if DRAFT.fullmatch(name)]
    finally:
        os.close(fd)


def _drop(draft: Spot) -> None:
    """Remove one if it is ours, old, and of a process that is no more."""
    found = draft.stat()
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if ours and time.time() - found.st_mtime > OLD and not _alive(int(draft.name.split("-")[1])):
        os.unlink(draft.name, dir_fd=draft.folder)


def _alive(writer: int) -> bool:
    try:
        os.kill(writer, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


INLINE = 64 * 1024
"""Up to this many bytes, a read costs less than the way to a thread."""


class Turn(msgspec.Struct):
    """The queue for one file: a lock, and the number of users."""

    lock: anyio.Lock
    wanted: int = 0


class DiskFiles:
    """The real files. Within one process callers queue; against all others, `replace` compares.

    `wrote` hears of each file that was replaced, with its new content.
    """

    def __init__(self, wrote: Callable[[str, bytes], None] | None = None) -> None:
        self._wrote = wrote
        self._turns: dict[str, Turn] = {}
        self._swept: set[str] = set()

    async def stat(self, path: str) -> FileStat | None:
        """Return the type of the path; None if nothing is there."""
        _check(path)
        try:
            with spot(path) as place:
                found = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(_kind(found.st_mode), found.st_size, found.st_mtime)

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """Return the first names in a folder, in order; those of folders end with a slash."""
        fd = _opened(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(fd) as entries:
                found = [
                    entry.name + ("/" if entry.is_dir() else "") for entry in islice(entries, limit)
                ]
        finally:
            os.close(fd)
        return sorted(found)

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """Return the modification times in nanoseconds; 0 if unknown."""
        return await to_thread.run_sync(lambda: [_modified(path) for path in paths])

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read bytes of the file from an offset."""
        fd = _opened(path, atomic.READING)
        try:
            found = os.fstat(fd)
            atomic.check_regular(path, found.st_mode)
            size = max(found.st_size - offset, 0)
            if min(size, limit if limit >= 0 else size) <= INLINE:
                return atomic.read(fd, offset, limit)
            return await to_thread.run_sync(atomic.read, fd, offset, limit)
        finally:
            os.close(fd)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`.

        Mode, owner and attributes stay. The work is not abandoned when cancelled, so that it
        leaves nothing half done.
        """

        _check(path)
        folder = os.path.dirname(path)
        if folder not in self._swept:
            await to_thread.run_sync(sweep, folder)
            self._swept.add(folder)
        await to_thread.run_sync(_put, path, data, expect)
        if self._wrote is not None:
            self._wrote(path, data)
        return content_digest(data)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect`; raises `Stale`."""
        _check(path)
        await to_thread.run_sync(atomic.remove, path, expect)

    @asynccontextmanager
    async def queue(self, path: str) -> AsyncGenerator[None]:
        """Serialize work on one file."""
        turn = self._turns.setdefault(path, Turn(anyio.Lock()))
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[path]


def _put(target: str, data: bytes, expect: str | None) -> None:
    if expect is None:
        atomic.create(target, data)
    else:
        atomic.replace(target, data, expect=expect)


def _modified(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except (OSError, ValueError):  # it is gone, or no disk could hold such a name
        return 0


def _kind(mode: int) -> Literal["file", "folder", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _opened(path: str, flags: int) -> int:
    _check(path)
    with spot(path) as place:
        return place.open(flags)


def _check(path: str) -> None:
    """Raise OSError, not ValueError, for a NUL in a path."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path cannot contain a NUL byte", path.replace("\0", "\\0"))
