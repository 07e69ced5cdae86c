"""SendMessage: to whom it goes, in whose name, and what it may not do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from tests.engine import fakes
from tests.tools.world import World
from travois.agents.mailbox import AgentOutbox
from travois.core.content import Text, extract_text
from travois.core.facts import Changed, Decided, Ended, Epoch, Result, Sent, ToolSpec
from travois.engine.agent import Agent, ParentLink
from travois.permissions.access import Access
from travois.permissions.decide import Permissions
from travois.permissions.rules import parse_permission_rule
from travois.ports.agents import AgentOrder, AgentReport
from travois.ports.tool import ToolError, ToolOutcome
from travois.providers.json_schema import build_json_schema
from travois.testing import call, say
from travois.tools.agent import SEND_MESSAGE


class Crew:
    """Agents of one process, of whom these can be told something."""

    kinds: Mapping[str, str] = {}

    def __init__(self, *running: str, ended: str = "") -> None:
        self.told: list[tuple[str, str, str]] = []
        self._running = running
        self._ended = ended

    def send_message(self, name: str, text: str, *, sender: str) -> bool:
        if name not in (*self._running, "parent"):
            return False
        self.told.append((name, text, sender))
        return True

    def reports(self) -> Mapping[str, AgentReport]:
        ended = {self._ended: AgentReport(self._ended, "done", "")} if self._ended else {}
        return ended | {id: AgentReport(id, "running", "") for id in self._running}

    async def start(self, order: AgentOrder) -> AgentReport:
        raise AssertionError

    async def resume(self, order: AgentOrder) -> AgentReport:
        self.told.append((order.resume, order.prompt, order.sender))
        return AgentReport(order.resume, "running", "")

    def find(self, name: str) -> str:
        return name if name in (*self._running, self._ended) else ""

    async def stop(self, id: str) -> AgentReport:
        raise AssertionError

    async def wait_for_news(self) -> bool:
        return False


class Courier:
    """A way to others that remembers what it carried."""

    def __init__(self, *team: str) -> None:
        self.carried: list[tuple[str, str, str]] = []
        self._team = team

    def teammates(self) -> tuple[str, ...]:
        return self._team

    async def deliver(self, to: str, text: str, *, sender: str = "") -> str:
        self.carried.append((to, text, sender))
        return f"{to} was told."


def world(tmp_path: Path, **more: Any) -> World:
    """One whose calls are those of an agent with this company."""
    found = World(tmp_path)
    agent = fakes.agent(found.folder, **more)
    found.outbox = AgentOutbox(agent)  # type: ignore[attr-defined]
    return found


def send(world: World, to: str, message: str = "", **more: Any) -> ToolOutcome:
    return world.run(SEND_MESSAGE, to=to, message=message, **more)


BORN = ParentLink("a1", "general")


def test_a_child_is_told_in_its_parent_s_name(tmp_path: Path) -> None:
    below = Crew("a1")
    outcome = send(world(tmp_path, agents=below), "a1", "look at b.py")
    assert outcome == ToolOutcome((Text("a1 will see it at the next step."),))
    assert below.told == [("a1", "look at b.py", "parent")]


def test_parent_and_siblings_are_told_in_the_child_s_own_name(tmp_path: Path) -> None:
    above, below = Crew("a1", "a2"), Crew("a1.1")
    mine = world(tmp_path, agents=below, above=above, birth=BORN)
    for name in ("parent", "a2", "a1.1"):
        send(mine, name, "hello")
    assert above.told == [("parent", "hello", "a1"), ("a2", "hello", "a1")]
    assert below.told == [("a1.1", "hello", "parent")]


@pytest.mark.parametrize("to", ["nobody", "a1", "crew:ada", "parents"])
def test_whoever_is_not_there_is_named_with_those_who_are(tmp_path: Path, to: str) -> None:
    mine = world(tmp_path, above=Crew("a1", "a2", ended="a0"), birth=BORN)
    with pytest.raises(ToolError, match=rf"no agent '{to}'. You can write to: parent, a2\.$"):
        send(mine, to, "hello")


def test_an_agent_that_has_ended_goes_on_with_the_message(tmp_path: Path) -> None:
    crew = Crew("a2", ended="a0")
    told = send(world(tmp_path, above=crew, birth=BORN), "a0", "one more thing")
    assert crew.told == [("a0", "one more thing", "a1")]
    assert extract_text(told.content).startswith("a0 had ended and resumes in the background")


def test_one_of_the_team_is_called_by_name_and_others_by_address(tmp_path: Path) -> None:
    courier = Courier("ada")
    mine = world(tmp_path, courier=courier, birth=BORN)
    for to in ("ada", "crew:bob", "session:12345678"):
        assert send(mine, to, "hello").content == (Text(f"{to} was told."),)
    assert [to for to, _, _ in courier.carried] == ["ada", "crew:bob", "session:12345678"]
    assert {sender for _, _, sender in courier.carried} == {"a1"}
    with pytest.raises(ToolError, match="You can write to: ada"):
        send(mine, "bob", "hello")


def test_all_are_all_that_run_here_and_the_team(tmp_path: Path) -> None:
    above, below, courier = Crew("a1", "a2"), Crew("a1.1", ended="a1.2"), Courier("ada")
    mine = world(tmp_path, agents=below, above=above, birth=BORN, courier=courier)
    outcome = send(mine, "all", "stop")
    assert extract_text(outcome.content) == "parent, a1.1, a2, ada will see it at the next step."
    told = [name for name, _, _ in (*above.told, *below.told, *courier.carried)]
    assert sorted(told) == ["a1.1", "a2", "ada", "parent"]
    with pytest.raises(ToolError, match="no other agents to write to"):
        send(world(tmp_path), "all", "stop")


def test_a_long_text_goes_by_reference(tmp_path: Path) -> None:
    below, kept = Crew("a1"), dict[str, bytes]()
    found = World(tmp_path)
    agent = fakes.agent(found.folder, agents=below)

    def spill(name: str, data: bytes) -> str:
        kept[name] = data
        return "/kept"

    agent.world = replace(agent.world, spill=spill)
    anyio.run(AgentOutbox(agent).send, "a1", "x" * 20_001)
    ((_, text, _),) = below.told
    assert text == f"{'x' * 2_000}\n[20,001 characters in total; full text in /kept]"
    assert list(kept.values()) == [b"x" * 20_001]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"type": "shutdown_request"}, '{"type":"shutdown_request","request_id":"t1"}'),
        (
            {"type": "plan_approval_request", "message": "1. look"},
            '{"type":"plan_approval_request","request_id":"t1","plan":"1. look"}',
        ),
        (
            {"type": "plan_approval_response", "request_id": "r", "approve": True},
            '{"type":"plan_approval_response","request_id":"r","approve":true}',
        ),
        (
            {"type": "shutdown_response", "request_id": "r", "message": "not yet"},
            '{"type":"shutdown_response","request_id":"r","approve":false,"reason":"not yet"}',
        ),
    ],
)
def test_formal_messages_travel_as_typed_text(
    tmp_path: Path, more: dict[str, Any], text: str
) -> None:
    below = Crew("a1")
    assert send(world(tmp_path, agents=below), "a1", **more).changes == ()
    assert below.told == [("a1", text, "parent")]


@pytest.mark.parametrize("more", [{}, {"message": " \n"}, {"type": "plan_approval_request"}])
def test_an_empty_message_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ToolError, match="empty"):
        send(world(tmp_path, agents=Crew("a1")), "a1", **more)


# --- what it may ----------------------------------------------------------------------------------


def test_only_explicit_addresses_reach_beyond_process_and_team(tmp_path: Path) -> None:
    mine = world(tmp_path)
    for to in ("a1", "parent", "all", "ada"):
        assert mine.access(SEND_MESSAGE, to=to) == ()
    assert mine.access(SEND_MESSAGE, to="session:12") == (Access("tell", "session:12"),)


def test_other_sessions_are_written_to_only_if_somebody_says_so(tmp_path: Path) -> None:
    def decided(*rules: str, mode: Any = "default") -> tuple[str, str]:
        allowed = tuple(parse_permission_rule(rule, "allow") for rule in rules)
        guard = Permissions(mode=mode, rules=allowed, folders=(str(tmp_path),))
        reply = call("SendMessage", to="crew:ada", message="hi")
        agent = writer(tmp_path, reply, guard=guard, courier=Courier())
        fakes.play(agent)
        (fact,) = fakes.facts(agent, Decided)
        return fact.verdict, fact.because

    assert decided("SendMessage(crew:*)") == ("allow", "rule: allow SendMessage(crew:*)")
    assert decided("SendMessage(session:*)")[0] == "deny"
    assert decided()[0] == "deny"
    assert decided(mode="plan")[0] == "deny"
    assert decided(mode="bypass")[0] == "allow"


# --- ending by agreement --------------------------------------------------------------------------


def writer(tmp_path: Path, *replies: Any, **more: Any) -> Agent:
    """An agent that can send messages, and whose model does so."""
    spec = ToolSpec(
        SEND_MESSAGE.name, SEND_MESSAGE.description, build_json_schema(SEND_MESSAGE.args)
    )
    session = fakes.begun()
    session.append(Epoch(fakes.card(), "Be brief.", (spec,)))
    return fakes.agent(
        tmp_path, *replies, say("done"), tools=(SEND_MESSAGE,), session=session, **more
    )


def test_who_agrees_to_end_ends_after_its_answer(tmp_path: Path) -> None:
    reply = call("SendMessage", to="parent", type="shutdown_response", request_id="r", approve=True)
    above = Crew("a1")
    agent = writer(tmp_path, reply, above=above, birth=BORN)
    assert fakes.play(agent) == "end"
    assert fakes.facts(agent, Changed, Ended) == [
        Changed("ending", "parent"),
        Ended("end", "parent asked it to end"),
    ]
    assert len(fakes.facts(agent, Sent)) == 1
    assert fakes.play(agent, "one more thing") == "end"
    assert fakes.facts(agent, Ended)[-1] == Ended("end")


def test_who_does_not_agree_goes_on(tmp_path: Path) -> None:
    reply = call("SendMessage", to="parent", type="shutdown_response", message="tests still run")
    agent = writer(tmp_path, reply, above=Crew("a1"), birth=BORN)
    assert fakes.play(agent) == "end"
    assert len(fakes.facts(agent, Sent)) == 2


def test_an_answer_that_nobody_got_ends_nothing(tmp_path: Path) -> None:
    reply = call("SendMessage", to="parent", type="shutdown_response", approve=True)
    agent = writer(tmp_path, reply)
    fakes.play(agent)
    (result,) = fakes.facts(agent, Result)
    assert result.error and len(fakes.facts(agent, Sent)) == 2
