"""The Agent tool: what becomes of its arguments, and what it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.tools.local import told
from tests.tools.world import World
from travois.permissions.access import Access
from travois.permissions.decide import Permissions, decide_permission
from travois.permissions.rules import ToolUse, parse_permission_rule
from travois.ports.agents import AgentOrder, AgentReport
from travois.ports.tool import ToolError, ToolOutcome
from travois.tools.agent import AGENT, AGENT_STOP
from travois.tools.catalog import TOOLS


class Crew:
    """Children that report at once, and remember what they were asked."""

    def __init__(self, **reports: AgentReport) -> None:
        self.kinds = {"general": "all", "explore": "looks", "My-Type": "mine", "fork": "a copy"}
        self.orders: list[AgentOrder] = []
        self.held = reports

    async def start(self, order: AgentOrder) -> AgentReport:
        self.orders.append(order)
        return AgentReport("a1", "running" if order.background else "done", "It is blue.", ("a",))

    async def resume(self, order: AgentOrder) -> AgentReport:
        self.orders.append(order)
        return AgentReport(order.resume, "running" if order.background else "done", "Still blue.")

    def reports(self) -> Mapping[str, AgentReport]:
        return self.held

    async def stop(self, id: str) -> AgentReport:
        self.held[id] = AgentReport(id, "stopped", "")
        return self.held[id]


def ask(world: World, crew: Any, **args: object) -> ToolOutcome:
    world.agents = crew  # type: ignore[attr-defined]
    return world.run(AGENT, description="look", prompt="Which colour?", **args)


def test_all_that_was_asked_goes_into_the_order(world: World) -> None:
    crew = Crew()
    outcome = ask(world, crew, name="scout", isolation="worktree", subagent_type="explore")
    assert crew.orders == [
        AgentOrder("Which colour?", "look", "explore", name="scout", worktree=True, call="t1")
    ]
    assert (told(outcome), outcome.error) == ("[agent a1: done]\nIt is blue.", False)
    assert outcome.detail == '{"agentId":"a1","status":"done","files":["a"],"usage":{}}'


def test_an_agent_that_has_ended_goes_on_with_what_the_call_says(world: World) -> None:
    crew = Crew()
    outcome = ask(world, crew, resume="a7", model="haiku", effort="low", max_turns=3)
    assert crew.orders == [
        AgentOrder(
            "Which colour?",
            "look",
            kind="",
            call="t1",
            resume="a7",
            model="haiku",
            exact=True,
            effort="low",
            turns=3,
        )
    ]
    assert told(outcome) == "[agent a7: done]\nStill blue."
    other = ask(world, crew, resume="a7", subagent_type="explore", isolation="worktree")
    assert told(other).endswith("[A resumed agent keeps its own type and isolation.]")


def test_a_fork_cannot_have_another_model(world: World) -> None:
    with pytest.raises(ToolError, match="A fork uses the model and effort of this conversation"):
        ask(world, Crew(), subagent_type="fork", model="haiku")


def test_one_in_the_background_is_only_named(world: World) -> None:
    text = told(ask(world, Crew(), run_in_background=True))
    assert text.startswith("Started in the background as agent a1.") and "blue" not in text


@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        ("", "general"),
        ("general-purpose", "general"),
        ("Explore", "explore"),
        ("my-type", "My-Type"),
        ("fork", "fork"),
    ],
)
def test_types_are_found_however_they_are_spelt(world: World, spelt: str, meant: str) -> None:
    crew = Crew()
    ask(world, crew, subagent_type=spelt)
    assert [order.kind for order in crew.orders] == [meant]


def test_an_unknown_type_is_answered_with_those_that_there_are(world: World) -> None:
    with pytest.raises(ToolError, match=r"no agent type 'tester'.*general, explore, My-Type, fork"):
        ask(world, Crew(), subagent_type="tester")


def test_neither_forks_nor_places_without_agents_start_any(world: World) -> None:
    with pytest.raises(ToolError, match="Agents cannot be started here"):
        ask(world, None)
    world.state["fork"] = "yes"
    with pytest.raises(ToolError, match="A fork cannot start agents"):
        ask(world, Crew())


def test_only_one_that_runs_is_stopped(world: World) -> None:
    world.agents = crew = Crew(  # type: ignore[attr-defined]
        a1=AgentReport("a1", "running", ""), a2=AgentReport("a2", "done", "")
    )
    assert told(world.run(AGENT_STOP, agent_id="a1")).startswith("Stopped agent a1.")
    assert told(world.run(AGENT_STOP, agent_id="a2")) == "Agent a2 had already ended (done)."
    with pytest.raises(ToolError, match=r"no agent 'a3'. Agents: a1 \(stopped\), a2 \(done\)"):
        world.run(AGENT_STOP, agent_id="a3")
    assert crew.held["a1"].state == "stopped"


def test_a_rule_holds_for_all_spellings_of_a_type(world: World) -> None:
    spelt = world.access(AGENT, description="x", prompt="x", subagent_type=" general-purpose")
    assert spelt == (Access("spawn", "general-purpose"), Access("spawn", "general"))


def verdict(kind: str, *rules: tuple[str, str], mode: str = "default") -> str:
    parsed = tuple(parse_permission_rule(text, effect) for text, effect in rules)  # type: ignore[arg-type]
    guard = Permissions(mode, parsed, ("/w",))  # type: ignore[arg-type]
    return decide_permission(guard, ToolUse("Agent", (Access("spawn", kind),), "/w", "/h")).effect


def test_agents_are_started_unasked_unless_a_rule_says_otherwise(world: World) -> None:
    access = world.access(AGENT, description="look", prompt="x", subagent_type="explore")
    assert access == (Access("spawn", "explore"),)
    assert [verdict("explore", mode=mode) for mode in ("default", "plan", "dont-ask")] == [
        "allow"
    ] * 3
    assert verdict("explore", ("Agent(explore)", "deny")) == "deny"
    assert verdict("general", ("Agent(explore)", "deny")) == "allow"
    assert verdict("explore", ("Task(explore)", "ask")) == "ask"
    assert verdict("explore", ("Agent", "deny")) == "deny"


def test_whatever_else_starts_something_is_still_asked_about() -> None:
    use = ToolUse("Unknown", (Access("spawn", "Unknown"),), "/w", "/h")
    assert decide_permission(Permissions(folders=("/w",)), use).effect == "ask"


def test_both_tools_are_declared_last_of_those_that_were_there() -> None:
    names = [tool.name for tool in TOOLS]
    assert names[names.index("Remember") + 1 :][:2] == ["Agent", "AgentStop"]
