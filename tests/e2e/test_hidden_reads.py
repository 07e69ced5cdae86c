"""Reading what the sandbox hides, on the screen: the question, its rule, and servers of tools."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.glass import Glass, use
from tests.e2e.program import Program
from tests.e2e.test_mcp_servers import called

SERVER = """
import json, os, sys
from pathlib import Path

def touch(path):
    try:
        Path(path).write_text("x")
        return "wrote"
    except OSError as error:
        return error.strerror

def answer(method, params):
    if method == "initialize":
        info = {"name": "pen", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        return {"tools": [{"name": "touch", "description": "Write.", "inputSchema": schema}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": touch(params["arguments"]["path"])}]}
    return {}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        found = answer(asked["method"], asked.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": found}), flush=True)
"""


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that is not below /tmp, which is private or free, and that the sandbox hides."""
    with TemporaryDirectory(prefix=".travois-test-", dir=Path.home()) as name:
        folder = Path(name, "elsewhere")
        folder.mkdir()
        for each in ("notes", "more"):
            (folder / each).write_text(f"text of {each}")
        yield folder


def test_a_read_that_fails_in_the_sandbox_is_asked_about_and_a_yes_shows_it(
    program: Program, outside: Path
) -> None:
    (program.folder / "show.sh").write_text(f"cat {outside}/notes\n")
    script = [
        {"say": [use("Bash", command="bash show.sh")]},
        {"when": {"tool_result": {"contains": "text of notes"}}, "say": "I have read it."},
    ]
    with program.served(script):
        glass = Glass(program, *program.model, columns=160)
        glass.ready()
        glass.type("read\r")
        shown = glass.until("? Run", "no, and tell it why")
        assert f"needs to read {outside}/notes, which the sandbox hides" in shown
        assert "run commands in the sandbox" not in shown
        glass.still()
        glass.type("y")
        glass.until("I have read it.")
        assert glass.leave() == 0


def test_always_on_a_read_elsewhere_opens_that_folder_for_good(
    program: Program, outside: Path
) -> None:
    script = [
        {"say": [use("Bash", command=f"cat {outside}/notes")]},
        {"when": {"tool_result": {"contains": "text of notes"}}, "say": "First."},
        {"say": [use("Bash", command=f"cat {outside}/more")]},
        {"when": {"tool_result": {"contains": "text of more"}}, "say": "Second."},
    ]
    with program.served(script):
        glass = Glass(program, *program.model, columns=160)
        glass.ready()
        glass.type("read\r")
        shown = glass.until("? Run", "no, and tell it why")
        assert f"reading {outside}/" in shown
        glass.still()
        glass.type("a")
        glass.until("First.")
        glass.ready()
        glass.type("again\r")
        assert "? Run" not in glass.until("Second.").rpartition("again")[2]
        assert glass.leave() == 0
    assert f"Read(/{outside}/**)" in program.run("permissions", "list").out


@pytest.mark.parametrize(
    ("entry", "everywhere", "held"),
    [({}, False, False), ({"sandbox": True}, False, True), ({}, True, True)],
)
def test_a_server_runs_in_the_sandbox_where_it_or_the_settings_say_so(
    program: Program, outside: Path, entry: dict[str, bool], everywhere: bool, held: bool
) -> None:
    server = program.folder / "pen.py"
    server.write_text(SERVER)
    program.home.mkdir(exist_ok=True)
    (program.home / "settings.json").write_text(json.dumps({"sandbox": {"mcpServers": everywhere}}))
    servers = {"pen": {"command": sys.executable, "args": [str(server)], **entry}}
    inside, beyond = called(
        program,
        servers,
        ("mcp__pen__touch", {"path": str(program.folder / "inside")}),
        ("mcp__pen__touch", {"path": str(outside / "made")}),
    )
    assert "wrote" in inside
    assert ("wrote" in beyond, (outside / "made").exists()) == (not held, not held)
