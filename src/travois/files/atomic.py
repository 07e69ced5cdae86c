"""Atomic replacement of files, so that no concurrent update is lost.

The content is written and synced beside the file, then both trade names in one step. On Linux the
file is leased meanwhile: programs that want to write into it wait, and one that has it open already
is seen. If what comes out of the trade is not what was expected, it is put back.

Where a disk cannot trade names, the file is compared once more and then replaced: between the two
steps a writer could slip in. Where leases do not exist, one that has the file open could write into
what was just replaced. Other hard links of a replaced file keep the old content.

All of it happens in one open folder, by names without links: nothing that is renamed or linked
meanwhile leads elsewhere.
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

from travois.files.openat import OpenedPath, open_parent
from travois.lazy_imports import lazy_imports
from travois.ports.world import StaleFile, content_digest

if TYPE_CHECKING:
    from ctypes import CDLL

with lazy_imports():
    import ctypes


READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opening a pipe or a terminal must neither wait nor take it over."""
LOCK_RETRY_PAUSES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.3)
"""The pauses while waiting for a program that has the file open for writing."""
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
UNSUPPORTED_ERRNOS = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


def create_file(target: str, data: bytes) -> None:
    """Create a file atomically where none exists; raises `StaleFile` if something does."""
    with (
        open_parent(target, missing="make") as place,
        _write_draft(place, data, mode=0o666) as draft,
    ):
        try:
            _rename_no_replace(draft, place)
        except FileExistsError as error:
            raise StaleFile(f"{target} already exists") from error


def replace_file(target: str, data: bytes, *, expect: str) -> None:
    """Replace a file atomically if its digest is `expect`; raises `StaleFile` otherwise."""
    with open_parent(target) as place:
        check_writable(place)
        with (
            _write_draft(place, data, mode=0o600) as draft,
            _lock_folder(place),
            _hold_file(place, draft) as hold,
        ):
            if content_digest(read_bytes(hold.fd)) != expect or not _has_no_waiting_writer(hold):
                raise StaleFile(f"{target} has changed")
            if not _exchange_names(draft, place):
                _rename_over(draft, place)
            elif not _is_undisturbed(hold, draft, expect=expect):
                _undo_exchange(place, draft, ours=content_digest(data))
                raise StaleFile(f"{target} is being changed by another program")


def remove_file(target: str, expect: str) -> None:
    """Delete a file if its digest is `expect`; raises `StaleFile` otherwise."""
    with open_parent(target) as place, _lock_folder(place):
        check_writable(place)
        if _digest_of(place) != expect:
            raise StaleFile(f"{target} has changed")
        os.unlink(place.name, dir_fd=place.folder)


def check_writable(opened: OpenedPath) -> None:
    """Raise unless a path is a regular, writable file, even for root."""
    try:
        mode = opened.stat().st_mode
    except FileNotFoundError as error:
        raise StaleFile(f"{opened.path} no longer exists") from error
    check_regular(opened.path, mode)
    if not mode & 0o222 or not os.access(opened.name, os.W_OK, dir_fd=opened.folder):
        raise PermissionError(errno.EACCES, "the file is read-only", opened.path)


def check_regular(path: str, mode: int) -> None:
    """Raise for a pipe, whose read would block, and for a device, which might never end."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)


def read_bytes(fd: int, offset: int = 0, limit: int = -1) -> bytes:
    """Return the bytes of an open file from an offset on."""
    parts = list[bytes]()
    left = limit if limit >= 0 else max(os.fstat(fd).st_size - offset, 0) + 1
    while left > 0 and (part := os.pread(fd, left, offset)):
        parts.append(part)
        offset += len(part)
        left = left - len(part) if limit >= 0 else max(left - len(part), 65536)
    return b"".join(parts)


class HeldFile(msgspec.Struct, frozen=True):
    """A file held open while it is replaced; if `leased`, writers wait."""

    fd: int
    leased: bool


@contextmanager
def _hold_file(target: OpenedPath, draft: OpenedPath) -> Generator[HeldFile]:
    """Hold the file to be replaced open, under a lease where possible, for an atomic change."""
    try:
        fd = target.open(READ_FLAGS)
    except FileNotFoundError as error:
        raise StaleFile(f"{target.path} no longer exists") from error
    try:
        _copy_ownership(draft, fd)
        yield HeldFile(fd, leased=_lease_file(fd, target, draft=draft))
    finally:
        os.close(fd)


@contextmanager
def _lock_folder(target: OpenedPath) -> Generator[None]:
    """Lock a folder against our other processes, without waiting long for a foreign lock."""
    try:
        fd = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=target.folder)
    except PermissionError:
        yield
        return
    try:
        for pause in LOCK_RETRY_PAUSES:
            time.sleep(pause)
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
        yield
    finally:
        os.close(fd)


def _lease_file(fd: int, target: OpenedPath, *, draft: OpenedPath) -> bool:
    """Lease a file, so that other writers wait until `fd` is closed; False if impossible."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    for pause in LOCK_RETRY_PAUSES:
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
    raise OSError(errno.EBUSY, "another program has it open for writing", target.path)


def _take_lease(fd: int) -> None:
    """Take a read lease on an open file, so that another program's write is noticed."""
    # The kernel tells of a waiting writer by a signal: one that is ignored unless asked for.
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def _can_lease(opened: OpenedPath) -> bool:
    """Return whether this disk supports file leases: some say "busy" when they mean "never"."""
    fd = opened.open(READ_FLAGS)
    try:
        _take_lease(fd)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def _is_undisturbed(hold: HeldFile, opened: OpenedPath, *, expect: str) -> bool:
    """Return whether the replaced file is the one expected, with no writer waiting for it."""
    if not hold.leased:
        return _digest_of(opened) == expect
    return os.path.samestat(os.fstat(hold.fd), opened.stat()) and _has_no_waiting_writer(hold)


def _has_no_waiting_writer(hold: HeldFile) -> bool:
    """Return whether no other program waits to write the leased file, as far as can be known."""
    return not hold.leased or fcntl.fcntl(hold.fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def _undo_exchange(target: OpenedPath, draft: OpenedPath, *, ours: str) -> None:
    """Undo an atomic exchange; if our file changed since, keep it and save the other."""
    _exchange_names(draft, target)
    with suppress(OSError, StaleFile), _hold_file(draft, draft):
        if _digest_of(draft) == ours:
            return
    _exchange_names(draft, target)
    kept = target.sibling(f"{target.name}.kept-{os.urandom(4).hex()}")
    _rename_over(draft, kept)
    words = f"another program wrote to it at the same time; read it again. A copy is in {kept.path}"
    raise OSError(errno.EBUSY, words, target.path)


def _digest_of(opened: OpenedPath) -> str:
    """Return the content digest of an opened path, to check it before a replacement."""
    fd = opened.open(READ_FLAGS)
    try:
        return content_digest(read_bytes(fd))
    finally:
        os.close(fd)


@contextmanager
def _write_draft(target: OpenedPath, data: bytes, *, mode: int) -> Generator[OpenedPath]:
    """Write a synced draft beside the file to replace; remove it at the end if it still exists."""
    draft = target.sibling(f".travois-{os.getpid()}-{os.urandom(6).hex()}")
    try:
        try:
            _write_synced(draft, data, mode=mode)
        except OSError as error:
            raise OSError(error.errno, error.strerror, target.path) from error
        yield draft
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft.name, dir_fd=draft.folder)


def _write_synced(draft: OpenedPath, data: bytes, *, mode: int) -> None:
    """Create a draft file with this content and sync it to disk."""
    fd = draft.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _copy_ownership(draft: OpenedPath, source: int) -> None:
    """Copy owner, extended attributes and mode of the replaced file to its draft."""
    fd = draft.open(READ_FLAGS)
    try:
        model, mine = os.fstat(source), os.fstat(fd)
        mode = stat.S_IMODE(model.st_mode)
        if (mine.st_uid, mine.st_gid) != (model.st_uid, model.st_gid):
            try:
                os.fchown(fd, model.st_uid, model.st_gid)
            except PermissionError:
                mode &= ~(stat.S_ISUID | stat.S_ISGID)
        _copy_attributes(source, fd)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _copy_attributes(source: int, draft: int) -> None:
    """Copy the extended attributes of a file to its draft, as far as permitted."""
    if not hasattr(os, "listxattr"):
        return
    with suppress(OSError):
        for name in os.listxattr(source):
            with suppress(OSError):
                os.setxattr(draft, name, os.getxattr(source, name))


def _rename_no_replace(draft: OpenedPath, target: OpenedPath) -> None:
    """Rename the draft to its final name, which must be free."""
    try:
        _call_renameat2(draft, target, flag=RENAME_NOREPLACE)
    except OSError as error:
        if error.errno not in UNSUPPORTED_ERRNOS:
            raise
        os.link(draft.name, target.name, src_dir_fd=draft.folder, dst_dir_fd=target.folder)


def _exchange_names(draft: OpenedPath, target: OpenedPath) -> bool:
    """Exchange the names of two files; return False where the file system cannot."""
    try:
        _call_renameat2(draft, target, flag=RENAME_EXCHANGE)
    except FileNotFoundError as error:
        raise StaleFile(f"{target.path} no longer exists") from error
    except OSError as error:
        if error.errno not in UNSUPPORTED_ERRNOS:
            raise
        return False
    return True


def _rename_over(draft: OpenedPath, target: OpenedPath) -> None:
    os.replace(draft.name, target.name, src_dir_fd=draft.folder, dst_dir_fd=target.folder)


def _call_renameat2(source: OpenedPath, target: OpenedPath, *, flag: int) -> None:
    """Rename a file with flags of Linux's renameat2, such as exchange; raise OSError on failure."""
    call = getattr(_load_libc(), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), target.path)
    old, new = os.fsencode(source.name), os.fsencode(target.name)
    if call(source.folder, old, target.folder, new, flag) == 0:
        return
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), target.path)


@cache
def _load_libc() -> CDLL:
    """Load the C library, with ctypes imported only when it is needed."""
    return ctypes.CDLL(None, use_errno=True)
