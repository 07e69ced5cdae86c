"""A cache of file contents for many agents, valid while the file stays the same.

A file is known by what the disk says of it: device, inode, size, and both times to the nanosecond.
They can stay the same through a change only for a short while: within one tick of the disk's clock,
or until the system has written back memory that a program had mapped. So a file is kept only if it
has rested for longer than that. Content is kept once, however many files have it.
"""

from __future__ import annotations

import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from travois.files.openat import open_parent
from travois.ports.world import Files, FileStat, content_digest

MAX_CACHE_BYTES = 64 << 20
MAX_CACHED_FILE_BYTES = 1 << 20
MAX_KNOWN_FILES = 1 << 14
"""The maximum number of known files."""
MIN_REST_SECONDS = 60.0
"""The seconds a file must rest: disk clocks tick within 2, systems write back within 35."""


class FileIdentity(NamedTuple):
    """The stat fields that identify an unchanged file."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class ReadCache:
    """Files whose whole content is remembered; all else goes to the disk."""

    def __init__(
        self, files: Files, *, room: int = MAX_CACHE_BYTES, clock: Callable[[], float] = time.time
    ) -> None:
        self._files = files
        self._room = room
        self._clock = clock
        self._names = OrderedDict[FileIdentity, str]()
        self._contents = OrderedDict[str, bytes]()
        self.size = 0
        """How many bytes are held."""

    async def stat(self, path: str) -> FileStat | None:
        """Return the type of the path; None if nothing is there."""
        return await self._files.stat(path)

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """Return the first names in a folder, in order; those of folders end with a slash."""
        return await self._files.list_names(folder, limit=limit)

    async def modified_times(self, paths: Sequence[str]) -> list[int]:
        """Return the modification times in nanoseconds; 0 if unknown."""
        return await self._files.modified_times(paths)

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read bytes of the file from an offset; from memory if the file is unchanged."""
        before = (
            None
            if offset
            else _identify_file(path, most=limit if limit >= 0 else MAX_CACHED_FILE_BYTES)
        )
        if before is None:
            return await self._files.read(path, offset=offset, limit=limit)
        known = self._contents.get(self._names.get(before, ""))
        if known is not None:
            self._names.move_to_end(before)
            self._contents.move_to_end(self._names[before])
            return known
        data = await self._files.read(path, limit=limit)
        if before == _identify_file(path, most=before.size) and self._is_settled(before, data):
            self._store_content(before, data)
        return data

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`."""
        return await self._files.replace(path, data, expect=expect)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect`."""
        await self._files.remove(path, expect=expect)

    def queue(self, path: str) -> AbstractAsyncContextManager[None]:
        """Serialize work on one file."""
        return self._files.queue(path)

    def _is_settled(self, found: FileIdentity, data: bytes) -> bool:
        """Return whether a later change is sure to show."""
        rested = self._clock() - max(found.modified, found.changed) / 1e9
        return len(data) == found.size and rested > MIN_REST_SECONDS

    def _store_content(self, found: FileIdentity, data: bytes) -> None:
        name = content_digest(data)
        self._names[found] = name
        if name not in self._contents:
            self._contents[name] = data
            self.size += len(data)
        while self.size > self._room:
            self.size -= len(self._contents.popitem(last=False)[1])
        if len(self._names) > MAX_KNOWN_FILES:
            self._names.popitem(last=False)


def _identify_file(path: str, *, most: int) -> FileIdentity | None:
    """Return the identity of a small regular file; None for anything else."""
    if "\0" in path:
        return None
    try:
        with open_parent(path) as place:
            found = place.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size > min(most, MAX_CACHED_FILE_BYTES):
        return None
    return FileIdentity(
        found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
    )
