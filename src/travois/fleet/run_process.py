"""The process of a fleet task's run: in a warm server of the worker's own, or started by itself.

The server (`travois serve --warm`) has everything loaded and forks for each run, so that a run
costs its work and not the start of an interpreter. It gets its runs over a socket that nobody else
has, and ends with the worker, whatever ends that; its runs end with it.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import IO

from travois import warm_client
from travois.permissions.secrets import is_secret_variable
from travois.process.parent_watch import PARENT_VARIABLE
from travois.version import __version__

PROGRAM = (sys.executable, "-m", "travois")
POLL_SECONDS = 1.0
END_SECONDS = 5.0
START_SECONDS = 60.0
"""How long a busy server may take to start a run, until that is started by itself."""
LOGGER = logging.getLogger("dbos.travois")
"""Below the engine's, so that it writes to the same file."""


class WarmRun:
    """A run in a fork of the warm server; the part of a `Popen` that following it takes."""

    def __init__(self, pid: int, line: socket.socket, *, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin = open(stdin, "wb")  # noqa: SIM115 - closed by whoever follows the run
        self.stdout = open(stdout, "rb")  # noqa: SIM115
        self._line = line
        self._code: int | None = None
        self._lock = Lock()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        with self._lock:
            if self._code is None and wait_until_readable(self._line.fileno(), seconds=0):
                code = warm_client.receive_value(self._line)
                # Without one, the server was killed, and its runs end with it.
                self._code = code if isinstance(code, int) else -signal.SIGKILL
            return self._code

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        while (code := self.poll()) is None:
            wait_until_readable(self._line.fileno(), seconds=POLL_SECONDS)
        self._line.close()
        return code

    def send_signal(self, number: int, /) -> None:
        """Send a signal unless the run has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


RunProcess = WarmRun | subprocess.Popen[bytes]


def wait_until_readable(fd: int, *, seconds: float) -> bool:
    """Wait for something to read, or for the end of who writes; return whether there is it."""
    poll = select.poll()  # select() knows no descriptors above 1,023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(seconds * 1_000))


class RunStarter:
    """The way in which a worker starts runs; without a server, each is a process by itself."""

    def __init__(self) -> None:
        self._umask = warm_client.read_umask()
        self._server: subprocess.Popen[bytes] | None = None
        self._owner: socket.socket | None = None
        self._lock = Lock()

    def start_server(self) -> None:
        """Start the warm server where there can be one, and the environment does not forbid it."""
        if sys.platform != "linux" or os.environ.get(warm_client.VARIABLE) == "0":
            return
        if self._owner is not None:
            self._owner.close()
        self._owner, theirs = socket.socketpair()
        with theirs:
            fd = theirs.fileno()
            self._server = subprocess.Popen(
                (*PROGRAM, "serve", "--warm", warm_client.OWNER_FLAG, str(fd)),
                env={
                    n: value for n, value in os.environ.items() if not is_secret_variable(n, value)
                },
                pass_fds=[fd],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """End the warm server, which has no runs any more."""
        if self._owner is None or self._server is None:
            return
        self._owner.close()
        try:
            self._server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._server.kill()

    def start(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], errors: IO[bytes]
    ) -> RunProcess:
        """Start `travois` with these words."""
        if self._server is not None:
            try:
                return self._start_warm(words, cwd=cwd, env=env, errors=errors)
            except (OSError, warm_client.WarmRefusal) as why:
                LOGGER.warning("a run was not started by the warm server: %s", why)
        return subprocess.Popen(
            (*PROGRAM, *words),
            cwd=cwd,
            env={**env, PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )

    def _start_warm(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], errors: IO[bytes]
    ) -> WarmRun:
        """Start a run in a fork of the server; raises `WarmRefusal` or OSError."""
        owner, server = self._find_server()
        request = warm_client.describe_run(
            words,
            __version__,
            cwd=str(cwd),
            environ={**env, PARENT_VARIABLE: str(server)},
            umask=self._umask,
        )
        line, theirs = socket.socketpair()
        line.settimeout(START_SECONDS)
        own_in, own_out = os.pipe(), os.pipe()
        try:
            with theirs:
                socket.send_fds(owner, [b"r"], [theirs.fileno()])
            streams = (own_in[0], own_out[1], errors.fileno())
            pid = warm_client.request_run(line, request, streams=streams)
        except BaseException:
            line.close()
            os.close(own_in[1])
            os.close(own_out[0])
            raise
        finally:
            os.close(own_in[0])
            os.close(own_out[1])
        line.settimeout(None)
        return WarmRun(pid, line, stdin=own_in[1], stdout=own_out[0])

    def _find_server(self) -> tuple[socket.socket, int]:
        """Return the warm server's socket and pid; one that was killed is started again."""
        with self._lock:
            if self._server is not None and self._server.poll() is not None:
                self.start_server()
            if self._owner is None or self._server is None:
                raise warm_client.WarmRefusal("there is none")
            return self._owner, self._server.pid
