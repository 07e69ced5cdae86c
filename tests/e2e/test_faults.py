"""What a provider or the world does wrong, and what a user sees of it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import Program, kinds
from tests.processes import running
from travois.core.facts import Assistant, Ended, Failed, Result

OK = {"say": [{"text": "ok"}], "repeat": True}
QUICK = '{"retry":{"attempts":4,"maxWait":0.05},"timeouts":{"idle":0.5,"firstByte":2,"local":0.5}}'
BOTH = pytest.mark.parametrize("protocol", ["anthropic", "chat"])
PASSING = {
    "rate limited": {"http": {"status": 429, "headers": {"retry-after": "0"}}},
    "overloaded": {"http": {"status": 529, "type": "overloaded_error"}},
    "server error": {"http": {"status": 500, "type": "api_error"}},
    "an error page": {"http": {"status": 502, "body_raw": "<html><h1>Bad gateway</h1></html>"}},
    "cut": "disconnect",
    "truncated": "truncate",
    "silence": {"stall": {"s": 3}},
    "an error in the stream": {"sse_error": {"type": "overloaded_error"}},
}


@BOTH
@pytest.mark.parametrize("what", PASSING)
def test_a_passing_fault_is_tried_again(program: Program, protocol: str, what: str) -> None:
    program.protocol = protocol
    with program.served([OK]) as api:
        api.fault(PASSING[what], n=1)
        done = program.ask("go", "--settings", QUICK)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        assert len(api.ledger) == 2
        first, second = (exchange.body for exchange in api.ledger)
    assert first == second
    assert kinds(program.facts()).count("Failed") == 1


@BOTH
def test_a_call_cut_in_the_middle_is_never_run(program: Program, protocol: str) -> None:
    program.protocol = protocol
    use = {"tool_use": {"name": "Bash", "input": {"command": "touch ran; echo " + "x" * 200}}}
    for bytes_read in range(150, 1500, 75):
        with program.served([{"say": [use], "repeat": True}]) as api:
            api.fault("disconnect", after={"bytes": bytes_read})
            done = program.ask(
                "go", "--settings", QUICK, "--allowedTools", "Bash", "--max-turns", "1"
            )
        if done.code:  # the reply never came whole
            assert not (program.folder / "ran").exists()
        (program.folder / "ran").unlink(missing_ok=True)


def test_a_fault_for_ever_gives_up_with_a_code_and_a_session(program: Program) -> None:
    with program.served([OK]) as api:
        api.fault({"http": {"status": 529, "type": "overloaded_error"}}, every=1)
        done = program.ask("go", "--settings", QUICK)
        assert done.code == 75 and "overloaded" in done.err.lower()
        assert len(api.ledger) == 4
        api.world.faults.rules.clear()
        assert program.ask("now?", "-c").out == "ok\n"
        api.no_orphans()


REFUSED = {401: "authentication_error", 403: "permission_error", 402: "billing_error"}


@pytest.mark.parametrize("status", REFUSED)
def test_a_refusal_is_told_at_once(program: Program, status: int) -> None:
    with program.served([OK]) as api:
        error = {"status": status, "type": REFUSED[status], "message": "no such luck"}
        api.fault({"http": error}, every=1)
        done = program.ask("go")
        assert done.code == 1 and "no such luck" in done.err
        assert len(api.ledger) == 1


def test_no_server_is_told_in_words(program: Program) -> None:
    program.url = "http://127.0.0.1:9"
    done = program.ask("go", "--settings", QUICK)
    assert done.code == 75
    assert "127.0.0.1:9" in done.err and "Traceback" not in done.err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_session_to_resume(
    program: Program, number: signal.Signals, code: int
) -> None:
    sleep = {"say": [{"tool_use": {"name": "Bash", "input": {"command": "touch up; sleep 59.25"}}}]}
    with program.served([sleep, OK]) as api:
        child = program.start("-p", "go", *program.model, "--allowedTools", "Bash")
        wait_for(program.folder / "up")
        child.send_signal(number)
        child.communicate(timeout=300)
        assert child.returncode == code
        (result,) = [e.fact for e in program.facts() if isinstance(e.fact, Result)]
        assert result.error
        last = program.facts()[-1].fact
        assert isinstance(last, Ended) and last.why == "aborted"
        assert program.ask("go on", "-c").out == "ok\n"
        api.no_orphans()
        api.append_only()
    assert not running("sleep 59.25")


def test_a_full_disk_is_told_and_loses_nothing(program: Program, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"this machine does not let us mount: {mounted.stderr.decode().strip()}")
    try:
        program.home = disk / "home"
        with program.served([OK]) as api:
            assert program.ask("one").code == 0
            (disk / "filler").write_bytes(b"x" * (256 * 1024 - used(disk)))
            done = program.ask("y" * 30_000, "-c")
            assert (done.code, done.out) == (0, "ok\n"), done.err
            assert "the disk is full" in done.err and "were not saved" in done.err
            (disk / "filler").unlink()
            assert program.ask("two", "-c").out == "ok\n"
            api.no_orphans()
        replies = [e for e in program.facts() if isinstance(e.fact, Assistant)]
        assert len(replies) == 2
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def used(disk: Path) -> int:
    stat = os.statvfs(disk)
    return (stat.f_blocks - stat.f_bavail) * stat.f_frsize


def wait_for(path: Path) -> None:
    for _ in range(2000):
        if path.exists():
            return
        subprocess.run(["sleep", "0.01"], check=True)
    raise AssertionError(f"{path} never came")


def test_failures_are_facts(program: Program) -> None:
    with program.served([OK]) as api:
        api.fault({"http": {"status": 500, "type": "api_error", "message": "boom"}}, n=1)
        program.ask("go", "--settings", QUICK)
    (failed,) = [e.fact for e in program.facts() if isinstance(e.fact, Failed)]
    assert (failed.kind, failed.status, failed.attempt) == ("server", 500, 1)
    assert failed.wait >= 0
