"""Commands in the background: their end is told once, they can be waited for and typed to."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Line, Program
from tests.e2e.test_agents import running, within
from tests.e2e.test_terminal import Screen
from travois.core.content import extract_text
from travois.core.facts import Result, User
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

FREE = ("--permission-mode", "bypass")
Model = Callable[[Prompt, object], list[Json]]


def script(*steps: list[Json]) -> Model:
    """A model that answers its requests one after the other, and then says that it is done."""

    def model(prompt: Prompt, state: object) -> list[Json]:
        return steps[prompt.n - 1] if prompt.n <= len(steps) else [text("done")]

    return model


def background(command: str) -> list[Json]:
    return [call("Bash", command=command, run_in_background=True)]


def results(program: Program) -> list[str]:
    facts = (entry.fact for entry in program.facts())
    return [extract_text(fact.content) for fact in facts if isinstance(fact, Result)]


def reports(program: Program) -> list[str]:
    """What the model was told of the ends of commands."""
    facts = (entry.fact for entry in program.facts())
    told = (fact for fact in facts if isinstance(fact, User) and fact.mail.startswith("job:"))
    return [extract_text(fact.content) for fact in told]


def nap(number: int) -> str:
    return f"sleep {number}{os.getpid()}"


# --- reports --------------------------------------------------------------------------------------


def test_a_headless_run_is_woken_by_a_command_that_ends(program: Program) -> None:
    command = "sleep 1; echo first; echo last; exit 3"
    with program.served(script(background(command), [text("Meanwhile.")])) as api:
        done = program.ask("go", *FREE)
        assert (done.code, done.out) == (0, "done\n"), done.err
        api.no_invalid()
        api.append_only()
    (report,) = reports(program)
    assert report == (
        f"[bash_1: exit code 3] {command}\nLast output:\nfirst\nlast\n"
        "[BashOutput bash_1 shows all unread output.]"
    )


def test_an_end_is_told_at_the_next_boundary_and_not_again(program: Program) -> None:
    waits = [call("Bash", command="until [ -e over ]; do sleep 0.1; done; sleep 0.5")]
    reads = [call("BashOutput", bash_id="bash_1")]
    with program.served(script(background("echo x; touch over"), waits, reads)) as api:
        assert program.ask("go", *FREE).code == 0
        asked = [entry.body.decode().count("[bash_1: exit code 0]") for entry in api.ledger]
        assert asked == [0, 0, 1, 1]
        api.append_only()
    assert len(reports(program)) == 1


def test_an_end_that_the_model_has_seen_is_not_told(program: Program) -> None:
    reads = [call("TaskOutput", task_id="bash_1", block=True, timeout=60_000)]
    with program.served(script(background("sleep 0.5; echo seen; exit 4"), reads)):
        assert program.ask("go", *FREE).code == 0
    assert results(program)[1] == "exit code 4\nseen"
    assert reports(program) == []


def test_what_still_runs_ends_with_a_headless_run_and_is_told_when_it_goes_on(
    program: Program,
) -> None:
    server = nap(81)
    with program.served(script(background(server), [text("It runs.")])) as api:
        done = program.ask("go", *FREE)
        assert (done.code, done.out) == (0, "It runs.\n")
        assert f"travois: Stopped with the session: bash_1 ({server})" in done.err
        assert running(server) == []
        program.ask("again", "-c", *FREE)
        program.ask("and again", "-c", *FREE)
        assert api.ledger[-1].body.decode().count("[bash_1: stopped]") == 1
        api.no_invalid()
    assert len(reports(program)) == 1


def test_killed_with_commands_running_none_is_left_and_their_loss_is_told_once(
    program: Program,
) -> None:
    one, other, third = nap(82), nap(83), nap(84)
    stubborn = f"trap '' TERM HUP; touch begun; {other}"
    detached = [call("Bash", command=f"setsid {third}", timeout=300)]
    steps = (background(one), background(stubborn), detached, [call("Bash", command=nap(85))])
    with program.served(script(*steps)) as api:
        child = program.start("-p", "go", *program.model, *FREE)
        assert within(60, lambda: running(nap(85)) and (program.folder / "begun").exists())
        child.send_signal(signal.SIGKILL)
        child.communicate()
        left = (one, other, third, nap(85))
        assert within(20, lambda: not any(running(each) for each in left))
        assert program.ask("go on", "-c", *FREE).out == "done\n"
        assert program.ask("go on", "-c", *FREE).out == "done\n"
        said = api.ledger[-1].body.decode()
        assert [said.count(f"[bash_{n}: lost]") for n in (1, 2, 3)] == [1, 1, 1]
        api.no_invalid()


def test_a_waiting_terminal_is_woken_by_a_command_that_ends(program: Program) -> None:
    with program.served(script(background("sleep 1; exit 7"), [text("Meanwhile.")])) as api:
        screen = Screen(program, *program.model, *FREE)
        screen.until("> ")
        screen.type("go\n")
        screen.until("Meanwhile.")
        screen.until("done")
        assert screen.leave() == 0
        api.no_invalid()
    assert reports(program)[0].startswith("[bash_1: exit code 7] sleep 1; exit 7")


def test_the_screen_counts_commands_and_tells_of_their_end(program: Program) -> None:
    command = "until [ -e over ]; do sleep 0.1; done; exit 7"
    with program.served(script(background(command), [text("Meanwhile.")])):
        glass = Glass(program, *program.model, *FREE)
        glass.until("bypass")
        glass.type("go\r")
        glass.until("Meanwhile.", "1 task")
        (program.folder / "over").touch()
        glass.until("[bash_1: exit code 7]", "done")
        glass.gone("1 task")
        glass.type("\x04")


def test_programs_read_of_commands_that_begin_and_end(program: Program) -> None:
    with program.served(script(background("sleep 1; exit 2"), [text("Meanwhile.")])):
        done = program.ask("go", *FREE, "--output-format", "stream-json", "--verbose")
        assert done.code == 0, done.err
    kinds = ("task_started", "task_notification")
    began, ended = [line for line in done.lines if line.get("subtype") in kinds]
    assert (began["task_id"], began["task_type"]) == ("bash_1", "local_bash")
    assert began["description"] == "sleep 1; exit 2"
    assert (ended["task_id"], ended["status"]) == ("bash_1", "failed")
    assert began["tool_use_id"] == ended["tool_use_id"] != ""


def test_a_host_is_answered_when_a_command_ends_after_its_last_prompt(program: Program) -> None:
    said: Line = {"type": "user", "message": {"role": "user", "content": "go"}}
    flags = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    with program.served(script(background("sleep 1"), [text("Meanwhile.")])):
        line = json.dumps(said).encode() + b"\n"
        done = program.run("-p", *program.model, *FREE, *flags, stdin=line)
    results = [line["result"] for line in done.lines if line["type"] == "result"]
    assert results == ["Meanwhile.", "done"], done.err


# --- waiting --------------------------------------------------------------------------------------


def test_a_command_that_outlives_its_timeout_goes_on_and_is_waited_for(program: Program) -> None:
    command = "echo begun; until [ -e go ]; do sleep 0.1; done; echo 'ready at 5173'; sleep 600"
    steps = (
        [call("Bash", command=command, timeout=500)],
        [call("Write", file_path="go", content="x")],
        [call("Monitor", task_id="bash_1", pattern=r"ready at \d+", timeout=60_000)],
        [call("Monitor", task_id="bash_1", pattern="never", timeout=300)],
        [call("Monitor", task_id="bash_1", pattern="(")],
        [call("TaskStop", task_id="bash_1")],
    )
    with program.served(script(*steps)) as api:
        assert program.ask("go", *FREE).out == "done\n"
        api.no_invalid()
    late, _, ready, never, bad, stopped = results(program)
    assert late.startswith("begun\n[Still running after 0.5 s, so it was not stopped but goes on")
    assert ready == "bash_1 printed: ready at 5173\nrunning\nready at 5173"
    assert never.startswith("Waited 0.3 s for bash_1: no line matched 'never'.")
    assert bad.startswith("pattern is not a valid regular expression: regex parse error")
    assert stopped == "Killed bash_1 and all processes it had started."
    assert reports(program) == []


def test_a_command_may_be_stopped_at_its_timeout(program: Program) -> None:
    step = [call("Bash", command=nap(86), timeout=300, on_timeout="stop")]
    with program.served(script(step)):
        assert program.ask("go", *FREE).code == 0
    assert "Timed out after 0.3 s; all its processes were killed" in results(program)[0]
    assert running(nap(86)) == []


def test_somebody_who_steers_ends_a_wait(program: Program) -> None:
    wait = [call("Monitor", task_id="bash_1", timeout=3_600_000)]
    with program.served(script(background(nap(87)), wait)) as api:
        glass = Glass(program, *program.model, *FREE)
        glass.until("bypass")
        glass.type("go\r")
        glass.until("Wait for bash_1")
        glass.type("never mind\r")
        glass.until("done")
        api.no_invalid()
        glass.type("\x04")
        glass.wait(lambda: not glass.child.isalive(), "the end")
    assert results(program)[1].endswith("[The wait ended early: you have a new message.]")
    assert running(nap(87)) == []


def test_an_agent_can_be_waited_for_and_stopped_as_a_task(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if "part" in prompt.messages[0]["content"][-1]["text"]:
            return [text("seven")]
        order = call("Agent", description="do it", prompt="part", run_in_background=True)
        wait = call("TaskOutput", task_id="a1", block=True, timeout=60_000)
        steps = ([order], [wait], [call("TaskStop", task_id="a1")])
        done = len(prompt.messages) // 2
        return steps[done] if done < len(steps) else [text("done")]

    with lab.server(model) as api:
        program.url = api.url
        assert program.ask("go", *FREE).out == "done\n"
        assert "seven" in api.ledger[-1].body.decode()
    waited, stopped = results(program)[1:]
    assert waited.startswith("[agent a1: done]")
    assert stopped == "Agent a1 had already ended (done)."


# --- live programs --------------------------------------------------------------------------------

TTY = "print(open('/dev/tty').isatty(), x)\n"
SPIN = "import time\nprint('spinning')\nwhile True: time.sleep(0.1)\n\n"


def test_a_program_is_kept_open_and_typed_to(program: Program) -> None:
    steps = (
        [call("Bash", command="python3 -q", tty=True)],
        [call("BashInput", id="bash_1", text="x = 6 * 7\nprint('x is', x)\n", until="^x is")],
        [call("BashInput", id="bash_1", text=SPIN, until="^spinning")],
        [call("BashInput", id="bash_1", text="\x03", until="KeyboardInterrupt")],
        [
            call(
                "BashInput", id="bash_1", text="print(open('/dev/tty').isatty(), x)\n", until="True"
            )
        ],
        [call("BashInput", id="bash_1", text="\x04", wait_ms=60_000, until="no such line")],
    )
    with program.served(script(*steps)) as api:
        assert program.ask("go", *FREE).out == "done\n"
        api.no_invalid()
    opened, typed, spun, broken, held, ended = results(program)
    assert "[Running as bash_1 in a terminal." in opened
    assert "x is 42" in typed
    assert "spinning" in spun
    assert "KeyboardInterrupt" in broken
    assert "True 42" in held
    assert ended.startswith("exit code 0")
    assert not any("\x1b" in told for told in results(program))
    assert reports(program) == []


def test_an_open_program_ends_with_the_session(program: Program) -> None:
    step = [call("Bash", command=f"echo open; {nap(88)}", tty=True)]
    with program.served(script(step)):
        done = program.ask("go", *FREE)
        assert "Stopped with the session: bash_1 (echo open;" in done.err
    assert running(nap(88)) == []


WRITE = "open('made', 'w').write('x')\n"


def test_what_is_typed_where_nothing_can_be_changed_needs_no_leave(program: Program) -> None:
    steps = (
        [call("Bash", command="python3 -q", tty=True)],
        [call("BashInput", id="bash_1", text=WRITE, until="Error")],
    )
    with program.served(script(*steps)):
        assert program.ask("go").code == 0
    opened, typed = results(program)
    assert "It runs read-only and without network" in opened
    assert "Error" in typed and "denied" not in typed.partition("Error")[0]
    assert not (program.folder / "made").exists()


@pytest.mark.parametrize(("rule", "made"), [("Bash(python3:*)", True), ("Bash(ls:*)", False)])
def test_what_is_typed_elsewhere_needs_the_leave_of_the_command_that_runs(
    program: Program, rule: str, *, made: bool
) -> None:
    steps = (
        [call("Bash", command="python3 -q", tty=True, sandbox="write")],
        [call("BashInput", id="bash_1", text=WRITE, until=">>>")],
    )
    with program.served(script(*steps)):
        assert program.ask("go", "--allowedTools", rule).code == 0
    assert (program.folder / "made").exists() is made
    assert ("Permission denied" in results(program)[0]) is not made


def test_each_input_is_asked_about_where_only_the_start_was_allowed(program: Program) -> None:
    steps = (
        [call("Bash", command="python3 -q", tty=True, sandbox="write")],
        [call("BashInput", id="bash_1", text="print(1 + 1)\n", until="^2")],
        [call("BashInput", id="bash_1", text=WRITE)],
        [call("BashInput", id="bash_1", text="\x04")],
    )
    with program.served(script(*steps)) as api:
        screen = Screen(program, *program.model)
        screen.until("> ")
        screen.type("go\n")
        screen.until("Answer: ")
        screen.type("y\n")
        shown = screen.until("Answer: ")
        assert "Type into bash_1: 'print(1 + 1)\\n'" in shown
        screen.type("y\n")
        screen.until("Answer: ")
        screen.type("not that\n")
        screen.until("done")
        assert screen.leave() == 0
        api.no_invalid()
    assert not (program.folder / "made").exists()
    assert "not that" in results(program)[2]


def test_a_shell_that_is_open_is_no_way_around_a_rule_that_denies(program: Program) -> None:
    (program.folder / "file").write_text("x")
    steps = (
        [call("Bash", command="bash --norc", tty=True)],
        [call("BashInput", id="bash_1", text="rm file\n")],
        [call("BashInput", id="bash_1", text="echo fine > other; exit\n", until="nothing")],
    )
    with program.served(script(*steps)):
        assert program.ask("go", *FREE, "--disallowedTools", "Bash(rm:*)").code == 0
    assert (program.folder / "file").exists() and (program.folder / "other").exists()
    assert "Permission denied" in results(program)[1]


def test_a_rule_that_names_the_tool_that_types_holds_in_every_mode(program: Program) -> None:
    rules = json.dumps({"permissions": {"ask": ["BashInput"]}})
    steps = (
        [call("Bash", command="python3 -q", tty=True)],
        [call("BashInput", id="bash_1", text=WRITE, until=">>>")],
    )
    with program.served(script(*steps)):
        assert program.ask("go", "--settings", rules, *FREE).code == 0
    assert not (program.folder / "made").exists()
    assert "rule: ask BashInput" in results(program)[1]
