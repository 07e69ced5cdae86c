"""A Postgres of the tests' own, in a folder of its own, that can be killed and started again.

It does not run as root: as root it is started as `nobody`.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from tests.fleet.harness import wait_until

USER = "travois"
PROGRAMS = ("initdb", "postgres", "createdb", "pg_isready")


def find_postgres() -> Path | None:
    """Return the folder of Postgres' programs: Debian keeps them off the PATH."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folders += [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    return next(
        (each for each in folders if all((each / name).exists() for name in PROGRAMS)), None
    )


class Postgres:
    """A server on a port of this machine."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        # Not below the test's folder, which only its user may enter.
        self.folder = Path(tempfile.mkdtemp(prefix="travois-pg-"))
        self._identity: dict[str, int] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._identity = {"user": nobody.pw_uid, "group": nobody.pw_gid}
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.data = self.folder / "data"
        self._run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "--no-sync")
        self._server: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def _run(self, program: str, *words: str) -> str:
        return subprocess.run(
            (self._programs / program, *words),
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=True,
            **self._identity,
        ).stdout

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = ("-D", self.data, "-p", str(self._port), "-k", self.folder)
        words = (*words, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off")
        self._server = subprocess.Popen(
            (self._programs / "postgres", *words),
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **self._identity,
        )
        wait_until(self.is_ready, what="Postgres answers")

    def is_ready(self) -> bool:
        ready = ("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self._port))
        try:
            self._run(*ready)
        except subprocess.CalledProcessError:
            return False
        return True

    def create_database(self) -> str:
        """Create an empty database; return its address."""
        self._databases += 1
        name = f"fleet{self._databases}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self._port), "-U", USER, name)
        return f"postgresql://{USER}@127.0.0.1:{self._port}/{name}"

    def kill(self) -> None:
        """Kill the server and all its processes, as a power failure does."""
        assert self._server is not None
        for pid in (*_children(self._server.pid), self._server.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._server.wait()

    def remove(self) -> None:
        """Stop the server and remove its files."""
        if self._server is not None and self._server.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in found.read_text().split()] if found.exists() else []
