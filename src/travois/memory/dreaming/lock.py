"""Who dreams, and when: once a night, one process, however many there are.

The time of the file is the time of the last consolidation. What it holds names the process that
claimed the night last, and the time before that, to which a night that failed goes back. A claim
and its time are written in one step, so there is nothing that a kill could leave half done.
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
from travois.sessions.lock import UNSUPPORTED, Holder

NAME, SCANNED = ".night", ".scanned"
STALE = 3600.0
"""How long after its beginning the night of a process that died may begin again by itself."""
THROTTLE = 600.0
"""How long sessions are not counted again."""
ELSEWHERE = 86400.0
"""How long a claim of another machine is believed."""
SETTLING = 0.2
"""How long to wait, where files cannot be locked, for others that claim at the same moment."""
SIZE = 1024


class Gates(msgspec.Struct, frozen=True):
    """What must be so before a night begins by itself."""

    enabled: bool = True
    hours: float = 24.0
    """Since the last consolidation."""
    sessions: int = 5
    """That said something since then."""


class Claim(msgspec.Struct, frozen=True):
    """Who claimed a night."""

    holder: Holder
    dream: str
    """The id of its log."""
    before: int
    """The time of the file until then, in nanoseconds."""
    over: bool = False


class Seen(msgspec.Struct, frozen=True):
    """The file as it was at one moment."""

    claim: Claim | None = None
    stamp: int = 0
    """Its time in nanoseconds; nought if there never was a night."""

    @property
    def failed(self) -> bool:
        """Whether the last claim came to nothing, and that was put right."""
        return self.claim is not None and not self.claim.over and self.stamp == self.claim.before

    @property
    def open(self) -> bool:
        """Whether nobody said yet what came of the last claim."""
        return self.claim is not None and not self.claim.over and not self.failed

    @property
    def before(self) -> int:
        """The time of the last consolidation in nanoseconds, whoever has claimed the next."""
        return self.claim.before if self.claim is not None and self.open else self.stamp

    @property
    def last(self) -> float:
        """When memories were last consolidated; nought for never."""
        return self.before / 1e9

    def running(self, now: float) -> bool:
        """Whether somebody dreams at this moment, as far as can be known."""
        if self.claim is None or not self.open:
            return False
        elsewhere = self.claim.holder.host != os.uname().nodename
        return lock.alive(self.claim.holder) and not (elsewhere and self._age(now) > ELSEWHERE)

    def fresh(self, now: float) -> bool:
        """Whether the claim of a process that died is too young to be taken over unasked."""
        return self.open and not self.running(now) and self._age(now) < STALE

    def _age(self, now: float) -> float:
        return now - self.stamp / 1e9


class Night:
    """The right to dream, until `done` or `undo`, or the end of the process."""

    def __init__(self, path: Path, fd: int, claim: Claim) -> None:
        self._path = path
        self._fd = fd
        self._claim = claim
        self.dream = claim.dream
        """The id of its log."""

    def held(self) -> bool:
        """Whether the file still says that the night is ours."""
        with suppress(OSError):
            same = os.path.samestat(os.stat(self._path), os.fstat(self._fd))
            return same and _read(self._fd).claim == self._claim
        return False

    def done(self) -> None:
        """Memories are consolidated as of the beginning of this night."""
        _write(self._fd, replace(self._claim, over=True))
        self._close(round(self._claim.holder.since * 1e9))

    def undo(self) -> None:
        """The night came to nothing: the time goes back to what it was."""
        self._close(self._claim.before)

    def _close(self, stamp: int) -> None:
        if self._fd >= 0:
            with suppress(OSError):
                os.utime(self._fd, ns=(stamp, stamp))
            os.close(self._fd)
        self._fd = -1


def look(folder: Path) -> Seen:
    """What is known of the nights of a memory folder."""
    try:
        fd = os.open(folder / NAME, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return Seen()
    try:
        return _read(fd)
    finally:
        os.close(fd)


def gate(folder: Path, gates: Gates, *, now: float, sessions: Callable[[float], int]) -> Seen | str:
    """What a night may begin from, or why none begins by itself; the cheapest question first."""
    if not gates.enabled:
        return "dreaming is switched off"
    seen = look(folder)
    if (passed := (now - seen.last) / 3600) < gates.hours:
        return f"the last consolidation was {passed:.1f} of {gates.hours:g} hours ago"
    if now - _scanned(folder) < THROTTLE:
        return "sessions were counted less than 10 minutes ago"
    with suppress(OSError):
        (folder / SCANNED).touch(0o600)
    if (said := sessions(seen.last)) < gates.sessions:
        return f"{said} sessions since the last consolidation; it waits for {gates.sessions}"
    if seen.running(now):
        return "another process dreams at the moment"
    if seen.fresh(now):
        return "the process that dreamt last died less than an hour ago"
    return seen


def begin(folder: Path, dream: str, *, seen: Seen) -> Night | None:
    """Claim the night, if all is still as it was seen; none if somebody else has it or had it."""
    path = folder / NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise blobs.fault("Memories cannot be consolidated", error, path=path) from error
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
        if error.errno not in UNSUPPORTED:
            raise blobs.fault("Memories cannot be consolidated", error, path=path) from error
        pause = SETTLING
    if (current := _read(fd)) != seen or current.running(time.time()):
        return None
    claim = Claim(lock.myself(), dream, current.before)
    _write(fd, claim)
    time.sleep(pause)
    night = Night(path, fd, claim)
    return night if night.held() else None


def _read(fd: int) -> Seen:
    """What the file says; one that was only just made says nothing."""
    data, stamp = os.pread(fd, SIZE, 0), os.fstat(fd).st_mtime_ns
    try:
        return Seen(msgspec.json.decode(data, type=Claim), stamp)
    except ValueError:
        return Seen(None, stamp if data else 0)


def _write(fd: int, claim: Claim) -> None:
    """Put a claim in the place of another in one step, with the present as its time."""
    os.pwrite(fd, msgspec.json.encode(claim).ljust(SIZE), 0)


def _scanned(folder: Path) -> float:
    try:
        return (folder / SCANNED).stat().st_mtime
    except OSError:
        return 0.0
