"""Folders whose entries changed since they were listed, by inotify or else by their timestamps."""

from __future__ import annotations

import ctypes
import os
import time
from struct import Struct

IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF, IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED = (
    0x400,
    0x800,
    0x2000,
    0x4000,
    0x8000,
)
IN_ONLYDIR, IN_DONT_FOLLOW = 0x1000000, 0x2000000
ENTRY_EVENTS = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
WATCH_MASK = ENTRY_EVENTS | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW
INOTIFY_EVENT = Struct("iIII")
WATCH_SHARE = 4
"""The fraction of the user's inotify watches for us: editors and snapshots need some."""
LOCAL_FILE_SYSTEMS = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E)
)
"""ext, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs: the kernel sees every change."""
FOLDER_TIME_SLACK_NS = 100_000_000
"""The nanoseconds in which a second change may leave the timestamp of a folder unchanged."""


class MissedChanges(Exception):
    """Changes may have been missed: everything has to be listed again."""


class InotifyFolderChanges:
    """Folder changes reported by inotify. Raises OSError where it cannot be used."""

    def __init__(self, root: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        if not hasattr(self._libc, "inotify_init1") or not self._is_local_disk(root):
            raise OSError("inotify does not report all changes on this file system")
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._paths: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._most = _get_max_watches() // WATCH_SHARE

    def watch(self, folder: str) -> None:
        """Watch a folder from here on. Raises OSError if that is not possible."""
        if len(self._paths) >= self._most:
            raise MissedChanges
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), WATCH_MASK)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch", folder)
        self._paths[number] = folder
        self._numbers[folder] = number

    def forget(self, folder: str) -> None:
        """Stop watching a folder, unless it has another path by now."""
        number = self._numbers.pop(folder, None)
        if number is not None and self._paths.get(number) == folder:
            del self._paths[number]
            self._libc.inotify_rm_watch(self._fd, number)

    def take_changes(self) -> tuple[set[str], set[str]]:
        """Return the folders to list again, and those that are gone. Raises `MissedChanges`."""
        changed, gone = set[str](), set[str]()
        while data := self._read_events():
            at = 0
            while at < len(data):
                number, mask, _, length = INOTIFY_EVENT.unpack_from(data, at)
                at += INOTIFY_EVENT.size + length
                if mask & (IN_Q_OVERFLOW | IN_UNMOUNT):
                    raise MissedChanges
                path = self._paths.get(number)
                if path is None:
                    continue
                if mask & IN_IGNORED:
                    del self._paths[number]
                    gone.add(path)
                changed.add(path)
        return changed, gone

    def close(self) -> None:
        """Stop watching all folders."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _read_events(self) -> bytes:
        try:
            return os.read(self._fd, 1 << 18)
        except BlockingIOError:
            return b""

    def _is_local_disk(self, folder: str) -> bool:
        found = ctypes.create_string_buffer(256)
        if self._libc.statfs(os.fsencode(folder), found):
            return False
        size = ctypes.sizeof(ctypes.c_long)
        return int.from_bytes(found.raw[:size], "little") & 0xFFFFFFFF in LOCAL_FILE_SYSTEMS


class TimestampFolderChanges:
    """Folder changes by timestamps, which no program can set back: slower, but always available."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    def watch(self, folder: str) -> None:
        """Record the timestamp of a folder before it is listed."""
        changed = os.lstat(folder).st_ctime_ns
        self._times[folder] = changed if time.time_ns() - changed > FOLDER_TIME_SLACK_NS else -1

    def forget(self, folder: str) -> None:
        """Stop checking a folder."""
        self._times.pop(folder, None)

    def take_changes(self) -> tuple[set[str], set[str]]:
        """Return the folders to list again, and those that are gone."""
        found = {folder: _folder_ctime(folder) for folder in self._times}
        gone = {folder for folder, when in found.items() if when < 0}
        return {folder for folder, when in found.items() if when != self._times[folder]}, gone

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _folder_ctime(folder: str) -> int:
    """Return the change time of a watched folder in nanoseconds; -2 if it is missing."""
    try:
        return os.lstat(folder).st_ctime_ns
    except OSError:
        return -2


def _get_max_watches() -> int:
    """Return the number of folders that a user may watch."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
