"""Time is no pressure: what a pause does, and what it must not do."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream

from tests.context.test_manage import DONE, Line, shown, weighed, working
from tests.engine.against import LabModel, opened, say
from tests.engine.fakes import Place, agent, begun, facts, log, play, prompt, small, with_parts
from travois.context.layers import ContextLayers, IdlePolicy
from travois.context.window import current_model
from travois.core.content import Text
from travois.core.facts import Cleared, Compacted, Result, User
from travois.core.models import Price
from travois.core.tokens import context_tokens, warn_threshold
from travois.engine.agent import Agent
from travois.engine.loop import run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Env, Event, UserWarned
from travois.testing import Scripted, calls
from travois.testing import say as reply
from travois_lab import Prompt, call, text
from travois_lab.objects import Json


def rested(one: Agent, seconds: float) -> None:
    """Let so much time pass, and ask for one more word."""
    now = log(one).entries[-1].at + seconds
    one.runtime.clock = lambda: now
    one.model = Scripted(weighed(reply("back")))
    play(one, "and now?")


def reads(
    folder: Path, rounds: int, *, window: int = 200_000, price: Price | None = None, **more: Any
) -> Agent:
    """An agent that has read so many files, of about 1,000 tokens each, without a pause."""
    words = "result # " + "filler words that mean nothing " * 100

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        return text_outcome(words.replace("#", args.path))

    tool = small("Read", run)
    session = begun((tool,), window=window, output=4_000, price=price or Price())
    lines: list[Line] = [read(number) for number in range(rounds)]
    one = agent(folder, *lines, DONE, tools=(tool,), session=session, **more)
    one.runtime.clock = lambda: log(one).entries[-1].at + 1
    play(one)
    return one


def read(number: int) -> Line:
    return weighed(calls(("Read", {"path": str(number)})))


@pytest.mark.parametrize("window", [200_000, 1_000_000])
@pytest.mark.parametrize("seconds", [301.0, 1_800.0, 3_500.0])
def test_a_pause_of_minutes_changes_nothing_where_there_is_room(
    tmp_path: Path, window: int, seconds: float
) -> None:
    one = reads(tmp_path, 40, window=window)
    before = context_tokens(one.session.view)
    rested(one, seconds)
    assert facts(one, Cleared, Compacted) == []
    assert context_tokens(one.session.view) >= before - 100


def test_after_an_hour_old_results_are_cleared_and_that_is_told_in_one_line(
    tmp_path: Path,
) -> None:
    one = reads(tmp_path, 40)
    with one.session.watch() as events:
        rested(one, 3_700.0)
        told = [e.text for e in _all(events) if isinstance(e, UserWarned)]
    (cleared,) = facts(one, Cleared)
    assert len(cleared.calls) == 35
    assert facts(one, Compacted) == []
    assert len(told) == 1 and "\n" not in told[0]
    assert told[0].startswith("Cleared 35 old tool results after a 62-minute pause: ")
    assert_shrunk(told[0])


def test_results_that_give_way_before_the_window_is_full_are_told_in_one_line(
    tmp_path: Path,
) -> None:
    """Where reading the cache costs nearly as much as writing it, clearing early pays."""
    dear = Price(input=1.0, output=1.0, read=0.9, write=1.0)
    one = reads(
        tmp_path, 60, window=100_000, price=dear, layers=ContextLayers(pressed_tokens=10_000)
    )
    while context_tokens(one.session.view) < warn_threshold(current_model(one)):
        one.session.append(User((Text("some more words " * 500),), origin="human"))
    assert facts(one, Cleared) == []
    one.model = Scripted(weighed(reply("on")))
    with one.session.watch() as events:
        play(one, "and now?")
        told = [e.text for e in _all(events) if isinstance(e, UserWarned)]
    (cleared,) = facts(one, Cleared)
    assert facts(one, Compacted) == []
    (line,) = told
    assert line.startswith(f"Cleared {len(cleared.calls)} old tool results to make room: ")
    assert_shrunk(line)


def assert_shrunk(line: str) -> None:
    sizes = re.search(r": ([\d.]+)k → ([\d.]+)k tokens\. The full text is kept on disk\.$", line)
    assert sizes is not None, line
    assert float(sizes[2]) < float(sizes[1])


def _all(events: MemoryObjectReceiveStream[Event]) -> list[Event]:
    return [events.receive_nowait() for _ in range(events.statistics().current_buffer_used)]


def test_with_half_of_the_threshold_in_use_results_go_once_the_cache_is_gone(
    tmp_path: Path,
) -> None:
    one = reads(tmp_path, 60, window=100_000)
    rested(one, 200.0)
    assert facts(one, Cleared) == []
    one = reads(tmp_path, 60, window=100_000)
    rested(one, 301.0)
    (cleared,) = facts(one, Cleared)
    assert 5 < len(cleared.calls) < 50, "more of the newest stay than after an hour"
    assert facts(one, Compacted) == []


def test_a_long_call_inside_a_turn_is_no_pause(tmp_path: Path) -> None:
    """A test suite may run for hours: what was read before it is needed right after it."""
    one = reads(tmp_path, 60, window=100_000)
    later = 0.0

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        nonlocal later
        later += 7_200.0
        return text_outcome("all tests pass")

    with_parts(one, tools={"Read": small("Read", run)})
    one.model = Scripted(read(100), read(101), DONE)
    one.runtime.clock = lambda: log(one).entries[-1].at + 1 + later
    play(one, "run the tests")
    assert later == 14_400.0
    assert facts(one, Cleared, Compacted) == []


@pytest.mark.parametrize("idle", ["normal", "off"])
def test_a_pause_never_compacts_by_rules_alone(tmp_path: Path, idle: IdlePolicy) -> None:
    one, _ = working(tmp_path, 85, window=128_000, layers=ContextLayers(idle=idle, clear=False))
    one.runtime.clock = lambda: log(one).entries[-1].at + 1
    play(one)
    assert context_tokens(one.session.view) > 84_000
    rested(one, 8_000.0)
    assert facts(one, Compacted) == []


def test_a_pause_may_compact_with_a_summary_that_is_up_to_date(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 85, window=128_000, layers=ContextLayers(clear=False, notes=False))
    one.runtime.clock = lambda: log(one).entries[-1].at + 1
    play(one)

    jobs: list[Callable[[], Awaitable[None]]] = []

    async def drafted() -> None:
        one.runtime.background = jobs.append
        one.model = Scripted(weighed(reply("The parser is done, the lexer is next.")))
        prompt(one, "go on")
        assert await run_turn(one) == "end"
        for job in jobs:
            await job()
        one.runtime.background = None

    anyio.run(drafted)
    rested(one, 301.0)
    (fact,) = facts(one, Compacted)
    assert (fact.trigger, fact.by) == ("cold", "model")
    assert "The parser is done, the lexer is next." in shown(one)


def test_off_means_that_time_does_nothing(tmp_path: Path) -> None:
    one = reads(tmp_path, 60, window=100_000, layers=ContextLayers(idle="off"))
    rested(one, 100_000.0)
    assert facts(one, Cleared, Compacted) == []


def test_where_the_provider_clears_a_pause_of_minutes_changes_nothing_either(
    tmp_path: Path,
) -> None:
    def reading(prompt: Prompt, state: dict[str, int]) -> list[Json]:
        state["n"] = state.get("n", 0) + 1
        return [call("Read", path=f"file{state['n']}")] if state["n"] % 20 else [text("done")]

    model = LabModel(reading)
    one, _ = opened(tmp_path, model, layers=ContextLayers())
    assert say(one, "go") == "end"
    model.world.clock.advance(400.0)
    assert say(one, "go") == "end"
    assert facts(one, Cleared) == []
    assert len(facts(one, Result)) == 38
    model.world.clock.advance(3_700.0)
    assert say(one, "go") == "end"
    assert len(facts(one, Cleared)) == 1
