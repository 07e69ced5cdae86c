"""The side of `-p` that hands a run to a warm server, `travois serve --warm`, which is loaded.

The server runs it in a fork of itself: with our arguments, streams, folder, environment, umask and
limits, and ends with its exit code. Where that is not possible, the run goes on here as without a
server; `--debug` says why. Nothing is imported here that a start does not have anyway.
"""

from __future__ import annotations

import marshal
import os
import resource
import signal
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
from collections.abc import Iterable, Mapping, Sequence

VARIABLE = "TRAVOIS_WARM"
"""Set to 0, a run never goes to a warm server."""
SOCKET_NAME = "warm.sock"
OWNER_FLAG = "--owner-fd"
"""A warm server with it serves the process alone that holds the other end of this socket."""
PRINT_FLAGS = frozenset(("-p", "--print"))
LEFT_OUT = ("--die-with-parent", "--lease", "--bg", "--background", "--worktree", "-w")
"""Flags of runs that depend on the process that starts them."""
INTERPRETER_VARIABLES = "environment of the interpreter"
FIXED_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "LD_PRELOAD", "TZ")
"""Variables that a process reads once, besides those of Python."""
FORWARDED_SIGNALS = (1, 2, 3, 15)
"""SIGHUP, SIGINT, SIGQUIT and SIGTERM."""
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
MAX_MESSAGE_BYTES = 8 << 20


class WarmRefusal(Exception):
    """The reason why a run does not go to a warm server."""


def run_warm(argv: Sequence[str], version: str) -> int | None:
    """Run a command line in a warm server; None if it has to run here."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    if os.environ.get(VARIABLE) == "0" or PRINT_FLAGS.isdisjoint(own):
        return None
    path = find_socket_path(os.environ)
    if not path or not os.path.exists(path):
        return None
    try:
        if any(word.partition("=")[0] in LEFT_OUT for word in own):
            raise WarmRefusal("a flag binds this run to the process that starts it")
        return _hand_over(path, argv, version)
    except (WarmRefusal, OSError) as why:
        if any(word.partition("=")[0] == "--debug" for word in own):
            sys.stderr.write(f"travois: not run by the warm server: {why}\n")
        return None


def find_socket_path(environ: Mapping[str, str]) -> str:
    """Return where the warm server of this home listens; empty if no home is known."""
    home = os.path.expanduser(environ.get("TRAVOIS_HOME", ""))
    state = environ.get("XDG_STATE_HOME", "")
    if not home and state.startswith("/"):
        home = f"{state}/travois"
    if not home and environ.get("HOME", "").startswith("/"):
        home = f"{environ['HOME']}/.local/state/travois"
    return os.path.join(os.path.abspath(home), SOCKET_NAME) if home else ""


def describe_process(version: str) -> dict[str, object]:
    """Describe what two processes must have in common, for one to stand for the other."""
    fixed = {
        name: value
        for name, value in os.environ.items()
        if name in FIXED_VARIABLES or name.startswith("PYTHON")
    }
    return {
        "version": version,
        "program": (sys.executable, os.path.dirname(os.path.abspath(__file__))),
        INTERPRETER_VARIABLES: fixed,
        "user": (os.getresuid(), os.getresgid(), sorted(os.getgroups())),
        "namespaces": describe_namespaces(os.getpid()),
        "nice value": os.nice(0),
    }


def describe_namespaces(pid: int) -> tuple[object, ...]:
    """Describe which part of the machine a process lives in: its namespaces, root and walls."""
    links = [os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES]
    with open(f"/proc/{pid}/status", "rb") as file:
        support = [line for line in file if line.startswith((b"NoNewPrivs", b"Seccomp:", b"Cap"))]
    return *links, os.readlink(f"/proc/{pid}/root"), *support


def _hand_over(path: str, argv: Sequence[str], version: str) -> int:
    """Send this run to the server and wait for its end; raises `WarmRefusal` or OSError."""
    if os.stat(path).st_uid != os.geteuid():
        raise WarmRefusal("its socket belongs to another user")
    line = socket(AF_UNIX, SOCK_STREAM)
    line.connect(path)
    request = describe_run(argv, version, cwd=os.getcwd(), environ=os.environ, umask=read_umask())
    return _wait_for_end(line, request_run(line, request, streams=range(3)))


def describe_run(
    argv: Sequence[str], version: str, *, cwd: str, environ: Mapping[str, str], umask: int
) -> dict[str, object]:
    """Describe a run of this process for a warm server."""
    return {
        "same": describe_process(version),
        "argv": list(argv),
        "cwd": cwd,
        "environ": dict(environ),
        "umask": umask,
        "limits": read_limits(),
    }


def request_run(line: socket, request: Mapping[str, object], *, streams: Iterable[int]) -> int:
    """Have a warm server start a run; return its pid. Raises `WarmRefusal` or OSError."""
    message = marshal.dumps(dict(request))
    fds = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
    line.sendmsg([len(message).to_bytes(4, "big")], [(SOL_SOCKET, SCM_RIGHTS, fds)])
    line.sendall(message)
    answer = receive_value(line)
    if not isinstance(answer, int):
        raise WarmRefusal(str(answer))
    return answer


def _wait_for_end(line: socket, child: int) -> int:
    """Pass our signals on to the run, and return its exit code."""

    def forward(number: int, frame: object) -> None:
        os.kill(child, number)

    for number in FORWARDED_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, forward)
    code = receive_value(line)
    if not isinstance(code, int):
        return 1
    return code if code >= 0 else 128 - code


def receive_value(line: socket) -> object:
    """Return the next value that the server sends; empty if it is gone."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = line.recv(4096)
        if not more:
            return "it ended"
        data += more
    return marshal.loads(data[4:])  # noqa: S302 - from a process of the same user


def read_umask() -> int:
    """Return the umask, which Linux only tells when it is set."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def read_limits() -> dict[str, tuple[int, int]]:
    """Return the limits of this process, by name."""
    names = (name for name in dir(resource) if name.startswith("RLIMIT_"))
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}
