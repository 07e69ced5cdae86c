"""`travois serve --warm`: a process with all modules loaded that runs each `travois -p` in a fork.

A run costs its work and not the start of an interpreter. It is the client's in everything that it
can notice: user, folder, environment, streams, umask, limits, signals, exit code. A client that is
not like the server (another user, version, namespace or sandbox) is refused and runs by itself.
"""

from __future__ import annotations

import gc
import marshal
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
from argparse import SUPPRESS, Namespace
from contextlib import suppress
from importlib import import_module
from typing import TypedDict, cast

import msgspec

from travois.__main__ import run_here
from travois.core.display_text import split_names, write_stderr
from travois.core.errors import UserError
from travois.core.patterns import LazyPattern
from travois.engine.import_ahead import FIRST_CALL_MODULES
from travois.permissions.secrets import find_secrets
from travois.providers.catalog import load_catalog
from travois.sessions.home import locate_home
from travois.settings.schema import Settings
from travois.terminal import CommandParsers, add_command
from travois.version import __version__
from travois.warm_client import (
    INTERPRETER_VARIABLES,
    MAX_MESSAGE_BYTES,
    OWNER_FLAG,
    SOCKET_NAME,
    describe_namespaces,
    describe_process,
    read_limits,
)

SERVE_HELP = """\
`travois -p` then starts in a third of the time. The server stops with Ctrl-C; without it,
everything works as before. `travois -p --debug …` says why a run did not use it; with
TRAVOIS_WARM=0 none does.
"""
PRELOADED_MODULES = split_names(
    """
anyio._backends._asyncio anyio.streams.tls email.utils json shutil tempfile importlib.util
travois.cli.main travois.headless.print_mode travois.headless.last_turn
travois.engine.tool_calls travois.engine.permission_gate travois.context.manage
travois.context.compaction.compact travois.context.microcompact.clear
travois.permissions.shell.parse travois.permissions.shell.judge travois.permissions.shell.plan
travois.providers.anthropic travois.providers.openai_chat travois.providers.openai_responses
travois.providers.stream_reader travois.providers.errors travois.providers.discovery
travois.process.spawn travois.process.job travois.process.reap travois.sandbox.wrap
travois.sandbox.bwrap travois.sandbox.landlock travois.sandbox.guard.guard
travois.tools.shell.denied_command travois.skills.skill_files travois.snapshots.snapshots
travois.permissions.shell.programs travois.sandbox.launch travois.snapshots.database
concurrent.futures.thread encodings.utf_8_sig filecmp h11 tree_sitter tree_sitter_bash
    """
)
"""What a run loads sooner or later; whatever is missing here is loaded by the run."""
MESSAGE_TIMEOUT = 5.0
"""Seconds that a client has to send its run."""


class RunRequest(TypedDict):
    """A run as its client sends it."""

    same: dict[str, object]
    argv: list[str]
    cwd: str
    environ: dict[str, str]
    umask: int
    limits: dict[str, tuple[int, int]]


class RefusedRun(Exception):
    """The reason why a client has to run by itself."""


def register_serve(commands: CommandParsers) -> None:
    """Add the `travois serve` command."""
    what = "keep a process ready that runs `travois -p` without the time of a start"
    top = add_command(commands, "serve", what=what, more=SERVE_HELP)
    told = "listen for runs of this user on a socket in the Travois home"
    top.add_argument("--warm", action="store_true", required=True, help=told)
    top.add_argument(OWNER_FLAG, type=int, default=-1, help=SUPPRESS)
    top.set_defaults(run=run_serve)


def run_serve(args: Namespace) -> int:
    """Run the warm server until a signal, or the end of its owner; return the exit code."""
    if args.owner_fd >= 0:
        with OwnerSocket(args.owner_fd) as owner, suppress(OwnerGone, KeyboardInterrupt):
            _load_what_runs_need()
            WarmServer(owner).serve()
        return 0
    home = locate_home(os.environ).prepare()
    path = str(home.path / SOCKET_NAME)
    with ListeningSocket(socket.AF_UNIX) as listener:
        _bind_private(listener, path)
        _load_what_runs_need()
        try:
            server = WarmServer(listener)
            write_stderr(f"travois: ready for `travois -p` at {path}\n")
            server.serve()
        except KeyboardInterrupt:
            return 0
        finally:
            with suppress(OSError):
                os.unlink(path)
    return 0


def _load_what_runs_need() -> None:
    """Load what a run would load when it first uses it: modules, patterns, types, the catalogue."""
    for name in (*PRELOADED_MODULES, *FIRST_CALL_MODULES):
        import_module(name)
    load_catalog()
    find_secrets("")
    msgspec.convert({}, Settings)
    for module in [*sys.modules.values()]:
        for value in [*vars(module).values()]:
            if isinstance(value, LazyPattern):
                value.compile()
    gc.collect()
    gc.freeze()  # a fork shares the pages of what is never looked at again


class OwnerGone(Exception):
    """The end of the process that the warm server serves alone."""


class ListeningSocket(socket.socket):
    """The socket to which anyone of the user may connect with a run."""

    def take_line(self) -> socket.socket:
        """Return the line of the next run."""
        return self.accept()[0]


class OwnerSocket(socket.socket):
    """The socket over which the one owner of a warm server hands in a line for each run."""

    def __init__(self, fd: int) -> None:
        super().__init__(fileno=fd)

    def take_line(self) -> socket.socket:
        """Return the line of the next run; raises `OwnerGone`."""
        data, lines, _, _ = socket.recv_fds(self, 1, 1)
        if not data or not lines:
            raise OwnerGone
        return socket.socket(fileno=lines[0])


def _bind_private(listener: socket.socket, path: str) -> None:
    """Bind the warm server's socket so that nobody else can connect; raises `UserError`."""
    with socket.socket(socket.AF_UNIX) as other:
        if other.connect_ex(path) == 0:
            raise UserError("A warm server is already running", why=f"it listens at {path}")
    with suppress(FileNotFoundError):
        os.unlink(path)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError as error:
        raise UserError("The warm server cannot listen", why=f"{path}: {error}") from error
    finally:
        os.umask(before)
    listener.listen(128)


class WarmServer:
    """The loop that takes runs, forks for each, and reports their ends."""

    def __init__(self, listener: ListeningSocket | OwnerSocket) -> None:
        self._listener = listener
        self._own = describe_process(__version__)
        self._running: dict[int, socket.socket] = {}
        """The line to the client of each run, by process."""
        self._ends, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until an exception, such as that of a signal, ends it."""
        while True:
            lines = {line.fileno(): pid for pid, line in self._running.items()}
            wanted = self._listener.fileno()
            ready, _, _ = select.select([wanted, self._ends, *lines], [], [])
            if self._ends in ready:
                os.read(self._ends, 4096)
            self._report_ends()
            for pid in (lines[fd] for fd in ready if fd in lines):
                if pid in self._running:
                    self._end_abandoned(pid)
            if wanted in ready:
                self._take_run()

    def _report_ends(self) -> None:
        """Tell the clients of runs that ended their exit codes."""
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                if (line := self._running.pop(pid, None)) is not None:
                    code = os.waitstatus_to_exitcode(status)
                    send_value(line, code)  # negative: the signal that killed it
                    line.close()

    def _end_abandoned(self, pid: int) -> None:
        """Stop a run whose client is gone, as closing its terminal would."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        line = self._running[pid]
        line.shutdown(socket.SHUT_RDWR)
        line.close()
        self._running[pid] = socket.socket(socket.AF_UNIX)  # nobody listens there

    def _take_run(self) -> None:
        line = self._listener.take_line()
        line.settimeout(MESSAGE_TIMEOUT)
        streams: list[int] = []
        try:
            message = receive_run(line, streams)  # whole, or the client could not read an answer
            self._check_peer(line)
            request: RunRequest = marshal.loads(message)  # noqa: S302 - of the same user
            if difference := _find_difference(request["same"], self._own):
                raise RefusedRun(f"it has another {difference} than the server")
            self._start_run(line, request, streams)
        except (RefusedRun, OSError, ValueError, EOFError, TypeError, KeyError) as why:
            send_value(line, str(why) or type(why).__name__)
            line.close()
        finally:
            for fd in streams:
                os.close(fd)

    def _check_peer(self, line: socket.socket) -> None:
        """Check what the kernel says of the client: a sandboxed one must not leave its sandbox."""
        told = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", told)
        if user != os.geteuid():
            raise RefusedRun("it belongs to another user")
        if not pid or describe_namespaces(pid) != self._own["namespaces"]:
            raise RefusedRun("it lives in another namespace or sandbox")

    def _start_run(self, line: socket.socket, request: RunRequest, streams: list[int]) -> None:
        pid = os.fork()
        if pid:
            self._running[pid] = line
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._listener.close()
            for other in self._running.values():
                other.close()
            code = become_run(line, request, streams)
        finally:
            os._exit(code)


def become_run(line: socket.socket, request: RunRequest, streams: list[int]) -> int:
    """Turn this fork of the warm server into the client's run; return the exit code."""
    try:
        os.setsid()
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        for fd in streams:
            os.close(fd)
        streams.clear()
        os.chdir(request["cwd"])
        os.umask(request["umask"])
        for name, limit in request["limits"].items():
            if read_limits()[name] != limit:
                resource.setrlimit(getattr(resource, name), limit)
    except (OSError, ValueError) as error:
        send_value(line, f"the server cannot take over its surroundings: {error}")
        return 1
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = [sys.argv[0], *request["argv"]]
    random.seed()
    _reopen_streams()
    send_value(line, os.getpid())
    line.close()
    try:
        return run_here()
    except SystemExit as stop:  # of a wrong command line, whose message is still in the buffers
        sys.stdout.flush()
        sys.stderr.flush()
        return stop.code if isinstance(stop.code, int) else 1


def _reopen_streams() -> None:
    """Reopen Python's standard streams on the client's descriptors."""
    encoding, errors = sys.stdout.encoding, sys.stderr.errors
    sys.stdin = open(0, encoding=encoding, closefd=False)  # noqa: SIM115 - open as long as we live
    out = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    out.reconfigure(line_buffering=out.isatty())
    sys.stdout = out
    sys.stderr = open(2, "w", encoding=encoding, errors=errors, buffering=1, closefd=False)  # noqa: SIM115


def receive_run(line: socket.socket, streams: list[int]) -> bytes:
    """Receive a run on the warm server; its streams are added as soon as they arrive."""
    head, fds, _, _ = socket.recv_fds(line, 4, 3)
    streams += fds
    size = int.from_bytes(head, "big")
    if len(head) < 4 or len(fds) != 3 or size > MAX_MESSAGE_BYTES:
        raise RefusedRun("its request is not one")
    data = bytearray()
    while len(data) < size:
        more = line.recv(size - len(data))
        if not more:
            raise RefusedRun("its request is not whole")
        data += more
    return bytes(data)


def send_value(line: socket.socket, value: int | str) -> None:
    """Send a value to the warm server's client or back, if the other end is still there."""
    data = marshal.dumps(value)
    with suppress(OSError):
        line.sendall(len(data).to_bytes(4, "big") + data)


def _find_difference(theirs: dict[str, object], own: dict[str, object]) -> str:
    """Return what a client lacks in common with the warm server; empty if nothing."""
    name = next((name for name, value in own.items() if theirs.get(name) != value), "")
    if name != INTERPRETER_VARIABLES:
        return name
    mine, other = (dict(cast("dict[str, str]", one[name])) for one in (own, theirs))
    variables = sorted({key for key, _ in mine.items() ^ other.items()})
    return f"{name} ({', '.join(variables)})"
