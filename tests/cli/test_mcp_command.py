"""`travois mcp`, as it is typed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.tui.inside import Inside, inside

LENDER = str(Path(__file__).parents[1] / "mcp" / "lender.py")


@pytest.fixture
def program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Inside:
    return inside(tmp_path, monkeypatch, capsys)


def test_a_server_is_added_tested_and_removed(program: Inside) -> None:
    pytest.importorskip("mcp")
    assert program.run("mcp").out == "No MCP servers.\n"
    done = program.run("mcp", "add", "s", "--env", "A=1", "--", sys.executable, LENDER, "none")
    assert (done.code, done.out) == (0, f"Added s to {program.home / 'mcp.json'}.\n")
    kept = json.loads((program.home / "mcp.json").read_text())["mcpServers"]["s"]
    assert kept == {"command": sys.executable, "args": [LENDER, "none"], "env": {"A": "1"}}
    assert "env: {'A': '…'}" in program.run("mcp", "show", "s").out
    tested = program.run("mcp", "test", "s")
    assert (tested.code, tested.out.splitlines()[1].split()[0]) == (0, "mcp__s__add")
    assert program.run("mcp", "remove", "s").code == 0
    assert program.run("mcp", "remove", "s").code == 1


def test_a_server_that_does_not_work_says_why(program: Inside) -> None:
    pytest.importorskip("mcp")
    program.run("mcp", "add", "s", "--", sys.executable, LENDER, "dies")
    tested = program.run("mcp", "test", "s")
    assert tested.code == 1
    assert tested.out.startswith("Cannot connect to s: ")
    assert program.run("mcp", "logs", "s").out == "no config\n"


def test_servers_of_a_repository_are_shown_before_they_may_start(program: Inside) -> None:
    program.run("mcp", "add", "s", "--scope", "project", "https://example.org/mcp")
    assert "needs approval: travois mcp approve" in program.run("mcp").out
    assert program.run("mcp", "test", "s").code != 0
    approved = program.run("mcp", "approve")
    assert 'mcp server s: {"type":"http","url":"https://example.org/mcp"}' in approved.out
    assert "https://example.org/mcp  project" in program.run("mcp", "list").out


def test_a_server_that_is_nothing_is_not_added(program: Inside) -> None:
    done = program.run("mcp", "add", "s")
    assert done.code != 0
    assert "Give a URL or a program" in done.err
    done = program.run("mcp", "add", "s", "wss://example.org/mcp")
    assert done.code != 0
    assert "MCP does not support WebSockets" in done.err
