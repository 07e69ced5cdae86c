"""Putting new content in a file's place so that no one's update is lost.

The content is written and synced beside the file, then both trade names in one step. On Linux the
file is leased meanwhile: programs that want to write into it wait, and one that has it open already
is seen. If what comes out of the trade is not what was expected, it is put back.

Where a disk cannot trade names, the file is compared once more and then replaced: between the two
steps a writer could slip in. Where leases do not exist, one that has the file open could write into
what was just replaced. Other hard links of a replaced file keep the old content.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from travois.engine.ports import Stale, digest

if TYPE_CHECKING:
    from ctypes import CDLL

READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opening a pipe or a terminal must neither wait nor take it over."""
PAUSES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.3)
"""How long we wait for a program that has the file open for writing."""
NOREPLACE, EXCHANGE = 1, 2
AT_FDCWD = -100
UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


def create(target: str, data: bytes) -> None:
    """Make a file where nothing may be yet; raises `Stale` if something is."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with _draft(target, data, mode=0o666) as draft:
        try:
            _place(draft, target)
        except FileExistsError as error:
            raise Stale(f"{target} is there already") from error


def replace(target: str, data: bytes, *, expect: str) -> None:
    """Put `data` in the place of content with the digest `expect`; raises `Stale` if it differs."""
    with _draft(target, data, mode=0o600) as draft, _turn(target), _hold(target, draft) as hold:
        if digest(read(hold.fd)) != expect or not _unwanted(hold):
            raise Stale(f"{target} has changed")
        if not _trade(draft, target):
            os.replace(draft, target)
        elif not _undisturbed(hold, draft, expect=expect):
            _put_back(target, draft, ours=digest(data))
            raise Stale(f"{target} is being changed by another program")


def read(fd: int, offset: int = 0, limit: int = -1) -> bytes:
    """The bytes of an open file from an offset on."""
    parts = list[bytes]()
    left = limit if limit >= 0 else max(os.fstat(fd).st_size - offset, 0) + 1
    while left > 0 and (part := os.pread(fd, left, offset)):
        parts.append(part)
        offset += len(part)
        left = left - len(part) if limit >= 0 else max(left - len(part), 65536)
    return b"".join(parts)


class Hold(msgspec.Struct, frozen=True):
    """A file kept open while it is replaced; if `leased`, nobody writes into it meanwhile."""

    fd: int
    leased: bool


@contextmanager
def _hold(target: str, draft: str) -> Generator[Hold]:
    try:
        fd = os.open(target, READING | os.O_NOFOLLOW)
    except FileNotFoundError as error:
        raise Stale(f"{target} is gone") from error
    try:
        _adopt(draft, fd)
        yield Hold(fd, leased=_lease(fd, target, draft=draft))
    finally:
        os.close(fd)


@contextmanager
def _turn(target: str) -> Generator[None]:
    """One of us at a time in a folder, of all processes; a stranger's lock is not waited out."""
    try:
        fd = os.open(os.path.dirname(target), os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        yield
        return
    try:
        for pause in PAUSES:
            time.sleep(pause)
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        yield
    finally:
        os.close(fd)


def _lease(fd: int, target: str, *, draft: str) -> bool:
    """Make writers wait until `fd` is closed; False where that cannot be had."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    for pause in PAUSES:
        time.sleep(pause)
        try:
            _take_lease(fd)
        except BlockingIOError:
            if not _can_lease(draft):
                return False
        except OSError:
            return False
        else:
            return True
    raise OSError(errno.EBUSY, "another program has it open for writing", target)


def _take_lease(fd: int) -> None:
    # The kernel tells of a waiting writer by a signal: one that is ignored unless asked for.
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def _can_lease(path: str) -> bool:
    """Whether this disk has leases: some say "busy" when they mean "never"."""
    fd = os.open(path, READING)
    try:
        _take_lease(fd)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _undisturbed(hold: Hold, taken: str, *, expect: str) -> bool:
    """Whether what was taken out is what we held, with no writer waiting for it."""
    if not hold.leased:
        return _digest_of(taken) == expect
    return os.path.samestat(os.fstat(hold.fd), os.lstat(taken)) and _unwanted(hold)


def _unwanted(hold: Hold) -> bool:
    """Whether no writer waits for what we hold, as far as can be known."""
    return not hold.leased or fcntl.fcntl(hold.fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def _put_back(target: str, draft: str, *, ours: str) -> None:
    """Undo the trade. If someone has built on ours by then, theirs stays and the other is kept."""
    _trade(draft, target)
    with suppress(OSError, Stale), _hold(draft, draft):
        if _digest_of(draft) == ours:
            return
    _trade(draft, target)
    kept = f"{target}.kept-{os.urandom(4).hex()}"
    os.rename(draft, kept)
    words = f"others wrote to it at the same time; read it again. A version is kept in {kept}"
    raise OSError(errno.EBUSY, words, target)


def _digest_of(path: str) -> str:
    fd = os.open(path, READING | os.O_NOFOLLOW)
    try:
        return digest(read(fd))
    finally:
        os.close(fd)


@contextmanager
def _draft(target: str, data: bytes, *, mode: int) -> Generator[str]:
    """A synced file beside the target; whatever has its name in the end is removed."""
    name = f".travois-{os.getpid()}-{os.urandom(6).hex()}"
    draft = os.path.join(os.path.dirname(target), name)
    try:
        try:
            _write(draft, data, mode=mode)
        except OSError as error:
            raise OSError(error.errno, error.strerror, target) from error
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def _write(path: str, data: bytes, *, mode: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _adopt(draft: str, source: int) -> None:
    """Give the draft the owner, the extended attributes and the mode of what it will replace."""
    model, mine = os.fstat(source), os.stat(draft)
    mode = stat.S_IMODE(model.st_mode)
    if (mine.st_uid, mine.st_gid) != (model.st_uid, model.st_gid):
        try:
            os.chown(draft, model.st_uid, model.st_gid)
        except PermissionError:
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
    _copy_attributes(source, draft)
    os.chmod(draft, mode)


def _copy_attributes(source: int, draft: str) -> None:
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(draft, name, os.getxattr(source, name))


def _place(draft: str, target: str) -> None:
    """Give the draft its final name, which nothing may have."""
    try:
        _rename(draft, target, flag=NOREPLACE)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        os.link(draft, target)


def _trade(draft: str, target: str) -> bool:
    """Let two files trade names; False where the disk cannot."""
    try:
        _rename(draft, target, flag=EXCHANGE)
    except FileNotFoundError as error:
        raise Stale(f"{target} is gone") from error
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def _rename(source: str, target: str, *, flag: int) -> None:
    call = getattr(_libc(), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target)
    if call(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flag) == 0:
        return
    import ctypes

    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), target)


@cache
def _libc() -> CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
