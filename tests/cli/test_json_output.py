"""Every command that prints data has --json, of the shape that docs/json.md says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program
from travois.cli.command_tree import read_command_tree
from travois.cli.main import run_command_line

DOCS = Path(__file__).parents[2] / "docs" / "json.md"
ROWS = re.findall(r"^\| `travois ([^`]+)` \| (\w+) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
WITHOUT_DATA = {
    *("acp", "completion", "demo", "exec", "serve", "lab serve", "lab record", "lab replay"),
    *("sessions export", "sessions rename", "sessions prune", "memory add", "memory edit"),
    *("memory forget", "memory undo", "memory import", "memory share", "memory accept"),
    *("memory reject", "mail send", "permissions check", "permissions forget", "permissions test"),
    *("mcp add", "mcp remove", "mcp approve", "mcp login", "mcp logout", "mcp logs"),
    *("fleet run", "fleet worker", "fleet migrate", "fleet submit", "fleet cancel", "fleet retry"),
    *(
        "plugins enable",
        "plugins disable",
        "fleet logs",
        "fleet results",
        "fleet export",
        "schedule add",
        "schedule rm",
    ),
}
"""Commands that do something, print a text or a log, or have JSON as their only format."""
NEEDS_MORE = {
    "mcp show",
    "mcp test",
    "fleet show",
    "try",
    "lab report",
    "dream",
    "memory show",
    "compact",
    "eval",
    "sessions diff",
}
"""Documented shapes that the tests of the command check: it needs a server, a task or a model."""
NODES = {" ".join(one.path): one for one in read_command_tree().walk() if one.path}
FOLDERS = {"mail", "permissions", "config", "fleet", "schedule", "lab"}
"""Commands that only have others below them."""


def test_every_command_is_documented_or_known_to_print_no_data() -> None:
    documented = {_command_of(words) for words, _ in ROWS}
    assert NODES.keys() - FOLDERS == documented | WITHOUT_DATA
    assert not documented & WITHOUT_DATA


def test_every_documented_command_has_the_flag() -> None:
    documented = {_command_of(words) for words, _ in ROWS}
    lacking = [
        name for name in documented if not any("--json" in flag.names for flag in NODES[name].flags)
    ]
    assert lacking == []


def test_each_prints_the_documented_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with lab.server([{"say": "Hello.", "repeat": True}]) as api:
        program = Program(tmp_path / "work", tmp_path / "home", api.url)
        program.folder.mkdir()
        session = program.ask("hello", "--output-format", "json").result["session_id"]
        for name, value in program.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(program.folder)
        shapes = {}
        for words, _ in ROWS:
            if _command_of(words) in NEEDS_MORE:
                continue
            run_command_line([*words.replace("SESSION", session).split(), "--json"])
            shapes[words] = _shape_of(capsys.readouterr().out)
    wanted = {words: shape for words, shape in ROWS if _command_of(words) not in NEEDS_MORE}
    assert shapes == wanted


def _command_of(words: str) -> str:
    """Return the command that a line begins with, without its arguments."""
    return max((name for name in NODES if f"{words} ".startswith(f"{name} ")), key=len)


def _shape_of(text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        lines = [json.loads(line) for line in text.splitlines()]
        return "lines" if all(isinstance(line, dict) for line in lines) else "?"
    return "array" if isinstance(value, list) else "error" if "error" in value else "object"
