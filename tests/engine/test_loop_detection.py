"""Circles of calls are broken, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import anyio
from msgspec.structs import replace

from tests.engine.fakes import MemoryLog, Place, agent, check, facts, log, play, small
from travois.core.content import extract_text
from travois.core.facts import Decided, Ended, Offloaded, Result, Sent
from travois.core.spending import Budget, Limits
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.engine.loop_detection import (
    MAX_RECENT_CALLS,
    MAX_STOPPED_REPLIES,
    REPETITION_HINTS,
    REPETITION_MARK,
)
from travois.ports.tool import AnyTool, ToolOutcome, text_outcome
from travois.ports.world import Env
from travois.providers.replies import Reply
from travois.sessions.session import Session
from travois.testing import Scripted, call, calls, say

SAME = small("Look")


def counting(name: str = "Count") -> AnyTool:
    """A tool whose result is never the same."""
    seen: list[str] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        seen.append(args.path)
        return text_outcome(f"{len(seen)} so far")

    return small(name, run)


def results(one: Agent) -> list[str]:
    return [extract_text(fact.content) for fact in facts(one, Result)]


def ran(one: Agent) -> int:
    return sum(not text.startswith(REPETITION_MARK) for text in results(one))


def stuck(*lines: Reply) -> Iterable[Reply]:
    """These lines again and again."""
    return lines * 60


def test_the_fourth_same_call_with_the_same_result_is_not_run(tmp_path: Path) -> None:
    look = call("Look", path="a")
    one = agent(tmp_path, look, look, look, look, say("I see"), tools=[SAME])
    assert play(one) == "end"
    told = (
        f"{REPETITION_MARK}1: Look with these arguments has returned the same result "
        "3 times in a row."
    )
    assert results(one) == ["saw a"] * 3 + [f"{told} {REPETITION_HINTS[0]}"]
    assert facts(one, Result)[-1].error
    assert facts(one, Decided)[-1].by == "loop"


def test_spaces_and_the_order_of_arguments_make_no_difference(tmp_path: Path) -> None:
    texts = ('{"path":"a","times":1}', '{ "times": 1, "path": "a" }')
    lines = [
        replace(line, content=(replace(line.content[0], args=text),))
        for line in (call("Look", path="a"),)
        for text in (*texts, *texts)
    ]
    one = agent(tmp_path, *lines, say("I see"), tools=[SAME])
    assert play(one) == "end"
    assert ran(one) == 3


def test_calls_that_are_not_understood_are_repeated_no_more_than_others(tmp_path: Path) -> None:
    one = agent(tmp_path, *[call("Look", wrong=1)] * 4, say("I see"), tools=[SAME])
    assert play(one) == "end"
    assert results(one)[-1].startswith(f"{REPETITION_MARK}1: ")


def test_the_model_is_told_otherwise_each_time_and_then_the_turn_ends(tmp_path: Path) -> None:
    one = agent(tmp_path, call("Look", path="a"), tools=[SAME])
    assert play(one) == "failed"
    assert ran(one) == 3
    refused = results(one)[3:]
    assert len(set(refused)) == len(refused) == MAX_STOPPED_REPLIES + 1
    assert [text.endswith(hint) for text, hint in zip(refused, REPETITION_HINTS, strict=True)] == [
        True
    ] * 3
    why = "the model kept repeating tool calls after it was stopped 2 times"
    assert facts(one, Ended) == [Ended("failed", why)]
    assert len(facts(one, Sent)) == 6


def test_a_circle_of_calls_is_broken_after_three_rounds(tmp_path: Path) -> None:
    a, b, c = (call("Look", path=path) for path in "abc")
    for circle in ((a, b), (a, b, c), (a, b, c, b)):
        one = agent(tmp_path, *stuck(*circle), tools=[SAME])
        assert play(one) == "failed"
        assert ran(one) == 3 * len(circle)
        assert f"These {len(circle)} calls have" in results(one)[ran(one)]


def test_a_circle_of_calls_side_by_side_is_broken_whole(tmp_path: Path) -> None:
    both = calls(("Look", {"path": "a"}), ("Look", {"path": "b"}))
    one = agent(tmp_path, *[both] * 4, say("I see"), tools=[SAME])
    assert play(one) == "end"
    assert results(one)[:6] == ["saw a", "saw b"] * 3
    assert [text[: len(REPETITION_MARK) + 1] for text in results(one)[6:]] == [
        f"{REPETITION_MARK}1",
        f"{REPETITION_MARK}2",
    ]


def test_results_that_differ_are_no_circle(tmp_path: Path) -> None:
    one = agent(tmp_path, *[call("Count", path="a")] * 40, say("done"), tools=[counting()])
    assert play(one) == "end"
    assert ran(one) == 40


def test_a_test_that_fails_alike_after_each_edit_is_no_circle(tmp_path: Path) -> None:
    steps = [
        line
        for number in range(20)
        for line in (call("Edit", path=f"v{number}"), call("Look", path="test"))
    ]
    tools = [SAME, small("Edit", kind="write")]
    one = agent(tmp_path, *steps, say("done"), tools=tools)
    assert play(one) == "end"
    assert ran(one) == 40


def test_who_does_something_else_may_look_again(tmp_path: Path) -> None:
    look, other = call("Look", path="a"), call("Look", path="b")
    one = agent(tmp_path, look, look, look, look, other, look, say("done"), tools=[SAME])
    assert play(one) == "end"
    assert results(one)[4:] == ["saw b", "saw a"]


def test_a_watcher_that_polls_two_hundred_times_is_never_stopped(tmp_path: Path) -> None:
    poll = replace(small("Output"), polls=True)
    nap = call("Look", path="nap")
    watching = [*[call("Output", path="job")] * 100, *(nap, call("Output", path="job")) * 50]
    model = Scripted(*watching, say("built"))
    one = agent(tmp_path, tools=[poll, SAME], model=model)
    assert play(one) == "end"
    assert ran(one) == len(watching) == 200


def test_a_resumed_session_knows_what_it_had_repeated(tmp_path: Path) -> None:
    look = call("Look", path="a")
    one = agent(tmp_path, look, tools=[SAME], budget=Budget(Limits(turns=3)))
    assert play(one) == "turns"
    again = Session(MemoryLog(log(one).entries))
    one = agent(tmp_path, look, say("I see"), tools=[SAME], session=again)
    assert anyio.run(run_turn, one) == "end"
    check(one)
    assert ran(one) == 3
    assert results(one)[-1].startswith(f"{REPETITION_MARK}1: ")


def test_a_person_may_ask_for_the_same_again(tmp_path: Path) -> None:
    look = call("Look", path="a")
    one = agent(tmp_path, look, tools=[SAME])
    assert play(one) == "failed"
    one.model = Scripted(look, look, say("still the same"))
    assert play(one, "look again") == "end"
    assert ran(one) == 5


def test_large_results_are_compared_without_what_storing_them_added(tmp_path: Path) -> None:
    async def flood(args: Place, env: Env, call: str) -> ToolOutcome:
        return text_outcome(f"kept in /spill/{call}.txt\n" + "line of text\n" * 20_000)

    chances = iter(range(1, 100))
    one = agent(
        tmp_path,
        *[call("Flood", path="a")] * 4,
        say("I see"),
        tools=[small("Flood", flood)],
        chance=lambda: next(chances) / 100,
    )
    assert play(one) == "end"
    assert len({fact.preview for fact in facts(one, Offloaded)}) == 3
    assert ran(one) == 3


def test_breaks_long_ago_do_not_count(tmp_path: Path) -> None:
    look, tool = [call("Look", path="a")] * 4, [call("Count", path="b")] * MAX_RECENT_CALLS
    model = Scripted(*(look + tool) * 4, say("done"))
    one = agent(tmp_path, tools=[SAME, counting()], model=model)
    assert play(one) == "end"
    assert len(results(one)) - ran(one) == 4
