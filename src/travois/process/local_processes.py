"""Running local processes, and making sure that they end with everything they started."""

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

from travois.lazy_imports import lazy_imports
from travois.permissions.secrets import collect_secrets
from travois.ports.world import CapturedOutput, Command, ProcessResult
from travois.process.environment import build_child_environment, build_minimal_environment
from travois.process.output import PIPE_CHUNK_BYTES, OutputSpool
from travois.process.reap import (
    JOB_MARK_VARIABLE,
    Orphans,
    Watchdog,
    adopt_orphans,
    end_processes,
    find_process_tree,
    has_mark,
    send_signal,
)
from travois.sandbox.guard.session import SessionGuards

if TYPE_CHECKING:
    from socket import socket

    from travois.process.job import ChildProcess, LocalJob
    from travois.sandbox.loopback import SessionNetwork
    from travois.sandbox.network import NetworkProxy
    from travois.sandbox.overlay import Overlay
    from travois.sandbox.probe import SandboxSupport
    from travois.sandbox.rulesets import LandlockRulesets

with lazy_imports():
    from travois.process import job as process_job
    from travois.process import spawn
    from travois.sandbox import bwrap, loopback, overlay, rulesets, wrap
    from travois.sandbox import network as sandbox_network


END_GRACE_SECONDS = 0.4
"""Seconds that a program may take to end by itself after SIGTERM."""
DETACHED_OUTPUT_BYTES = 512 * 1024
"""The bytes of the head and of the tail of a detached program's output that are kept."""


class LocalProcesses:
    """Programs on this machine, each in a session of its own, none of which outlives us.

    `passed` names variables that children get although they look like secrets, `extra` are more.
    `journal` is a folder that no command can write, where protected files are saved before one
    runs.
    """

    def __init__(
        self,
        *,
        passed: Collection[str] = (),
        extra: Mapping[str, str] | None = None,
        grace: float = END_GRACE_SECONDS,
        support: SandboxSupport | None = None,
        network: NetworkProxy | None = None,
        journal: str = "",
    ) -> None:
        self._environ = build_child_environment(os.environ, passed=passed) | dict(extra or {})
        self._secrets = collect_secrets((*(extra or {}).items(), *os.environ.items()))
        self._outer = os.environ.get(JOB_MARK_VARIABLE, "")
        self._mark = os.urandom(8).hex()
        self._count = 0
        self._grace = grace
        self._buffer = bytearray(PIPE_CHUNK_BYTES)
        self._children: set[ChildProcess] = set()
        self._jobs: dict[str, LocalJob] = {}
        self._orphans = Orphans(self._mark)
        self._watchdog = Watchdog(self._mark)
        self._support = support
        self._rulesets: LandlockRulesets | None = None
        self._network = network
        self._loopback: SessionNetwork | None = None
        self._guarding = SessionGuards(journal)
        self._started: set[int] = set()

    async def run(
        self,
        command: Command,
        *,
        timeout: float,
        on_output: Callable[[bytes], None] | None = None,
        reader: Callable[[bytes], bool] | None = None,
        detach_as: Callable[[], str] | None = None,
    ) -> ProcessResult:
        """Run to the end. On timeout or cancellation the whole process tree is killed first.

        `on_output` gets output as it comes; of a flood only the newest part. `reader` gets all of
        it in order and returns whether it wants more; if not, the program is ended. A program that
        outlives the timeout becomes a background job with the id that `detach_as` returns; it is
        called only then, since several programs may do so at once.
        """
        begin = partial(self._start_child, watch=on_output, is_read=reader is not None)
        late = partial(self._detach, detach_as, command) if detach_as is not None else None
        return await self._run_retrying_sandbox(
            begin, command, timeout=timeout, reader=reader, late=late
        )

    async def run_attempt(self, command: Command, *, timeout: float) -> Overlay:
        """Run to the end in a copy of what its profile may write; raises OSError without one."""
        assert command.sandbox is not None, "an attempt needs a sandbox profile"
        if self._support is None or self._support.kind != "full":
            raise OSError(errno.ENOTSUP, "trying a command in a copy needs namespaces")
        copy = await anyio.to_thread.run_sync(overlay.prepare_layers, command.sandbox)
        try:
            inside = replace(command, sandbox=overlay.profile_for_copy(command.sandbox, copy))
            begin = partial(self._start_child, around=copy.launch_prefix())
            completed = await self._run_retrying_sandbox(begin, inside, timeout=timeout)
            return await anyio.to_thread.run_sync(overlay.Overlay, completed, command.sandbox, copy)
        except BaseException:
            copy.remove()
            raise

    async def _run_retrying_sandbox(
        self,
        begin: Callable[[Command], ChildProcess],
        command: Command,
        *,
        timeout: float,
        reader: Callable[[bytes], bool] | None = None,
        late: Callable[[ChildProcess], ProcessResult] | None = None,
    ) -> ProcessResult:
        """Run to the end; retry without the sockets that vanished while the sandbox was built."""
        await self._guarding.prepare(command.sandbox)
        while True:
            try:
                return await self._wait_for_end(
                    begin(command), timeout=timeout, reader=reader, late=late
                )
            except wrap.SandboxUnavailable:
                if (fewer := _without_stale_sockets(command)) is None:
                    raise
                command = fewer

    async def _wait_for_end(
        self,
        child: ChildProcess,
        *,
        timeout: float,
        reader: Callable[[bytes], bool] | None = None,
        late: Callable[[ChildProcess], ProcessResult] | None = None,
    ) -> ProcessResult:
        """Wait for a program; `late` handles one that outlives the timeout."""
        ended = cut = False
        try:
            with anyio.move_on_after(timeout):
                if reader is not None:
                    cut = not await child.feed.deliver(reader)
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
                await self._stop_child(child)
            elif not ended:
                await self._end_child(child)
        if child.failed:
            raise _sandbox_build_error(child)
        await self._guarding.refresh_repositories(child)
        return ProcessResult(
            status=_exit_status(child),
            output=child.output.to_captured(),
            errors=child.errors.to_captured(),
            timed_out=overdue,
            cut=cut,
            left_running=self._release_child(child),
            aside=child.aside.to_captured().head_and_tail(),
            refused=child.refusals,
            session_ports=()
            if child.shares_network or not child.status
            else self._find_session_ports(),
        )

    async def start(self, command: Command, *, id: str) -> LocalJob:
        """Start in the background; it dies with the session at the latest."""
        await self._guarding.prepare(command.sandbox)
        if self._support is not None and self._support.kind == "full":
            command = self._guarding.pin_project_files(command)
        child = self._start_child(command)
        child.throttle()
        return self._register_job(id, command, child)

    def _detach(
        self, name: Callable[[], str], command: Command, child: ChildProcess
    ) -> ProcessResult:
        """Let a program that was waited for continue in the background."""
        said = child.detach(DETACHED_OUTPUT_BYTES)
        job = self._register_job(name(), command, child)
        return ProcessResult(0, said, CapturedOutput(b"", b"", 0), job=job.id)

    def _register_job(self, id: str, command: Command, child: ChildProcess) -> process_job.LocalJob:
        assert id not in self._jobs, f"job {id} already exists"
        child.when_done = lambda: self._on_job_end(child)
        job = process_job.LocalJob(
            id, command, child=child, end=self._end_child, inside=self._find_program_pids
        )
        self._jobs[id] = job
        return job

    def _find_program_pids(self, child: ChildProcess) -> set[int]:
        """Return the processes of a program, without the bwrap around it."""
        found = set(find_process_tree(child.mark, self._find_root_pids(child)))
        return found - {child.pid} if child.fenced else found

    def connect_stdio(
        self, command: Command, *, log: Callable[[bytes], None]
    ) -> process_job.StdioConnection:
        """Start a program to talk with over pipes; `log` gets its standard error."""
        line: list[tuple[int, int]] = []
        child = self._start_child(replace(command, talks=True, keep=0), watch=log, line=line.append)
        child.throttle()
        return process_job.StdioConnection(*line[0], child, end=self._end_child)

    def export_variable(self, name: str, value: str) -> None:
        """Set one more variable for programs started from here on."""
        self._environ[name] = value

    def jobs(self) -> Mapping[str, LocalJob]:
        """Return the background jobs by id, ended ones too."""
        return MappingProxyType(self._jobs)

    def session_socket(self, family: int) -> socket | None:
        """Open a TCP socket in the network that the commands share; None if they share none."""
        return self._loopback.socket(family) if self._loopback is not None else None

    def take_notices(self) -> tuple[str, ...]:
        """Return the notices about protected files that changed while commands ran, each once."""
        self._guarding.check_children(self._is_tree_gone)
        return self._guarding.take_notices()

    def recover(self) -> None:
        """Restore protected files that were left changed by a session that was killed."""
        self._guarding.recover()

    def accept_change(self, path: str, data: bytes | None = None) -> None:
        """Accept our own change to a protected file as its state to keep."""
        self._guarding.accept_change(path, data)

    async def aclose(self) -> None:
        """End everything that still runs."""
        with anyio.CancelScope(shield=True):
            if self._count:
                await self._end_tree()
        self._watchdog.stop()
        # Everything has ended, so every guard can make its last check.
        self._guarding.check_children(lambda child: True)
        self._guarding.close()
        if self._rulesets is not None:
            self._rulesets.close()
        if self._network is not None:
            await anyio.to_thread.run_sync(self._network.close)
        if self._loopback is not None:
            self._loopback.close()

    def _start_child(
        self,
        command: Command,
        *,
        watch: Callable[[bytes], None] | None = None,
        is_read: bool = False,
        around: tuple[str, ...] = (),
        line: Callable[[tuple[int, int]], None] | None = None,
    ) -> process_job.ChildProcess:
        """Start a program with its mark, its sandbox and the readers of its output."""
        self._children = {c for c in self._children if c.status is None or not c.is_silent}
        # Changes of programs that ended are undone before the next one can act on them.
        self._guarding.check_children(self._is_tree_gone)
        if command.sandbox is None and command.wary is not None and self._needs_wary_profile():
            command = replace(command, sandbox=command.wary)
        command = self._prefer_session_network(command)
        self._watchdog.start()
        self._count += 1
        mark = f"{self._mark}-{self._count}-"
        environ = build_minimal_environment(self._environ) if command.talks else self._environ
        marked = {**environ, JOB_MARK_VARIABLE: self._outer + mark}
        self._rulesets = self._rulesets or rulesets.LandlockRulesets()
        surroundings = spawn.SpawnContext(
            marked,
            self._support,
            self._get_network,
            around,
            self._guarding.open_journal,
            self._mark,
            self._get_session_network() if command.sandbox is not None else None,
            self._rulesets,
        )
        if not self._orphans.sessions:
            adopt_orphans()  # first, or orphans of a program that ends quickly would go to init
        started = spawn.spawn_process(command, surroundings)
        if line is not None:
            line(started.line)
        spool = OutputSpool(command.whole, self._secrets) if command.whole else None
        kept = partial(process_job.ChildProcess, keep=command.keep, spool=spool, is_read=is_read)
        child = kept(started, mark, buffer=self._buffer, watch=watch)
        self._children.add(child)
        self._guarding.watch_child(child)
        self._started.add(child.pid)
        self._orphans.confined |= child.confined
        self._orphans.sessions.add(child.pid)
        return child

    def _needs_wary_profile(self) -> bool:
        """Return whether a program of our own could obey files that a command has just changed."""
        kind = self._support.kind if self._support else "none"
        return kind == "partial" or (kind == "full" and self._guarding.is_open)

    def _on_job_end(self, child: ChildProcess) -> None:
        """Clean up after a job that has ended by itself."""
        child.clean_up_sandbox()
        self._guarding.check_children(self._is_tree_gone)

    def _is_tree_gone(self, child: ChildProcess) -> bool:
        """Return whether a program and everything it started can no longer change files.

        A process that left its session and its environment behind belongs to some confined program:
        as long as it lives, none of those counts as gone.
        """
        if not child.confined:
            return child.done.is_set()
        looks = (self._find_root_pids(child) or self._find_unknown_orphans() for _ in range(2))
        return child.status is not None and not any(looks)

    def _find_unknown_orphans(self) -> set[int]:
        """Return the orphans whose program is unknown."""
        running = {child.pid for child in self._children if child.status is None}
        orphans = self._orphans.find_living({*running, self._watchdog.pid})
        unknown = {pid for pid, session in orphans.items() if session not in self._started}
        return {pid for pid in unknown if not has_mark(pid, self._mark)}

    def _get_network(self) -> sandbox_network.NetworkProxy:
        """Return the proxy for programs with allowed hosts, created when one first needs it."""
        self._network = self._network or sandbox_network.NetworkProxy()
        return self._network

    def _prefer_session_network(self, command: Command) -> Command:
        """Return the command in the session's network, if a server there is what it asks for."""
        profile = command.sandbox
        if profile is None or profile.network != "on" or not profile.local_ports:
            return command
        if set(profile.local_ports).isdisjoint(self._find_session_ports()):
            return command
        return replace(command, sandbox=replace(profile, network="off"))

    def _find_session_ports(self) -> tuple[int, ...]:
        """Return the listening ports of the session's servers, in its own network."""
        running = (child for child in self._children if child.status is None)
        looks = (
            loopback.find_listening_ports(child.pid) for child in running if child.shares_network
        )
        return next(filter(None, looks), ())

    def _get_session_network(self) -> loopback.SessionNetwork:
        """Return the network that commands without the machine's share."""
        self._loopback = self._loopback or loopback.SessionNetwork()
        return self._loopback

    def _release_child(self, child: ChildProcess) -> tuple[int, ...]:
        """Release a program that has ended; return the processes that it left running."""
        left = self._find_root_pids(child)
        child.clean_up_sandbox()
        if not child.is_silent:
            child.discard_output()
        else:
            self._children.discard(child)
        running = (
            tuple(sorted(find_process_tree(child.mark, left)))
            if left or not child.is_silent
            else ()
        )
        self._guarding.check_children(self._is_tree_gone, running=True)
        return running

    async def _stop_child(self, child: ChildProcess) -> None:
        """End a program whose further output is not wanted.

        Most end at once and leave nothing behind; that needs no search through all processes.
        """
        child.close_output()
        if not child.fenced:
            with anyio.move_on_after(self._grace, shield=True):
                if child.status is None:  # else its pid may be another process by now
                    send_signal(-child.pid, SIGTERM)
                await child.done.wait()
        if not child.done.is_set() or self._find_root_pids(child):
            await self._end_child(child)

    async def _end_child(self, child: ChildProcess) -> None:
        # Shielded: a cancelled caller must not leave processes behind.
        with anyio.CancelScope(shield=True):
            await self._end_tree(child)

    async def _end_tree(self, only: ChildProcess | None = None) -> None:
        """End one program, or all, with everything that it started."""
        children = {only} if only else set(self._children)
        mark = only.mark if only else self._mark
        holders = {child.pid for child in children if child.fenced}
        found = await end_processes(
            lambda: find_process_tree(mark, self._find_root_pids(only)),
            grace=self._grace,
            spared=holders,
        )
        for child in children:
            with anyio.move_on_after(1):
                await child.exited.wait()
            child.close()
        self._children -= {child for child in children if child.status is not None}
        self._orphans.sessions.update(found.values())
        self._orphans.reap(found.keys() - {child.pid for child in children})
        self._find_root_pids()
        self._guarding.check_children(self._is_tree_gone)

    def _find_root_pids(self, only: ChildProcess | None = None) -> set[int]:
        """Return the running programs and the orphans of ended ones, of one program or of all."""
        running = {child.pid for child in self._children if child.status is None}
        orphans = self._orphans.find_living({*running, self._watchdog.pid})
        if only is None:
            return running | orphans.keys()
        return (running & {only.pid}) | {
            pid
            for pid, session in orphans.items()
            if session == only.pid or has_mark(pid, only.mark)
        }


def _without_stale_sockets(command: Command) -> Command | None:
    """Return a sandboxed command without sockets that have vanished; None if none has."""
    assert command.sandbox is not None, "only a sandbox can fail to be built"
    before = command.sandbox.sockets
    there = bwrap.list_unix_sockets() if before is None else tuple(filter(os.path.exists, before))
    if there == before:
        return None
    return replace(command, sandbox=replace(command.sandbox, sockets=there))


def _sandbox_build_error(child: ChildProcess) -> wrap.SandboxUnavailable:
    """Build the error for a sandbox that could not be built, with the last line of its output."""
    said = child.errors.to_captured().head_and_tail() or child.output.to_captured().head_and_tail()
    why = said.decode(errors="replace").strip().rpartition("\n")[2]
    return wrap.SandboxUnavailable(
        errno.EPERM, f"the sandbox could not be built, so nothing ran: {why}"
    )


def _exit_status(child: ChildProcess) -> int:
    """Return a process's exit status; one that survived even SIGKILL counts as killed."""
    return -SIGKILL if child.status is None else child.status
