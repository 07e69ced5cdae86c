"""Ending a program with everything it started, however that tried to get away.

Every child bears a mark in its environment, which all that it starts inherits. Where there is a
/proc, its whole tree is found by that mark, by session and by descent; elsewhere a tree is its
process group.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import anyio

MARK = "TRAVOIS_JOB"
"""The variable that bears the marks, those of an outer harness before our own."""
PATIENCE = 3.0
"""How long to go on killing what does not die; only the kernel can hold a process that long."""
PROC = os.path.exists("/proc/self/environ")
PR_SET_CHILD_SUBREAPER = 36
PF_FORKNOEXEC = 0x40


class Seen(NamedTuple):
    """A process as the kernel tells of it."""

    pid: int
    state: str
    parent: int
    session: int
    flags: int

    @property
    def dead(self) -> bool:
        """Whether it has ended and only waits to be waited for."""
        return self.state in "ZX"


def tree(mark: str, roots: Collection[int]) -> dict[int, int]:
    """Every living process of a tree, with its session: marked, in a session, or descended.

    `roots` are children of ours that nobody has waited for yet, so that their numbers are still
    theirs. A negative number is a whole process group.
    """
    if not PROC:
        return {-pid: pid for pid in roots if send(-pid, 0)}
    alive = {seen.pid: seen for seen in _processes() if not seen.dead}
    alive.pop(os.getpid(), None)
    found = {pid for pid in alive if pid in roots or bears(pid, mark)}
    sessions = ({alive[pid].session for pid in found} | set(roots)) - {os.getsid(0)}
    found |= {pid for pid, seen in alive.items() if seen.session in sessions}
    found |= _descendants(found, alive.values())
    return {pid: alive[pid].session for pid in found}


def bears(pid: int, mark: str) -> bool:
    """Whether the process bears the mark; one that we may not look into bears none."""
    return mark.encode() in _content(f"/proc/{pid}/environ")


def marked(mark: str) -> bool:
    """Whether any process bears the mark."""
    return PROC and any(bears(seen.pid, mark) for seen in _processes())


def filters(pid: int | str) -> int:
    """How many filters of system calls bind a process: none can be taken off again."""
    lines = _content(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[1]) for line in lines if line[:16] == b"Seccomp_filters:"), 0)


def send(pid: int, sign: int) -> bool:
    """Signal a process; false if it is not there or not ours to signal."""
    try:
        os.kill(pid, sign)
    except OSError:
        return False
    return True


def gone(pid: int) -> bool:
    """Whether an orphan that may have become ours has ended; it is buried then."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not send(pid, 0)


async def fell(
    find: Callable[[], dict[int, int]], *, grace: float, spared: Collection[int] = ()
) -> dict[int, int]:
    """End everything that `find` finds, politely first; returns all that was found.

    Those `spared` at first are what would take the others with it before they could say goodbye.
    """
    seen: dict[int, int] = {}
    with anyio.move_on_after(grace):
        await _signal(find, signal.SIGTERM, seen=seen, spared=spared)
        return seen
    with anyio.move_on_after(PATIENCE):
        await _signal(find, signal.SIGKILL, seen=seen)
    return seen


async def _signal(
    find: Callable[[], dict[int, int]],
    sign: int,
    *,
    seen: dict[int, int],
    spared: Collection[int] = (),
) -> None:
    """Signal whatever is found until two looks in a row find nothing.

    One look takes time: it could miss a child born after it began of a parent dead before it
    came there, and a process that is just becoming another program shows no environment.
    """
    told = set(spared)
    pause, empty = 0.001, 0
    while empty < 2:
        found = find()
        empty = 0 if found else empty + 1
        for pid in found.keys() - told:
            send(pid, sign)
        told |= found.keys() if sign == signal.SIGTERM else set()
        seen |= found
        if empty < 2:
            await anyio.sleep(pause)
            pause = min(pause * 2, 0.05)


class Orphans:
    """Processes whose parents are gone and whose parent we therefore became."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._ours: set[int] = set()
        self.sessions: set[int] = set()
        """Those that we began."""
        self.confined = False
        """Whether what we start is bound by a filter, by which it is known whatever it does."""

    def look(self, others: Collection[int]) -> dict[int, int]:
        """Bury those that have ended; returns the living with their sessions.

        `others` are no orphans. A child that is none of these may still be one of other code in
        this process, which wants to wait for it: ours are those that bear the mark or are of a
        session that is ours, half-made daemons, and those that a filter of ours binds.
        """
        self.bury(self._ours)
        ours, bound = os.getsid(0), filters("self") if self.confined else 0
        fresh = set(_children()).difference(others, self._ours)
        for seen in (seen for pid in fresh for seen in _stat(pid)):
            daemon = seen.dead and seen.flags & PF_FORKNOEXEC and seen.session != ours
            known = daemon or seen.session in self.sessions or bears(seen.pid, self._mark)
            if known or (self.confined and filters(seen.pid) > bound):
                self.sessions.add(seen.session)
                self._ours.add(seen.pid)
        self.bury(self._ours)
        return {seen.pid: seen.session for pid in self._ours for seen in _stat(pid)}

    def bury(self, pids: Iterable[int]) -> None:
        """Wait for those of these that have ended, so that no zombie stays."""
        for pid in tuple(pids):
            try:
                gone = pid > 0 and os.waitpid(pid, os.WNOHANG)[0] == pid
            except ChildProcessError:
                gone = True
            if gone:
                self._ours.discard(pid)


def adopt_orphans() -> None:
    """Become the parent of whatever our descendants leave behind (Linux only)."""
    if PROC:
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _processes() -> Iterator[Seen]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield from _stat(int(name))


def _stat(pid: int) -> Iterator[Seen]:
    # The name, in parentheses, may hold anything; what follows the last one is plain fields.
    fields = _content(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    if len(fields) > 6:
        state, parent, _, session, _, _, flags = fields[:7]
        yield Seen(pid, state.decode(), int(parent), int(session), int(flags))


def _children() -> Iterator[int]:
    for thread in os.listdir("/proc/self/task") if PROC else ():
        yield from map(int, _content(f"/proc/self/task/{thread}/children").split())


def _descendants(found: set[int], alive: Iterable[Seen]) -> set[int]:
    offspring: dict[int, list[int]] = {}
    for seen in alive:
        offspring.setdefault(seen.parent, []).append(seen.pid)
    below: set[int] = set()
    pending = list(found)
    while pending:
        born = set(offspring.get(pending.pop(), ())) - below
        below |= born
        pending.extend(born)
    return below


def _content(path: str) -> bytes:
    """The content of a file of /proc; empty if the process is gone or not ours to look into."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(fd, 1024 * 1024)
    except OSError:
        return b""
    finally:
        os.close(fd)


# What ends our children if we are killed before we can: a shell that waits for us to vanish.


SCRIPT = r"""
cd /
read -r nothing
mark=$1
sign=TERM
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  found= sessions=' '
  for path in $(grep -lsF -e "$mark" /proc/[0-9]*/environ); do
    pid=${path#/proc/} pid=${pid%/environ}
    read -r stat < "/proc/$pid/stat" || continue
    set -- ${stat##*) }
    found="$found $pid" sessions="$sessions$4 "
  done
  [ "$found" ] || exit
  for path in /proc/[0-9]*/stat; do
    read -r stat < "$path" || continue
    set -- ${stat##*) }
    case $sessions in *" $4 "*) pid=${path#/proc/} found="$found ${pid%/stat}" ;; esac
  done
  kill -s $sign $found
  sleep 0.3
  sign=KILL
done
"""
"""We hold the other end of its standard input and never write: its end is our death."""


class Watchdog:
    """A sleeping shell that outlives us only to end what bears our mark."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._pid = 0
        self._leash = -1

    @property
    def pid(self) -> int:
        """Its process; 0 while there is none."""
        return self._pid

    def wake(self) -> None:
        """Start it, unless it runs or there is no /proc for it to look into."""
        if self._pid or not PROC:
            return
        ours = {name: os.environ[name] for name in ("PATH", MARK) if name in os.environ}
        end, self._leash = os.pipe()
        try:
            self._pid = os.posix_spawn(
                "/bin/sh",
                ("sh", "-c", SCRIPT, "travois-watchdog", self._mark),
                ours,
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, end, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ),
                setsid=True,
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError:
            os.close(self._leash)
            raise
        finally:
            os.close(end)

    def dismiss(self) -> None:
        """End it; it was not needed."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._leash)
            self._pid = 0
