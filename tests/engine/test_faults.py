"""I15: whatever breaks outside, no fact that was acknowledged is lost, and the session goes on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engine.fakes import (
    OPENED,
    MemoryLog,
    Place,
    agent,
    check,
    epoch,
    facts,
    log,
    play,
    prompt,
    small,
)
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Ended, Entry, Result, Sent, User
from travois.core.view import project_view
from travois.engine.agent import Agent
from travois.engine.loop import NEVER_RAN_RESULT, run_turn
from travois.ports.tool import ToolOutcome, text_outcome
from travois.ports.world import Command, Env, PermissionQuestion, PersonAnswer
from travois.providers.replies import ApiError
from travois.sessions import log_file as store
from travois.sessions.session import Session
from travois.testing import Scripted, calls, say

TOOLS = [small("Look"), small("Edit", kind="write")]
LINES = (
    calls(("Look", {"path": "a"}), ("Look", {"path": "b"}), ("Look", {"path": "c"})),
    ApiError("overloaded", "busy"),
    calls(("Edit", {"path": "a"}), ("Nope", {}), ("Look", {"path": "a"})),
    say("done"),
)
WHOLE = 22
"""How many appends the turn above takes."""


def session_on(log: Any) -> Session:
    session = Session(log)
    for fact in (OPENED, epoch("anthropic", TOOLS)):
        if not any(entry.fact == fact for entry in log.read()):
            session.append(fact)
    return session


def fault_of(one: Agent) -> str:
    """Run a turn that must end with a fault; it comes alone, never wrapped in a group."""

    async def main() -> None:
        await run_turn(one)

    with pytest.raises(UserError) as raised:
        anyio.run(main)
    return str(raised.value)


def test_the_turn_takes_as_many_appends_as_are_broken_below(tmp_path: Path) -> None:
    one = agent(tmp_path, *LINES, tools=TOOLS)
    before = log(one).appends
    assert play(one) == "end"
    assert log(one).appends - before == WHOLE


@pytest.mark.parametrize("bad", range(1, WHOLE + 1))
@pytest.mark.parametrize("lasting", ["once", "for ever"])
def test_a_disk_that_is_full_at_any_append_loses_nothing(
    tmp_path: Path, bad: int, lasting: str
) -> None:
    full = False
    start = 2

    def fails(number: int) -> bool:
        nonlocal full
        hit = number - start == bad if lasting == "once" else number - start >= bad
        full = full or hit
        return hit

    held = MemoryLog(fails=fails)
    one = prompt(agent(tmp_path, *LINES, tools=TOOLS, session=session_on(held)))
    told: list[Entry] = []
    tell = one.session._notify_watchers
    one.session._notify_watchers = lambda event: (  # type: ignore[method-assign]
        tell(event),
        told.append(event) if isinstance(event, Entry) else None,
    )
    assert fault_of(one) == "The session could not be saved: the disk is full"
    assert full
    assert told == held.entries[2:]
    assert one.session.view == project_view(held.entries)
    if lasting == "once" and bad < WHOLE:
        check(one)
        assert facts(one, Ended)[-1].why == "failed"
    held._fails = lambda number: False
    one.model = Scripted(say("here again"), judge=one.model._judge)  # type: ignore[attr-defined]
    assert play(one, "still there?") == "end"
    assert held.entries[: len(told) + 2][2:] == told
    prompts = [fact.content[0].text for fact in facts(one, User) if fact.origin == "human"]
    assert prompts == ["go", "still there?"]


@pytest.mark.parametrize("bad", range(1, WHOLE + 1, 3))
def test_a_full_disk_under_a_real_log_loses_nothing_that_was_acknowledged(
    tmp_path: Path, bad: int
) -> None:
    writes = 0

    def write(fd: int, data: bytes) -> int:
        nonlocal writes
        writes += 1
        if writes - 2 >= bad:
            os.write(fd, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return os.write(fd, data)

    acknowledged: list[Entry] = []
    folder = tmp_path / "s1"
    with store.SessionLog.create(folder, OPENED, write=write) as disk:
        session = session_on(Acknowledging(disk, acknowledged))
        one = prompt(agent(tmp_path, *LINES, tools=TOOLS, session=session))
        assert "the disk is full" in fault_of(one)
    with store.SessionLog.open(folder) as again:
        assert list(again.read())[1:] == acknowledged
        one = agent(tmp_path, say("here again"), tools=TOOLS, session=Session(again))
        prompt(one, "still there?")
        assert anyio.run(run_turn, one) == "end"


class Acknowledging:
    """A log that remembers what it said was kept."""

    def __init__(self, inner: store.SessionLog, acknowledged: list[Entry]) -> None:
        self._inner = inner
        self._acknowledged = acknowledged
        self.sync = inner.sync
        self.read = inner.read

    def append(self, fact: AnyFact) -> Entry:
        entry = self._inner.append(fact)
        self._acknowledged.append(entry)
        return entry


def test_nothing_is_changed_when_the_log_cannot_be_brought_to_disk(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        ran.append(args.path)
        return text_outcome("ok")

    class Unsynced(MemoryLog):
        def sync(self) -> None:
            raise UserError("The session could not be saved")

    tools = [small("Edit", run, kind="write"), small("Look")]
    one = prompt(agent(tmp_path, *LINES[2:], tools=tools, session=session_on(Unsynced())))
    assert fault_of(one) == "The session could not be saved"
    assert ran == []
    assert not one.session.view.open


@pytest.mark.parametrize("error", [UserError("No room"), OSError(28, "No space"), KeyError("blob")])
@pytest.mark.parametrize("port", ["blobs", "files", "processes", "web", "spill"])
def test_whatever_a_tool_cannot_reach_is_told_to_the_model(
    tmp_path: Path, port: str, error: Exception
) -> None:
    def broken(*args: object, **more: object) -> Any:
        raise error

    async def run(args: Place, env: Env, call: str) -> ToolOutcome:
        match port:
            case "blobs":
                env.blobs.put(b"x")
            case "files":
                await env.files.read("/a")
            case "processes":
                await env.processes.run(Command(("true",), "/"), timeout=1)
            case "web":
                await env.web.fetch("https://x", limit=1, timeout=1)
            case _:
                env.spill(call, b"x")
        raise AssertionError("it worked")

    one = agent(tmp_path, LINES[0], say("oh"), tools=[small("Look", run)])
    world = one.world
    for thing, name in (
        (world.blobs, "put"),
        (world.files, "read"),
        (world.processes, "run"),
        (world.web, "fetch"),
    ):
        setattr(thing, name, broken)
    from msgspec.structs import replace

    one.world = replace(world, spill=broken)
    assert play(one) == "end"
    results = facts(one, Result)
    assert [result.error for result in results] == [True] * 3
    assert all(str(error).split("]")[-1].strip() in r.content[0].text for r in results)


def test_a_person_who_cannot_be_asked_ends_the_turn_with_the_error(tmp_path: Path) -> None:
    class Gone:
        async def decide(self, question: PermissionQuestion) -> PersonAnswer:
            raise ConnectionResetError("the terminal is gone")

    tools = [small("Fetch", kind="net"), small("Look")]
    wanted = calls(("Look", {"path": "a"}), ("Fetch", {"path": "https://x"}))
    one = prompt(agent(tmp_path, wanted, say("ok"), tools=tools, person=Gone()))
    with pytest.raises(ConnectionResetError):
        anyio.run(run_turn, one)
    check(one)
    assert facts(one, Ended) == [Ended("crashed")]
    assert facts(one, Result)[-1].content[0].text == NEVER_RAN_RESULT
    assert play(one, "and now?") == "end"


@pytest.mark.parametrize("where", ["model", "stream", "encoder", "sleep"])
def test_a_bug_of_ours_ends_the_turn_as_a_crash_and_the_session_goes_on(
    tmp_path: Path, where: str
) -> None:
    def broken(*args: object) -> Any:
        raise ZeroDivisionError("ours")

    one = prompt(agent(tmp_path, LINES[0], LINES[1], say("ok"), tools=TOOLS))
    model, encoder = one.model, one.encoder
    match where:
        case "model":
            one.model = Broken(broken, when="at once")
        case "stream":
            one.model = Broken(broken, when="in the middle")
        case "encoder":
            one.encoder = type("Bad", (), {"build_request": broken})()
        case _:
            one.runtime.sleep = broken
    with pytest.raises(ZeroDivisionError):
        anyio.run(run_turn, one)
    check(one)
    assert facts(one, Ended) == [Ended("crashed")]
    one.model, one.encoder = model, encoder
    one.runtime.sleep = lambda seconds: anyio.lowlevel.checkpoint()
    assert play(one, "again") == "end"


class Broken:
    """A transport with a bug in it."""

    def __init__(self, broken: Callable[[], Any], *, when: str) -> None:
        self._broken = broken
        self._when = when

    @asynccontextmanager
    async def stream(self, request: object) -> AsyncIterator[Any]:
        if self._when == "at once":
            self._broken()

        async def events() -> AsyncIterator[Any]:
            from travois.providers.replies import ReplyBegan

            yield ReplyBegan("m", "m")
            self._broken()

        yield events()


def test_a_watcher_that_closes_in_the_middle_of_a_turn_changes_nothing(tmp_path: Path) -> None:
    one = prompt(agent(tmp_path, *LINES, tools=TOOLS))

    async def main() -> str:
        with one.session.watch() as events:

            async def leave() -> None:
                for _ in range(7):
                    await events.receive()
                events.close()

            async with anyio.create_task_group() as group:
                group.start_soon(leave)
                return await run_turn(one)

    assert anyio.run(main) == "end"
    check(one)
    assert len(facts(one, Sent)) == 4
