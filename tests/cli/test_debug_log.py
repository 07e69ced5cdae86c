"""`--debug` writes what happens to a file; `update` and `uninstall` say what there is."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import travois_lab as lab
from tests.cli.commanding import run
from tests.e2e.program import Program
from travois.cli import update

KEY = "sk-lab-0123456789abcdefghijklmn"
SCRIPT = [
    {
        "when": {"last_text": "list"},
        "say": [{"tool_use": {"name": "Bash", "input": {"command": "ls"}}}],
    },
    {"say": "Done.", "repeat": True},
]


@pytest.mark.parametrize("named", [False, True])
def test_the_log_has_facts_programs_and_connections_and_no_secret(
    named: bool, tmp_path: Path
) -> None:
    file = tmp_path / "chosen.log"
    (tmp_path / "work").mkdir()
    with lab.server(SCRIPT) as api:
        program = Program(tmp_path / "work", tmp_path / "home", api.url)
        program.extra = {"ANTHROPIC_API_KEY": KEY}
        flags = ("--debug-file", str(file)) if named else ("--debug",)
        done = program.ask(f"list, and forget {KEY}", *flags)
    path = file if named else next((tmp_path / "home" / "debug").iterdir())
    assert f"travois: the debug log is {path}\n" in done.err
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    shown = ("start    travois 0.", "fact     ", '"type":"decided"', "program  ", "connect  ")
    assert [part for part in shown if part not in text] == []
    assert KEY not in text


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    program = Program(tmp_path / "work", tmp_path / "home")
    done = program.run("-p", "hello", "--debug-file", "/dev/null/log")
    assert (done.code, done.out) == (2, "")
    assert "The debug log /dev/null/log cannot be written" in done.err


def test_uninstall_names_the_folders_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "a").write_text("four")
    assert run(update, "uninstall", "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["folders"] == {str(tmp_path / "home"): 4}
    assert run(update, "uninstall") == 0
    assert f"rm -r {tmp_path / 'home'}" in capsys.readouterr().out
    assert os.listdir(tmp_path / "home") == ["a"]


def test_update_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(update, "update", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told.keys() == {"version", "installed", "command"}
    assert run(update, "update") == 0
    assert told["command"] in capsys.readouterr().out
