"""Streams that are closed, terminals that know no accents, folders whose names are no text."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from signal import SIGINT

import travois_lab as lab
from tests.e2e.program import Done, Program

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
        "The prompt does not fit into the context window"
    ]


def test_a_log_that_cannot_grow_is_told_once_and_the_run_goes_on(program: Program) -> None:
    program.launcher = ("sh", "-c", 'ulimit -f 64 && exec "$@"', "sh", *program.launcher)
    with lab.server(["word " * 10_000]) as api:
        program.url = api.url
        done = program.ask("go")
    assert (done.code, done.out.strip()) == (0, ("word " * 10_000).strip())
    assert done.err.count("The session could not be saved: ") == 1
    assert "continues in memory only" in done.err and "were not saved" in done.err
    (log,) = program.logs()
    assert log.read_bytes().endswith(b"}\n"), "no torn line is left"


def test_a_long_wait_for_a_server_is_said(program: Program) -> None:
    with lab.server(["ok"]) as api:
        program.url = api.url
        api.fault({"http": {"status": 503, "headers": {"retry-after": "1"}}}, n=1)
        done = program.ask("go")
    assert (done.code, done.out) == (0, "ok\n")
    assert done.err.endswith("; retrying in 1 s\n")


def test_a_folder_that_is_gone_is_said(program: Program) -> None:
    place = program.folder / "gone"
    script = 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"'
    program.launcher = ("sh", "-c", script, str(place), *program.launcher)
    told = "travois: The current folder no longer exists\n  Change to another folder.\n"
    assert program.run("doctor") == Done(2, "", told)
    assert program.run("-p", "go") == Done(2, "", told)


def test_an_interrupt_amid_the_start_ends_it_without_a_traceback(program: Program) -> None:
    program.launcher = (sys.executable, "-X", "importtime", "-m", "travois")
    child = program.start("-p", "go")
    assert child.stderr is not None
    while b"msgspec._utils" not in child.stderr.readline():
        pass
    child.send_signal(SIGINT)
    out, err = child.communicate(timeout=300)
    assert (child.returncode in (130, -SIGINT), out) == (True, b"")
    assert b"Traceback" not in err
