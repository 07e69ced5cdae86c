"""File access on disk by real paths: a link in a path is an error."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from itertools import islice
from typing import Literal, NamedTuple

import anyio
import msgspec
from anyio import to_thread

from travois.core.patterns import compile_lazily
from travois.files import atomic
from travois.files.openat import OpenedPath, open_parent
from travois.ports.world import Files, FileStat, content_digest

# What our processes left in folders when they were killed while they replaced a file.


DRAFT_NAME = compile_lazily(r"\.travois-(\d+)-[0-9a-f]{12}")
MIN_DRAFT_AGE_SECONDS = 600.0
"""A younger draft may be of a process that cannot be seen from here, as in another container."""


def remove_stale_drafts(folder: str) -> None:
    """Remove file drafts in a folder whose writers are dead."""
    with suppress(OSError), open_parent(os.path.join(folder, ".")) as place:
        for draft in _find_drafts(place):
            with suppress(FileNotFoundError):
                _remove_draft_if_stale(draft)


def _find_drafts(opened: OpenedPath) -> list[OpenedPath]:
    """Find the drafts in a folder that interrupted file replacements left."""
    fd = opened.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [opened.sibling(name) for name in os.listdir(fd) if DRAFT_NAME.fullmatch(name)]
    finally:
        os.close(fd)


def _remove_draft_if_stale(draft: OpenedPath) -> None:
    """Remove a file draft of ours if it is old and its process is gone."""
    found = draft.stat()
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    if (
        ours
        and time.time() - found.st_mtime > MIN_DRAFT_AGE_SECONDS
        and not _is_process_alive(int(draft.name.split("-")[1]))
    ):
        os.unlink(draft.name, dir_fd=draft.folder)


def _is_process_alive(writer: int) -> bool:
    """Return whether the process that wrote a draft still exists."""
    try:
        os.kill(writer, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


MAX_INLINE_READ_BYTES = 64 * 1024
"""Up to this many bytes, a read costs less than the way to a thread."""


class FileQueue(msgspec.Struct):
    """The queue for one file: a lock, and the number of users."""

    lock: anyio.Lock
    wanted: int = 0


class DiskFiles:
    """The real files. Within one process callers queue; against all others, `replace` compares.

    `wrote` hears of each file that was replaced, with its new content.
    """

    def __init__(self, wrote: Callable[[str, bytes], None] | None = None) -> None:
        self._wrote = wrote
        self._turns: dict[str, FileQueue] = {}
        self._swept: set[str] = set()

    async def stat(self, path: str) -> FileStat | None:
        """Return the type of the path; None if nothing is there."""
        _check_no_nul(path)
        try:
            with open_parent(path) as place:
                found = place.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStat(_file_kind(found.st_mode), found.st_size, found.st_mtime)

    async def list_names(self, folder: str, *, limit: int) -> list[str]:
        """Return the first names in a folder, in order; those of folders end with a slash."""
        fd = _open_file(folder, os.O_RDONLY | os.O_DIRECTORY)
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
        return await to_thread.run_sync(lambda: [_modified_ns(path) for path in paths])

    async def read(self, path: str, *, offset: int = 0, limit: int = -1) -> bytes:
        """Read bytes of the file from an offset."""
        fd = _open_file(path, atomic.READ_FLAGS)
        try:
            found = os.fstat(fd)
            atomic.check_regular(path, found.st_mode)
            size = max(found.st_size - offset, 0)
            if min(size, limit if limit >= 0 else size) <= MAX_INLINE_READ_BYTES:
                return atomic.read_bytes(fd, offset, limit)
            return await to_thread.run_sync(atomic.read_bytes, fd, offset, limit)
        finally:
            os.close(fd)

    async def replace(self, path: str, data: bytes, *, expect: str | None) -> str:
        """Replace the whole file at once, iff the digest of its content is `expect`.

        Mode, owner and attributes stay. The work is not abandoned when cancelled, so that it
        leaves nothing half done.
        """

        _check_no_nul(path)
        folder = os.path.dirname(path)
        if folder not in self._swept:
            await to_thread.run_sync(remove_stale_drafts, folder)
            self._swept.add(folder)
        await to_thread.run_sync(_create_or_replace, path, data, expect)
        if self._wrote is not None:
            self._wrote(path, data)
        return content_digest(data)

    async def remove(self, path: str, *, expect: str) -> None:
        """Delete a file, iff the digest of its content is `expect`; raises `StaleFile`."""
        _check_no_nul(path)
        await to_thread.run_sync(atomic.remove_file, path, expect)

    @asynccontextmanager
    async def queue(self, path: str) -> AsyncGenerator[None]:
        """Serialize work on one file."""
        turn = self._turns.setdefault(path, FileQueue(anyio.Lock()))
        turn.wanted += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self._turns[path]


def _create_or_replace(target: str, data: bytes, expect: str | None) -> None:
    """Create a new file, or replace one whose content has the expected digest."""
    if expect is None:
        atomic.create_file(target, data)
    else:
        atomic.replace_file(target, data, expect=expect)


def _modified_ns(path: str) -> int:
    """Return the modification time of a path in nanoseconds; 0 if it is missing."""
    try:
        return os.lstat(path).st_mtime_ns
    except (OSError, ValueError):  # it is gone, or no disk could hold such a name
        return 0


def _file_kind(mode: int) -> Literal["file", "folder", "other"]:
    """Return the kind of a file on disk by its mode: file, folder or other."""
    if stat.S_ISREG(mode):
        return "file"
    return "folder" if stat.S_ISDIR(mode) else "other"


def _open_file(path: str, flags: int) -> int:
    """Open a file on disk without following links on the way."""
    _check_no_nul(path)
    with open_parent(path) as place:
        return place.open(flags)


def _check_no_nul(path: str) -> None:
    """Raise OSError, not ValueError, for a NUL in a file's path."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "a path cannot contain a NUL byte", path.replace("\0", "\\0"))


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

    def _is_settled(self, identity: FileIdentity, data: bytes) -> bool:
        """Return whether a later change is sure to show."""
        rested = self._clock() - max(identity.modified, identity.changed) / 1e9
        return len(data) == identity.size and rested > MIN_REST_SECONDS

    def _store_content(self, identity: FileIdentity, data: bytes) -> None:
        name = content_digest(data)
        self._names[identity] = name
        if name not in self._contents:
            self._contents[name] = data
            self.size += len(data)
        while self.size > self._room:
            self.size -= len(self._contents.popitem(last=False)[1])
        if len(self._names) > MAX_KNOWN_FILES:
            self._names.popitem(last=False)


def _identify_file(path: str, *, most: int) -> FileIdentity | None:
    """Return a small regular file's identity for the read cache; None for anything else."""
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
