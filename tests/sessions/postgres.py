"""A PostgreSQL server of our own, in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

UNPRIVILEGED = "nobody"
"""Who runs the server where we are root, which it refuses."""


def find_postgres() -> Path | None:
    """The folder of the server's programs: on the path, or where Debian has them."""
    if found := shutil.which("postgres"):
        return Path(found).parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server until the block is left; yields the URL of its database."""
    programs = find_postgres()
    assert programs is not None
    user = UNPRIVILEGED if os.geteuid() == 0 else ""
    with TemporaryDirectory(prefix="travois-pg-", dir="/tmp") as place:
        if user:
            os.chown(place, pwd.getpwnam(user).pw_uid, -1)
        data, port = f"{place}/data", _free_port()
        made = ("-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        _run(user, str(programs / "initdb"), *made)
        options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
        server = [str(programs / "pg_ctl"), "-D", data, "-w", "-t", "120"]
        _run(user, *server, "-l", f"{place}/log", "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            _run(user, *server, "-m", "immediate", "stop")


def _run(user: str, *words: str) -> None:
    subprocess.run(
        words, user=user or None, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=300
    )


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
