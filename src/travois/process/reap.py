"""Ending a program with everything it started, even what tries to get away.

Every child has a mark in its environment, which everything it starts inherits. Where there is a
/proc, its whole tree is found by that mark, by session and by descent; elsewhere a tree is its
process group.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import anyio

from travois.lazy_imports import lazy_imports

with lazy_imports():
    import ctypes


JOB_MARK_VARIABLE = "TRAVOIS_JOB"
"""The variable that contains the marks, those of an outer harness before our own."""
KILL_TIMEOUT_SECONDS = 3.0
"""Seconds to go on killing what does not die; only the kernel can hold a process that long."""
HAS_PROC = os.path.exists("/proc/self/environ")
PR_SET_CHILD_SUBREAPER = 36
PF_FORKNOEXEC = 0x40


class ProcessStat(NamedTuple):
    """A process as the kernel reports it."""

    pid: int
    state: str
    parent: int
    session: int
    flags: int

    @property
    def is_dead(self) -> bool:
        """True if it has ended and only waits to be reaped."""
        return self.state in "ZX"


def find_process_tree(mark: str, roots: Collection[int]) -> dict[int, int]:
    """Return every living process of a tree to end, by mark, session or descent.

    `roots` are our children that nobody has waited for yet, so that their pids are still theirs. A
    negative number is a whole process group.
    """
    if not HAS_PROC:
        return {-pid: pid for pid in roots if send_signal(-pid, 0)}
    alive = {seen.pid: seen for seen in _iterate_processes() if not seen.is_dead}
    # We may carry the mark of an outer harness ourselves.
    alive.pop(os.getpid(), None)
    found = {pid for pid in alive if pid in roots or has_mark(pid, mark)}
    # A program may clear its environment, start a session or outlive its parent, but hardly does
    # all three at once: a process belongs to the tree if the mark, the session or the descent says
    # so.
    sessions = ({alive[pid].session for pid in found} | set(roots)) - {os.getsid(0)}
    found |= {pid for pid, seen in alive.items() if seen.session in sessions}
    found |= _find_descendants(found, alive.values())
    return {pid: alive[pid].session for pid in found}


def has_mark(pid: int, mark: str) -> bool:
    """Return whether a process has the mark of its tree; False if it cannot be inspected."""
    return mark.encode() in _read_proc_file(f"/proc/{pid}/environ")


def any_process_has_mark(mark: str) -> bool:
    """Return whether any process has the mark of a tree."""
    return HAS_PROC and any(has_mark(seen.pid, mark) for seen in _iterate_processes())


def count_seccomp_filters(pid: int | str) -> int:
    """Return a process's number of seccomp filters, which identify it: none can be removed."""
    lines = _read_proc_file(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[1]) for line in lines if line[:16] == b"Seccomp_filters:"), 0)


def send_signal(pid: int, sign: int) -> bool:
    """Signal a process to end; return False if it is gone or not ours."""
    try:
        os.kill(pid, sign)
    except OSError:
        return False
    return True


def reap_if_ended(pid: int) -> bool:
    """Reap an orphan that may have become ours if it has ended; return whether it had."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not send_signal(pid, 0)


async def end_processes(
    find: Callable[[], dict[int, int]], *, grace: float, spared: Collection[int] = ()
) -> dict[int, int]:
    """End all processes that `find` finds, with SIGTERM, then SIGKILL; return all of them.

    Processes that would take others with them before those can clean up are `spared` at first.
    """
    seen: dict[int, int] = {}
    with anyio.move_on_after(grace):
        await _signal_until_gone(find, signal.SIGTERM, seen=seen, spared=spared)
        return seen
    with anyio.move_on_after(KILL_TIMEOUT_SECONDS):
        await _signal_until_gone(find, signal.SIGKILL, seen=seen)
    return seen


async def _signal_until_gone(
    find: Callable[[], dict[int, int]],
    sign: int,
    *,
    seen: dict[int, int],
    spared: Collection[int] = (),
) -> None:
    """Signal the processes that are found until two searches in a row find none.

    A search takes time: it can miss a child born after it began, of a parent that died before the
    search reached it; and a process in the middle of exec shows no environment.
    """
    told = set(spared)
    pause, empty = 0.001, 0
    while empty < 2:
        found = find()
        empty = 0 if found else empty + 1
        for pid in found.keys() - told:
            send_signal(pid, sign)
        told |= found.keys() if sign == signal.SIGTERM else set()
        seen |= found
        if empty < 2:
            await anyio.sleep(pause)
            pause = min(pause * 2, 0.05)


class Orphans:
    """Processes whose parents are gone, which therefore became our children."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._ours: set[int] = set()
        self.sessions: set[int] = set()
        """The sessions that we started."""
        self.confined = False
        """Whether our programs are bound by a filter, by which their processes are known."""

    def find_living(self, others: Collection[int]) -> dict[int, int]:
        """Reap the orphans that have ended; return the living ones with their sessions.

        `others` are no orphans. A child that is neither may belong to other code in this process,
        which will wait for it itself. Ours are those with the mark or in a session of ours,
        half-made daemons, and those bound by a filter of ours.
        """
        self.reap(self._ours)
        # Waiting for a process that is not ours would take its status from the code that started
        # it.
        ours, bound = os.getsid(0), count_seccomp_filters("self") if self.confined else 0
        fresh = set(_list_child_pids()).difference(others, self._ours)
        for seen in (seen for pid in fresh for seen in _read_proc_stat(pid)):
            daemon = seen.is_dead and seen.flags & PF_FORKNOEXEC and seen.session != ours
            known = daemon or seen.session in self.sessions or has_mark(seen.pid, self._mark)
            if known or (self.confined and count_seccomp_filters(seen.pid) > bound):
                self.sessions.add(seen.session)
                self._ours.add(seen.pid)
        self.reap(self._ours)
        return {seen.pid: seen.session for pid in self._ours for seen in _read_proc_stat(pid)}

    def reap(self, pids: Iterable[int]) -> None:
        """Reap those of these processes that have ended, so that no zombie stays."""
        for pid in tuple(pids):
            try:
                gone = pid > 0 and os.waitpid(pid, os.WNOHANG)[0] == pid
            except ChildProcessError:
                gone = True
            if gone:
                self._ours.discard(pid)


def adopt_orphans() -> None:
    """Become the parent of processes that our descendants leave behind (Linux only)."""
    if HAS_PROC:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _iterate_processes() -> Iterator[ProcessStat]:
    """Yield every process of this machine, as read from /proc."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            yield from _read_proc_stat(int(name))


def _read_proc_stat(pid: int) -> Iterator[ProcessStat]:
    """Yield the state, parent and session of a process from /proc; nothing if it is gone."""
    # The name may itself contain parentheses; after the last one there are only plain fields.
    fields = _read_proc_file(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    if len(fields) > 6:
        state, parent, _, session, _, _, flags = fields[:7]
        yield ProcessStat(pid, state.decode(), int(parent), int(session), int(flags))


def _list_child_pids() -> Iterator[int]:
    for thread in os.listdir("/proc/self/task") if HAS_PROC else ():
        yield from map(int, _read_proc_file(f"/proc/self/task/{thread}/children").split())


def _find_descendants(found: set[int], alive: Iterable[ProcessStat]) -> set[int]:
    """Find all living descendants of some processes."""
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


def _read_proc_file(path: str) -> bytes:
    """Read a file of /proc; empty if the process is gone or not ours to inspect."""
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


# The watchdog that ends our children if we are killed: a shell that waits for our pipe to close.


WATCHDOG_SCRIPT = r"""
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
"""The watchdog's shell script. We hold the other end of its standard input: that ends when we
die."""


class Watchdog:
    """A sleeping shell that outlives us only to end the processes with our mark."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._pid = 0
        self._leash = -1

    @property
    def pid(self) -> int:
        """Its process id; 0 while there is none."""
        return self._pid

    def start(self) -> None:
        """Start it, unless it runs or there is no /proc for it to read."""
        if self._pid or not HAS_PROC:
            return
        # Only an outer harness's mark: with our own, it would find and kill itself.
        ours = {
            name: os.environ[name] for name in ("PATH", JOB_MARK_VARIABLE) if name in os.environ
        }
        # The kernel closes our end of the pipe however we die, also by SIGKILL; `read` then
        # returns.
        end, self._leash = os.pipe()
        try:
            self._pid = os.posix_spawn(
                "/bin/sh",
                ("sh", "-c", WATCHDOG_SCRIPT, "travois-watchdog", self._mark),
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

    def stop(self) -> None:
        """Stop it, when everything was ended without it."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._leash)
            self._pid = 0
