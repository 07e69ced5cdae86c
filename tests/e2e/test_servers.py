"""Servers that the agent starts: its later commands reach them, and nobody else does."""

from __future__ import annotations

import json
import shutil
import socket
from typing import Any

import pytest

from tests.e2e.program import Program
from tests.e2e.test_tmp import BYPASS, call, play

curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
OFFLINE = ("--settings", json.dumps({"sandbox": {"network": {"mode": "off"}}}), *BYPASS)
AUTO = ("--permission-mode", "auto")
MANY = "for i in $(seq 100); do [ -s ready ] && break; sleep 0.1; done"
SERVER = """
import http.server, pathlib
server = http.server.HTTPServer(("127.0.0.1", %d), http.server.SimpleHTTPRequestHandler)
pathlib.Path("ready").write_text("yes")
server.serve_forever()
"""


@pytest.fixture
def port(full: Program) -> int:
    """The port of a server that is yet to be started, and what it is to serve."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        found = one.getsockname()[1]
    (full.folder / "server.py").write_text(SERVER % found)
    (full.folder / "page.txt").write_text("the page\n")
    return found


def start() -> dict[str, Any]:
    return call("Bash", command="exec python3 server.py", run_in_background=True)


def wait() -> dict[str, Any]:
    return call("Bash", command=MANY)


@curl
@pytest.mark.parametrize("flags", [OFFLINE, AUTO], ids=["offline", "auto"])
def test_the_next_command_reaches_a_server(
    full: Program, port: int, flags: tuple[str, ...]
) -> None:
    fetch = call("Bash", command=f"curl -sS http://127.0.0.1:{port}/page.txt")
    code = (
        f"import urllib.request as u; print(u.urlopen('http://localhost:{port}/page.txt').read())"
    )
    read = call("Bash", command=f'python3 -c "{code}"')
    _, _, fetched, found = play(full, start(), wait(), fetch, read, flags=flags)
    assert fetched.startswith("the page")
    assert found.startswith("b'the page")


@curl
def test_a_command_with_the_machines_network_is_told_where_the_server_is(
    full: Program, port: int
) -> None:
    code = f"import urllib.request as u; u.urlopen('http://localhost:{port}/')"
    told = f'python3 -c "{code}" || curl -sS http://localhost:{port}/'
    missing = call("Bash", command=told, sandbox="network")
    flags = ("--allowed-tools", "Bash")
    *_, said = play(full, start(), wait(), missing, flags=flags)
    assert f"The server at port {port} runs in the sandbox's own network" in said
