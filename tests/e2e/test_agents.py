"""Agents that start agents: the program, its logs, and the provider's cache."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program, read
from tests.e2e.test_terminal import Screen
from travois.core.facts import Ended, Finished, Spawned
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

FREE = ("--permission-mode", "bypass")
FORK = "You are a fork"


def agent(word: str, **more: object) -> Json:
    return call("Agent", description=f"do {word}", prompt=f"part {word}", **more)


def part(prompt: Prompt) -> str:
    """The part of the work that this request is about; empty for the first agent."""
    found = re.findall(r"part (\w+)", prompt.messages[0]["content"][-1]["text"])
    return found[-1] if found else ""


def test_eight_forks_of_a_long_conversation_read_it_from_the_cache(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if FORK in prompt.last_text:
            return [text("found it")]
        if prompt.n == 1:
            return [agent(f"f{n}", subagent_type="fork") for n in range(8)]
        return [text("ok")]

    with lab.server(model) as api:
        program.url = api.url
        long = "".join(f"{n}: the quick brown fox jumps over it\n" for n in range(12_000))
        done = program.ask("go", *FREE, stdin=long.encode())
        assert (done.code, done.out) == (0, "ok\n"), done.err
        first, *forks, last = api.ledger
        assert first.usage.prompt >= 120_000
        assert len(forks) == 8
        assert min(fork.usage.read / fork.usage.prompt for fork in forks) >= 0.99
        assert min(fork.usage.read for fork in forks) >= first.usage.prompt - 5
        later = [fork.usage for fork in forks[1:]]
        assert max(usage.prompt - usage.read for usage in later) < 150, "only the task is fresh"
        assert last.usage.read >= 0.99 * first.usage.prompt
        api.no_invalid()
        api.append_only()


def test_a_headless_run_waits_for_agents_in_the_background(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if part(prompt):
            return [text("seven")]
        if prompt.n == 1:
            return [agent("one", run_in_background=True)]
        return [text("It said seven." if "seven" in prompt.text else "Meanwhile.")]

    with lab.server(model) as api:
        program.url = api.url
        done = program.ask("go", *FREE, "--output-format", "json")
        assert (done.code, done.result["result"]) == (0, "It said seven."), done.err
        (child,) = [
            e for e in api.ledger if "part one" in str(e.messages[0]) and len(e.messages) == 1
        ]
        assert child.usage.prompt <= 5_000
        api.no_invalid()
    assert "agents" not in {path.parent.parent.name for path in program.logs()}


def running(mark: str) -> list[str]:
    """The processes whose command line holds this."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [said] if mark in said else []
    return found


def within(seconds: float, what: Callable[[], object]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if what():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_killed_with_twenty_agents_nothing_runs_on_and_all_they_did_is_known(
    program: Program,
) -> None:
    nap = f"sleep 7{os.getpid()}"

    def model(prompt: Prompt, state: object) -> list[Json]:
        if name := part(prompt):
            command = f"echo x > made-{name}; {nap}"
            written = call("Write", file_path=f"notes-{name}", content="x")
            begun = len(prompt.messages) > 1
            return [text(f"Clue {name}."), call("Bash", command=command) if begun else written]
        if prompt.n == 1:
            return [agent(f"p{n}", run_in_background=True) for n in range(20)]
        return [text("ok") if "what happened" in prompt.text else call("Bash", command=nap)]

    with lab.server(model) as api:
        program.url = api.url
        child = program.start("-p", "go", *program.model, *FREE)
        made = program.folder
        assert within(300, lambda: len(list(made.glob("made-*"))) == 20), list(made.iterdir())
        assert len(running(nap)) >= 21
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert within(300, lambda: not running(nap)), running(nap)
        done = program.ask("what happened?", "-c", *FREE)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        said = api.ledger[-1].body.decode()
        for n in range(20):
            assert f"[agent a{n + 1}: lost]" in said
            assert said.count(f"Clue p{n}.") >= 1
            assert f"notes-p{n}" in said
        api.no_invalid()
    facts = [entry.fact for entry in program.facts()]
    assert [f.outcome for f in facts if isinstance(f, Finished)] == ["lost"] * 20
    assert len([f for f in facts if isinstance(f, Spawned)]) == 20
    assert [f.why for f in facts if isinstance(f, Ended)] == ["crashed", "end"]
    for log in program.home.glob("sessions/*/*/agents/*/log.jsonl"):
        assert read(log)


def test_a_waiting_terminal_is_woken_when_an_agent_has_ended(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if part(prompt):
            return [call("Bash", command="sleep 1")] if len(prompt.messages) == 1 else [text("7")]
        if prompt.n == 1:
            return [agent("one", run_in_background=True)]
        return [text("It said seven." if ": done]" in prompt.text else "Meanwhile.")]

    with lab.server(model) as api:
        program.url = api.url
        screen = Screen(program, *program.model, *FREE)
        screen.until("> ")
        screen.type("go\n")
        screen.until("Meanwhile.")
        screen.until("It said seven.")
        assert screen.leave() == 0
        api.no_invalid()


def test_an_agent_can_be_told_something_and_ended_from_another_terminal(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if not part(prompt):
            return [agent("one")] if prompt.n == 1 else [text("It ended.")]
        heard = "Heard blue. " if "paint it blue" in prompt.text else "Working. "
        return [text(heard), call("Bash", command=f"echo {prompt.n} >> steps; sleep 0.1")]

    with lab.server(model) as api:
        program.url = api.url
        child = program.start("-p", "go", *program.model, *FREE)
        assert within(300, (program.folder / "steps").exists)
        told = program.run("agents", "tell", "a1", "paint it blue")
        assert (told.code, told.out) == (0, "a1 receives it at its next step.\n"), told.err
        assert within(300, lambda: "Heard blue." in api.ledger[-1].body.decode())
        assert program.run("agents", "stop", "a1").code == 0
        out, err = child.communicate(timeout=300)
        assert (child.returncode, out) == (0, b"It ended.\n"), err
        assert "Heard blue." in api.ledger[-1].body.decode()
        api.no_invalid()


@pytest.mark.parametrize("kind", ["general", "fork"])
def test_an_agent_that_is_compacted_still_knows_its_task(program: Program, kind: str) -> None:
    task = "Count the herrings in sea.txt.\n\n  Report one number, and nothing else."
    steps = 0

    def model(prompt: Prompt, state: object) -> list[Json]:
        nonlocal steps
        if prompt.n == 1:
            return [call("Agent", description="count", prompt=task, subagent_type=kind)]
        if "[agent a1: done]" in str(prompt.messages[-1]):
            return [text("ok")]
        if "This is the harness" in prompt.last_text:
            return [text("I count herrings.")]
        steps += 1
        if steps > 40:
            return [text("seven")]
        return [call("Read", file_path="sea.txt", offset=steps, limit=60)]

    (program.folder / "sea.txt").write_text("herring and cod and eel and ray\n" * 400)
    window = ("--settings", '{"context": {"window": 24000, "clearPressure": false}}')
    with lab.server(model) as api:
        program.url = api.url
        done = program.ask("Cook all the fish.", *FREE, *window)
        assert (done.code, done.out) == (0, "ok\n"), done.err
        asked = [str(exchange.json["messages"]) for exchange in api.ledger[1:-1]]
        assert len(asked) >= 41
        assert [n for n, said in enumerate(asked) if repr(task)[1:-1] not in said] == []
        assert sum("You are a sub-agent. Your task stands below" in said for said in asked) >= 3
        api.no_invalid()
