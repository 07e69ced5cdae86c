"""Monitor, TaskOutput, TaskStop and BashInput, with real programs."""

from __future__ import annotations

import os
import random
import resource
import sys
from pathlib import Path

import anyio
import pytest

from tests.processes import running
from tests.tools.test_shell import play, told
from tests.tools.world import World
from travois.core.facts import Changed
from travois.permissions.access import Access
from travois.permissions.sandbox_profile import SandboxProfile
from travois.ports.tool import ToolError
from travois.tools.shell.background import (
    BASH_INPUT,
    BASH_OUTPUT,
    MONITOR_JOB,
    TASK_OUTPUT,
    TASK_STOP,
)
from travois.tools.shell.bash import BASH

MEGABYTE = 1024 * 1024


async def begin(world: World, command: str) -> None:
    await world.call(BASH, command=command, run_in_background=True)


def test_a_line_in_a_flood_is_found_and_memory_stays_bounded(tmp_path: Path) -> None:
    flood = "head -c 300000000 /dev/zero | tr '\\0' 'x' | fold -w 99"

    async def scene(world: World) -> None:
        await begin(
            world, f"until [ -e go ]; do sleep 0.05; done; {flood}; echo; echo needle; {flood}"
        )
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        async with anyio.create_task_group() as group:
            group.start_soon(find, world)
            await anyio.sleep(0.2)
            world.write("go", "")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        assert grown < 100 * MEGABYTE

    async def find(world: World) -> None:
        found = await world.call(MONITOR_JOB, task_id="bash_1", pattern="^needle$")
        assert told(found).startswith("bash_1 printed: needle\n")

    play(tmp_path, scene)


def test_what_was_printed_before_and_not_read_counts_at_once(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await begin(world, "printf 'a \\033[32mready\\033[0m now\\nlogin: '; sleep 600")
        half = await world.call(MONITOR_JOB, task_id="bash_1", pattern="^login: $")
        assert told(half) == "bash_1 printed: login: \nrunning\na ready now\nlogin: "
        again = await world.call(MONITOR_JOB, task_id="bash_1", pattern="ready", timeout=100)
        assert told(again).startswith("Waited 0.1 s for bash_1: no line matched 'ready'.")

    play(tmp_path, scene)


def test_the_end_is_seen_with_and_without_a_pattern(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await begin(world, "sleep 0.2; echo over; exit 3")
        ended = await world.call(MONITOR_JOB, task_id="bash_1", pattern="nothing")
        assert told(ended) == "bash_1 ended. No line matched 'nothing'.\nexit code 3\nover"
        assert ended.changes == (Changed("job:bash_1", "exit code 3"),)
        again = await world.call(MONITOR_JOB, task_id="bash_1")
        assert told(again) == "bash_1 ended.\nexit code 3\n(no new output)"

    play(tmp_path, scene)


def test_a_bad_pattern_is_refused_whatever_there_is_and_loses_no_output(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await begin(world, "echo kept; sleep 600")
        await world.call(MONITOR_JOB, task_id="bash_1", pattern="nothing", timeout=1)
        for _ in range(2):
            with pytest.raises(ToolError, match="filter is not a valid regular expression"):
                await world.call(BASH_OUTPUT, bash_id="bash_1", filter="(")
        with pytest.raises(ToolError, match="pattern is not a valid regular expression"):
            await world.call(MONITOR_JOB, task_id="bash_1", pattern="[")
        with pytest.raises(ToolError, match="until is not a valid regular expression"):
            await world.call(BASH_INPUT, id="bash_1", until="[")

    play(tmp_path, scene)


def test_a_wait_ends_when_there_is_something_to_say_to_the_model(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await begin(world, "sleep 600")
        world.has_mail = True
        for tool in (MONITOR_JOB, TASK_OUTPUT):
            outcome = await world.call(tool, task_id="bash_1", timeout=600_000)
            assert "The wait ended early: you have a new message." in told(outcome)

    play(tmp_path, scene)


def test_what_ignores_a_polite_word_is_stopped_all_the_same(tmp_path: Path) -> None:
    nap = f"{random.randrange(10**6, 10**9)}.5"

    async def scene(world: World) -> None:
        await begin(world, f"trap '' TERM INT HUP; setsid sleep {nap} & sleep {nap}; sleep {nap}")
        stopped = await world.call(TASK_STOP, task_id="1")
        assert told(stopped) == "Killed bash_1 and all processes it had started."
        assert running(f"sleep {nap}") == []
        with pytest.raises(ToolError, match=r"no background task 'x'\. Tasks: bash_1\."):
            await world.call(TASK_STOP, task_id="x")

    play(tmp_path, scene)


def test_a_task_is_not_waited_for_unless_that_is_asked(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await begin(world, "sleep 600")
        now = await world.call(TASK_OUTPUT, task_id="bash_1", block=False, timeout=600_000)
        assert told(now) == "running\n(no new output)"

    play(tmp_path, scene)


def test_a_detached_command_goes_on_where_it_was_and_shows_only_what_is_new(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        command = "printf 'caf\\303'; until [ -e go ]; do sleep 0.05; done; printf '\\251\\n'; cd /"
        late = await world.call(BASH, command=command, timeout=500)
        assert told(late).startswith("caf\n[Still running after 0.5 s")
        assert (late.error, late.changes) == (False, (Changed("job:bash_1", "running"),))
        world.write("go", "")
        ended = await world.call(TASK_OUTPUT, task_id="bash_1")
        assert told(ended) == "exit code 0\né"
        assert world.cwd == str(world.folder)

    play(tmp_path, scene)


def test_commands_that_outlive_their_timeouts_at_once_have_names_of_their_own(
    tmp_path: Path,
) -> None:
    async def scene(world: World) -> None:
        async def late() -> None:
            await world.call(BASH, command="sleep 600", timeout=300)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(late)
        assert list(world.processes.jobs()) == ["bash_1", "bash_2", "bash_3"]

    play(tmp_path, scene)


# --- terminals ------------------------------------------------------------------------------------


def test_a_terminal_has_a_size_and_what_it_shows_is_plain(tmp_path: Path) -> None:
    colours = "printf '\\033[31mred\\033[0m\\033]0;title\\007 50%%\\r100%%\\n'"

    async def scene(world: World) -> None:
        shown = await world.call(BASH, command=f"stty size; tty -s && {colours}", tty=True)
        assert told(shown) == "exit code 0\n40 120\n100%"
        assert (shown.changes, shown.error) == ((), False)
        failed = await world.call(BASH, command="exit 3", tty=True)
        assert (told(failed), failed.error) == ("exit code 3\n(no new output)", True)

    play(tmp_path, scene)


def test_many_lines_arrive_whole_and_a_line_that_cannot_is_refused(tmp_path: Path) -> None:
    lines = "".join(f"line {n}\n" for n in range(1_000))

    async def scene(world: World) -> None:
        await world.call(BASH, command="stty -echo; echo up; cat > got", tty=True)
        await world.call(BASH_INPUT, id="bash_1", text=lines)
        with pytest.raises(ToolError, match="exceeds the terminal's limit of 4,095 bytes"):
            await world.call(BASH_INPUT, id="bash_1", text="x" * 5_000 + "\n")
        ended = await world.call(BASH_INPUT, id="bash_1", text="\x04", until="no such line")
        assert told(ended).startswith("exit code 0")
        assert world.bytes("got").decode() == lines

    play(tmp_path, scene)


def test_a_program_that_reads_nothing_does_not_hang_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("travois.process.job.TYPING_TIMEOUT_SECONDS", 0.2)

    async def scene(world: World) -> None:
        await world.call(BASH, command="echo up; sleep 600", tty=True)
        with pytest.raises(ToolError, match="bash_1 does not read"):
            await type_for_ever(world)

    async def type_for_ever(world: World) -> None:
        for _ in range(100):
            await world.call(BASH_INPUT, id="bash_1", text="y\n" * 10_000, wait_ms=0)

    play(tmp_path, scene)


def test_without_a_terminal_only_an_interrupt_gets_through(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await begin(world, f"exec {sys.executable} -c 'import time; time.sleep(600)'")
        with pytest.raises(ToolError, match="Start it with Bash and tty: true"):
            await world.call(BASH_INPUT, id="bash_1", text="1\n")
        await anyio.sleep(0.5)
        ended = await world.call(BASH_INPUT, id="bash_1", text="\x03", wait_ms=60_000)
        assert told(ended).startswith("ended by SIGINT")

    play(tmp_path, scene)


def test_an_ended_program_is_told_of_and_takes_nothing(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.call(BASH, command="echo up; read x; exit 5", tty=True)
        ended = await world.call(BASH_INPUT, id="bash_1", text="go\n", until="no such line")
        assert told(ended).startswith("exit code 5")
        again = await world.call(BASH_INPUT, id="bash_1", text="go\n")
        assert told(again) == "exit code 5\n(no new output)"
        assert not os.listdir(world.folder)

    play(tmp_path, scene)


def test_typing_is_judged_as_the_command_with_the_text_for_input(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await world.call(BASH, command="cat", tty=True, timeout=300, sandbox="network")
        net = Access("net", "any host")
        given = Access("exec", "{ cat\n} <<'INPUT_'\nINPUT\n\nINPUT_")
        assert world.access(BASH_INPUT, id="1", text="INPUT\n") == (given, net)
        assert world.access(BASH_INPUT, id="bash_1", text="\x03\x04") == ()
        assert world.access(BASH_INPUT, id="bash_1") == ()
        await world.call(BASH, command="PS1=x bash --norc", tty=True, timeout=300)
        typed = world.access(BASH_INPUT, id="bash_2", text="rm x\n")
        assert [access.target for access in typed] == [
            "{ PS1=x bash --norc\n} <<'INPUT'\nrm x\n\nINPUT",
            "rm x\n",
        ]
        world.processes.jobs()["bash_2"].sandbox = SandboxProfile("look", folders=(), temp="/tmp")
        assert world.access(BASH_INPUT, id="bash_2", text="rm x\n") == ()

    play(tmp_path, scene)
