"""What hooks hear of a session besides calls: models, tasks, commands, servers, going on."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.mcp.test_session_servers import LENDER, Asked
from travois.acp import updates as telling
from travois.compose import commands as custom
from travois.compose import hooks as hooking
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.compose.turn_tally import TurnTally
from travois.core.content import Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Result, User
from travois.headless import codex_json as codex
from travois.headless.stream_json import StreamJsonWriter
from travois.hooks.fire import on_idle
from travois.ports.world import ActivityShown, TerminalSignal
from travois.skills.command_text import parse_command
from travois.testing import Scripted, call, say

Main = Callable[[LiveSession], Awaitable[None]]
COMMON = (
    *("session_id", "transcript_path", "cwd", "permission_mode", "model", "prompt_id", "turn_id"),
    "hook_event_name",
)


class Ground:
    """A folder and a home, and a hook that keeps what it is told."""

    def __init__(self, path: Path) -> None:
        self._told = path / "told.jsonl"
        self.recorder = {"type": "command", "command": f"cat >> {self._told}; echo >> {self._told}"}
        (path / "work").mkdir()
        self.options = Options(cwd=str(path / "work"), sandbox=False)

    def hooked(self, **events: Any) -> Options:
        """Options with these hooks behind one that listens."""
        tree = {name: [{"hooks": [self.recorder, *more]}] for name, more in events.items()}
        return replace(self.options, settings=json.dumps({"hooks": tree}))

    def heard(self) -> bool:
        return self._told.exists() and self._told.read_text().endswith("\n")

    def told(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._told.read_text().splitlines()]
        return [{k: v for k, v in line.items() if k not in COMMON} for line in lines]


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setenv("TRAVOIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    return Ground(tmp_path)


def play(options: Options, main: Main, *lines: Any, person: Asked | None = None) -> None:
    async def run() -> None:
        async with LiveSession(options, model=Scripted(*lines), person=person) as session:
            await main(session)

    anyio.run(run)


def answer(**fields: Any) -> dict[str, str]:
    return {"type": "command", "command": f"cat <<'E'\n{json.dumps(fields)}\nE"}


def specific(**fields: Any) -> dict[str, str]:
    return answer(hookSpecificOutput=fields)


def refuse(why: str) -> dict[str, str]:
    return {"type": "command", "command": f"echo '{why}' >&2; exit 2"}


@pytest.mark.parametrize(
    ("said", "chosen", "changed"),
    [
        ((), "", True),
        ((specific(permissionDecision="allow"),), "", True),
        ((specific(permissionDecision="deny", permissionDecisionReason="dear"),), "", False),
        ((refuse("dear"),), "", False),
        ((specific(permissionDecision="ask"),), "Yes", True),
        ((specific(permissionDecision="ask"),), "No", False),
    ],
)
def test_hooks_hear_before_and_after_another_model_is_chosen_and_may_keep_it_out(
    ground: Ground, said: tuple[dict[str, str], ...], chosen: str, changed: bool
) -> None:
    options = ground.hooked(PreModelSwitch=said, PostModelSwitch=())

    async def main(session: LiveSession) -> None:
        async def switch() -> None:
            agent, name = session.runtime.agent, "claude-haiku-4-5"
            async with hooking.fire_model_switch(agent, name, source="command"):
                session.switch(name)

        before = session.runtime.model.name
        if changed:
            await switch()
        else:
            with pytest.raises(UserError, match=f"The model stays {before}"):
                await switch()
        assert (session.runtime.model.name != before) is changed

    play(options, main, say(""), person=Asked(choose=chosen))
    told = ground.told()
    assert len(told) == 1 + changed
    assert told[0].pop("context_tokens") >= 0
    assert told[0] == {
        "from_model": "scripted/scripted",
        "to_model": "anthropic/claude-haiku-4-5",
        "requested_model": "claude-haiku-4-5",
        "source": "command",
        "prompt_cache_warm": False,
    }


def test_what_is_put_on_the_list_and_done_is_told_and_may_be_refused(ground: Ground) -> None:
    failing = {"type": "command", "command": "grep -q tests && echo 'they fail' >&2 && exit 2"}

    def todos(*states: str) -> Any:
        names = ("parser", "tests")
        listed = [{"content": n, "status": s} for n, s in zip(names, states, strict=True)]
        return call("TodoWrite", todos=listed)

    async def main(session: LiveSession) -> None:
        await session.ask("go")
        facts = [entry.fact for entry in session.runtime.agent.session.history()]
        results = [extract_text(fact.content) for fact in facts if isinstance(fact, Result)]
        assert results[-1] == "The list was not changed. A hook said: they fail"

    options = ground.hooked(TaskCreated=(), TaskCompleted=(failing,))
    states = (("in_progress", "pending"), ("completed", "pending"), ("completed", "completed"))
    play(options, main, *(todos(*one) for one in states), say("Done."))
    parser = {"task_id": "1", "task_subject": "parser"}
    tests = {"task_id": "2", "task_subject": "tests"}
    assert ground.told() == [parser, tests, parser, tests]


def test_a_session_that_goes_on_is_told_how_it_stands(ground: Ground) -> None:
    options = ground.hooked(SessionStart=(specific(sessionTitle="parser"),))

    async def ask(session: LiveSession) -> None:
        await session.ask("go")

    play(options, ask, say("Done."))
    play(replace(options, latest=True), ask, say("More."))
    first, again = ground.told()
    assert first == {"source": "startup"}
    assert again.pop("context_tokens") > 0
    assert again.pop("seconds_since_last_response") >= 0
    expired = {"prompt_cache_likely_expired": True}
    assert again == {"source": "resume", "session_title": "parser", **expired}


def test_a_command_of_the_users_own_can_be_kept_from_becoming_a_prompt(ground: Ground) -> None:
    ship = parse_command("ship", "Ship $ARGUMENTS.", origin="/c/ship.md")

    async def main(session: LiveSession) -> None:
        with pytest.raises(UserError, match="/ship was not run") as fault:
            await custom.expand_typed_command(session, {"ship": ship}, (Text("/ship it all"),))
        assert fault.value.why == "a hook says: not on Friday"
        assert await custom.expand_typed_command(session, {}, (Text("/ship it"),)) == (
            Text("/ship it"),
        )

    play(ground.hooked(UserPromptExpansion=(refuse("not on Friday"),)), main, say(""))
    assert ground.told() == [
        {
            "expansion_type": "slash_command",
            "command_name": "ship",
            "command_args": "it all",
            "prompt": "/ship it all",
            "command_source": "/c/ship.md",
        }
    ]


@pytest.mark.parametrize(
    ("before", "after", "answered"),
    [
        (refuse("no"), None, {"action": "decline"}),
        (specific(action="accept", content={"name": "Bo"}), None, {"name": "Bo"}),
        (None, None, {"name": "Ann"}),
        (None, specific(action="accept", content={"name": "X"}), {"name": "X"}),
        (None, refuse("no"), {"action": "decline"}),
    ],
)
def test_a_servers_question_is_answered_by_a_hook_or_its_answer_changed(
    ground: Ground, before: Any, after: Any, answered: dict[str, str]
) -> None:
    pytest.importorskip("mcp")
    server = {"command": sys.executable, "args": [LENDER, "asks"]}
    options = replace(
        ground.hooked(
            Elicitation=(before,) if before else (), ElicitationResult=(after,) if after else ()
        ),
        mcp=(json.dumps({"mcpServers": {"s": server}}),),
        allowed=("mcp__s",),
    )

    async def main(session: LiveSession) -> None:
        for link in session.runtime.mcp_servers.links:
            await link.wait_until_started()
        await session.ask("go")
        facts = [entry.fact for entry in session.runtime.agent.session.history()]
        (said,) = [extract_text(fact.content) for fact in facts if isinstance(fact, Result)]
        told = json.loads(said[said.index("{") : said.rindex("}") + 1])
        assert {**told, **(told.get("content") or {})}.items() >= answered.items()

    play(options, main, call("McpCall", tool="mcp__s__ask"), say("."), person=Asked(choose="Ann"))
    asked = ground.told()[0]
    assert (asked["mcp_server_name"], asked["mode"]) == ("s", "form")
    assert list(asked["requested_schema"]["properties"]) == ["name", "sure", "n"]


def test_a_person_is_reminded_only_after_something_was_said(ground: Ground) -> None:
    async def main(session: LiveSession) -> None:
        agent = session.runtime.agent
        await on_idle(agent, after=0.0)
        await session.ask("go")
        await on_idle(agent, after=0.0)
        while not ground.heard():  # noqa: ASYNC110 - another process writes it
            await anyio.sleep(0.02)

    play(ground.hooked(Notification=()), main, say("Done."))
    (told,) = ground.told()
    assert told["notification_type"] == "idle_prompt"


def test_what_goes_on_in_the_background_is_told_at_the_end(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    keep = {"type": "command", "command": "echo [$OTEL_SERVICE_NAME] > otel"}

    async def main(session: LiveSession) -> None:
        await session.ask("go")

    background = call("Bash", command="sleep 60", run_in_background=True)
    options = replace(ground.hooked(Stop=(keep,)), allowed=("Bash",))
    play(options, main, background, say("Done."))
    ((task,),) = [one["background_tasks"] for one in ground.told()]
    assert (task["type"], task["status"]) == ("shell", "running")
    assert "sleep 60" in task["description"]
    assert Path(options.cwd, "otel").read_text() == "[]\n"


def test_what_a_hook_shows_in_a_terminal_is_nothing_to_clients(ground: Ground) -> None:
    async def main(session: LiveSession) -> None:
        choices: Any = None
        for shown in (ActivityShown("checking"), TerminalSignal("\x07")):
            assert list(codex.CodexJsonWriter().lines(shown)) == []
            assert list(telling.AcpUpdates(session.runtime.agent, choices).updates(shown)) == []
            assert StreamJsonWriter(session.id, TurnTally(session.runtime.model)).lines(shown) == []

    play(ground.options, main, say(""))


def test_what_a_hook_says_at_the_start_comes_before_the_first_prompt(ground: Ground) -> None:
    async def main(session: LiveSession) -> None:
        await session.ask("go")
        view = session.runtime.agent.session.view
        said = [one.fact for one in view.items if isinstance(one.fact, User)]
        told = [extract_text(one.content) for one in said if one.origin in ("hook", "human")]
        assert told == ["<hook>\nbe kind\n</hook>", "go"]

    start = specific(initialUserMessage="be kind")
    play(ground.hooked(SessionStart=(start,)), main, say("Done."))
