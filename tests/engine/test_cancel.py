"""Stopping a turn anywhere: nothing is left open, nothing that happened is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.engine.fakes import (
    Place,
    RecordingPerson,
    agent,
    begun,
    check,
    facts,
    log,
    play,
    prompt,
    small,
)
from travois.core.content import Call, Text
from travois.core.facts import Decided, Ended, Entry, Result
from travois.core.models import ApiProtocol, Usage
from travois.engine.agent import Agent
from travois.engine.loop import NEVER_RAN_RESULT, STOPPED_RESULT, run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Command, Env, PersonAnswer, content_digest
from travois.providers.replies import ApiError, Reply
from travois.testing import Scripted, calls, say

ran: list[str] = []


async def working(args: Place, env: Env, call: str) -> ToolOutcome:
    for _ in range(args.times):
        env.progress(args.path)
        await anyio.lowlevel.checkpoint()
    ran.append(call)
    return text_outcome(f"saw {args.path}")


TOOLS = [
    small("Look", working),
    small("Edit", working, kind="write"),
    small("Fetch", working, kind="net"),
]


async def slow(seconds: float) -> None:
    for _ in range(8):
        await anyio.lowlevel.checkpoint()


def lines() -> Iterator[Reply | ApiError]:
    """A turn with everything in it: parallel calls, writes, questions, retries, cuts, nonsense."""

    def look(*paths: str, times: int = 6) -> list[tuple[str, dict[str, object]]]:
        return [("Look", {"path": path, "times": times}) for path in paths]

    write: tuple[str, dict[str, object]] = ("Edit", {"path": "a", "times": 6})
    fetch: tuple[str, dict[str, object]] = ("Fetch", {"path": "https://x", "times": 4})
    yield calls(*look("a", "b", "c"), text="let me look")
    yield ApiError("overloaded", "busy")
    yield calls(*look("a", "b"), write, *look("a"), write)
    yield calls(fetch, fetch, ("Nope", {}))
    yield ApiError("field", "no", field="cache_control")
    cut = (Text("long"), *calls(*look("d")).content, Call("", "Look", '{"pa'))
    yield Reply(cut, stop="length", usage=Usage(input=1))
    yield Reply((Text("hm"),), stop="pause", usage=Usage(input=1))
    yield calls(*look(*(str(n) for n in range(18)), times=2))
    yield calls(write, write, *look("z"))
    yield say("done")


def everything(folder: Path, protocol: ApiProtocol = "anthropic") -> Agent:
    ran.clear()
    person = RecordingPerson(PersonAnswer(allow=True), PersonAnswer(allow=False, reason="no"))
    session = begun(TOOLS, protocol)
    return prompt(agent(folder, *lines(), tools=TOOLS, session=session, person=person, sleep=slow))


def stopped_after(one: Agent, steps: int) -> bool:
    """Run a turn and stop it after so many steps of the event loop; whether it was stopped."""
    over = False

    async def main() -> None:
        nonlocal over
        async with anyio.create_task_group() as group:

            async def run() -> None:
                nonlocal over
                await run_turn(one)
                over = True

            group.start_soon(run)
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()

    anyio.run(main)
    return not over


def stopped_at(one: Agent, number: int) -> bool:
    """Run a turn and stop it while its event of that number is being told."""
    count, tell = 0, one.session._notify_watchers

    async def main() -> bool:
        with anyio.CancelScope() as scope:

            def counting(event: Any) -> None:
                nonlocal count
                tell(event)
                count += 1
                if count == number:
                    scope.cancel()

            one.session._notify_watchers = counting  # type: ignore[method-assign]
            await run_turn(one)
        one.session._notify_watchers = tell  # type: ignore[method-assign]
        return count >= number

    return anyio.run(main)


def holds(one: Agent) -> None:
    """What must be true of a turn that was stopped, and that the next one works."""
    check(one)
    entries = log(one).entries
    assert isinstance(entries[-1].fact, Ended)
    assert log(one).synced == len(entries)
    assert len(facts(one, Ended)) == 1
    results = facts(one, Result)
    texts = {result.call: result.content[0].text for result in results}
    assert len(texts) == len(results)
    allowed = {fact.call for fact in facts(one, Decided) if fact.verdict == "allow"}
    for call, text in texts.items():
        assert (text == STOPPED_RESULT) <= (call in allowed)
        assert (text == NEVER_RAN_RESULT) <= (call not in allowed)
        assert (call in ran) <= (text != NEVER_RAN_RESULT)
    one.model = Scripted(say("as you wish"), judge=one.model._judge)  # type: ignore[attr-defined]
    assert play(one, "stop that, do something else") == "end"


def sweep(
    folder: Path, stop: Any, protocol: ApiProtocol, *, stride: int = 1
) -> list[tuple[Entry, ...]]:
    """Stop at point 1, 2, 3 and so on until a turn comes to its end by itself."""
    found: list[tuple[Entry, ...]] = []
    for number in range(1, 5_000, stride):
        one = everything(folder, protocol)
        was_stopped = stop(one, number)
        found.append(tuple(log(one).entries))
        holds(one)
        if not was_stopped:
            return found
    raise AssertionError("the turn never ends")


@pytest.mark.parametrize("protocol", ["anthropic", "chat"])
def test_a_turn_stopped_at_any_step_of_the_loop_can_go_on(
    tmp_path: Path, protocol: ApiProtocol
) -> None:
    found = sweep(tmp_path, stopped_after, protocol)
    assert len(found) >= 120
    assert isinstance(found[-1][-1].fact, Ended) and found[-1][-1].fact.why == "end"
    assert {entries[-1].fact for entries in found[:-1]} <= {Ended("aborted"), Ended("end")}


@pytest.mark.slow
def test_a_turn_stopped_at_any_event_can_go_on(tmp_path: Path) -> None:
    found = sweep(tmp_path, stopped_at, "anthropic")
    ends = [entries[-1].fact.why for entries in found]  # type: ignore[union-attr]
    assert ends.count("aborted") >= 200
    assert ends[-1] == "end"


def test_a_turn_stopped_at_many_events_can_go_on_in_the_other_protocol(tmp_path: Path) -> None:
    found = sweep(tmp_path, stopped_at, "chat", stride=5)
    assert len(found) >= 40


def test_a_turn_stopped_before_it_began_still_ends(tmp_path: Path) -> None:
    one = everything(tmp_path)

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await run_turn(one)

    anyio.run(main)
    holds(one)


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_real_programs_and_files_can_be_stopped_too(tmp_path: Path, steps: int) -> None:
    target = tmp_path / "a"
    target.write_bytes(b"old")

    async def write(args: Place, env: Env, call: str) -> ToolOutcome:
        await env.files.replace(str(target), b"new", expect=content_digest(b"old"))
        return text_outcome("written")

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        await env.processes.run(Command(("sleep", "30"), env.root), timeout=60)
        raise AssertionError("it slept to the end")

    tools = [small("Edit", write, kind="write"), small("Look", run, kind=None)]
    wanted = calls(("Edit", {"path": "a"}), ("Look", {"path": "b"}))
    one = prompt(agent(tmp_path, wanted, say("done"), tools=tools))
    assert stopped_after(one, steps)
    check(one)
    assert target.read_bytes() in (b"old", b"new")
    texts = [result.content[0].text for result in facts(one, Result)]
    assert set(texts) <= {"written", STOPPED_RESULT, NEVER_RAN_RESULT}
    if "written" in texts:
        assert target.read_bytes() == b"new"


def test_a_tool_that_finishes_while_being_stopped_keeps_its_result(tmp_path: Path) -> None:
    async def stubborn(args: Place, env: Env, call: str) -> ToolOutcome:
        with anyio.CancelScope(shield=True):
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
        return text_outcome("finished")

    tools = [small("Look", stubborn)]
    wanted = calls(("Look", {"path": "a"}))
    one = prompt(agent(tmp_path, wanted, say("done"), tools=tools))
    assert stopped_after(one, 25)
    check(one)
    assert [result.content[0].text for result in facts(one, Result)] == ["finished"]
    assert facts(one, Ended) == [Ended("aborted")]
