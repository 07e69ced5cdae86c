"""The lock and schedule of dreaming: one process per night, however many run.

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

NAME = ".night"
SCANNED = ".scanned"
STALE = 3600.0
"""Seconds after which a dead process's claim may be taken over automatically."""
THROTTLE = 600.0
"""Seconds between two counts of sessions."""
ELSEWHERE = 86400.0
"""Seconds for which a claim of another machine counts."""
SETTLING = 0.2
"""Seconds to wait for concurrent claims where files cannot be locked."""
SIZE = 1024


class Gates(msgspec.Struct, frozen=True):
    """The conditions under which a consolidation starts by itself."""

    enabled: bool = True
    hours: float = 24.0
    """Since the last consolidation."""
    sessions: int = 5
    """Sessions with messages since then."""


class Claim(msgspec.Struct, frozen=True):
    """The claim of a process on a consolidation."""

    holder: LockHolder
    dream: str
    """The id of its log."""
    before: int
    """The time of the file until then, in nanoseconds."""
    over: bool = False


class Seen(msgspec.Struct, frozen=True):
    """The lock file as it was at one moment."""

    claim: Claim | None = None
    stamp: int = 0
    """Its time in nanoseconds; nought if there never was a night."""

    @property
    def failed(self) -> bool:
        """Return whether the last claim failed and was rolled back."""
        return self.claim is not None and not self.claim.over and self.stamp == self.claim.before

    @property
    def open(self) -> bool:
        """Return whether the outcome of the last claim is still unknown."""
        return self.claim is not None and not self.claim.over and not self.failed

    @property
    def before(self) -> int:
        """Return the time of the last consolidation in nanoseconds, whatever was claimed since."""
        return self.claim.before if self.claim is not None and self.open else self.stamp

    @property
    def last(self) -> float:
        """Return the time of the last consolidation; 0 for never."""
        return self.before / 1e9

    def running(self, now: float) -> bool:
        """Return whether a consolidation is running, as far as can be known."""
        if self.claim is None or not self.open:
            return False
        elsewhere = self.claim.holder.host != os.uname().nodename
        return lock.is_alive(self.claim.holder) and not (elsewhere and self._age(now) > ELSEWHERE)

    def fresh(self, now: float) -> bool:
        """Return whether a dead process claimed too recently for an automatic retry."""
        return self.open and not self.running(now) and self._age(now) < STALE

    def _age(self, now: float) -> float:
        return now - self.stamp / 1e9


class Night:
    """The right to consolidate, until `done`, `undo` or the end of the process."""

    def __init__(self, path: Path, fd: int, claim: Claim) -> None:
        self._path = path
        self._fd = fd
        self._claim = claim
        self.dream = claim.dream
        """The id of its log."""

    def held(self) -> bool:
        """Return whether the file still contains our claim."""
        with suppress(OSError):
            same = os.path.samestat(os.stat(self._path), os.fstat(self._fd))
            return same and _read(self._fd).claim == self._claim
        return False

    def done(self) -> None:
        """Mark the memories as consolidated as of the start of this run."""
        _write(self._fd, replace(self._claim, over=True))
        self._close(round(self._claim.holder.since * 1e9))

    def undo(self) -> None:
        """Give the claim up: the file's time returns to what it was."""
        self._close(self._claim.before)

    def _close(self, stamp: int) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.utime(self._fd, ns=(stamp, stamp))
            os.close(self._fd)
        self._fd = -1


def look(folder: Path) -> Seen:
    """Read the lock state of a memory folder."""
    try:
        fd = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return Seen()
    try:
        return _read(fd)
    finally:
        os.close(fd)


def gate(folder: Path, gates: Gates, *, now: float, sessions: Callable[[float], int]) -> Seen | str:
    """Return the state to start from, or why no consolidation starts; cheapest check first."""
    if not gates.enabled:
        return "dreaming is turned off"
    seen = look(folder)
    if (passed := (now - seen.last) / 3600) < gates.hours:
        return f"{passed:.1f} of {gates.hours:g} hours have passed since the last consolidation"
    if now - _scanned(folder) < THROTTLE:
        return "sessions were last counted less than 10 minutes ago"
    with suppress(OSError):
        (folder / SCANNED).touch(0o600)
    if (said := sessions(seen.last)) < gates.sessions:
        return f"{said} of {gates.sessions} sessions have run since the last consolidation"
    if seen.running(now):
        return "another process is consolidating memories"
    if seen.fresh(now):
        return "the last consolidation crashed less than an hour ago"
    return seen


def begin(folder: Path, dream: str, *, seen: Seen) -> Night | None:
    """Claim a consolidation if nothing changed since `seen`; None if another process was faster."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise blobs.make_storage_error(
            "Memories cannot be consolidated", error, path=path
        ) from error
    night = _claimed(path, fd, dream, seen=seen)
    if night is None:
        os.close(fd)
    return night


def _claimed(path: Path, fd: int, dream: str, *, seen: Seen) -> Night | None:
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
        pause = SETTLING
    if (current := _read(fd)) != seen or current.running(time.time()):
        return None
    claim = Claim(lock.describe_this_process(), dream, current.before)
    _write(fd, claim)
    time.sleep(pause)
    night = Night(path, fd, claim)
    return night if night.held() else None


def _read(fd: int) -> Seen:
    """Parse the lock file; a new one is empty."""
    data, stamp = os.pread(fd, SIZE, 0), os.fstat(fd).st_mtime_ns
    try:
        return Seen(msgspec.json.decode(data, type=Claim), stamp)
    except ValueError:
        return Seen(None, stamp if data else 0)


def _write(fd: int, claim: Claim) -> None:
    """Replace the claim in one step, which sets the file's time to now."""
    os.pwrite(fd, msgspec.json.encode(claim).ljust(SIZE), 0)


def _scanned(folder: Path) -> float:
    try:
        return (folder / SCANNED).stat().st_mtime
    except OSError:
        return 0.0
