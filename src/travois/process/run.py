"""The one way in which anything is started, and the certainty that it ends."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping
from functools import partial
from signal import SIGKILL, SIGTERM
from types import MappingProxyType
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from msgspec.structs import replace

from travois.permissions.secrets import secrets
from travois.ports.world import Captured, Command, Completed
from travois.process.environment import bare, clean
from travois.process.output import CHUNK, Spool
from travois.process.reap import MARK, Orphans, Watchdog, adopt_orphans, bears, fell, send, tree
from travois.sandbox.guard.session import Guarding
from travois.sandbox.wrap import Unfenced

if TYPE_CHECKING:
    from socket import socket

    from travois.process.job import Child, LocalJob, Talk
    from travois.sandbox.loopback import Loopback
    from travois.sandbox.network import Network
    from travois.sandbox.overlay import Overlay
    from travois.sandbox.probe import Walls

GRACE = 0.4
"""How long a program may take to end by itself once it is told to."""
KEEP_DETACHED = 512 * 1024
"""How much of the head and of the tail of the output of a detached program is kept."""


class LocalProcesses:
    """Programs on this machine, each in a session of its own, none of which outlives us.

    `passed` names variables that children get although they look like secrets, `extra` are more.
    `journal` is a folder that no command can write, for what protected files were before one ran.
    """

    def __init__(
        self,
        *,
        passed: Collection[str] = (),
        extra: Mapping[str, str] | None = None,
        grace: float = GRACE,
        walls: Walls | None = None,
        network: Network | None = None,
        journal: str = "",
    ) -> None:
        self._environ = clean(os.environ, passed=passed) | dict(extra or {})
        self._secrets = secrets((*(extra or {}).items(), *os.environ.items()))
        self._outer = os.environ.get(MARK, "")
        self._mark = os.urandom(8).hex()
        self._count = 0
        self._grace = grace
        self._buffer = bytearray(CHUNK)
        self._children: set[Child] = set()
        self._jobs: dict[str, LocalJob] = {}
        self._orphans = Orphans(self._mark)
        self._watchdog = Watchdog(self._mark)
        self._walls = walls
        self._network = network
        self._loopback: Loopback | None = None
        self._guarding = Guarding(journal)
        self._started: set[int] = set()

    async def run(
        self,
        command: Command,
        *,
        timeout: float,
        on_output: Callable[[bytes], None] | None = None,
        reader: Callable[[bytes], bool] | None = None,
        detach_as: Callable[[], str] | None = None,
    ) -> Completed:
        """Run to the end. On timeout or cancellation the whole process tree is killed first.

        `on_output` sees output as it comes; of a flood it sees only the newest part. `reader` gets
        all of it in order and returns whether it wants more; if not, the program is ended. A
        program that outlives the timeout goes on as a background job of the id that `detach_as`
        gives, then and not before: several may do so at once.
        """
        begin = partial(self._begin, watch=on_output, is_read=reader is not None)
        late = partial(self._detach, detach_as, command) if detach_as is not None else None
        return await self._run(begin, command, timeout=timeout, reader=reader, late=late)

    async def attempt(self, command: Command, *, timeout: float) -> Overlay:
        """Run to the end in a copy of what its cage may write to; raises OSError if none can be."""
        from travois.sandbox import overlay
        from travois.sandbox import overlay as layers

        assert command.cage is not None, "an attempt needs a cage"
        if self._walls is None or self._walls.kind != "full":
            raise OSError(errno.ENOTSUP, "there can be no copy to try this in without namespaces")
        copy = await anyio.to_thread.run_sync(layers.prepare, command.cage)
        try:
            inside = replace(command, cage=overlay.inner(command.cage, copy))
            begin = partial(self._begin, around=copy.around())
            completed = await self._run(begin, inside, timeout=timeout)
            return await anyio.to_thread.run_sync(overlay.Overlay, completed, command.cage, copy)
        except BaseException:
            copy.remove()
            raise

    async def _run(
        self,
        begin: Callable[[Command], Child],
        command: Command,
        *,
        timeout: float,
        reader: Callable[[bytes], bool] | None = None,
        late: Callable[[Child], Completed] | None = None,
    ) -> Completed:
        """Run to the end, with walls around what stays: sockets of others come and go meanwhile."""
        await self._guarding.prepare(command.cage)
        while True:
            try:
                return await self._ended(begin(command), timeout=timeout, reader=reader, late=late)
            except Unfenced:
                if (fewer := _settled(command)) is None:
                    raise
                command = fewer

    async def _ended(
        self,
        child: Child,
        *,
        timeout: float,
        reader: Callable[[bytes], bool] | None = None,
        late: Callable[[Child], Completed] | None = None,
    ) -> Completed:
        """Wait for a program; `late` says what becomes of one that outlives the timeout."""
        ended = cut = False
        try:
            with anyio.move_on_after(timeout):
                if reader is not None:
                    cut = not await child.feed.give(reader)
                else:
                    await child.over.wait()
                    cut = child.output.is_full and not child.done.is_set()
                ended = not cut
            if late is not None and not ended and not cut and child.status is None:
                ended = True
                return late(child)
        finally:
            overdue = child.status is None and not cut
            if cut:
                await self._stop(child)
            elif not ended:
                await self._end(child)
        if child.failed:
            raise _unbuilt(child)
        await self._guarding.review(child)
        return Completed(
            status=_status(child),
            output=child.output.taken(),
            errors=child.errors.taken(),
            timed_out=overdue,
            cut=cut,
            left_running=self._leave(child),
            aside=child.aside.taken().joined(),
            refused=child.refused,
            session_ports=() if child.shares_network or not child.status else self._ports(),
        )

    async def start(self, command: Command, *, id: str) -> LocalJob:
        """Start in the background; it dies with the session at the latest."""
        await self._guarding.prepare(command.cage)
        if self._walls is not None and self._walls.kind == "full":
            command = self._guarding.hold_instructions(command)
        child = self._begin(command)
        child.slow()
        return self._adopt(id, command, child)

    def _detach(self, name: Callable[[], str], command: Command, child: Child) -> Completed:
        """Let a program that was waited for go on in the background."""
        said = child.detach(KEEP_DETACHED)
        job = self._adopt(name(), command, child)
        return Completed(0, said, Captured(b"", b"", 0), job=job.id)

    def _adopt(self, id: str, command: Command, child: Child) -> LocalJob:
        from travois.process.job import LocalJob

        assert id not in self._jobs, f"there is a job {id} already"
        child.when_done = lambda: self._over(child)
        job = LocalJob(id, command, child=child, end=self._end, inside=self._inside)
        self._jobs[id] = job
        return job

    def _inside(self, child: Child) -> set[int]:
        """The processes of a program, without what only holds the walls around it."""
        found = set(tree(child.mark, self._roots(child)))
        return found - {child.pid} if child.fenced else found

    def talk(self, command: Command, *, log: Callable[[bytes], None]) -> Talk:
        """Start a program to talk with; `log` gets what it says on standard error."""
        from travois.process.job import Talk

        line: list[tuple[int, int]] = []
        child = self._begin(replace(command, talks=True, keep=0), watch=log, line=line.append)
        child.slow()
        return Talk(*line[0], child, end=self._end)

    def export(self, name: str, value: str) -> None:
        """Let programs that are started from here on see one more variable."""
        self._environ[name] = value

    def jobs(self) -> Mapping[str, LocalJob]:
        """Background jobs by id, ended ones too."""
        return MappingProxyType(self._jobs)

    def session_socket(self, family: int) -> socket | None:
        """A TCP socket in the network that the commands share; none if they share none."""
        return self._loopback.socket(family) if self._loopback is not None else None

    def notices(self) -> tuple[str, ...]:
        """What became of protected files that changed while commands ran; each is told once."""
        self._guarding.settle(self._gone)
        return self._guarding.notices()

    def recover(self) -> None:
        """Restore protected files that were left changed by a session that was killed."""
        self._guarding.recover()

    def accept(self, path: str, data: bytes | None = None) -> None:
        """Take a change of ours to a protected file for how it is to be from here on."""
        self._guarding.accept(path, data)

    async def aclose(self) -> None:
        """End everything that still runs."""
        with anyio.CancelScope(shield=True):
            if self._count:
                await self._fell()
        self._watchdog.dismiss()
        self._guarding.settle(lambda child: True)
        self._guarding.close()
        if self._network is not None:
            await anyio.to_thread.run_sync(self._network.close)
        if self._loopback is not None:
            self._loopback.close()

    def _begin(
        self,
        command: Command,
        *,
        watch: Callable[[bytes], None] | None = None,
        is_read: bool = False,
        around: tuple[str, ...] = (),
        line: Callable[[tuple[int, int]], None] | None = None,
    ) -> Child:
        from travois.process.job import Child
        from travois.process.spawn import Surroundings, spawn

        self._children = {c for c in self._children if c.status is None or not c.silent}
        self._guarding.settle(self._gone)
        if command.cage is None and command.wary is not None and self._exposed():
            command = replace(command, cage=command.wary)
        command = self._served(command)
        self._watchdog.wake()
        self._count += 1
        mark = f"{self._mark}-{self._count}-"
        environ = bare(self._environ) if command.talks else self._environ
        marked = {**environ, MARK: self._outer + mark}
        surroundings = Surroundings(
            marked,
            self._walls,
            self._net,
            around,
            self._guarding.journal,
            self._mark,
            self._session_network() if command.cage is not None else None,
        )
        if not self._orphans.sessions:
            adopt_orphans()  # before anything runs: what a quick parent leaves would go to init
        started = spawn(command, surroundings)
        if line is not None:
            line(started.line)
        spool = Spool(command.whole, self._secrets) if command.whole else None
        kept = partial(Child, keep=command.keep, spool=spool, is_read=is_read)
        child = kept(started, mark, buffer=self._buffer, watch=watch)
        self._children.add(child)
        self._guarding.watch(child)
        self._started.add(child.pid)
        self._orphans.confined |= child.confined
        self._orphans.sessions.add(child.pid)
        return child

    def _exposed(self) -> bool:
        """Whether a program of our own could obey files that a command has just changed."""
        kind = self._walls.kind if self._walls else "none"
        return kind == "partial" or (kind == "full" and self._guarding.is_open)

    def _over(self, child: Child) -> None:
        """Tidy up after a job that has ended by itself."""
        child.unfence()
        self._guarding.settle(self._gone)

    def _gone(self, child: Child) -> bool:
        """Whether a program is over with all that it started, as far as that can change files.

        What left its session and its environment behind belongs to some program that is bound: as
        long as it lives, none of those counts as gone.
        """
        if not child.confined:
            return child.done.is_set()
        looks = (self._roots(child) or self._strays() for _ in range(2))
        return child.status is not None and not any(looks)

    def _strays(self) -> set[int]:
        """Orphans that nothing tells the origin of."""
        running = {child.pid for child in self._children if child.status is None}
        orphans = self._orphans.look({*running, self._watchdog.pid})
        unknown = {pid for pid, session in orphans.items() if session not in self._started}
        return {pid for pid in unknown if not bears(pid, self._mark)}

    def _net(self) -> Network:
        """The way out for those that may reach some hosts; there is none until one asks."""
        from travois.sandbox.network import Network

        self._network = self._network or Network()
        return self._network

    def _served(self, command: Command) -> Command:
        """The same in the network of the session, if a server there is what the command wants."""
        cage = command.cage
        if cage is None or cage.network != "on" or not cage.local_ports:
            return command
        if set(cage.local_ports).isdisjoint(self._ports()):
            return command
        return replace(command, cage=replace(cage, network="off"))

    def _ports(self) -> tuple[int, ...]:
        """Where the servers of the session listen, in its own network."""
        from travois.sandbox.loopback import find_ports

        running = (child for child in self._children if child.status is None)
        looks = (find_ports(child.pid) for child in running if child.shares_network)
        return next(filter(None, looks), ())

    def _session_network(self) -> Loopback:
        """The network that commands without the machine's share."""
        from travois.sandbox.loopback import Loopback

        self._loopback = self._loopback or Loopback()
        return self._loopback

    def _leave(self, child: Child) -> tuple[int, ...]:
        """Let go of a program that has ended; returns what it left running."""
        left = self._roots(child)
        child.unfence()
        if not child.silent:
            child.leave()
        else:
            self._children.discard(child)
        running = tuple(sorted(tree(child.mark, left))) if left or not child.silent else ()
        self._guarding.settle(self._gone, running=True)
        return running

    async def _stop(self, child: Child) -> None:
        """End a program of which we want nothing more.

        Most go at once and leave nothing behind; that needs no look through all processes.
        """
        child.mute()
        if not child.fenced:
            with anyio.move_on_after(self._grace, shield=True):
                if child.status is None:  # else its number may be another's by now
                    send(-child.pid, SIGTERM)
                await child.done.wait()
        if not child.done.is_set() or self._roots(child):
            await self._end(child)

    async def _end(self, child: Child) -> None:
        with anyio.CancelScope(shield=True):
            await self._fell(child)

    async def _fell(self, only: Child | None = None) -> None:
        """End one program, or all, with everything that it started."""
        children = {only} if only else set(self._children)
        mark = only.mark if only else self._mark
        holders = {child.pid for child in children if child.fenced}
        found = await fell(lambda: tree(mark, self._roots(only)), grace=self._grace, spared=holders)
        for child in children:
            with anyio.move_on_after(1):
                await child.exited.wait()
            child.close()
        self._children -= {child for child in children if child.status is not None}
        self._orphans.sessions.update(found.values())
        self._orphans.bury(found.keys() - {child.pid for child in children})
        self._roots()
        self._guarding.settle(self._gone)

    def _roots(self, only: Child | None = None) -> set[int]:
        """The programs that still run and the orphans of those that do not: one's, or all."""
        running = {child.pid for child in self._children if child.status is None}
        orphans = self._orphans.look({*running, self._watchdog.pid})
        if only is None:
            return running | orphans.keys()
        return (running & {only.pid}) | {
            pid for pid, session in orphans.items() if session == only.pid or bears(pid, only.mark)
        }


def _settled(command: Command) -> Command | None:
    """The same, to be tried once more without what has gone since; None if nothing has."""
    from travois.sandbox.bwrap import sockets

    assert command.cage is not None, "only walls can fail to be built"
    before = command.cage.sockets
    there = sockets() if before is None else tuple(filter(os.path.exists, before))
    if there == before:
        return None
    return replace(command, cage=replace(command.cage, sockets=there))


def _unbuilt(child: Child) -> Unfenced:
    said = child.errors.taken().joined() or child.output.taken().joined()
    why = said.decode(errors="replace").strip().rpartition("\n")[2]
    return Unfenced(errno.EPERM, f"the sandbox could not be built, so nothing ran: {why}")


def _status(child: Child) -> int:
    """A program that even a kill did not end counts as killed."""
    return -SIGKILL if child.status is None else child.status
