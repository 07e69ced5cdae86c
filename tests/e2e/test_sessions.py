"""Continue, resume, fork, move, audit: what a log is good for."""

from __future__ import annotations

import subprocess
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.program import Program, kinds, read

OK = {"say": [{"text": "ok"}], "repeat": True}
BOTH = pytest.mark.parametrize("protocol", ["anthropic", "chat"])


def session_id(program: Program) -> str:
    (log,) = program.logs()
    return log.parent.name


@BOTH
def test_continuing_sends_the_same_bytes_and_more(program: Program, protocol: str) -> None:
    program.protocol = protocol
    with program.served([OK]) as api:
        for prompt in ("one", "two", "three"):
            assert program.ask(prompt, *(("-c",) if prompt != "one" else ())).code == 0
        api.append_only()
        assert len(program.logs()) == 1


def test_resuming_reads_the_whole_prefix_from_the_cache(program: Program) -> None:
    with program.served([OK]) as api:
        program.ask("x " * 4000)
        program.ask("again", "--resume", session_id(program))
        first, second = api.ledger
        assert second.usage.read >= 0.99 * first.usage.write > 0


def test_a_session_is_found_by_its_name_and_by_a_part_of_its_id(program: Program) -> None:
    with program.served([OK]) as api:
        program.ask("one")
        id = session_id(program)
        assert program.run("sessions", "rename", id, "my work").code == 0
        assert program.ask("two", "--resume", "my work").code == 0
        assert program.ask("three", "--resume", id[:8]).code == 0
        assert program.logs() == [next(iter(program.logs()))]
        api.append_only()


def test_a_fork_shares_the_prefix_and_leaves_its_parent_alone(program: Program) -> None:
    with program.served([OK]) as api:
        program.ask("one")
        (parent,) = program.logs()
        before = parent.read_bytes()
        wanted = str(uuid4())
        done = program.ask("two", "-c", "--fork-session", "--session-id", wanted)
        assert done.code == 0, done.err
        assert parent.read_bytes() == before
        assert program.ask("three", "--resume", wanted).code == 0
        api.append_only()
    assert {log.parent.name for log in program.logs()} == {parent.parent.name, wanted}
    fork = next(log for log in program.logs() if log.parent.name == wanted)
    assert kinds(read(fork))[:3] == ["Opened", "User", "Sent"]


def test_a_given_session_id_is_used_once(program: Program) -> None:
    wanted = str(uuid4())
    with program.served([OK]):
        assert program.ask("one", "--session-id", wanted).code == 0
        again = program.ask("two", "--session-id", wanted)
        assert again.code == 2 and "already exists" in again.err
    assert session_id(program) == wanted


def test_a_moved_repository_still_finds_its_sessions(program: Program, tmp_path: Path) -> None:
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run([*git, "init", "-q"], cwd=program.folder, check=True)
    commit = ("commit", "-q", "--allow-empty", "-m", "first")
    subprocess.run([*git, *commit], cwd=program.folder, check=True)
    with program.served([OK]) as api:
        program.ask("one")
        moved = tmp_path / "elsewhere"
        program.folder.rename(moved)
        program.folder = moved
        assert program.ask("two", "-c").code == 0
        api.append_only()
        assert len(program.logs()) == 1


def test_a_moved_plain_folder_still_finds_its_sessions(program: Program, tmp_path: Path) -> None:
    with program.served([OK]):
        program.ask("one")
        moved = tmp_path / "elsewhere"
        program.folder.rename(moved)
        program.folder = moved
        assert program.ask("two", "-c").code == 0
        assert len(program.logs()) == 1


def test_the_shell_stays_where_it_was_after_a_resume(program: Program) -> None:
    (program.folder / "deep").mkdir()
    script = [
        {"say": [{"tool_use": {"name": "Bash", "input": {"command": "cd deep"}}}]},
        {"say": [{"text": "moved"}]},
        {"say": [{"tool_use": {"name": "Bash", "input": {"command": "pwd"}}}]},
        {"when": {"tool_result": {"contains": "/work/deep"}}, "say": [{"text": "still there"}]},
    ]
    with program.served(script):
        program.ask("go", "--allowedTools", "Bash")
        assert program.ask("where", "-c", "--allowedTools", "Bash").out == "still there\n"


def test_a_second_writer_is_refused_and_told_to_fork(program: Program) -> None:
    slow = [{"say": [{"tool_use": {"name": "Bash", "input": {"command": "read x < fifo"}}}]}, OK]
    subprocess.run(["mkfifo", str(program.folder / "fifo")], check=True)
    with program.served(slow) as api:
        first = program.start("-p", "go", *program.model, "--allowedTools", "Bash")
        api.requests(1)
        second = program.ask("me too", "-c")
        (program.folder / "fifo").write_text("go\n")
        first.communicate()
        assert first.returncode == 0
    assert second.code == 2 and "--fork-session" in second.err


def test_nothing_said_leaves_nothing_behind(program: Program) -> None:
    done = program.run("-p", "hello", "--model", "claude-opus-5-5")
    assert done.code == 2 and "ANTHROPIC_API_KEY" in done.err
    assert program.logs() == []


def test_a_run_without_persistence_keeps_nothing(program: Program) -> None:
    with program.served([OK]):
        assert program.ask("one", "--no-session-persistence").out == "ok\n"
    assert program.logs() == []


@BOTH
def test_an_audit_derives_every_request_again(program: Program, protocol: str) -> None:
    program.protocol = protocol
    script = [
        {"say": [{"tool_use": {"name": "Glob", "input": {"pattern": "*"}}}]},
        {"say": [{"tool_use": {"name": "GitStatus", "input": {}}}]},
        OK,
    ]
    with program.served(script):
        program.ask("one")
        program.ask("two", "-c")
    done = program.run("audit", session_id(program))
    assert done.code == 0, done.out + done.err
    (log,) = program.logs()
    text = log.read_text()
    assert '"text":"ok"' in text
    log.write_text(text.replace('"digest":"', '"digest":"0', 1))
    assert program.run("audit", session_id(program)).code == 1
