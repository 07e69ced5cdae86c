"""Runs in a warm server: nobody can tell them from runs of their own, except by the time."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.program import Program
from tests.e2e.test_faults import wait_for

OK = {"say": [{"text": "ok"}], "repeat": True}
SURROUNDINGS = (
    "pwd; umask; ulimit -n; echo $MARK; p=$PPID; "
    "while [ $p -gt 1 ]; do echo pid $p.; p=$(cut -d' ' -f4 /proc/$p/stat); done"
)


def shell(command: str) -> dict[str, object]:
    return {"say": [{"tool_use": {"name": "Bash", "input": {"command": command}}}]}


@pytest.fixture
def server(program: Program) -> Iterator[subprocess.Popen[bytes]]:
    """A warm server for the program's home."""
    child = program.start("serve", "--warm")
    assert child.stderr is not None
    assert b"ready" in child.stderr.readline()
    yield child
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 0
    child.communicate()
    assert not (program.home / "warm.sock").exists()


def ask(program: Program, *args: str, **how: Any) -> tuple[int, str, str]:
    done = program.ask("go", "--debug", *args, **how)
    kept = [line for line in done.err.splitlines(True) if "the debug log is" not in line]
    return done.code, done.out, "".join(kept)


def test_a_run_has_its_clients_surroundings(
    program: Program, server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    other = tmp_path / "other folder"
    other.mkdir()
    program.folder, program.extra = other, {"MARK": "of the client"}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare() -> None:
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))

    with program.served([shell(SURROUNDINGS), OK]) as api:
        words = ("-p", "go", "--debug", "--no-sandbox", "--permission-mode", "bypass")
        child = subprocess.run(
            [*program.launcher, *words, *program.model],
            cwd=other,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            preexec_fn=prepare,
            check=True,
        )
        said = str(api.bodies[1])
    assert child.stdout == b"ok\n"
    assert b"warm server" not in child.stderr
    assert f"{other}\\\\n0027\\\\n{soft - 1}\\\\nof the client\\\\n" in said or (
        f"{other}\\n0027\\n{soft - 1}\\nof the client\\n" in said
    )
    assert f"pid {server.pid}." in said


def test_results_and_codes_are_those_of_a_run_of_its_own(
    program: Program, server: subprocess.Popen[bytes]
) -> None:
    with program.served([OK]):
        program.ask("go")  # the first run of a home tries what the machine can do
        for args, stdin in (
            ((), None),
            (("--output-format", "codex-json"), None),
            ((), b"more from a pipe"),
            (("--bogus",), None),
            (("--max-turns", "0"), None),
        ):
            outcomes: list[tuple[object, ...]] = []
            for warm in ("1", "0"):
                program.extra = {"TRAVOIS_WARM": warm}
                done = program.ask("go", *args, stdin=stdin)
                text = "" if "codex-json" in args else done.out  # it names the session
                outcomes.append((done.code, text, len(done.out.splitlines()), done.err))
            assert outcomes[0] == outcomes[1]


def test_a_signal_to_the_client_stops_the_run(
    program: Program, server: subprocess.Popen[bytes]
) -> None:
    with program.served([shell("touch up; sleep 58.1"), OK]) as api:
        child = program.start("-p", "go", *program.model, "--allowedTools", "Bash")
        wait_for(program.folder / "up")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=300)
        assert child.returncode == 130
        done = program.run("-p", "-c", *program.model)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        api.no_orphans()


def test_a_run_ends_with_a_client_that_was_killed(
    program: Program, server: subprocess.Popen[bytes]
) -> None:
    with program.served([shell("touch up; sleep 57.3"), OK]) as api:
        child = program.start("-p", "go", *program.model, "--allowedTools", "Bash")
        wait_for(program.folder / "up")
        child.kill()
        child.communicate(timeout=300)
        ends = time.monotonic() + 60
        while _processes_of("sleep 57.3") and time.monotonic() < ends:
            time.sleep(0.05)
        assert not _processes_of("sleep 57.3")
        api.no_orphans()


def _processes_of(command: str) -> list[str]:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if line == command]


@pytest.mark.parametrize(
    ("extra", "flags", "why"),
    [
        ({"LANG": "de_DE.UTF-8"}, (), "another environment of the interpreter (LANG"),
        ({}, ("--die-with-parent",), "a flag binds this run"),
    ],
)
def test_a_run_that_is_not_like_the_server_runs_by_itself(
    program: Program,
    server: subprocess.Popen[bytes],
    extra: dict[str, str],
    flags: tuple[str, ...],
    why: str,
) -> None:
    program.extra = extra
    with program.served([OK]):
        code, out, err = ask(program, *flags)
        assert (code, out) == (0, "ok\n")
        assert "travois: not run by the warm server: " in err
        assert why in err
        assert program.ask("go", *flags).err == ""


def test_a_client_in_a_sandbox_stays_in_it(
    program: Program, server: subprocess.Popen[bytes]
) -> None:
    confine = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    program.launcher = (sys.executable, "-c", confine, *program.launcher)
    with program.served([OK]):
        code, out, err = ask(program)
    assert (code, out) == (0, "ok\n")
    assert "another namespace or sandbox" in err


def test_the_socket_is_private_and_its_server_alone(
    program: Program, server: subprocess.Popen[bytes]
) -> None:
    path = program.home / "warm.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    second = program.run("serve", "--warm")
    assert second.code == 2
    assert "already running" in second.err


def test_nonsense_does_not_end_the_server(
    program: Program, server: subprocess.Popen[bytes]
) -> None:
    for data in (b"", b"\0", b"\0\0\0\x04abcd", b"\xff" * 4_000):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(program.home / "warm.sock"))
            line.sendall(data)
    with program.served([OK]):
        assert ask(program) == (0, "ok\n", "")


def test_a_socket_without_a_server_is_no_obstacle(program: Program) -> None:
    program.home.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(program.home / "warm.sock"))
    with program.served([OK]):
        assert program.ask("go").out == "ok\n"
        child = program.start("serve", "--warm")
        assert child.stderr is not None
        assert b"ready" in child.stderr.readline()
        child.terminate()
        assert child.wait(60) == 0
        child.communicate()
