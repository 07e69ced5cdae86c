"""The promises of `Processes`, kept by real programs."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.processes import COUNT, TIMEOUTS, children, run_past_timeout, running
from travois.ports.world import CapturedOutput, Command, ProcessResult
from travois.process import reap as reaper
from travois.process import spawn as spawning
from travois.process.environment import build_child_environment
from travois.process.local_processes import LocalProcesses
from travois.process.output import OutputCapture

SECONDS = 180.0
"""Far beyond what anything here takes: only a defect waits for it."""

ESCAPES = {
    "background": "sleep {} &",
    "nohup": "nohup sleep {} >/dev/null 2>&1 &",
    "setsid": "setsid sleep {} &",
    "double-fork": "(setsid sh -c 'sleep {} & exit' >/dev/null 2>&1 &)",
    "daemon": (
        f"{sys.executable} -c 'import os, time\n"
        'os.fork() and os._exit(0)\nos.setsid()\nos.fork() and os._exit(0)\nos.chdir("/")\n'
        "for fd in range(3): os.close(fd)\n"
        'os.execvp("sleep", ["sleep", "{}"])\''
    ),
    "disown": "sleep {} & disown",
    "substitution": "exec 9> >(exec sleep {})",
    "deaf": "(trap '' TERM HUP; exec sleep {}) &",
    "stripped": "env -i sleep {} &",
}


def play(scene: Callable[[LocalProcesses], Awaitable[None]]) -> None:
    """Run a scene, and end everything that it leaves."""

    async def main() -> None:
        processes = LocalProcesses()
        try:
            await scene(processes)
        finally:
            await processes.aclose()

    anyio.run(main)


def sh(text: str, **more: object) -> Command:
    return Command(("/bin/bash", "-c", text), "/", **more)  # type: ignore[arg-type]


@pytest.fixture
def nap() -> Iterator[str]:
    """A duration that nobody else sleeps for, by which a sleeper is known."""
    token = f"{random.randrange(10**6, 10**9)}.5"
    yield token
    for pid in sleepers(token):
        os.kill(pid, signal.SIGKILL)


def sleepers(token: str) -> list[int]:
    return running(f"sleep {token}")


async def until(happened: Callable[[], object]) -> None:
    with anyio.fail_after(SECONDS):
        while not happened():  # noqa: ASYNC110 - it happens outside of us
            await anyio.sleep(0.01)


async def asleep(token: str, count: int = 1) -> None:
    await until(lambda: len(sleepers(token)) >= count)


def gone(token: str) -> bool:
    """Whether they all vanish within the five seconds that we promise."""
    until = time.monotonic() + 120
    while sleepers(token) and time.monotonic() < until:
        time.sleep(0.02)
    return not sleepers(token)


@pytest.fixture(autouse=True)
def others() -> None:
    """What other tests left to this process, which adopts orphans, is not ours to count."""
    OTHERS.clear()
    OTHERS.update(zombies())


OTHERS: set[int] = set()


def zombies() -> list[int]:
    ended = (one.pid for one in children(os.getpid()) if one.state == "Z")
    return [pid for pid in ended if pid not in OTHERS]


def stranger(text: str) -> subprocess.Popen[bytes]:
    """A child of this process that was not started by us."""
    return subprocess.Popen(["sh", "-c", text], start_new_session=True)


def watchdogs() -> set[int]:
    return {one.pid for one in children(os.getpid()) if "travois-watchdog" in one.command}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- running --------------------------------------------------------------------------------------


def test_a_program_runs_to_its_end_with_both_outputs_in_order():
    async def scene(processes: LocalProcesses) -> None:
        done = await processes.run(sh("echo one; echo two >&2; exit 3"), timeout=SECONDS)
        none = CapturedOutput(b"", b"", 0)
        assert done == ProcessResult(3, CapturedOutput(b"one\ntwo\n", b"", 8), none)

    play(scene)


def test_errors_can_come_apart():
    async def scene(processes: LocalProcesses) -> None:
        done = await processes.run(sh("echo one; echo two >&2", stderr="apart"), timeout=SECONDS)
        assert (done.output.head_and_tail(), done.errors.head_and_tail()) == (b"one\n", b"two\n")

    play(scene)


def test_a_program_reads_what_it_is_given_and_then_the_end():
    async def scene(processes: LocalProcesses) -> None:
        given_ = await processes.run(sh("cat; cat", stdin=b"x" * 3_000_000), timeout=SECONDS)
        nothing = await processes.run(sh("cat; read x || echo end"), timeout=SECONDS)
        assert (given_.output.total, nothing.output.head) == (3_000_000, b"end\n")

    play(scene)


def test_what_a_program_says_aside_reaches_us_alone():
    async def scene(processes: LocalProcesses) -> None:
        command = sh('echo loud; echo quiet >&$EAR; echo "$EAR" | wc -c', aside="EAR")
        done = await processes.run(command, timeout=SECONDS)
        assert (done.output.head, done.aside) == (b"loud\n4\n", b"quiet\n")

    play(scene)


def test_a_signal_is_a_negative_status():
    async def scene(processes: LocalProcesses) -> None:
        assert (await processes.run(sh("kill -9 $$"), timeout=SECONDS)).status == -9

    play(scene)


def test_whoever_watches_sees_output_as_it_comes():
    async def scene(processes: LocalProcesses) -> None:
        seen: list[bytes] = []
        command = sh("echo one; read x < /dev/zero & sleep 0.05; echo two; kill %1")
        await processes.run(command, timeout=SECONDS, on_output=seen.append)
        assert seen[:2] == [b"one\n", b"two\n"]

    play(scene)


def test_a_reader_gets_every_byte_in_order():
    async def scene(processes: LocalProcesses) -> None:
        seen: list[bytes] = []

        def reader(chunk: bytes) -> bool:
            seen.append(chunk)
            return True

        done = await processes.run(sh("seq 1 1000000"), timeout=SECONDS, reader=reader)
        assert b"".join(seen) == b"".join(b"%d\n" % number for number in range(1, 1_000_001))
        assert (done.status, done.cut, done.timed_out) == (0, False, False)
        assert (await processes.run(sh("true"), timeout=SECONDS, reader=reader)).status == 0

    play(scene)


def test_a_program_whose_reader_has_enough_is_ended(nap: str):
    async def scene(processes: LocalProcesses) -> None:
        taken: list[int] = []

        def reader(chunk: bytes) -> bool:
            taken.append(len(chunk))
            return False

        command = sh(f"sleep {nap} & yes")
        done = await processes.run(command, timeout=SECONDS, reader=reader)
        assert (len(taken), done.cut, done.timed_out, done.left_running) == (1, True, False, ())
        assert done.output.total < 4 * 1024 * 1024
        assert sleepers(nap) == []

    play(scene)


def test_a_reader_of_a_program_that_takes_too_long_keeps_what_it_got(nap: str):
    async def scene(processes: LocalProcesses) -> None:
        for timeout in TIMEOUTS:
            seen: list[bytes] = []

            def reader(chunk: bytes, seen: list[bytes] = seen) -> bool:
                seen.append(chunk)
                return True

            done = await processes.run(sh(f"echo one; sleep {nap}"), timeout=timeout, reader=reader)
            if seen:
                break
        assert (b"".join(seen), done.cut, done.timed_out) == (b"one\n", False, True)
        assert sleepers(nap) == []

    play(scene)


def test_a_reader_that_fails_ends_the_program_and_the_failure_is_seen(nap: str):
    async def scene(processes: LocalProcesses) -> None:
        def reader(chunk: bytes) -> bool:
            raise ZeroDivisionError

        command = sh(f"echo one; sleep {nap}")
        with pytest.raises(ZeroDivisionError):
            await processes.run(command, timeout=SECONDS, reader=reader)
        assert sleepers(nap) == []

    play(scene)


def test_many_programs_run_side_by_side():
    async def scene(processes: LocalProcesses) -> None:
        said: dict[int, bytes] = {}

        async def one(number: int) -> None:
            done = await processes.run(sh(f"sleep 0.01; echo {number}"), timeout=SECONDS)
            said[number] = done.output.head

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(one, number)
        assert said == {number: b"%d\n" % number for number in range(40)}

    play(scene)


def test_the_end_is_noticed_without_help_of_the_kernel(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pidfd_open")

    async def scene(processes: LocalProcesses) -> None:
        assert (await processes.run(sh("sleep 0.02; exit 4"), timeout=SECONDS)).status == 4
        assert (await processes.run(sh("sleep 60"), timeout=0.05)).timed_out

    play(scene)
    assert zombies() == []


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (Command(("no-such-program",), "/"), errno.ENOENT, "no such program"),
        (Command(("/bin/true",), "/no/such"), errno.ENOENT, "folder /no/such does not exist"),
        (Command(("/etc/passwd",), "/"), errno.EACCES, "permission denied; is it executable?"),
        (Command(("/bin/echo", "x" * 200_000), "/"), errno.E2BIG, "arguments are too long"),
        (Command(("/bin/echo", "a\0b"), "/"), errno.EINVAL, "a NUL character"),
        (Command(("/bin/echo", "\ud800"), "/"), errno.EINVAL, "invalid text"),
    ],
)
def test_a_program_that_cannot_start_says_why(command: Command, kind: int, words: str):
    async def scene(processes: LocalProcesses) -> None:
        before = descriptors()
        with pytest.raises(OSError, match=words) as caught:
            await processes.run(command, timeout=SECONDS)
        assert (caught.value.errno, descriptors()) == (kind, before + 1)  # the watchdog's leash

    play(scene)


# --- environment ----------------------------------------------------------------------------------


def test_secrets_stay_with_us():
    ours = {
        "ACME_API_KEY": "1",
        "GITHUB_TOKEN": "2",
        "AWS_SESSION_TOKEN": "3",
        "DATABASE_URL": "4",
        "DB_PASSWORD": "5",
        "client_secret": "6",
        "BASH_ENV": "7",
        "GIT_DIR": "8",
        "HOME": "/home/me",
        "SSH_AUTH_SOCK": "/run/agent",
        "PAGER": "less",
    }
    kept = build_child_environment(ours, passed=("GITHUB_TOKEN",))
    assert {name: value for name, value in kept.items() if name in ours} == {
        "GITHUB_TOKEN": "2",
        "HOME": "/home/me",
        "SSH_AUTH_SOCK": "/run/agent",
        "PAGER": "cat",
    }


def test_a_child_gets_the_clean_environment_and_what_the_command_adds(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SOME_SECRET", "s")

    async def scene(processes: LocalProcesses) -> None:
        text = 'echo "$SOME_SECRET,$TERM,$GIT_TERMINAL_PROMPT,$EXTRA"'
        done = await processes.run(sh(text, env={"EXTRA": "e"}), timeout=SECONDS)
        assert done.output.head == b",dumb,0,e\n"

    play(scene)


def test_a_child_has_a_session_of_its_own_and_no_descriptor_of_ours():
    async def scene(processes: LocalProcesses) -> None:
        fd = os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(fd, True)
        leads = "set -- $(cat /proc/$$/stat); [ $6 = $$ ] && echo leads"
        text = f'{leads}; ls /proc/self/fd | tr "\\n" " "'
        done = await processes.run(sh(text), timeout=SECONDS)
        os.close(fd)
        assert done.output.head == b"leads\n0 1 2 3 "

    play(scene)


def test_a_harness_within_a_harness_leaves_both_marks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(reaper.JOB_MARK_VARIABLE, "outer-1-")

    async def scene(processes: LocalProcesses) -> None:
        done = await processes.run(sh(f"echo ${reaper.JOB_MARK_VARIABLE}"), timeout=SECONDS)
        assert done.output.head.startswith(b"outer-1-")
        assert len(done.output.head) > len("outer-1-") + 16

    play(scene)


# --- output ---------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 30))
def test_a_capture_keeps_the_head_and_the_tail_of_any_stream(chunks: list[bytes], keep: int):
    capture = OutputCapture(keep)
    for chunk in chunks:
        capture.add(memoryview(chunk))
    whole = b"".join(chunks)
    rest = whole[keep:]
    head, tail = whole[:keep], rest[max(0, len(rest) - keep) :]
    missing = whole.count(b"\n") - head.count(b"\n") - tail.count(b"\n")
    assert capture.to_captured() == CapturedOutput(head, tail, len(whole), missing_lines=missing)


@given(st.text(max_size=30), st.lists(st.integers(0, 100), max_size=8))
def test_fresh_output_never_ends_within_a_character(text: str, cuts: list[int]):
    data = text.encode()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    capture, start, said = OutputCapture(1000), 0, ""
    for end in ends:
        capture.add(memoryview(data[start:end]))
        said += capture.take_new(ended=end == len(data)).head_and_tail().decode()
        start = end
    assert said == text


def test_a_flood_is_counted_whole_and_kept_in_part():
    async def scene(processes: LocalProcesses) -> None:
        text = "echo start; head -c 100000000 /dev/zero; echo; echo end"
        before = resident()
        done = await processes.run(sh(text, keep=1000), timeout=SECONDS)
        assert done.output.total == 100_000_000 + len(b"start\n\nend\n")
        assert done.output.head == b"start\n" + bytes(994)
        assert done.output.tail == bytes(995) + b"\nend\n"
        assert resident() - before < 8_000_000

    play(scene)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# --- ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["timeout", "cancel", "kill", "close"])
def test_nothing_escapes(way: str, nap: str):
    escapes = " \n".join(escape.replace("{}", nap) for escape in ESCAPES.values())
    command = sh(f"{escapes}\nsleep {nap}")

    async def scene(processes: LocalProcesses) -> None:
        if way == "timeout":
            assert (await processes.run(command, timeout=1.0)).timed_out
        elif way == "cancel":
            async with anyio.create_task_group() as group:
                group.start_soon(processes_run, processes, command)
                await asleep(nap, len(ESCAPES) + 1)
                group.cancel_scope.cancel()
        else:
            job = await processes.start(command, id="job")
            await asleep(nap, len(ESCAPES) + 1)
            await (job.kill() if way == "kill" else processes.aclose())
            assert await job.wait() < 0
        assert sleepers(nap) == []
        assert zombies() == []

    play(scene)


async def processes_run(processes: LocalProcesses, command: Command) -> None:
    await processes.run(command, timeout=SECONDS)


def test_what_a_quick_parent_leaves_is_found_on_a_slow_machine(
    nap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = spawning.spawn_process

    def slow(command: Command, surroundings: spawning.SpawnContext) -> spawning.StartedProcess:
        started = real(command, surroundings)
        while not sleepers(nap):  # the parent has ended by now, or is about to
            time.sleep(0.01)
        time.sleep(0.2)
        return started

    async def scene(processes: LocalProcesses) -> None:
        done = await processes.run(sh(f"(sleep {nap} >/dev/null 2>&1 &)"), timeout=SECONDS)
        assert set(sleepers(nap)) <= set(done.left_running) != set()

    monkeypatch.setattr(spawning, "spawn_process", slow)
    play(scene)


@pytest.mark.parametrize("escape", ESCAPES)
def test_what_is_left_behind_is_told_and_ends_with_the_session(escape: str, nap: str):
    async def scene(processes: LocalProcesses) -> None:
        seen = f"until [ $({COUNT.format(nap)}) -ge 1 ]; do :; done"
        text = ESCAPES[escape].replace("{}", nap) + "\n" + seen
        done = await processes.run(sh(text), timeout=SECONDS)
        assert set(sleepers(nap)) <= set(done.left_running) != set()
        await processes.aclose()
        assert sleepers(nap) == []

    play(scene)
    assert zombies() == []


def test_what_is_left_behind_can_go_on_writing(tmp_path: Path):
    async def scene(processes: LocalProcesses) -> None:
        go = tmp_path / "go"
        wait = f"until [ -e {go} ]; do sleep 0.02; done"
        writer = f"head -c 5000000 /dev/zero; {wait}; echo more && echo fine > {tmp_path}/said"
        done = await processes.run(sh(f"({writer}) & echo started"), timeout=SECONDS)
        assert done.status == 0 and done.left_running
        go.touch()
        await until((tmp_path / "said").exists)

    play(scene)


def test_a_timeout_keeps_what_was_said_and_lets_programs_say_goodbye():
    async def scene(processes: LocalProcesses) -> None:
        text = "trap 'echo bye; exit 0' TERM; echo hello; while :; do :; done"
        done = await run_past_timeout(
            lambda seconds: processes.run(sh(text), timeout=seconds), said=b"hello\n"
        )
        assert done.output.head_and_tail() == b"hello\nbye\n"
        assert (done.timed_out, done.left_running) == (True, ())

    play(scene)


def test_a_program_that_ends_in_time_is_not_late_because_of_what_it_left(nap: str):
    async def scene(processes: LocalProcesses) -> None:
        for _ in range(20):  # on a busy machine the program itself may be late
            done = await processes.run(sh(f"sleep {nap} & exit 5"), timeout=0.05)
            assert sleepers(nap) == []
            if not done.timed_out:
                break
        assert (done.status, done.timed_out) == (5, False)

    play(scene)


def test_cancelling_at_any_moment_leaves_nothing(nap: str):
    chance = random.Random(7)
    text = f"sleep {nap} & (setsid sleep {nap} &) ; sleep 0.004; echo x"

    async def scene(processes: LocalProcesses) -> None:
        await processes.run(sh("true"), timeout=SECONDS)
        before = descriptors()
        for _ in range(200):
            with anyio.move_on_after(chance.uniform(0, 0.012)):
                await processes.run(sh(text), timeout=SECONDS)
        assert sleepers(nap) == []
        assert (descriptors(), zombies()) == (before, [])
        assert len(anyio.get_running_tasks()) == 1

    play(scene)


def test_the_children_of_others_are_not_touched():
    async def scene(processes: LocalProcesses) -> None:
        await processes.run(sh("true"), timeout=SECONDS)
        ended, alive = stranger("exit 7"), stranger("exec sleep 60")
        for _ in range(3):
            await processes.run(sh("(sleep 0.01 &); sleep 0.02"), timeout=SECONDS)
        await processes.aclose()
        assert (ended.wait(), alive.poll()) == (7, None)
        alive.kill()
        alive.wait()

    play(scene)


def test_an_orphan_that_has_ended_is_buried():
    async def scene(processes: LocalProcesses) -> None:
        await processes.run(sh("(sh -c 'sleep 0.02 & exit' &); sleep 0.05"), timeout=SECONDS)
        await processes.run(sh("(setsid sleep 0.15 >/dev/null 2>&1 &)"), timeout=SECONDS)
        await anyio.sleep(0.2)
        await processes.run(sh("true"), timeout=SECONDS)
        assert zombies() == []

    play(scene)


def test_without_a_proc_the_process_group_ends(monkeypatch: pytest.MonkeyPatch, nap: str):
    monkeypatch.setattr(reaper, "HAS_PROC", False)

    async def scene(processes: LocalProcesses) -> None:
        done = await processes.run(sh(f"sleep {nap} & sleep {nap}"), timeout=0.1)
        assert (done.timed_out, sleepers(nap)) == (True, [])

    play(scene)


# --- jobs -----------------------------------------------------------------------------------------


def test_a_job_tells_each_piece_of_its_output_once():
    async def scene(processes: LocalProcesses) -> None:
        job = await processes.start(sh("echo one; read x < /dev/zero & wait"), id="job")
        said: list[CapturedOutput] = []
        await until(lambda: said.append(job.take_output()) or said[-1].total)
        assert (said[-1].head, job.take_output().total, job.status) == (b"one\n", 0, None)
        assert processes.jobs() == {"job": job}
        await job.kill()
        assert job.status is not None

    play(scene)


def test_a_job_ends_by_itself_with_its_status():
    async def scene(processes: LocalProcesses) -> None:
        job = await processes.start(sh("echo done; exit 6"), id="job")
        assert (await job.wait(), job.status, job.take_output().head) == (6, 6, b"done\n")
        await job.kill()
        assert job.status == 6

    play(scene)


def test_a_job_that_floods_stays_small_and_says_what_was_missed():
    async def scene(processes: LocalProcesses) -> None:
        job = await processes.start(sh("yes", keep=1000), id="job")
        await anyio.sleep(0.2)
        before = resident()
        await anyio.sleep(0.5)
        assert resident() - before < 4_000_000
        output = job.take_output()
        assert (output.head, len(output.tail)) == (b"y\n" * 500, 1000)
        assert output.missing_bytes == output.total - 2000 > 0

    play(scene)


# --- the end of the harness -----------------------------------------------------------------------

HARNESS = """
import anyio, sys
from travois.ports.world import Command
from travois.process.local_processes import LocalProcesses

async def main():
    processes = LocalProcesses()
    await processes.start(Command(("/bin/bash", "-c", sys.argv[1]), "/"), id="job")
    print("up", flush=True)
    await anyio.sleep(float(sys.argv[2]))

anyio.run(main)
"""


@pytest.mark.parametrize("end", ["killed", "returned"])
def test_nothing_outlives_a_harness_that_could_not_clean_up(end: str, nap: str):
    escapes = " \n".join(escape.replace("{}", nap) for escape in ESCAPES.values())
    seconds = "60" if end == "killed" else "1"
    argv = [sys.executable, "-c", HARNESS, f"{escapes}\nsleep {nap}", seconds]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as harness:
        anyio.run(asleep, nap, len(ESCAPES) + 1)
        if end == "killed":
            harness.kill()
    assert gone(nap)


def test_a_harness_within_a_harness_ends_with_everything(nap: str):
    escapes = " \n".join(escape.replace("{}", nap) for escape in ESCAPES.values())
    inner = (sys.executable, "-c", HARNESS, f"{escapes}\nsleep {nap}", "60")

    async def scene(processes: LocalProcesses) -> None:
        job = await processes.start(Command(inner, "/"), id="inner")
        await asleep(nap, len(ESCAPES) + 1)
        await job.kill()
        assert sleepers(nap) == []

    play(scene)


def test_the_watchdog_goes_with_us():
    before = watchdogs()

    async def scene(processes: LocalProcesses) -> None:
        await processes.run(sh("true"), timeout=SECONDS)
        assert len(watchdogs() - before) == 1
        await processes.aclose()
        assert watchdogs() <= before

    play(scene)


# --- outputs that are too large to be held ------------------------------------------------------


def test_a_large_output_is_in_its_file_whole_and_without_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ACME_API_KEY", "k3y-of-mine")
    text = "for n in $(seq 2000); do echo $n k3y-''of-mine; done"
    want = "".join(f"{n} [redacted: ACME_API_KEY]\n" for n in range(1, 2001))

    async def scene(processes: LocalProcesses) -> None:
        file = tmp_path / "kept" / "a.txt"
        command = replace(sh(text), keep=1000, whole=str(file))
        done = await processes.run(command, timeout=SECONDS)
        assert (done.output.file, file.read_text()) == (str(file), want)
        assert file.stat().st_mode & 0o777 == 0o600
        small = replace(sh("echo x"), whole=str(tmp_path / "b.txt"))
        assert (await processes.run(small, timeout=SECONDS)).output.file == ""
        assert not (tmp_path / "b.txt").exists()

    play(scene)


def test_an_output_that_cannot_be_written_is_kept_as_far_as_memory_goes(tmp_path: Path):
    (tmp_path / "file").touch()

    async def scene(processes: LocalProcesses) -> None:
        whole = tmp_path / "file" / "a.txt"
        command = replace(sh("seq 2000"), keep=1000, whole=str(whole))
        done = await processes.run(command, timeout=SECONDS)
        assert (done.output.file, done.output.head[:4]) == ("", b"1\n2\n")

    play(scene)


@pytest.mark.parametrize("flood", ["yes", "cat /dev/zero", "cat /dev/urandom", "(yes & yes) | cat"])
def test_a_program_that_says_more_than_may_be_written_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flood: str
):
    monkeypatch.setattr("travois.process.output.MAX_SPOOL_BYTES", 5_000_000)
    file, ticks = tmp_path / "a.txt", tmp_path / "ticks"

    async def scene(processes: LocalProcesses) -> None:
        text = f"(while echo >> {ticks}; do sleep 0.05; done) & {flood}"
        command = replace(sh(text), keep=1000, whole=str(file))
        done = await processes.run(command, timeout=SECONDS)
        assert (done.cut, done.timed_out, done.output.is_capped) == (True, False, True)
        assert (done.output.file, file.stat().st_size) == (str(file), 5_000_000)
        assert (len(done.output.head), len(done.output.tail)) == (1000, 1000)
        assert done.output.total < 5_000_000 + 32 * 1024 * 1024
        before = ticks.stat().st_size  # all that it started is gone, too
        await anyio.sleep(0.3)
        assert ticks.stat().st_size == before

    play(scene)


def test_an_output_of_just_as_much_as_may_be_written_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("travois.process.output.MAX_SPOOL_BYTES", 8893)

    async def scene(processes: LocalProcesses) -> None:
        command = replace(sh("seq 2000"), keep=1000, whole=str(tmp_path / "a.txt"))
        done = await processes.run(command, timeout=SECONDS)
        assert (done.status, done.output.file) == (0, str(tmp_path / "a.txt"))
        assert (tmp_path / "a.txt").stat().st_size == 8893

    play(scene)
