"""The session lock: one writer per session, released when its process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from travois.core.errors import UserError
from travois.sessions import blobs

NO_LOCK_ERRORS = frozenset((errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL))


class LockHolder(msgspec.Struct, frozen=True):
    """A process, told apart from all others by machine, boot, pid and start time."""

    pid: int
    host: str = ""
    boot: str = ""
    started: str = ""
    since: float = 0.0


class SessionLock:
    """The right to write to a session, until `release` or the end of the process."""

    def __init__(self, fd: int, claim: Path | None = None) -> None:
        self._fd = fd
        self._claim = claim

    def release(self) -> None:
        """Release the lock. The file stays: removing it would let two processes hold it at once."""
        if self._fd < 0:
            return
        if self._claim is not None:
            self._claim.unlink(missing_ok=True)
        with suppress(OSError):
            os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = -1


def acquire_lock(folder: Path) -> SessionLock:
    """Take the lock of a session folder; raises UserError that names the holder."""
    path = folder / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise blobs.make_storage_error(
            f"Session {folder.name} cannot be locked", error, path=path
        ) from error
    try:
        return SessionLock(fd, _lock_or_claim(fd, path))
    except BaseException:
        os.close(fd)
        raise


def find_lock_holder(folder: Path) -> LockHolder | None:
    """Return the process that writes to this session at the moment, if any.

    Read from what holders write down, not by trying the lock: a probe could get in the way of a
    process that is just starting.
    """
    path = folder / "lock"
    return _find_living_holder(path) or _find_living_holder(_claim_path(path))


def _lock_or_claim(fd: int, path: Path) -> Path | None:
    """Lock a session's open file; on file systems without locks, create a claim file."""
    claim = None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _make_in_use_error(path, _read_holder(path)) from None
    except OSError as error:
        if error.errno not in NO_LOCK_ERRORS:
            raise blobs.make_storage_error(
                "A session cannot be locked", error, path=path
            ) from error
        claim = _create_claim(path)
    with suppress(OSError):  # a full disk must not keep a session from being opened
        os.ftruncate(fd, 0)
        os.write(fd, msgspec.json.encode(describe_this_process()))
    return claim


def _create_claim(path: Path) -> Path:
    """Create the claim file of a session lock; raise if another living process holds it."""
    claim = _claim_path(path)
    if (other := _find_living_holder(claim)) is not None:
        raise _make_in_use_error(path, other)
    claim.unlink(missing_ok=True)
    try:
        fd = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise _make_in_use_error(path, _read_holder(claim)) from None
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(describe_this_process()))
    return claim


def _claim_path(path: Path) -> Path:
    return path.with_name("lock.held")


def _find_living_holder(claim: Path) -> LockHolder | None:
    """Return the holder of a session lock's claim, unless it is known to be gone."""
    other = _read_holder(claim)
    return other if other is not None and is_alive(other) else None


def is_alive(other: LockHolder) -> bool:
    """Return whether a session lock's process may still exist; a reused pid does not count."""
    me = describe_this_process()
    if other.host != me.host:
        return True  # nothing can be known of a process elsewhere
    return (
        other.boot == me.boot
        and _is_pid_in_use(other.pid)
        and _process_start_time(other.pid) == other.started
    )


def _is_pid_in_use(pid: int) -> bool:
    """Return whether a process with a lock's pid exists, whoever owns it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return pid > 0


def describe_this_process() -> LockHolder:
    """Return this process's identity for a session lock."""
    pid = os.getpid()
    return LockHolder(pid, os.uname().nodename, _boot_id(), _process_start_time(pid), time.time())


def _boot_id() -> str:
    """Return the ID of the machine's current boot, for a session lock; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _process_start_time(pid: int) -> str:
    """Return a lock holder's start time in ticks since boot; empty if gone or unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[19]


def _read_holder(path: Path) -> LockHolder | None:
    """Read the process that holds a session lock; None if that is unreadable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=LockHolder)
    except (OSError, ValueError):
        return None


def _make_in_use_error(path: Path, other: LockHolder | None) -> UserError:
    """Build the error for a session that another process is using."""
    who = "another process"
    if other is not None:
        who = f"process {other.pid} on {other.host} since {time.ctime(other.since)}"
    return UserError(
        f"Session {path.parent.name} is in use",
        why=f"locked by {who}",
        fix="Close it there, or use --fork-session to continue in a copy.",
    )
