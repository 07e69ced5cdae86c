"""Files on this machine's disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Literal

import anyio
import msgspec
from anyio import to_thread

from travois.engine.ports import Stale, Stat, digest
from travois.host import swap

INLINE = 64 * 1024
"""Up to this many bytes, a read costs less than the way to a thread."""


class Turn(msgspec.Struct):
    """Who works on one file: a lock, and how many want it."""

    lock: anyio.Lock
    wanted: int = 0


class DiskFiles:
    """The real files. Within one process callers queue; against all others, `replace` compares."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    async def stat(self, path: str) -> Stat | None:
        """What the path is; None if nothing is there."""
        _check(path)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        link = os.path.realpath(path) if os.path.islink(path) else ""
        return Stat(_kind(found.st_mode), found.st_size, found.st_mtime, link)

    async def names(self, folder: str, *, limit: int) -> list[str]:
        """The first names in a folder, in order; those of folders end with a slash."""
        _check(folder)
        with os.scandir(folder) as entries:
            found = [
                entry.name + ("/" if entry.is_dir() else "") for entry in islice(entries, limit)
            ]
        return sorted(found)

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Bytes of the file from an offset on."""
        _check(path)
        fd = os.open(path, swap.READING)
        try:
            found = os.fstat(fd)
            _check_regular(path, found.st_mode)
            size = max(found.st_size - offset, 0)
            if min(size, limit if limit >= 0 else size) <= INLINE:
                return swap.read(fd, offset, limit)
            return await to_thread.run_sync(swap.read, fd, offset, limit)
        finally:
            os.close(fd)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`.

        A link stays: the file that it leads to is replaced. Mode, owner and attributes stay too.
        The work is not abandoned when cancelled, so that it leaves nothing half done.
        """
        _check(path)
        target = os.path.realpath(path)
        await to_thread.run_sync(_put, target, data, expect)
        return digest(data)

    @asynccontextmanager
    async def queue(self, path: str) -> AsyncGenerator[None]:
        """One at a time for each file, whichever path leads to it."""
        _check(path)
        key = os.path.realpath(path)
        turn = self._turns.setdefault(key, Turn(anyio.Lock()))
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[key]


def _put(target: str, data: bytes, expect: str | None) -> None:
    if expect is None:
        swap.create(target, data)
        return
    try:
        mode = os.lstat(target).st_mode
    except FileNotFoundError as error:
        raise Stale(f"{target} is gone") from error
    _check_regular(target, mode)
    if not mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", target)
    swap.replace(target, data, expect=expect)


def _kind(mode: int) -> Literal["file", "folder", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _check_regular(path: str, mode: int) -> None:
    """A pipe would keep us waiting and a device might never end."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is no regular file", path)


def _check(path: str) -> None:
    """A name that no disk can hold is an error of the disk, not of Python."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path cannot hold a NUL", path.replace("\0", "\\0"))
