"""Servers that others wrote, from the registries, called through the real program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Program

pytest.importorskip("mcp")
PYTHON = Path(sys.executable).parent
NODE = PYTHON.parent / "mcp-node/node_modules/.bin"


def installed(name: str, folder: Path) -> str:
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not installed")
    return str(path)


def called(program: Program, servers: dict[str, Any], *calls: tuple[str, Any]) -> list[str]:
    """Let the model call tools of these servers; what it was told of each."""
    script = [{"say": [{"tool_use": {"name": n, "input": given}}]} for n, given in calls]
    with lab.server([*script, {"say": "Done."}]) as api:
        program.url = api.url
        allowed = [f"mcp__{name}" for name in servers]
        config = json.dumps({"mcpServers": servers})
        done = program.ask("go", "--mcp-config", config, "--allowedTools", *allowed)
        assert (done.code, done.out) == (0, "Done.\n"), done.err
        blocks = [block for said in api.bodies[-1]["messages"] for block in said["content"]]
        found = [block for block in blocks if block["type"] == "tool_result"]
        assert not any(block.get("is_error") for block in found), found
        return [str(block["content"]) for block in found]


def test_servers_of_npm_keep_files_and_memories(program: Program) -> None:
    files = installed("mcp-server-filesystem", NODE)
    memory = installed("mcp-server-memory", NODE)
    kept = program.folder / "memory.jsonl"
    servers = {
        "files": {"command": files, "args": [str(program.folder)]},
        "memory": {"command": memory, "env": {"MEMORY_FILE_PATH": str(kept)}},
    }
    heron = {"name": "heron", "entityType": "bird", "observations": ["stands on one leg"]}
    written, read, created, found = called(
        program,
        servers,
        ("mcp__files__write_file", {"path": str(program.folder / "a.txt"), "content": "grey"}),
        ("mcp__files__read_text_file", {"path": str(program.folder / "a.txt")}),
        ("mcp__memory__create_entities", {"entities": [heron]}),
        ("mcp__memory__search_nodes", {"query": "leg"}),
    )
    assert "Successfully wrote" in written
    assert "grey" in read
    assert (program.folder / "a.txt").read_text() == "grey"
    assert "heron" in created
    assert "stands on one leg" in found
    assert "heron" in kept.read_text()


def test_a_server_that_speaks_garbage_is_an_error_and_the_session_goes_on(
    program: Program,
) -> None:
    lender = str(Path(__file__).parents[1] / "mcp" / "lender.py")
    entry = {"command": sys.executable, "args": [lender, "garbage"], "startup_timeout_sec": 1}
    config = ("--mcp-config", json.dumps({"mcpServers": {"odd": entry}}))
    use = {"say": [{"tool_use": {"name": "mcp__odd__add", "input": {"a": 1, "b": 2}}}]}
    with lab.server([use, {"say": "It is odd."}, {"say": "On we go."}]) as api:
        program.url = api.url
        done = program.ask("go", *config, "--allowedTools", "mcp__odd")
        assert (done.code, done.out) == (0, "It is odd.\n")
        (told,) = [
            b for b in api.bodies[1]["messages"][-1]["content"] if b["type"] == "tool_result"
        ]
        assert told["is_error"]
        assert "mcp__odd__add is not available: it did not answer within 1 s." in str(
            told["content"]
        )
        assert program.ask("and now?", "-c", *config).out == "On we go.\n"
        api.no_invalid()


class Page(BaseHTTPRequestHandler):
    """One page, which robots may read."""

    def do_GET(self) -> None:
        text = "User-agent: *\nAllow: /\n" if self.path == "/robots.txt" else "<p>A heron.</p>"
        self.send_response(200)
        self.send_header("content-type", "text/plain" if "robots" in self.path else "text/html")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture
def page() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/bird"
    server.shutdown()
    thread.join()
    server.server_close()


def test_servers_of_pypi_fetch_a_page_and_read_a_repository(program: Program, page: str) -> None:
    folder = str(program.folder)
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for words in (("init", "-q"), (*author, "commit", "-q", "--allow-empty", "-m", "A heron")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    servers = {
        "fetch": {
            "command": installed("mcp-server-fetch", PYTHON),
            "args": ["--allow-private-ips"],
        },
        "git": {"command": installed("mcp-server-git", PYTHON), "args": ["-r", folder]},
    }
    fetched, log = called(
        program,
        servers,
        ("mcp__fetch__fetch", {"url": page}),
        ("mcp__git__git_log", {"repo_path": folder}),
    )
    assert "A heron." in fetched
    assert "A heron" in log


SLOW_SERVER = """\
import json, os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
for line in sys.stdin:
    asked = json.loads(line)
    version = asked.get("params", {}).get("protocolVersion")
    about = {"protocolVersion": version, "serverInfo": {"name": "slow", "version": "1"}}
    known = {"initialize": about | {"capabilities": {"tools": {}}}, "tools/list": {"tools": []}}
    if asked.get("method") in known:
        told = {"jsonrpc": "2.0", "id": asked["id"], "result": known[asked["method"]]}
        print(json.dumps(told), flush=True)
"""


def test_a_start_that_waits_for_a_server_says_so(program: Program, tmp_path: Path) -> None:
    gate = tmp_path / "open"
    args = ["-c", SLOW_SERVER, str(gate)]
    entry = {"command": sys.executable, "args": args, "alwaysLoad": True}
    program.home.mkdir()
    (program.home / "mcp.json").write_text(json.dumps({"mcpServers": {"slow": entry}}))
    with program.served([{"say": "Hello.", "repeat": True}]):
        glass = Glass(program, *program.model)
        glass.until("❯")
        glass.type("hi\r")
        glass.until("Starting the MCP server slow", "… hi")
        gate.touch()
        glass.until("❯ hi", "Hello.")
        assert "Starting" not in glass.story
        assert glass.leave() == 0
