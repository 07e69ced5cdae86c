"""Which folders have changed since they were last looked at, told by the kernel (inotify).

A folder is watched before it is looked at, so nothing slips between the two. Whatever the kernel
cannot tell ends the watch, and the next snapshot looks at every file again: an overflow, a folder
that moved, more folders than may be watched, a file system that others may write to unheard.
"""

from __future__ import annotations

import ctypes
import os
from struct import Struct

MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW = 0x400, 0x800, 0x2000, 0x4000
IGNORED, ONLY_FOLDER, NO_FOLLOW, IS_FOLDER = 0x8000, 0x1000000, 0x2000000, 0x40000000
CHANGED = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
WATCHED = CHANGED | DELETE_SELF | MOVE_SELF | ONLY_FOLDER | NO_FOLLOW
EVENT = Struct("iIII")
SHARE = 2
"""Of the folders that a user may watch, one in so many is ours at most."""
LOCAL = frozenset(
    (0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010, 0xCA451A4E)
)
"""ext, XFS, Btrfs, tmpfs, overlayfs, ZFS, F2FS, bcachefs: nobody changes these from elsewhere."""


class Unheard(Exception):
    """Changes may have gone unnoticed."""


class Watch:
    """The folders that are watched. Raises OSError where none can be."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError("inotify is not here")
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._paths: dict[int, bytes] = {}
        self._numbers: dict[bytes, int] = {}
        self._most = _allowed() // SHARE
        self._local: dict[int, bool] = {}
        self._doubted: set[bytes] = set()
        self.dirty: set[bytes] = set()
        """Folders in which something changed, with all folders above them."""

    def close(self) -> None:
        """Watch nothing any more."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def add(self, folder: bytes) -> None:
        """Watch a folder. Raises `Unheard`."""
        if len(self._paths) >= self._most or not self._is_local(folder):
            raise Unheard
        number = self._libc.inotify_add_watch(self._fd, folder, WATCHED)
        if number < 0 or self._paths.get(number, folder) != folder:
            raise Unheard  # too many, gone already, or one folder in two places
        self._paths[number], self._numbers[folder] = folder, number

    def is_clean(self, folder: bytes) -> bool:
        """Whether nothing has changed in a folder, nor below it, since it was watched."""
        return folder in self._numbers and folder not in self.dirty

    def read(self) -> None:
        """Take note of what has changed until now. Raises `Unheard`."""
        while True:
            try:
                data = os.read(self._fd, 1 << 18)
            except BlockingIOError:
                return
            except OSError as error:
                raise Unheard from error
            at = 0
            while at < len(data):
                number, mask, _, length = EVENT.unpack_from(data, at)
                at += EVENT.size + length
                self._note(number, mask)

    def doubt(self, folder: bytes, *, holds: bool) -> None:
        """Say whether a folder must be looked at each time, because it cannot be heard."""
        (self._doubted.add if holds else self._doubted.discard)(folder)

    def settle(self) -> None:
        """Forget what has changed: it was looked at."""
        self.dirty.clear()
        for folder in self._doubted:
            self._soil(folder)

    def _note(self, number: int, mask: int) -> None:
        moved = mask & MOVE_SELF or (mask & IS_FOLDER and mask & MOVED_FROM)
        if mask & (OVERFLOW | UNMOUNT) or moved:
            raise Unheard
        path = self._paths.get(number)
        if path is None:
            return
        if mask & (IGNORED | DELETE_SELF):
            self._paths.pop(number)
            self._numbers.pop(path, None)
        self._soil(path)

    def _soil(self, path: bytes) -> None:
        while path and path not in self.dirty:
            self.dirty.add(path)
            path = path.rpartition(b"/")[0]

    def _is_local(self, folder: bytes) -> bool:
        device = os.lstat(folder).st_dev
        if device not in self._local:
            self._local[device] = _kind_of_system(self._libc, folder) in LOCAL
        return self._local[device]


def _kind_of_system(libc: ctypes.CDLL, path: bytes) -> int:
    found = ctypes.create_string_buffer(256)
    if libc.statfs(path, found):
        return 0
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], "little") & 0xFFFFFFFF


def _allowed() -> int:
    """How many folders a user may watch."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
