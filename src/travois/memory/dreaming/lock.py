"""The lock and schedule of dreaming: at most one process consolidates memories.

The file's time is the time of the last consolidation. Its content names the process that made the
last claim, and the time before that, to which a failed consolidation returns. A claim and its time
are written in one step, so that a kill leaves nothing half done.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.sessions import blobs, lock
from travois.sessions.lock import NO_LOCK_ERRORS, LockHolder

LOCK_FILE = ".night"
SCAN_STAMP_FILE = ".scanned"
STALE_CLAIM_SECONDS = 3600.0
"""Seconds after which a dead process's claim may be taken over automatically."""
SCAN_INTERVAL_SECONDS = 600.0
"""Seconds between two counts of sessions."""
REMOTE_CLAIM_SECONDS = 86400.0
"""Seconds for which a claim of another machine counts."""
CLAIM_RACE_SECONDS = 0.2
"""Seconds to wait for concurrent claims where files cannot be locked."""
LOCK_FILE_BYTES = 1024


class DreamConditions(msgspec.Struct, frozen=True):
    """The conditions under which a consolidation starts by itself."""

    enabled: bool = True
    hours: float = 24.0
    """Since the last consolidation."""
    sessions: int = 5
    """Sessions with messages since then."""


class DreamClaim(msgspec.Struct, frozen=True):
    """The claim of a process on a consolidation."""

    holder: LockHolder
    dream: str
    """The id of its log."""
    before: int
    """The time of the file until then, in nanoseconds."""
    over: bool = False


class DreamLockState(msgspec.Struct, frozen=True):
    """The lock file as it was at one moment."""

    claim: DreamClaim | None = None
    stamp: int = 0
    """Its time in nanoseconds; zero if there was none."""

    @property
    def has_failed(self) -> bool:
        """Return whether the last claim failed and was rolled back."""
        return self.claim is not None and not self.claim.over and self.stamp == self.claim.before

    @property
    def is_open(self) -> bool:
        """Return whether the outcome of the last claim is still unknown."""
        return self.claim is not None and not self.claim.over and not self.has_failed

    @property
    def last_stamp(self) -> int:
        """Return the time of the last consolidation in nanoseconds, whatever was claimed since."""
        return self.claim.before if self.claim is not None and self.is_open else self.stamp

    @property
    def last_time(self) -> float:
        """Return the time of the last consolidation; 0 for never."""
        return self.last_stamp / 1e9

    def is_running(self, now: float) -> bool:
        """Return whether a consolidation is running, as far as can be known."""
        if self.claim is None or not self.is_open:
            return False
        elsewhere = self.claim.holder.host != os.uname().nodename
        return lock.is_alive(self.claim.holder) and not (
            elsewhere and self._claim_age(now) > REMOTE_CLAIM_SECONDS
        )

    def is_recent_crash(self, now: float) -> bool:
        """Return whether a dead process claimed too recently for an automatic retry."""
        return (
            self.is_open and not self.is_running(now) and self._claim_age(now) < STALE_CLAIM_SECONDS
        )

    def _claim_age(self, now: float) -> float:
        return now - self.stamp / 1e9


class DreamLock:
    """The right to consolidate, until `done`, `undo` or the end of the process."""

    def __init__(self, path: Path, fd: int, claim: DreamClaim) -> None:
        self._path = path
        self._fd = fd
        self._claim = claim
        self.dream = claim.dream
        """The id of its log."""

    def is_held(self) -> bool:
        """Return whether the file still contains our claim."""
        with suppress(OSError):
            same = os.path.samestat(os.stat(self._path), os.fstat(self._fd))
            return same and _read_lock_file(self._fd).claim == self._claim
        return False

    def complete(self) -> None:
        """Mark the memories as consolidated as of the start of this run."""
        _write_claim(self._fd, replace(self._claim, over=True))
        self._release(round(self._claim.holder.since * 1e9))

    def roll_back(self) -> None:
        """Give the claim up: the file's time returns to what it was."""
        self._release(self._claim.before)

    def _release(self, stamp: int) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.utime(self._fd, ns=(stamp, stamp))
            os.close(self._fd)
        self._fd = -1


def read_lock_state(folder: Path) -> DreamLockState:
    """Read the consolidation lock state of a memory folder."""
    try:
        fd = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return DreamLockState()
    try:
        return _read_lock_file(fd)
    finally:
        os.close(fd)


def check_dream_conditions(
    folder: Path, gates: DreamConditions, *, now: float, sessions: Callable[[float], int]
) -> DreamLockState | str:
    """Return the lock state for a consolidation to start, or why none starts."""
    if not gates.enabled:
        return "dreaming is turned off"
    seen = read_lock_state(folder)
    if (passed := (now - seen.last_time) / 3600) < gates.hours:
        return f"{passed:.1f} of {gates.hours:g} hours have passed since the last consolidation"
    if now - _read_scan_time(folder) < SCAN_INTERVAL_SECONDS:
        return "sessions were last counted less than 10 minutes ago"
    with suppress(OSError):
        (folder / SCAN_STAMP_FILE).touch(0o600)
    if (said := sessions(seen.last_time)) < gates.sessions:
        return f"{said} of {gates.sessions} sessions have run since the last consolidation"
    if seen.is_running(now):
        return "another process is consolidating memories"
    if seen.is_recent_crash(now):
        return "the last consolidation crashed less than an hour ago"
    return seen


def claim_dream(folder: Path, dream: str, *, state: DreamLockState) -> DreamLock | None:
    """Claim a consolidation if nothing changed since `seen`; None if another process did."""
    path = folder / LOCK_FILE
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise blobs.make_storage_error(
            "Memories cannot be consolidated", error, path=path
        ) from error
    night = _try_claim(path, fd, dream, state=state)
    if night is None:
        os.close(fd)
    return night


def _try_claim(path: Path, fd: int, dream: str, *, state: DreamLockState) -> DreamLock | None:
    """Try to take the lock of memory consolidation; None if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pause = 0.0
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno not in NO_LOCK_ERRORS:
            raise blobs.make_storage_error(
                "Memories cannot be consolidated", error, path=path
            ) from error
        pause = CLAIM_RACE_SECONDS
    if (current := _read_lock_file(fd)) != state or current.is_running(time.time()):
        return None
    claim = DreamClaim(lock.describe_this_process(), dream, current.last_stamp)
    _write_claim(fd, claim)
    time.sleep(pause)
    night = DreamLock(path, fd, claim)
    return night if night.is_held() else None


def _read_lock_file(fd: int) -> DreamLockState:
    """Parse the consolidation lock file; a new one is empty."""
    data, stamp = os.pread(fd, LOCK_FILE_BYTES, 0), os.fstat(fd).st_mtime_ns
    try:
        return DreamLockState(msgspec.json.decode(data, type=DreamClaim), stamp)
    except ValueError:
        return DreamLockState(None, stamp if data else 0)


def _write_claim(fd: int, claim: DreamClaim) -> None:
    """Replace the consolidation claim in one step, which sets the file's time to now."""
    os.pwrite(fd, msgspec.json.encode(claim).ljust(LOCK_FILE_BYTES), 0)


def _read_scan_time(folder: Path) -> float:
    """Return the time of the last scan for sessions to consolidate; 0 if there was none."""
    try:
        return (folder / SCAN_STAMP_FILE).stat().st_mtime
    except OSError:
        return 0.0
