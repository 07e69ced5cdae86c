"""Streams that are closed, terminals that know no accents, folders whose names are no text."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.program import Program
from travois import lab

ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
FREE = ("--permission-mode", "bypass")


def test_what_standard_output_cannot_show_is_replaced(program: Program) -> None:
    program.extra = ASCII
    with lab.server(["Grüße 🎉"]) as api:
        program.url = api.url
        done = program.ask("go")
    assert (done.code, done.out, done.err) == (0, "Gr??e ?\n", "")


def test_closed_streams_are_no_crash(program: Program) -> None:
    program.launcher = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *program.launcher)
    with lab.server(["ok"]) as api:
        program.url = api.url
        done = program.ask("go")
        assert len(api.ledger) == 1
    assert done.code == 0
    assert not (program.home / "crashes").exists()


def test_tools_work_in_a_folder_whose_name_is_no_text(program: Program) -> None:
    program.folder = Path(os.fsdecode(os.fsencode(program.folder) + b"/caf\xe9"))
    program.folder.mkdir()
    wanted = (
        {"name": "Write", "input": {"file_path": "a.txt", "content": "one\n"}},
        {"name": "Bash", "input": {"command": "cat a.txt"}},
    )
    script = [{"say": [{"tool_use": use}]} for use in wanted]
    with lab.server([*script, "Done."]) as api:
        program.url = api.url
        done = program.ask("go", "--output-format", "stream-json", *FREE)
        results = [body["messages"][-1]["content"][0] for body in api.bodies[1:]]
    assert done.result["result"] == "Done."
    assert [result.get("is_error", False) for result in results] == [False, False]
    assert results[1]["content"].startswith("one\n")


def test_a_prompt_that_cannot_be_taken_up_is_told_once(program: Program) -> None:
    with lab.server(["ok"]) as api:
        program.url = api.url
        done = program.ask("look", "--output-format", "json", stdin=b"words " * 1_600_000)
    assert done.code == 2 and done.err == ""
    assert [error.partition(":")[0] for error in done.result["errors"]] == [
        "The prompt does not fit into the model's window"
    ]


def test_a_long_wait_for_a_server_is_said(program: Program) -> None:
    with lab.server(["ok"]) as api:
        program.url = api.url
        api.fault({"http": {"status": 503, "headers": {"retry-after": "1"}}}, n=1)
        done = program.ask("go")
    assert (done.code, done.out) == (0, "ok\n")
    assert done.err.endswith("; trying again in 1 s\n")
