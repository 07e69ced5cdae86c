"""Runs that another program starts, kills and starts again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.program import Program, kinds
from tests.e2e.test_faults import wait_for
from tests.processes import running
from travois.core.facts import Ended, User

ID = "11111111-2222-4333-8444-555555555555"
OK = {"say": [{"text": "ok"}], "repeat": True}
QUICK = '{"retry":{"attempts":2,"maxWait":0.01}}'
STARTER = "import subprocess, sys; child = subprocess.Popen(sys.argv[1:]); child.wait()"
"""A parent that starts the program and waits for it."""


def sleeping(seconds: float) -> dict[str, object]:
    command = f"touch up; sleep {seconds}"
    return {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}


def begin_and_kill(program: Program, *args: str, number: int = signal.SIGKILL) -> None:
    """Start a run and kill it while its command runs."""
    child = program.start(*args)
    wait_for(program.folder / "up")
    child.send_signal(number)
    child.communicate(timeout=300)


# --- going on without a prompt -------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_turn_goes_on_without_a_prompt(program: Program, number: int) -> None:
    with program.served([sleeping(59.31), OK]) as api:
        begin_and_kill(
            program, "-p", "the task", *program.model, "--allowedTools", "Bash", number=number
        )
        done = program.run("-p", "-c", *program.model)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        assert len(api.ledger) == 2
        api.append_only()
        api.no_orphans()
    said = [
        e.fact for e in program.facts() if isinstance(e.fact, User) and e.fact.origin == "human"
    ]
    assert len(said) == 1


def test_a_finished_turn_is_shown_again_without_a_request(program: Program) -> None:
    with program.served([{"say": [{"text": "Four."}]}]) as api:
        first = program.ask("2 + 2?", "--output-format", "json").result
        done = program.run("-p", "-c", *program.model, "--output-format", "json")
        assert len(api.ledger) == 1
    assert done.code == 0 and "nothing was interrupted" in done.err
    same = ("result", "outcome", "num_turns", "total_cost_usd", "usage", "session_id")
    assert {key: done.result[key] for key in same} == {key: first[key] for key in same}
    assert kinds(program.facts())[-1] == "Ended"


def test_a_finished_answer_keeps_its_form(program: Program) -> None:
    answer = {"tool_use": {"name": "StructuredOutput", "input": {"tests": 3}}}
    schema = '{"type":"object","properties":{"tests":{"type":"integer"}},"required":["tests"]}'
    with program.served([{"say": [answer]}, OK]) as api:
        given = ("--json-schema", schema, "--output-format", "json")
        assert program.ask("how many?", *given).result["structured_output"] == {"tests": 3}
        asked = len(api.ledger)
        again = program.run("-p", "-c", *program.model, *given)
        assert len(api.ledger) == asked
    assert again.result["structured_output"] == {"tests": 3}


def test_a_turn_that_failed_goes_on(program: Program) -> None:
    with program.served([OK]) as api:
        api.fault({"http": {"status": 529, "type": "overloaded_error"}}, every=1)
        assert program.ask("Paint it blue.", "--settings", QUICK).code == os.EX_TEMPFAIL
        api.world.faults.rules.clear()
        assert program.run("-p", "-c", *program.model).out == "ok\n"
        assert str(api.bodies[-1]).count("Paint it blue.") == 1


def test_a_session_without_a_prompt_has_nothing_to_go_on_with(program: Program) -> None:
    with program.served([OK]):
        assert program.ask("go", "-n", "Bertha").code == 0
        empty = program.run("-p", "-r", "Bertha", "--fork-session", *program.model)
        assert empty.code == 0  # a copy has the same last turn
        done = program.run("-p", "--resume-or-create", ID, *program.model)
    assert done.code == 2 and "nothing to go on with" in done.err


# --- a prompt that is sent once ------------------------------------------------------------------


def test_the_same_command_line_creates_goes_on_and_shows_the_result(program: Program) -> None:
    words = ("-p", "the task", *program_flags(), "--allowedTools", "Bash")
    with program.served([sleeping(59.32), OK]) as api:
        words = (*words, *program.model)
        begin_and_kill(program, *words)
        assert program.run(*words).out == "ok\n"
        assert program.run(*words).out == "ok\n"
        assert len(api.ledger) == 2
        api.append_only()
        other = program.run("-p", "more", "--resume-or-create", ID, *program.model)
        assert other.out == "ok\n" and len(api.ledger) == 3
    assert [path.parent.name for path in program.logs()] == [ID]


def program_flags() -> tuple[str, ...]:
    return ("--resume-or-create", ID, "--prompt-id", "task-1")


def test_a_session_killed_at_its_first_entry_is_created_again(program: Program) -> None:
    with program.served([OK]):
        assert program.ask("go", "--session-id", ID).code == 0
        (log,) = program.logs()
        log.write_bytes(log.read_bytes()[:20])
        done = program.ask("go", "--resume-or-create", ID)
    assert (done.code, done.out) == (0, "ok\n"), done.err


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--resume-or-create", "7"), "not a UUID"),
        (("--resume-or-create", ID, "-c"), "--continue"),
        (("--resume-or-create", ID, "--session-id", ID), "--session-id"),
    ],
)
def test_contradictions_are_refused(program: Program, flags: tuple[str, ...], why: str) -> None:
    done = program.run("-p", "go", *flags)
    assert done.code == 2 and why in done.err


# --- exit codes and outcomes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "outcome", "status", "script", "flags"),
    [
        (0, "done", 0, OK, ()),
        (1, "failed", 402, OK, ()),
        (4, "limit", 0, {**sleeping(0), "repeat": True}, ("--max-turns", "1")),
        (5, "refused", 0, {"say": [{"text": "No."}], "stop": "refusal", "repeat": True}, ()),
        (75, "retryable", 529, OK, ("--settings", QUICK)),
        (75, "retryable", 429, OK, ("--settings", QUICK)),
    ],
)
def test_the_code_and_the_json_tell_how_it_ended(
    program: Program, code: int, outcome: str, status: int, script: object, flags: tuple[str, ...]
) -> None:
    with program.served([script]) as api:
        if status:
            api.fault({"http": {"status": status}}, every=1)
        for shape in ("json", "stream-json"):
            done = program.ask("go", *flags, "--output-format", shape)
            assert (done.code, done.result["outcome"]) == (code, outcome), done.err


def test_an_interrupted_run_says_so(program: Program) -> None:
    with program.served([sleeping(59.33)]):
        words = ("--allowedTools", "Bash", "--output-format", "json")
        child = program.start("-p", "go", *program.model, *words)
        wait_for(program.folder / "up")
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=300)
    assert child.returncode == 143 and b'"outcome":"interrupted"' in out


# --- limits over several runs --------------------------------------------------------------------


def test_limits_can_hold_for_a_session_over_several_runs(program: Program) -> None:
    with program.served([{**sleeping(0), "repeat": True}]) as api:
        flags = ("--allowedTools", "Bash", "--limits", "session", "--output-format", "json")
        first = program.ask("go", "--max-turns", "2", *flags)
        assert (first.code, len(api.ledger)) == (4, 2)
        assert program.run("-p", "-c", *program.model, "--max-turns", "2", *flags).code == 4
        assert len(api.ledger) == 2  # nothing is sent past the limit
        again = program.run("-p", "-c", *program.model, "--max-turns", "3", *flags)
        assert (again.result["outcome"], len(api.ledger)) == ("limit", 3)
        program.run("-p", "-c", *program.model, "--max-turns", "3", *flags[:2])
        assert len(api.ledger) == 6  # without it, turns count for one run


def test_seconds_count_on_after_a_kill(program: Program) -> None:
    with program.served([sleeping(59.37), OK]) as api:
        begin_and_kill(program, "-p", "go", *program.model, "--allowedTools", "Bash")
        flags = ("--limits", "session", "--max-seconds", "0.000001")
        done = program.run("-p", "-c", *program.model, *flags)
        assert (done.code, len(api.ledger)) == (4, 1), done.err


# --- rate limits ---------------------------------------------------------------------------------


def test_rate_limits_are_told_to_other_programs(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "limits.jsonl"
    program.extra = {"TRAVOIS_RATE_LIMITS_FILE": str(file)}
    with program.served([OK]) as api:
        api.fault({"http": {"status": 429, "type": "rate_limit_error"}}, n=1)
        assert program.ask("go", "--settings", QUICK).out == "ok\n"
        first = json.loads(file.read_text().splitlines()[0])
    assert (first["url"], first["status"]) == (api.url, 429)


# --- parents and leases --------------------------------------------------------------------------


def start_below_a_parent(program: Program, *flags: str) -> subprocess.Popen[bytes]:
    words = (*program.launcher, "-p", "go", *program.model, "--allowedTools", "Bash", *flags)
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, *words],
        cwd=program.folder,
        env=program.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for_end(program: Program, command: str) -> None:
    """Wait until the turn has ended and the command is gone."""
    for _ in range(2000):
        if not running(command) and kinds(program.facts())[-1] == "Ended":
            return
        time.sleep(0.01)
    raise AssertionError(f"{command} still runs")


def test_a_run_ends_with_its_parent_if_asked_to(program: Program) -> None:
    with program.served([sleeping(59.34), OK]):
        parent = start_below_a_parent(program, "--die-with-parent")
        wait_for(program.folder / "up")
        parent.kill()
        parent.wait()
        wait_for_end(program, "sleep 59.34")
    last = program.facts()[-1].fact
    assert isinstance(last, Ended) and last.why == "aborted"


def test_a_run_outlives_its_parent_otherwise(program: Program) -> None:
    with program.served([sleeping(3), OK]):
        parent = start_below_a_parent(program)
        wait_for(program.folder / "up")
        parent.kill()
        parent.wait()
        wait_for_end(program, "sleep 3")
    last = program.facts()[-1].fact
    assert isinstance(last, Ended) and last.why == "end"


def test_a_parent_that_died_before_is_noticed(program: Program) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    program.extra = {"TRAVOIS_PARENT_PID": str(gone.pid)}
    with program.served([sleeping(59.35), OK]):
        done = program.ask("go", "--die-with-parent", "--allowedTools", "Bash")
    assert done.code in (143, -signal.SIGTERM) and "parent process ended" in done.err
    assert not running("sleep 59.35")


@pytest.mark.parametrize("way", ["withdrawn", "expired"])
def test_a_run_ends_with_its_lease(program: Program, tmp_path: Path, way: str) -> None:
    lease = tmp_path / "lease"
    lease.write_text(str(time.time() + 3600))
    with program.served([sleeping(59.36), OK]):
        words = ("-p", "go", *program.model, "--allowedTools", "Bash", "--lease", str(lease))
        child = program.start(*words)
        wait_for(program.folder / "up")
        if way == "withdrawn":
            lease.unlink()
        else:
            lease.write_text(str(time.time() - 1))
        _, err = child.communicate(timeout=300)
        assert child.returncode == 143 and way in err.decode()
        lease.write_text(str(time.time() + 3600))
        assert program.run("-p", "-c", *program.model, "--lease", str(lease)).out == "ok\n"
    assert not running("sleep 59.36")


def test_a_background_run_has_no_parent_to_die_with(program: Program) -> None:
    done = program.run("--bg", "go", "--die-with-parent")
    assert done.code == 2 and "--die-with-parent" in done.err
