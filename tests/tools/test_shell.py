"""Bash, BashOutput and KillShell, with real shells."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.processes import running
from tests.tools.world import World
from travois.context.tool_results import estimate_text_tokens
from travois.core.content import Text
from travois.core.facts import Changed
from travois.core.tokens import estimate_tokens
from travois.permissions.access import Access
from travois.ports.tool import ToolError, ToolOutcome
from travois.ports.world import CapturedOutput
from travois.process.local_processes import LocalProcesses
from travois.tools.output import ReadableOutput, make_readable
from travois.tools.shell import bash as shell
from travois.tools.shell.background import BASH_OUTPUT, KILL_SHELL
from travois.tools.shell.bash import BASH


def play(tmp_path: Path, scene: Callable[[World], Awaitable[None]]) -> World:
    world = World(tmp_path)

    async def main() -> None:
        world.processes = LocalProcesses()
        try:
            await scene(world)
        finally:
            await world.processes.aclose()

    anyio.run(main)
    return world


def bash(tmp_path: Path, *commands: str, **args: object) -> tuple[World, list[ToolOutcome]]:
    """Run these commands one after another; their outcomes, and the world after them."""
    outcomes: list[ToolOutcome] = []

    async def scene(world: World) -> None:
        for command in commands:
            outcome = await world.call(BASH, command=command, **args)
            outcomes.append(outcome)

    return play(tmp_path, scene), outcomes


def told(outcome: ToolOutcome) -> str:
    (block,) = outcome.content
    assert isinstance(block, Text)
    return block.text


def say(tmp_path: Path, command: str, **args: object) -> str:
    return told(bash(tmp_path, command, **args)[1][0])


# --- what a command gives -------------------------------------------------------------------------


def test_a_command_gives_its_output_in_order(tmp_path: Path):
    world, (outcome,) = bash(tmp_path, "echo one; echo two >&2; echo three")
    assert outcome == ToolOutcome(
        (Text("one\ntwo\nthree"),),
        detail=f'{{"exitCode":0,"interrupted":false,"bytes":14,"cwd":"{world.root}"}}',
        lines=3,
    )


def test_a_failure_is_an_error_that_keeps_the_output(tmp_path: Path):
    _, (outcome,) = bash(tmp_path, "echo half; exit 3")
    assert (told(outcome), outcome.error) == ("Exit code 3\nhalf", True)


def test_a_shell_that_is_killed_names_the_signal(tmp_path: Path):
    _, (outcome,) = bash(tmp_path, "kill -9 $$")
    assert (told(outcome), outcome.error) == ("Ended by signal 9 (SIGKILL)", True)
    assert msgspec.json.decode(outcome.detail)["exitCode"] == 137


def test_silence_is_said(tmp_path: Path):
    assert [told(outcome) for outcome in bash(tmp_path, "true", "", "# nothing")[1]] == [
        "(no output)"
    ] * 3


def test_nobody_sits_at_the_terminal(tmp_path: Path):
    assert say(tmp_path, 'cat; read x || echo "[$x]"; tty') == "Exit code 1\n[]\nnot a tty"


def test_output_is_shown_while_it_comes(tmp_path: Path):
    world, _ = bash(tmp_path, "echo first; sleep 0.15; echo second")
    assert world.shown == ["first\n", "second\n"]


def test_a_command_that_is_not_text_is_refused(tmp_path: Path):
    with pytest.raises(ToolError, match="NUL character"):
        bash(tmp_path, "echo \0")


# --- the text runs as it stands -------------------------------------------------------------------

TEXTS = {
    "quotes": ("""echo 'a "b" $c' "d 'e'" \\$f""", """a "b" $c d 'e' $f"""),
    "here-document": ("cat <<'END'\n$a `b` \"c\" \\d\nEND", '$a `b` "c" \\d'),
    "here-document with an open end": ("cat <<END\n$((1 + 1))\nEND\n", "2"),
    "no parameters": ('echo "$#$*" "$0"', "0 bash"),
    "own exit trap": ("trap 'echo bye' EXIT; echo hi", "hi\nbye"),
    "own exit trap and exit": ("trap 'echo bye' EXIT; exit 0", "bye"),
    "replaced shell": ("exec echo other", "other"),
    "several lines": ("if true; then\n  echo yes\nfi", "yes"),
    "job control": ("sleep 0.01 & wait; echo waited", "waited"),
    "functions": ("f() { return 4; }\nf || echo $?", "4"),
    "unicode": ("echo 'żółw 🐢'", "żółw 🐢"),
    "line numbers": ("\n\necho $LINENO", "3"),
    "nothing exported": ("env | grep -i _travois | grep -v JOB; echo none", "none"),
    "pipe status": ("set -o pipefail; false | true || echo broken", "broken"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_runs_as_it_stands(tmp_path: Path, name: str):
    text, expected = TEXTS[name]
    assert say(tmp_path, text) == expected


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"line numbers", "pipe status"}))
def test_the_text_runs_as_it_stands_in_a_plain_shell(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    text, expected = TEXTS[name]
    monkeypatch.setattr(shell, "SHELL_PATHS", ())
    assert say(tmp_path, text) == expected.replace("bash", "sh")


def test_tracing_shows_nothing_of_ours(tmp_path: Path):
    assert say(tmp_path, "set -x; cd /; exit") == "++ cd /\n++ exit\n[Working folder: /]"


def test_a_text_longer_than_an_argument_runs_whole(tmp_path: Path):
    words = "ż" * 300_000
    assert say(tmp_path, f"cat <<'END' | wc -m\n{words}\nEND") == "300001"


def test_a_syntax_error_names_its_line(tmp_path: Path):
    said = say(tmp_path, "echo one\necho two)\n")
    assert said.startswith("Exit code 2\none\n")
    assert "line 2: syntax error" in said


# --- the working folder ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "cd 'a folder'",
        "cd 'a folder'; false",
        "cd 'a folder'; exit 3",
        "set -e; cd 'a folder'; false; cd /",
        "cd 'a folder'; trap 'echo bye' EXIT",
        "cd 'a folder'; nosuchprogram",
        "cd 'a folder'; exec >/dev/null 2>&1",
        "cd 'a folder'; (cd /)",
        "pushd 'a folder'",
        "cd 'a folder'; exit 0 <<END\nEND",
    ],
)
def test_the_working_folder_is_kept(tmp_path: Path, command: str):
    (tmp_path / "workspace" / "a folder").mkdir(parents=True)
    world, (first, second) = bash(tmp_path, command, "pwd")
    there = f"{world.root}/a folder"
    assert first.changes == (Changed("cwd", there),)
    assert told(first).endswith(f"[Working folder: {there}]")
    assert (told(second), second.changes) == (there, ())


def test_a_shell_that_tells_nothing_stays_where_it_was(tmp_path: Path):
    (tmp_path / "workspace" / "sub").mkdir(parents=True)
    world, outcomes = bash(tmp_path, "cd sub; exec true", "cd sub; kill -9 $$", "pwd")
    assert [outcome.changes for outcome in outcomes] == [(), (), ()]
    assert told(outcomes[2]) == world.root


def test_a_folder_with_a_line_break_in_its_name_is_kept(tmp_path: Path):
    world, _ = bash(tmp_path, "mkdir $'a\\nb'; cd $'a\\nb'")
    assert world.cwd == f"{world.root}/a\nb"


def test_a_folder_that_its_command_removes_leads_back_to_the_workspace(tmp_path: Path):
    world, outcomes = bash(tmp_path, "mkdir gone; cd gone", "rmdir ../gone", "pwd")
    assert outcomes[1].changes == (Changed("cwd", world.root),)
    assert told(outcomes[1]) == f"[The working folder no longer exists; now in {world.root}.]"
    assert told(outcomes[2]) == world.root


def test_a_folder_that_vanished_meanwhile_leads_back_to_the_workspace(tmp_path: Path):
    async def scene(world: World) -> None:
        await world.call(BASH, command="mkdir gone; cd gone")
        os.rmdir(world.cwd)
        outcome = await world.call(BASH, command="pwd")
        gone = f"{world.root}/gone"
        assert told(outcome) == f"{world.root}\n[{gone} is gone; ran in {world.root}.]"
        assert outcome.changes == (Changed("cwd", world.root),)

    play(tmp_path, scene)


def test_a_workspace_behind_a_link_is_not_a_change_of_folder(tmp_path: Path):
    async def scene(world: World) -> None:
        link = tmp_path / "link"
        link.symlink_to(world.root)
        world.root = world.cwd = str(link)
        outcome = await world.call(BASH, command="pwd")
        assert (told(outcome), outcome.changes) == (str(link), ())

    play(tmp_path, scene)


# --- time -----------------------------------------------------------------------------------------


def test_a_timeout_keeps_the_output_and_ends_everything(tmp_path: Path):
    nap = f"{random.randrange(10**6, 10**9)}.5"
    line = f"echo begun; setsid sleep {nap} & sleep {nap}"
    for seconds in (2, 16, 128):  # a loaded machine may need the longer ones to start bash
        _, (outcome,) = bash(tmp_path, line, timeout=seconds * 1000, on_timeout="stop")
        if "begun" in told(outcome):
            break
    assert told(outcome).replace("Terminated\n", "") == (  # bash may find time to say that
        f"begun\n[Timed out after {seconds} s; all its processes were killed. "
        "Use a longer timeout, or on_timeout: background.]"
    )
    assert outcome.error and msgspec.json.decode(outcome.detail)["interrupted"]
    assert running(f"sleep {nap}") == []


def test_what_is_left_running_is_named(tmp_path: Path):
    async def scene(world: World) -> None:
        outcome = await world.call(BASH, command="sleep 60 & echo $!")
        pid = told(outcome).partition("\n")[0]
        assert told(outcome) == f"{pid}\n[Still running until the session ends: process {pid}]"
        assert not outcome.error

    play(tmp_path, scene)


@pytest.mark.parametrize("timeout", [0, -5, 600_001])
def test_a_time_limit_out_of_bounds_is_a_schema_error(timeout: int):
    with pytest.raises(msgspec.ValidationError, match=r"\$.timeout"):
        msgspec.convert({"command": "true", "timeout": timeout}, BASH.args)


# --- output as text -------------------------------------------------------------------------------


def whole(data: bytes) -> ReadableOutput:
    return make_readable(CapturedOutput(data, b"", len(data)))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\x1b(B\x1b=", "red plain"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"10%\r50%\r100%\r\ndone\r\n", "100%\ndone\n"),
        (b"50%\r\x1b[K", "50%"),
        (b"N\x08NA\x08AM\x08ME\x08E", "NAME"),
        (b"spin |\x08/\x08-\x08ok\x07", "spin ok"),
        (b"one \x01 strange" + b" " * 100, "one \\x01 strange" + " " * 100),
        ("żółw".encode(), "żółw"),
    ],
)
def test_screen_effects_become_plain_text(data: bytes, text: str):
    assert whole(data).text == text


def test_other_encodings_are_labelled():
    remark = "The output is not UTF-8; decoded as {}."
    assert whole(b"caf\xe9\n") == ReadableOutput("café\n", (remark.format("CP1252"),), 1)
    mixed = "zażółć gęślą jaźń ".encode() + b"\xff!"
    assert whole(mixed) == ReadableOutput(
        "zażółć gęślą jaźń \\xff!", (remark.format("UTF-8 with invalid bytes, shown as \\xNN"),), 1
    )


def test_names_between_nul_bytes_are_text():
    assert whole(b"./a name\0./another\0") == ReadableOutput(
        "./a name\\0./another\\0", ("NUL bytes are shown as \\0.",), 1
    )


def test_binary_output_is_kept_in_a_file_and_said_to_be_binary(tmp_path: Path):
    world, (outcome,) = bash(tmp_path, "head -c 5000 /bin/sh")
    assert told(outcome) == (
        "[The output is not text: 5,000 bytes of binary data. All of it is in "
        f"{world.spilled}/t1.txt; continue with Read offset=1, or use Grep.]"
    )
    assert (world.spilled / "t1.txt").read_bytes() == Path("/bin/sh").read_bytes()[:5000]


MARK = re.compile(
    r"\n\[([\d,]+) of ([\d,]+) lines \(([\d,]+) of ([\d,]+) (bytes|characters)\) "
    r"are left out here\. "
    r"All of it is in (.+); continue with Read offset=(\d+), or use Grep\.\]\n"
)


@pytest.mark.parametrize(("count", "unit"), [(3_000, "characters"), (100_000, "bytes")])
def test_long_output_shows_both_ends_and_the_numbers_of_the_whole(
    tmp_path: Path, count: int, unit: str
):
    world, (outcome,) = bash(tmp_path, f"seq -f 'a line with the number %.0f' {count}")
    expected = "".join(f"a line with the number {number}\n" for number in range(1, count + 1))
    marks = MARK.findall(told(outcome))
    first, *_, last = MARK.split(told(outcome))
    assert expected.startswith(f"{first}\n") and expected.endswith(f"\n{last}\n")
    shown = [len(first.splitlines()), len(last.splitlines())]
    hidden = len(expected) - len(first) - len(last) - 2
    path = f"{world.spilled}/t1.txt"
    numbers = (count - sum(shown), count, hidden, len(expected))
    assert marks == [(*(f"{n:,}" for n in numbers), unit, path, str(shown[0] + 1))]
    assert 3_400 < len(told(outcome)) <= 4_000
    assert outcome.lines == count
    assert Path(path).read_text() == expected


def test_of_an_endless_line_both_ends_are_shown_and_kept(tmp_path: Path):
    world, (outcome,) = bash(tmp_path, "head -c 20000000 /dev/zero | tr '\\0' x; echo end")
    marks = re.findall(r"(x+)\n\[(.+)\]\n(x+)end", told(outcome))
    ((first, said, last),) = marks
    gone = 20_000_004 - len(first) - len(last) - 4
    assert said == (
        f"{gone:,} of 20,000,004 bytes are left out here. All of it is in "
        f"{world.spilled}/t1.txt; continue with Read offset=1, or use Grep."
    )
    assert abs(len(first) - len(last)) < 10
    assert outcome.lines == 1
    assert (world.spilled / "t1.txt").read_text() == "x" * 20_000_000 + "end\n"


def test_where_not_all_can_be_kept_what_is_missing_is_said(tmp_path: Path):
    world = World(tmp_path)
    kept = CapturedOutput(b"first\n" * 300_000, b"last\n" * 300_000, 10_000_000, missing_lines=5)
    shown = make_readable(kept, keep=partial(world.spill, "t1"))
    assert shown.lines == 600_005
    assert (
        "All but 6,700,000 bytes in the middle, which were not saved, is in "
        f"{world.spilled}/t1.txt; continue with Read offset="
    ) in shown.text
    stored = (world.spilled / "t1.txt").read_text()
    assert "first\n\n[... 6700000 bytes were not saved ...]\nlast\n" in stored


def test_the_end_is_shown_also_where_little_of_it_is_in_the_tail():
    shown = make_readable(CapturedOutput(b"x" * 600_000, b"end", 600_003))
    assert shown.text.endswith("x" * 1_500 + "end")


def test_output_is_shown_whole_up_to_the_room_of_its_result():
    text = "".join(f"a line with the number {number}\n" for number in range(2_000))
    room = estimate_tokens(text)
    captured = CapturedOutput(text.encode(), b"", len(text))
    assert make_readable(captured, tokens=room).text == text
    assert len(make_readable(captured, tokens=room - 1).text) <= 4_000


def test_a_full_disk_loses_only_the_file(tmp_path: Path):
    class Full(World):
        def spill(self, call: str, data: bytes) -> str:
            raise OSError(28, "No space left on device")

    async def main() -> None:
        world = Full(tmp_path)
        world.processes = LocalProcesses()
        outcome = await world.call(BASH, command="seq 20000")
        await world.processes.aclose()
        text = told(outcome)
        assert "are left out here. It could not be saved: [Errno 28] No space left" in text
        assert not outcome.error

    anyio.run(main)


@settings(max_examples=200)
@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(0, 10**9))
def test_any_output_gives_bounded_text_that_a_log_can_hold(head: bytes, tail: bytes, missing: int):
    captured = CapturedOutput(head * 300, tail * 300, 300 * (len(head) + len(tail)) + missing)
    shown = make_readable(captured)
    assert estimate_text_tokens(shown.text) <= 8_000
    msgspec.json.encode(shown)


# --- jobs -----------------------------------------------------------------------------------------


async def polled(world: World, ending: str, **args: object) -> list[str]:
    """What BashOutput says, until it says so."""
    said: list[str] = []
    with anyio.fail_after(300):
        while not said or not said[-1].startswith(ending):
            said.append(told(await world.call(BASH_OUTPUT, bash_id="bash_1", **args)))
            await anyio.sleep(0.01)
    return said


def test_a_background_job_is_polled_to_its_end(tmp_path: Path):
    async def scene(world: World) -> None:
        begun = await world.call(BASH, command="echo hi; sleep 0.1; exit 2", run_in_background=True)
        assert begun == ToolOutcome(
            (
                Text(
                    "Running in the background as bash_1. You are told when it ends. "
                    "Monitor (task_id, pattern, timeout) waits for a line or the end, "
                    "BashOutput shows new output, KillShell kills it."
                ),
            ),
            changes=(Changed("job:bash_1", "running"),),
        )
        said = await polled(world, "exit code 2")
        words = [line for text in said for line in text.split("\n")[1:]]
        assert sorted(set(words)) == ["(no new output)", "hi"] and words.count("hi") == 1
        assert world.state["job:bash_1"] == "exit code 2"

    play(tmp_path, scene)


def test_a_background_job_starts_in_the_working_folder_and_does_not_move_it(tmp_path: Path):
    async def scene(world: World) -> None:
        await world.call(BASH, command="mkdir sub; cd sub")
        await world.call(BASH, command="pwd; cd /", run_in_background=True)
        said = "\n".join(await polled(world, "exit code 0"))
        assert f"{world.root}/sub" in said
        assert world.cwd == f"{world.root}/sub"

    play(tmp_path, scene)


def test_a_filter_shows_only_matching_lines(tmp_path: Path):
    async def scene(world: World) -> None:
        await world.call(BASH, command="printf 'a1\\nb2\\na3\\n'", run_in_background=True)
        await world.processes.jobs()["bash_1"].wait()
        outcome = await world.call(BASH_OUTPUT, bash_id="bash_1", filter=r"^a\d")
        assert told(outcome) == "exit code 0\na1\na3"
        again = await world.call(BASH_OUTPUT, bash_id="bash_1", filter="x")
        assert told(again) == "exit code 0\n(no new output)"

    play(tmp_path, scene)


def test_a_bad_filter_is_refused(tmp_path: Path):
    async def scene(world: World) -> None:
        await world.call(BASH, command="echo x", run_in_background=True)
        await world.processes.jobs()["bash_1"].wait()
        with pytest.raises(ToolError, match="unclosed group"):
            await world.call(BASH_OUTPUT, bash_id="bash_1", filter="(")

    play(tmp_path, scene)


def test_a_job_is_killed_with_what_it_started(tmp_path: Path):
    nap = f"{random.randrange(10**6, 10**9)}.5"

    async def scene(world: World) -> None:
        await world.call(BASH, command=f"(setsid sleep {nap} &); echo up", run_in_background=True)
        await world.processes.jobs()["bash_1"].wait()
        await world.call(BASH, command=f"sleep {nap}", run_in_background=True)
        first = await world.call(KILL_SHELL, shell_id="bash_1")
        second = await world.call(KILL_SHELL, shell_id="bash_2")
        assert told(first) == "bash_1 had already ended (exit code 0)."
        assert told(second) == "Killed bash_2 and all processes it had started."
        assert second.changes == (Changed("job:bash_2", "killed"),)

    play(tmp_path, scene)
    assert running(f"sleep {nap}") == []


def test_job_names_are_not_used_again_after_a_resume(tmp_path: Path):
    async def scene(world: World) -> None:
        world.state["job:bash_1"] = "running"
        with pytest.raises(ToolError, match="bash_1 ended with an earlier Travois process"):
            await world.call(BASH_OUTPUT, bash_id="bash_1")
        begun = await world.call(BASH, command="true", run_in_background=True)
        assert "as bash_2." in told(begun)
        with pytest.raises(ToolError, match=r"There is no job 'bash_9'. Jobs: bash_2."):
            await world.call(KILL_SHELL, shell_id="bash_9")

    play(tmp_path, scene)


# --- what is declared -----------------------------------------------------------------------------


def test_a_command_is_what_a_call_touches(tmp_path: Path):
    world = World(tmp_path)
    assert world.access(BASH, command="make test") == (Access("exec", "make test"),)
    assert world.access(BASH_OUTPUT, bash_id="bash_1") == ()
    assert world.access(KILL_SHELL, shell_id="bash_1") == ()


def test_a_summary_is_one_line():
    def of(**args: object) -> str:
        return BASH.summary(msgspec.convert(args, BASH.args))

    assert of(command="make\nmake test") == "make"
    assert of(command="make", description="Build it") == "Build it"


def test_descriptions_are_short():
    assert [len(tool.description) <= 300 for tool in (BASH, BASH_OUTPUT, KILL_SHELL)] == [True] * 3
