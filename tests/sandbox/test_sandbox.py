"""The promises of `Processes` hold behind walls too, and there are walls or there is no program."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.process.test_processes import descriptors, nap, others, sleepers, until, zombies
from tests.processes import run_past_timeout
from tests.sandbox.caged import SECONDS, Mode, found, play, run, scene, walls
from travois.ports.world import CapturedOutput, Command, ProcessResult
from travois.process.local_processes import LocalProcesses
from travois.sandbox import probe
from travois.sandbox.probe import SandboxSupport, find_sandbox_support

__all__ = ["nap", "others"]
MODES: tuple[Mode, ...] = ("full", "partial")
both = pytest.mark.parametrize("mode", MODES, ids=["bwrap", "landlock"])


# --- running --------------------------------------------------------------------------------------


@both
def test_a_program_runs_to_its_end_with_both_outputs_in_order(mode: Mode):
    with scene() as place:
        done = run(mode, place.sh("pwd; echo two >&2; exit 3"))
        said = f"{place.work}\ntwo\n".encode()
        assert done == ProcessResult(
            3, CapturedOutput(said, b"", len(said)), CapturedOutput(b"", b"", 0)
        )


@both
def test_streams_environment_and_what_is_said_aside_go_through(mode: Mode):
    with scene() as place:
        text = 'cat; echo "$MORE" >&2; echo quiet >&$EAR'
        more = {"stdin": b"in" * 300_000, "stderr": "apart", "aside": "EAR"}
        done = run(mode, place.sh(text, env={"MORE": "more"}, **more))
        assert (done.output.total, done.errors.head, done.aside) == (600_000, b"more\n", b"quiet\n")


@both
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_a_negative_status(mode: Mode, number: signal.Signals):
    with scene() as place:
        assert run(mode, place.sh(f"kill -{int(number)} $$")).status == -number


@both
def test_exit_codes_that_programs_choose_stay_theirs(mode: Mode):
    with scene() as place:
        codes = (1, 2, 126, 127, 128, 129, 255)  # git exits with 129 when it is misused
        assert [run(mode, place.sh(f"exit {code}")).status for code in codes] == [*codes]


@both
def test_a_program_has_no_descriptor_of_ours(mode: Mode):
    with scene() as place:
        done = run(mode, place.sh('ls /proc/self/fd | tr "\\n" " "'))
        assert done.output.head == b"0 1 2 3 "


@both
def test_the_workspace_and_a_private_temp_can_be_written(mode: Mode):
    with scene() as place:
        done = run(
            mode, place.sh('echo a > made; echo b > "$TMPDIR/made"; cat made "$TMPDIR/made"')
        )
        assert done.output.head == b"a\nb\n"
        assert (place.work / "made").read_text() == "a\n"
        assert Path(place.sandbox.temp, "made").read_text() == "b\n"


def test_what_was_in_tmp_is_not_there(tmp_path: Path):
    with scene() as place:
        done = run("full", place.sh(f"ls {tmp_path}; cd /var/tmp; echo x > /tmp/seen; cat seen"))
        assert done.output.head.endswith(b"No such file or directory\nx\n")


def test_a_workspace_in_tmp_is_there(tmp_path: Path):
    with scene() as place:
        cage = place.but(folders=(str(tmp_path),))
        command = Command(("/bin/sh", "-c", "echo x > made; pwd"), str(tmp_path), sandbox=cage)
        assert run("full", command).output.head == f"{tmp_path}\n".encode()
        assert (tmp_path / "made").read_text() == "x\n"


@both
def test_more_can_be_made_writable(mode: Mode):
    with scene() as place:
        cage = place.but(writable=(str(place.outside),))
        assert run(mode, place.sh(f"echo x > {place.outside}/made", sandbox=cage)).status == 0
        looking = msgspec.structs.replace(cage, profile="look")
        assert run(mode, place.sh(f"echo x > {place.outside}/more", sandbox=looking)).status == 1


def test_a_workspace_below_a_hidden_folder_is_there():
    with scene() as place:
        (place.work.parent / "hidden").write_text("x")
        cage = place.but(hidden=(str(place.work.parent),))
        done = run("full", place.sh(f"echo y > made; ls {place.work.parent}", sandbox=cage))
        assert (done.output.head, (place.work / "made").read_text()) == (b"work\n", "y\n")


@both
def test_a_folder_can_be_shown_in_a_hidden_one(mode: Mode):
    with scene() as place:
        for name in ("shown", "other"):
            (place.outside / name).mkdir()
            (place.outside / name / "text").write_text(name)
        cage = place.but(hidden=(str(place.outside),), shown=(f"{place.outside}/shown",))
        done = run(mode, place.sh(f"cd {place.outside}; cat shown/text other/text", sandbox=cage))
        assert done.output.head.startswith(b"showncat: other/text")


@both
def test_git_works_where_its_settings_and_hooks_are_pinned(mode: Mode):
    with scene() as place:
        subprocess.run(["git", "init", "-q", place.work], check=True)
        names = (".git/hooks", ".git/config", ".git/config.worktree", ".gitmodules", ".mcp.json")
        cage = place.but(pinned=tuple(f"{place.work}/{name}" for name in names))
        text = """
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
        echo x > file; git add -A; git commit -qm one; git switch -qc other; git stash list
        git status --short; git log --format=%s
        """
        assert run(mode, place.sh(text, sandbox=cage)).output.head == b"one\n"


# --- the network ----------------------------------------------------------------------------------

TALK = """
import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.send(b"hello"); print(server.accept()[0].recv(5).decode())
"""


def test_a_program_can_talk_to_itself_where_it_can_talk_to_nobody_else():
    with scene() as place:
        command = Command((sys.executable, "-c", TALK), str(place.work), sandbox=place.sandbox)
        assert run("full", command).output.head == b"hello\n"


@both
def test_a_program_that_may_reach_the_network_does(mode: Mode):
    with scene() as place:
        cage = place.but(network="on")
        command = Command((sys.executable, "-c", TALK), str(place.work), sandbox=cage)
        assert run(mode, command).output.head == b"hello\n"


# --- ending ---------------------------------------------------------------------------------------


@both
def test_a_timeout_lets_programs_say_goodbye(mode: Mode):
    async def act(processes: LocalProcesses) -> None:
        with scene() as place:
            text = "trap 'echo bye; exit 0' TERM; echo hello; while :; do :; done"
            done = await run_past_timeout(
                lambda seconds: processes.run(place.sh(text), timeout=seconds), said=b"hello\n"
            )
            assert done.output.head_and_tail() == b"hello\nbye\n"
            assert (done.timed_out, done.left_running) == (True, ())

    play(mode, act)


@both
def test_a_job_is_heard_and_ends_with_all_that_it_started(mode: Mode, nap: str):
    async def act(processes: LocalProcesses) -> None:
        with scene() as place:
            text = f"echo up; setsid sleep {nap} & (trap '' TERM; exec sleep {nap})"
            job = await processes.start(place.sh(text), id="job")
            await until(lambda: len(sleepers(nap)) == 2)
            said: list[bytes] = []
            await until(lambda: said.append(job.take_output().head) or said[-1])
            assert (said[-1], job.status) == (b"up\n", None)
            await job.kill()
            assert sleepers(nap) == []
            assert await job.wait() < 0

    play(mode, act)
    assert zombies() == []


@both
def test_cancelling_at_any_moment_leaves_nothing(mode: Mode, nap: str):
    async def act(processes: LocalProcesses) -> None:
        with scene() as place:
            command = place.sh(
                f"sleep {nap} & (setsid sleep {nap} &); sleep 0.01",
                sandbox=place.but(pinned=(f"{place.work}/.claude",)),
            )
            await processes.run(command, timeout=SECONDS)
            before = descriptors()
            for milliseconds in range(0, 30, 2):
                with anyio.move_on_after(milliseconds / 1000):
                    await processes.run(command, timeout=SECONDS)
                assert os.listdir(place.work) == []
            await processes.aclose()
            assert (sleepers(nap), zombies()) == ([], [])
            await until(lambda: descriptors() < before)  # the watchdog's leash went too

    play(mode, act)


HARNESS = """
import anyio, sys
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses
from travois.sandbox.probe import find_sandbox_support
from travois.permissions.sandbox_profile import SandboxProfile

async def main():
    processes = LocalProcesses(support=find_sandbox_support(None))
    work, temp, nap = sys.argv[1:]
    cage = SandboxProfile("work", (work,), temp, pinned=(work + "/.claude",))
    command = Command(("/bin/sh", "-c", f"exec sleep {nap}"), work, sandbox=cage)
    await processes.start(command, id="job")
    await anyio.sleep(60)

anyio.run(main)
"""


def test_a_harness_that_is_killed_takes_the_cage_along_and_leaves_nothing(nap: str):
    walls("full")
    with scene() as place:
        argv = [sys.executable, "-c", HARNESS, place.work, place.sandbox.temp, nap]
        with subprocess.Popen(argv) as harness:
            anyio.run(until, lambda: sleepers(nap))
            harness.kill()
        anyio.run(until, lambda: not sleepers(nap))
        assert os.listdir(place.work) == []


# --- what is pinned and missing -------------------------------------------------------------------


def test_what_is_missing_is_not_seen_and_what_appears_there_does_not_stay():
    with scene() as place:
        names = (".claude", ".git/hooks", "a/b/c")
        cage = place.but(pinned=tuple(f"{place.work}/{name}" for name in names))
        line = "find . -mindepth 1; mkdir -p a/b .claude; echo x > a/b/c; echo x > .claude/x"
        done = run("full", place.sh(line, sandbox=cage))
        assert (done.status, done.output.head_and_tail()) == (0, b"")
        assert sorted(path.name for path in place.work.rglob("*")) == ["a", "b"]


def test_what_appears_beside_a_command_that_runs_on_is_removed_and_told():
    async def act(processes: LocalProcesses) -> None:
        with scene() as place:
            pinned = place.work / ".claude"
            cage = place.but(pinned=(str(pinned),))
            line = "mkdir .claude; echo x > .claude/x; touch made; read x < /dev/zero"
            long = await processes.start(place.sh(line, sandbox=cage), id="long")
            await until((place.work / "made").exists)
            await processes.run(place.sh("true", sandbox=cage), timeout=SECONDS)
            assert not pinned.exists()
            assert ".claude" in processes.take_notices()[0]
            await long.kill()

    play("full", act)


@pytest.mark.parametrize(
    "deed", ["rm .claude; mkdir .claude", "ln -sfn /etc .claude", "rm .claude"]
)
@both
def test_a_pinned_link_is_put_back(deed: str, mode: Mode):
    with scene() as place:
        (place.work / "real").mkdir()
        (place.work / ".claude").symlink_to("real")
        cage = place.but(pinned=(f"{place.work}/.claude",))
        run(mode, place.sh(f"{deed}; echo x > .claude/made", sandbox=cage))
        assert (place.work / ".claude").readlink() == Path("real")
        assert os.listdir(place.work / "real") == []


@both
def test_where_nothing_can_stand_in_what_is_above_is_pinned(mode: Mode):
    with scene() as place:
        (place.work / ".git").write_text("gitdir: elsewhere\n")  # as in a worktree
        cage = place.but(pinned=(f"{place.work}/.git/hooks",))
        run(mode, place.sh("rm -f .git; mkdir -p .git/hooks; echo x > .git/hooks/h", sandbox=cage))
        assert (place.work / ".git").read_text() == "gitdir: elsewhere\n"


# --- no walls, no program -------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [None, SandboxSupport("none", "Sandbox: none")])
def test_without_walls_nothing_runs(behind: SandboxSupport | None):
    async def main() -> None:
        with scene() as place:
            processes = LocalProcesses(support=behind)
            with pytest.raises(OSError, match="no sandbox is available here"):
                await processes.run(place.sh("touch made"), timeout=SECONDS)
            with pytest.raises(OSError, match="no sandbox is available here"):
                await processes.start(place.sh("touch made"), id="job")
            await processes.aclose()
            assert os.listdir(place.work) == []

    anyio.run(main)


def test_a_cage_that_cannot_be_built_is_an_error_and_nothing_ran():
    with scene() as place:
        command = place.sh("touch made", sandbox=place.but(temp="/no/such/folder"))
        with pytest.raises(OSError, match=r"could not be built, so nothing ran: .*/no/such/folder"):
            run("full", command)
        assert os.listdir(place.work) == []


def test_sockets_that_come_and_go_while_walls_are_built_stop_no_command():
    with scene() as place, coming_and_going(place.outside):

        async def act(processes: LocalProcesses) -> None:
            for _ in range(10):
                done = await processes.run(place.sh("echo hi"), timeout=SECONDS)
                assert (done.status, done.output.head_and_tail()) == (0, b"hi\n")

        play("full", act)


@contextmanager
def coming_and_going(folder: Path) -> Iterator[None]:
    """Somebody who makes sockets in folders of their own, each for a few milliseconds."""
    over = threading.Event()

    def churn(number: int) -> None:
        while not over.wait(0):
            home = folder / f"{number}-{time.monotonic_ns()}"
            home.mkdir()
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(home / "s"))
                over.wait(0.004)
            shutil.rmtree(home)

    threads = [threading.Thread(target=churn, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_bwrap_that_a_program_could_have_written_is_not_used():
    behind = walls("full")
    with scene() as place:
        own = place.work / "bwrap"
        shutil.copy(behind.bwrap, own)

        async def main() -> None:
            processes = LocalProcesses(support=msgspec.structs.replace(behind, bwrap=str(own)))
            with pytest.raises(OSError, match="is in a folder that programs can write to"):
                await processes.run(place.sh("true"), timeout=SECONDS)
            await processes.aclose()

        anyio.run(main)


@both
@pytest.mark.parametrize(
    ("argv", "cwd", "kind", "words"),
    [
        (("no-such-program",), "", errno.ENOENT, "no such program"),
        (("/bin/true",), "/no/such", errno.ENOENT, "folder /no/such does not exist"),
        (("/etc/passwd",), "", errno.EACCES, "permission denied; is it executable?"),
        (("/bin/echo", "x" * 200_000), "", errno.E2BIG, "arguments are too long"),
        (("/bin/echo", "a\0b"), "", errno.EINVAL, "a NUL character"),
    ],
)
def test_a_program_that_cannot_start_says_why(
    mode: Mode, argv: tuple[str, ...], cwd: str, kind: int, words: str
):
    with scene() as place:
        cage = place.but(pinned=(f"{place.work}/.claude",))
        with pytest.raises(OSError, match=words) as caught:
            run(mode, Command(argv, cwd or str(place.work), sandbox=cage))
        assert (caught.value.errno, os.listdir(place.work)) == (kind, [])


# --- what this machine can do ---------------------------------------------------------------------


def test_what_was_found_is_remembered_until_the_machine_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cache, tried = tmp_path / "walls.json", list[tuple[str, ...]]()
    real = probe.probe_sandbox
    monkeypatch.setattr(probe, "probe_sandbox", lambda *found: tried.append(found) or real(*found))
    first = find_sandbox_support(cache)
    assert (find_sandbox_support(cache), find_sandbox_support(cache), len(tried)) == (
        first,
        first,
        1,
    )
    cache.write_bytes(b"{}")
    assert (find_sandbox_support(cache), len(tried)) == (first, 2)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    find_sandbox_support(cache)
    assert len(tried) == 3


def test_a_bwrap_of_the_workspace_or_of_a_relative_folder_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "bwrap"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"bin::{tmp_path / 'bin'}")
    bundled = (probe.find_bundled_bwrap(),)
    assert probe.find_bwrap("") == (str(own), *bundled)
    assert probe.find_bwrap(str(tmp_path)) == bundled
    monkeypatch.setenv("PATH", "bin:")
    assert probe.find_bwrap("") == bundled


def test_without_bubblewrap_the_line_says_what_is_lost_and_how_to_mend_it():
    behind = probe.probe_sandbox()
    expected = "partial" if found().kind != "none" else "none"
    assert behind.kind == expected
    assert behind.line.startswith(
        f"Sandbox: {expected} (no namespaces: bubblewrap is not installed"
    )


def test_a_bwrap_that_fails_is_passed_over_for_one_that_works(tmp_path: Path):
    if found().kind != "full":
        pytest.skip("no bwrap works on this machine")
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert probe.probe_sandbox(str(broken), found().bwrap).bwrap == found().bwrap


def test_a_bwrap_that_fails_is_no_sandbox(tmp_path: Path):
    broken = tmp_path / "bwrap"
    broken.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2; exit 1\n"
    )
    broken.chmod(0o755)
    behind = probe.probe_sandbox(str(broken))
    assert (behind.kind in ("partial", "none"), behind.bwrap) == (True, "")
    assert "No permissions to create new namespace; `travois doctor`" in behind.line
