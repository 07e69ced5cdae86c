"""What sub-agents are doing: on the screen, in lists, and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import travois_lab as lab
from tests.e2e.glass import Glass
from tests.e2e.program import Program
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

FREE = ("--permission-mode", "bypass")
STREAM = (*FREE, "--output-format", "stream-json")
NAME = "Counting the log files"
GATE = "while [ ! -e open ]; do sleep 0.05; done"
ASKED = "You name what a coding agent is doing"


def agent_model(**more: object) -> Callable[[Prompt, object], list[Json]]:
    """One agent that waits at a gate; whoever is asked for a name gives one."""

    def model(prompt: Prompt, state: object) -> list[Json]:
        if ASKED in prompt.system:
            return [text(NAME)]
        if "part one" in prompt.messages[0]["content"][-1]["text"]:
            waited = len(prompt.messages) > 1
            return [text("There are seven.") if waited else call("Bash", command=GATE)]
        if prompt.n == 1:
            return [call("Agent", description="count logs", prompt="part one", **more)]
        return [text("All done." if "seven" in prompt.text else "Meanwhile.")]

    return model


def often(program: Program, seconds: float) -> None:
    program.home.mkdir(exist_ok=True)
    (program.home / "settings.json").write_text(json.dumps({"agentProgressSeconds": seconds}))


def named(api: lab.Api) -> list[lab.Exchange]:
    """The requests that asked for a name."""
    return [one for one in api.ledger if ASKED in one.body.decode()]


def test_the_screen_names_what_an_agent_does_under_its_call(program: Program) -> None:
    often(program, 0.2)
    with lab.server(agent_model()) as api:
        program.url = api.url
        glass = Glass(program, *program.model, *FREE, columns=120)
        glass.ready()
        glass.type("go\r")
        glass.until("Start agent (general): count logs", f"{NAME} · Bash · ", " tokens")
        glass.type("/agents list\r")
        glass.until("LAST TOOL", "DOING")
        row = next(line for line in glass.lines if line.strip().startswith("a1 "))
        assert "running" in row and NAME in row and "Bash" in row and "$" in row
        glass.type("/tasks\r")
        glass.until("WHAT")
        row = [line for line in glass.lines if line.strip().startswith("a1 ")][-1]
        assert "count logs" in row and NAME in row
        told = program.run("agents", "--json")
        (found,) = json.loads(told.out)
        assert (found["doing"], found["tool"]) == (NAME, "Bash")
        (program.folder / "open").touch()
        glass.until("All done.")
        assert glass.leave() == 0
        api.no_invalid()


def test_an_agent_in_the_background_is_named_in_the_last_line_which_then_rests(
    program: Program,
) -> None:
    often(program, 0.2)
    with lab.server(agent_model(run_in_background=True)) as api:
        program.url = api.url
        glass = Glass(program, *program.model, *FREE, columns=120)
        glass.ready()
        glass.type("go\r")
        glass.until("Meanwhile.", "1 task", NAME)
        assert NAME in glass.lines[-1] or NAME in glass.text.splitlines()[-1]
        glass.still()
        before, asked = glass.bytes, len(named(api))
        while glass.pump(1.5):
            before = glass.bytes
        assert (glass.bytes, len(named(api))) == (before, asked), "nothing was done since"
        assert asked == 1
        (program.folder / "open").touch()
        glass.until("All done.")
        glass.gone(NAME)
        assert glass.leave() == 0


def test_programs_are_told_the_name_and_pay_for_it_like_for_all_else(program: Program) -> None:
    often(program, 0.2)

    def model(prompt: Prompt, state: object) -> list[Json]:
        if ASKED in prompt.system:
            (program.folder / "open").touch()
        return agent_model()(prompt, state)

    with lab.server(model) as api:
        program.url = api.url
        lines = program.ask("go", *STREAM).lines
        dollars = sum(each.cost for each in api.ledger)
        asked = named(api)
        api.no_invalid()
    told = [line for line in lines if line.get("subtype") == "task_progress"]
    assert [line["summary"] for line in told] == ["Running while [ ! -e", NAME]
    assert {line["last_tool_name"] for line in told} == {"Bash"}
    assert told[-1]["total_cost_usd"] > told[0]["total_cost_usd"] > 0
    assert len(asked) == 1 and "haiku" in json.loads(asked[0].body)["model"]
    assert not json.loads(asked[0].body).get("tools")
    assert lines[-1]["total_cost_usd"] == pytest.approx(dollars)


def test_where_nobody_sees_it_or_rules_are_wanted_no_model_is_asked(program: Program) -> None:
    (program.folder / "open").touch()

    def slow(prompt: Prompt, state: object) -> list[Json]:
        blocks = agent_model()(prompt, state)
        wait = call("Bash", command="sleep 1")
        return [wait if block.get("name") == "Bash" else block for block in blocks]

    for seconds, how in ((0.1, FREE), (0, STREAM)):
        often(program, seconds)
        with lab.server(slow) as api:
            program.url = api.url
            done = program.ask("go", *how)
            assert done.code == 0, done.err
            assert named(api) == []
            told = [one for one in done.lines if "summary" in one] if how is STREAM else []
        assert [one["summary"] for one in told][:1] in ([], ["Running sleep 1"])


def test_a_name_that_is_none_is_not_shown_and_not_asked_for_again(program: Program) -> None:
    often(program, 0.1)

    def model(prompt: Prompt, state: object) -> list[Json]:
        if ASKED in prompt.system:
            return [text("I am sorry,\nbut I cannot do that.")]
        if "part one" in prompt.messages[0]["content"][-1]["text"] and len(prompt.messages) < 12:
            return [call("Bash", command="sleep 0.4")]
        return agent_model()(prompt, state)

    with lab.server(model) as api:
        program.url = api.url
        lines = program.ask("go", *STREAM).lines
        assert len(named(api)) == 2
    told = {line["summary"] for line in lines if line.get("subtype") == "task_progress"}
    assert told == {"Running sleep 0.4"}


def test_a_project_cannot_have_names_made_more_often(program: Program) -> None:
    folder = program.folder / ".travois"
    folder.mkdir()
    (folder / "settings.json").write_text('{"agentProgressSeconds": 0.01}')
    shown = program.run("config", "explain").out.splitlines()
    (line,) = [line for line in shown if "agentProgressSeconds" in line.split()[:1]]
    assert "30" in line and "0.01" not in line
