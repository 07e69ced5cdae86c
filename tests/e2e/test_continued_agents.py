"""Agents that go on after their end: with a message, with a call, and after a restart."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

import travois_lab as lab
from tests.e2e.program import Program, read
from tests.e2e.test_tasks import agent_logs, results, step
from travois.core.facts import Finished, Noted, Spawned, User
from travois_lab import Prompt, call, text
from travois_lab.objects import Json

FREE = ("--permission-mode", "bypass")
SECRET = "the colour is teal"


def start(**more: object) -> Json:
    args = {"description": "find the colour", "prompt": "be the scout", **more}
    return {**call("Agent"), "input": args}


def is_child(prompt: Prompt) -> bool:
    return "be the scout" in json.dumps(prompt.messages[0])


def costs(log: Path) -> list[int]:
    """What each run of an agent cost its parent, in tokens."""
    return [e.fact.usage.context for e in read(log) if isinstance(e.fact, Finished)]


def child(prompt: Prompt) -> list[Json]:
    """The first time it finds something; when it goes on it says what it knew."""
    if step(prompt) == 0:
        return [text(f"I looked: {SECRET}.")]
    knew = SECRET in json.dumps(prompt.messages)
    return [text(f"As I said, {SECRET if knew else 'I know nothing'}.")]


def test_a_message_lets_an_ended_agent_go_on_in_the_background(program: Program) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if is_child(prompt):
            return child(prompt)
        said = json.dumps(prompt.messages[-1])
        if "go" in said and step(prompt) == 0:
            return [start(name="scout")]
        if "I looked" in said:
            return [call("SendMessage", to="scout", summary="ask again", message="say it again")]
        if "As I said" in said:
            return [text("It knew.")]
        return [text("Meanwhile.")]

    with lab.server(model) as api:
        program.url = api.url
        done = program.ask("go", *FREE)
        assert done.code == 0, done.err
        assert done.out.endswith("It knew.\n")
        api.no_invalid()
        api.append_only(allowed=1)  # the head of the child is not that of its parent
        first, again = (
            each for each in api.ledger if "be the scout" in json.dumps(each.messages[0])
        )
        assert again.messages[: len(first.messages)] != []
        assert again.usage.read >= 0.9 * first.usage.prompt
    (log,) = program.logs()
    spawned = [e.fact.id for e in read(log) if isinstance(e.fact, Spawned)]
    assert spawned == ["a1", "a1"]
    assert costs(log) == [first.usage.context, again.usage.context]


@pytest.mark.parametrize("background", [False, True])
def test_an_agent_goes_on_after_the_program_was_restarted(
    program: Program, background: bool
) -> None:
    def model(prompt: Prompt, state: object) -> list[Json]:
        if is_child(prompt):
            return child(prompt)
        said = json.dumps(prompt.messages[-1])
        if "first" in said:
            return [start()]
        if "second" in said:
            more = {"resume": "a1", "prompt": "say it again", "run_in_background": background}
            return [start(**more)]
        return [text(said.rpartition("As I said, ")[2][: len(SECRET)] or "ok")]

    with lab.server(model) as api:
        program.url = api.url
        assert program.ask("first", *FREE).code == 0
        done = program.ask("second", "-c", *FREE)
        assert (done.code, done.out.splitlines()[-1]) == (0, SECRET), done.err
        api.no_invalid()
        api.append_only(allowed=1)
        runs = [each for each in api.ledger if "be the scout" in json.dumps(each.messages[0])]
        assert runs[1].usage.read >= 0.9 * runs[0].usage.prompt, "its cache was read"
    (one,) = agent_logs(program)
    facts = [entry.fact for entry in read(one)]
    assert [f.what for f in facts if isinstance(f, Noted)] == ["resumed"]
    asked = [f for f in facts if isinstance(f, User) and f.origin == "task"]
    assert len(asked) == 2


def test_an_agent_that_died_with_the_program_goes_on_with_what_it_knew(program: Program) -> None:
    marker = program.folder / "begun"

    def model(prompt: Prompt, state: object) -> list[Json]:
        if is_child(prompt) and step(prompt) == 0:
            return [text(SECRET), call("Bash", command="touch begun; sleep 100", timeout=200_000)]
        if is_child(prompt):
            return child(prompt)
        said = json.dumps(prompt.messages[-1])
        if "first" in said:
            return [start()]
        if "second" in said:
            return [start(resume="a1", prompt="say it again")]
        return [text(said.rpartition("As I said, ")[2][: len(SECRET)] or "ok")]

    with lab.server(model) as api:
        program.url = api.url
        running = program.start("-p", "first", *program.model, *FREE)
        while not marker.exists():
            assert running.poll() is None, running.communicate()
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
        done = program.ask("second", "-c", *FREE)
        assert (done.code, done.out.splitlines()[-1]) == (0, SECRET), done.err
        api.no_invalid()
        child_runs = [e for e in api.ledger if "be the scout" in json.dumps(e.messages[0])]
    (log,) = program.logs()
    outcomes = [e.fact.outcome for e in read(log) if isinstance(e.fact, Finished)]
    assert outcomes == ["lost", "done"]
    assert costs(log) == [each.usage.context for each in child_runs]


def test_an_agent_that_never_was_or_still_runs_cannot_go_on(program: Program) -> None:
    seen: list[str] = []

    def model(prompt: Prompt, state: object) -> list[Json]:
        seen.extend(results(prompt) if step(prompt) else [])
        return [
            [start(resume="a9"), call("SendMessage", to="nobody", message="hi")],
            [text("ok")],
        ][step(prompt)]

    with program.served(model):
        assert program.ask("go", *FREE).code == 0
    assert "There is no agent 'a9' to resume. Known agents: none." in seen[0]
    assert "There is no agent 'nobody'. You can write to" in seen[1]


def asked_models(program: Program, *args: str, **wanted: object) -> tuple[str, str]:
    """Which model a child was asked of, and what its parent read."""

    def model(prompt: Prompt, state: object) -> list[Json]:
        if is_child(prompt):
            return [text("done")]
        return [start(**wanted)] if step(prompt) == 0 else [text("ok")]

    with lab.server(model) as api:
        program.url = api.url
        assert program.ask("go", *FREE, *args).code == 0
        mine = [each for each in api.ledger if "be the scout" in json.dumps(each.messages[0])]
        told = json.dumps(api.ledger[-1].messages[-1])
        body = mine[0].json if mine else {}
        effort = re.search(r'"effort": ?"(\w+)"', json.dumps(body))
        return f"{body.get('model', '')} {effort[1] if effort else ''}".strip(), told


def test_an_agent_runs_on_the_model_and_effort_that_the_call_names(program: Program) -> None:
    name, _ = asked_models(program, model="haiku")
    assert name == "claude-haiku-5-5"
    name, _ = asked_models(program, model="inherit", effort="low")
    assert name == "claude-opus-5-5 low"


def test_a_model_that_is_unknown_or_not_allowed_is_an_error_in_words(program: Program) -> None:
    name, told = asked_models(program, model="mistral/mistral-large")
    assert (name, "MISTRAL_API_KEY" in told) == ("", True), told
    name, told = asked_models(program, model="no-such-model")
    assert "no-such-model" in told
    assert '"is_error": true' in told
    limits = json.dumps({"availableModels": ["opus"]})
    name, told = asked_models(program, "--settings", limits, model="haiku")
    assert name == ""
    assert "is not allowed (availableModels lists only opus)" in told
    assert "Omit model to use anthropic/claude-opus-5-5" in told
