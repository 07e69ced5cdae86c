"""Stand-ins for pinned paths that do not exist: nothing can be made where something stands.

A stand-in is an empty folder: git does not show it, no program takes it for settings, and removing
it fails if anyone has put something in. Whoever relies on one holds a shared lock on it; who gets
the exclusive lock is the last, and removes it. So one left by a crash goes after the next command.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Mapping
from contextlib import suppress

MARKED = 7777
"""The second of 1970 in which every stand-in says it was last changed."""


def occupy(path: str) -> int | None:
    """Stand something on a path where nothing is, or rely on what stands there already.

    Returns the lock that says so; None if it is in use. Raises OSError if nothing can stand there.
    """
    while True:
        made = _make(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        fcntl.flock(fd, fcntl.LOCK_SH)
        if _stands(path, fd):
            break
        os.close(fd)
    if made:
        os.utime(fd, (MARKED, MARKED))
    return fd


def vacate(held: Mapping[int, str]) -> None:
    """Take away what nobody else relies on, by the locks that were got for it.

    The disk does its work when the last lock is let go, which can take it a while: nobody waits.
    """
    from threading import Thread

    for fd, path in held.items():
        with suppress(OSError):  # others still rely on it, or somebody uses it
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if occupied(path) and _stands(path, fd):
                os.rmdir(path)
    if held:
        Thread(target=lambda: [os.close(fd) for fd in held], name="travois-vacated").start()


def occupied(path: str) -> bool:
    """Whether a stand-in is there."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_mtime == MARKED and stat.S_ISDIR(found.st_mode)


def relink(path: str, target: str, *, temp: str) -> None:
    """Put a link back that a program has replaced; what took its place goes into `temp`."""
    with suppress(OSError):
        if os.readlink(path) == target:
            return
    from shutil import move
    from tempfile import mkdtemp

    if os.path.lexists(path):
        move(path, mkdtemp(prefix="replaced-", dir=temp))
    os.symlink(target, path)


def _make(path: str) -> bool:
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        return False
    return True


def _stands(path: str, fd: int) -> bool:
    """Whether the open folder is still the one at that path."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except OSError:
        return False
