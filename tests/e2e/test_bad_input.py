"""Bad input gets one clear message, a non-zero exit, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program

OK = {"say": [{"text": "ok"}], "repeat": True}
BAD = {
    "no prompt": ((), "nothing to do"),
    "missing settings file": (("x", "--settings", "none.json"), "none.json cannot be read"),
    "broken settings": (("x", "--settings", '{"model": }'), "line 1, column 11"),
    "wrong kind of setting": (("x", "--settings", '{"maxTurns": "many"}'), "maxTurns"),
    "unknown mode": (("x", "--permission-mode", "wild"), "wild"),
    "bad rule": (("x", "--allowedTools", "Bash(ls"), "Bash(ls"),
    "missing folder": (("x", "--add-dir", "nowhere"), "nowhere is not a folder"),
    "bad session id": (("x", "--session-id", "7"), "not a UUID"),
    "unknown session": (("x", "--resume", "nothing"), "nothing"),
    "no session here": (("x", "--continue"), "travois"),
    "fork of nothing": (("x", "--fork-session"), "--continue or --resume"),
}


@pytest.mark.parametrize("case", BAD)
def test_one_clear_message_and_nothing_changed(program: Program, case: str) -> None:
    args, told = BAD[case]
    with lab.server([OK]) as api:
        program.url = api.url
        model = () if "--model" in args else program.model
        done = program.run("-p", *args, *model)
        assert len(api.ledger) == 0
    assert done.code == 2
    assert done.out == ""
    assert told in done.err
    assert "Traceback" not in done.err
    assert program.logs() == []


def test_an_unknown_model_names_the_nearest(program: Program) -> None:
    done = program.run("-p", "x", "--model", "claud-opus-5")
    assert (done.code, program.logs()) == (2, [])
    assert "Unknown model" in done.err and "claude-opus-5" in done.err


def test_no_key_says_which_to_set(program: Program) -> None:
    done = program.run("-p", "x", "--model", "anthropic/claude-opus-5-5")
    assert done.code == 2 and "ANTHROPIC_API_KEY" in done.err
    done = program.run("-p", "x", "--settings", '{"local":{"fallback":false}}')
    assert done.code == 2 and "OPENAI_API_KEY" in done.err


def test_an_unwritable_home_is_named(program: Program) -> None:
    program.home.parent.joinpath("file").write_text("not a folder")
    program.home = program.home.parent / "file" / "home"
    with program.served([OK]):
        done = program.ask("x")
    assert (done.code, done.out) == (0, "ok\n"), done.err
    assert str(program.home) in done.err


def test_a_prompt_beyond_the_window_is_not_sent(program: Program) -> None:
    with lab.server([OK]) as api:
        program.url = api.url
        done = program.ask("look", stdin=b"words " * 1_600_000)
        assert len(api.ledger) == 0
    assert done.code == 2 and "window" in done.err
    assert program.logs() == []


def test_more_than_ten_megabytes_are_refused(program: Program) -> None:
    done = program.ask("look", stdin=b"x" * 10_000_001)
    assert done.code == 2 and "10 MB" in done.err


def test_bad_lines_of_input_are_numbered(program: Program) -> None:
    with lab.server([OK]) as api:
        program.url = api.url
        flags = ("--input-format", "stream-json", "--output-format", "stream-json")
        done = program.run("-p", *program.model, *flags, stdin=b"\n{nonsense\n")
    assert done.code == 2 and "Line 2" in done.err


def test_a_broken_project_setting_names_its_file(program: Program) -> None:
    folder = program.folder / ".travois"
    folder.mkdir()
    (folder / "settings.json").write_text("{\n  nope\n}")
    done = program.run("-p", "x", "--model", "anthropic/claude-opus-5-5")
    assert done.code == 2 and "settings.json" in done.err and "line 2" in done.err


def test_what_a_tool_cannot_do_goes_back_to_the_model(program: Program, tmp_path: Path) -> None:
    (program.folder / "binary").write_bytes(bytes(range(256)) * 64)
    wanted = (
        {"name": "Read", "input": {"file_path": "missing.txt"}},
        {"name": "Read", "input": {"file_path": "binary"}},
        {"name": "Read", "input": {"where": "a.txt"}},
        {"name": "GitStatus", "input": {}},
        {"name": "Unheard", "input": {}},
        {"name": "Grep", "input": {"pattern": "x", "output_mode": "lines"}},
    )
    script = [{"say": [{"tool_use": use} for use in wanted]}, OK]
    with lab.server(script) as api:
        program.url = api.url
        assert program.ask("go").out == "ok\n"
        results = api.bodies[1]["messages"][-1]["content"]
        api.no_invalid()
    texts = [result["content"] for result in results]
    assert [result.get("is_error") for result in results] == [True] * 6
    assert "missing.txt" in texts[0]
    assert "binary" in texts[1]
    assert "file_path" in texts[2]
    assert "git" in texts[3].lower()
    assert "Unheard" in texts[4] and "Read" in texts[4]
    assert "output_mode (content | count | files_with_matches)" in texts[5]


def test_a_reader_that_leaves_early_is_no_crash(program: Program) -> None:
    with lab.server([OK]) as api:
        program.url = api.url
        child = program.start("-p", "x", *program.model, "--output-format", "stream-json")
        assert child.stdout is not None and child.stderr is not None
        child.stdout.close()
        errors = child.stderr.read().decode()
        child.wait(300)
    assert "Traceback" not in errors
    assert os.listdir(program.home / "sessions")


def test_nothing_runs_unasked_where_the_workspace_would_be_a_whole_home(program: Program) -> None:
    program.extra |= {"HOME": str(program.folder), "ANTHROPIC_API_KEY": "x"}
    for mode in ("bypass", "auto", "accept-edits"):
        done = program.ask("go", "--permission-mode", mode)
        assert (done.code, done.out) == (2, "")
        assert f"Mode {mode} cannot be used in {program.folder}" in done.err
        assert "Start in a project folder" in done.err
