"""Hooks that are no programs: models that check, agents that look, tools of servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.agents.test_spawn import Parts
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Ended, Finished, Hooked, Result, Spawned, User
from travois.providers.request import Request
from travois.testing import Scripted, call, say

LENDER = str(Path(__file__).parents[1] / "mcp" / "lender.py")
NO = '{"ok": false, "reason": "run the tests"}'
OK = 'Fine:\n```json\n{"ok": true}\n```'
READ = call("Read", file_path="a.txt")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("needle\n")
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Options(cwd=str(folder), sandbox=False)


def hooked(options: Options, event: str, **hook: Any) -> Options:
    text = json.dumps({"hooks": {event: [{"hooks": [hook]}]}})
    return msgspec.structs.replace(options, settings=text)


class Seen:
    """What a session came to."""

    def __init__(self, session: LiveSession) -> None:
        self._facts = [entry.fact for entry in session.runtime.agent.session.history()]

    def all(self, *kinds: type) -> list[Any]:
        return [fact for fact in self._facts if isinstance(fact, kinds)]

    @property
    def outcomes(self) -> list[str]:
        return [run.outcome for run in self.all(Hooked)]

    @property
    def results(self) -> list[str]:
        return [extract_text(fact.content) for fact in self.all(Result)]

    @property
    def notes(self) -> list[str]:
        return [extract_text(fact.content) for fact in self.all(User) if fact.origin == "hook"]


async def _ask(session: LiveSession) -> None:
    await session.ask("begin")


def play(
    options: Options, model: Any, main: Callable[[LiveSession], Awaitable[None]] = _ask
) -> Seen:
    async def run() -> Seen:
        async with LiveSession(options, model=model) as session:
            await main(session)
            return Seen(session)

    return anyio.run(run)


def asked(request: Request) -> str:
    """What a request says last."""
    return json.loads(request.body)["messages"][-1]["content"][0]["text"]


def test_a_model_may_send_the_agent_back_to_work_until_it_is_content(options: Options) -> None:
    model = Scripted(say("done"), say(NO), say("all pass"), say(OK))
    seen = play(hooked(options, "Stop", type="prompt", prompt="Were tests run? $ARGUMENTS"), model)
    assert seen.outcomes == ["blocked: run the tests", "exit 0"]
    assert seen.notes == ["run the tests"]
    first, second = (asked(model.requests[n]) for n in (1, 3))
    assert first.startswith('Were tests run? {"session_id":')
    assert ('"last_assistant_message":"done"' in first, '"all pass"' in second) == (True, True)
    assert [(one.kind, one.what) for one in seen.all(Spawned)] == [("fork", "hook")] * 2
    assert [one.outcome for one in seen.all(Finished)] == ["done", "done"]


@pytest.mark.parametrize(
    ("event", "more", "replies", "results", "ended"),
    [
        (
            "PreToolUse",
            {},
            ("seen",),
            ["Permission denied: run the tests. Nothing was run."],
            "end",
        ),
        ("PostToolUse", {}, (), ["1\tneedle"], "hook"),
        ("PostToolUse", {"continueOnBlock": True}, ("seen",), ["1\tneedle"], "end"),
    ],
)
def test_what_is_not_well_keeps_a_call_from_running_or_ends_the_turn_after_it(
    options: Options,
    event: str,
    more: dict[str, Any],
    replies: tuple[str, ...],
    results: list[str],
    ended: str,
) -> None:
    model = Scripted(READ, say(NO), *map(say, replies))
    seen = play(hooked(options, event, type="prompt", prompt="Is it well?", **more), model)
    assert [text.rstrip() for text in seen.results] == results
    assert [end.why for end in seen.all(Ended)] == [ended]
    assert asked(model.requests[1]).startswith('Is it well?\n\n{"session_id":')


def test_what_can_never_be_done_is_told_and_not_asked_for_again(options: Options) -> None:
    verdict = '{"ok": false, "reason": "there are no tests", "impossible": true}'
    seen = play(
        hooked(options, "Stop", type="prompt", prompt="?"), Scripted(say("done"), say(verdict))
    )
    assert (seen.outcomes, seen.notes) == (["exit 0"], [])


def test_a_model_that_gives_no_verdict_stops_nothing_unless_it_was_told_to(
    options: Options,
) -> None:
    words = "gave no verdict: I cannot say"
    for more, result in (({}, "1\tneedle"), ({"onFailure": "block"}, "Permission denied")):
        model = Scripted(READ, say("I cannot say"), say("seen"))
        seen = play(hooked(options, "PreToolUse", type="prompt", prompt="?", **more), model)
        assert seen.outcomes == [words]
        assert seen.results[0].startswith(result)


def test_an_agent_looks_for_itself_and_neither_hears_hooks_nor_reports_to_the_model(
    options: Options,
) -> None:
    model = Parts(
        begin=[READ, say("done"), say("done again")],
        verify=[call("Grep", pattern="needle"), say(NO), call("Grep", pattern="x"), say(OK)],
    )
    checked = hooked(options, "Stop", type="agent", prompt="verify $ARGUMENTS")
    every = json.loads(checked.settings)["hooks"]
    every["PreToolUse"] = [{"hooks": [{"type": "command", "command": "true"}]}]
    checked = msgspec.structs.replace(checked, settings=json.dumps({"hooks": every}))
    seen = play(checked, model)
    assert seen.outcomes == ["exit 0", "blocked: run the tests", "exit 0"]
    assert [(s.id, s.kind, s.call) for s in seen.all(Spawned)] == [
        ("a1", "explore", "hook"),
        ("a2", "explore", "hook"),
    ]
    assert [one.outcome for one in seen.all(Finished)] == ["done", "done"]

    async def resumed(session: LiveSession) -> None:
        assert session.runtime.agent.session.owed == {}

    play(msgspec.structs.replace(options, latest=True), Scripted(say("on")), resumed)


def test_a_tool_of_a_server_is_told_parts_of_the_event_and_speaks_like_a_program(
    options: Options,
) -> None:
    server = {"command": sys.executable, "args": [LENDER, "many", "1", "t"]}
    lent = msgspec.structs.replace(options, mcp=(json.dumps({"mcpServers": {"s": server}}),))
    given = {"a": "heard: ", "b": "${prompt} ${nothing.at.all}"}
    hook = {"type": "mcp_tool", "server": "s", "tool": "t_tool_0", "input": given}
    seen = play(hooked(lent, "UserPromptSubmit", **hook), Scripted(say("done")))
    assert seen.notes == ["<hook>\nheard: begin null\n</hook>"]
    assert seen.outcomes == ["exit 0"]


def test_a_tool_that_is_not_there_is_told_and_stops_nothing(options: Options) -> None:
    hook = {"type": "mcp_tool", "server": "s", "tool": "gone"}
    seen = play(hooked(options, "UserPromptSubmit", **hook), Scripted(say("done")))
    assert seen.outcomes == ["could not be called: There is no tool 'mcp__s__gone'"]
