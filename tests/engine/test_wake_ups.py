"""Turns that start by themselves: each time once, over restarts, and only where something waits."""

from __future__ import annotations

import time
from contextlib import aclosing
from datetime import datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from tests.agents.test_spawn import Parts, agent, facts, options
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.facts import Result, User
from travois.engine.wake_ups import WakeUp, list_wake_ups
from travois.ports.tool import ToolError
from travois.providers.replies import Reply
from travois.testing import calls, say
from travois.tools.wake_up import parse_wake_time

__all__ = ["options"]


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self, session: LiveSession) -> None:
        self.now = time.time()
        session.runtime.agent.runtime.clock = lambda: self.now
        session.runtime.agent.runtime.sleep = self.sleep
        session.runtime.agent.runtime.stays_open = True

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await anyio.lowlevel.checkpoint()


async def run(session: LiveSession, prompt: str = "") -> None:
    async with aclosing(session.run(prompt) if prompt else session.run()) as events:
        async for _ in events:
            pass


def woken(session: LiveSession) -> list[str]:
    told = (fact for fact in facts(session, User) if fact.mail.startswith("wake-up:"))
    return [extract_text(fact.content).partition("] ")[2] for fact in told]


def results(session: LiveSession) -> list[str]:
    return [extract_text(fact.content) for fact in facts(session, Result)]


def sleep_until(**when: object) -> Reply:
    return calls(("ScheduleWakeup", {"prompt": "look again", **when}))


def test_a_session_sleeps_and_goes_on_by_itself_once(options: Options) -> None:
    async def main() -> None:
        model = Parts(alpha=[sleep_until(minutes=30), say("later"), say("awake")])
        async with LiveSession(options, model=model) as session:
            clock = Clock(session)
            began = clock.now
            await run(session, "alpha")
            assert woken(session) == []
            assert await session.news()
            assert 1_700 < clock.now - began < 1_900
            await run(session)
            assert woken(session) == ["look again"]
            assert list_wake_ups(session.runtime.agent.session) == ()
            assert not await session.news()
            state = session.runtime.agent.session.state
            assert [value for what, value in state.items() if what.startswith("wake-up:")] == [""]

    anyio.run(main)


def test_an_overdue_wake_up_counts_once_after_a_restart(options: Options) -> None:
    async def main() -> None:
        async with LiveSession(
            options, model=Parts(alpha=[sleep_until(minutes=30), say("so")])
        ) as one:
            Clock(one)
            await run(one, "alpha")
        for expected in (["look again"], ["look again"]):
            again = replace(options, resume=one.id)
            async with LiveSession(again, model=Parts(alpha=[say("awake")])) as session:
                clock = Clock(session)
                clock.now += 86_400
                if await session.news():
                    await run(session)
                assert woken(session) == expected

    anyio.run(main)


def test_a_loop_comes_again_and_missed_times_count_once(options: Options) -> None:
    async def main() -> None:
        async with LiveSession(
            options, model=Parts(alpha=[say("a"), say("b"), say("c")])
        ) as session:
            clock, log = Clock(session), session.runtime.agent.session
            log.append(WakeUp("w1", "alpha", due=clock.now, every=600.0).change)
            began = clock.now
            for _ in range(2):
                assert await session.news()
                await run(session)
            assert clock.now == began + 600 and woken(session) == ["alpha"] * 2
            clock.now += 6_030
            assert await session.news()
            await run(session)
            assert woken(session) == ["alpha"] * 3
            assert await session.news()
            assert clock.now == began + 7_200
            (wake,) = list_wake_ups(log)
            session.runtime.agent.turn.inbox.clear()
            log.append(wake.cancellation)
            assert not await session.news()

    anyio.run(main)


def test_a_changed_file_and_the_end_of_a_command_wake(options: Options) -> None:
    async def main() -> None:
        begin = ("Bash", {"command": "sleep 600", "run_in_background": True})
        model = Parts(
            alpha=[
                *(calls(begin), sleep_until(file="seen.txt"), sleep_until(task_id="bash_1")),
                *(say("so"), say("one"), say("two")),
            ]
        )
        async with LiveSession(options, model=model) as session:
            session.runtime.agent.runtime.stays_open = True
            await run(session, "alpha")
            assert not await session.news(patience=0.1)
            Path(options.cwd, "seen.txt").write_text("now")
            assert await session.news()
            await run(session)
            (told,) = [f for f in facts(session, User) if f.mail.startswith("wake-up:")]
            assert "seen.txt changed] look again" in extract_text(told.content)
            await session.runtime.agent.world.processes.jobs()["bash_1"].kill()
            assert await session.news()
            await run(session)
            assert woken(session) == ["look again"] * 2

    anyio.run(main)


def test_what_ends_with_its_last_reply_refuses_to_sleep(options: Options) -> None:
    async def main() -> None:
        model = Parts(
            alpha=[sleep_until(minutes=1), calls(agent("beta")), say("no")],
            beta=[sleep_until(minutes=1), say("neither")],
        )
        async with LiveSession(options, model=model) as session:
            await run(session, "alpha")
            assert results(session)[0].startswith("Nothing can wake this conversation")
            log = session.runtime.agent.session
            log.append(WakeUp("w1", "alpha", due=1.0, every=600.0).change)
            assert not await session.news()

    anyio.run(main)


def test_a_subagent_cannot_sleep(options: Options) -> None:
    async def main() -> None:
        model = Parts(
            alpha=[calls(agent("beta")), say("no")], beta=[sleep_until(minutes=1), say("neither")]
        )
        async with LiveSession(options, model=model) as session:
            session.runtime.agent.runtime.stays_open = True
            await run(session, "alpha")
            assert list_wake_ups(session.runtime.agent.session) == ()
            assert not await session.news()

    anyio.run(main)


def test_a_fork_leaves_the_wake_ups_to_its_original(options: Options) -> None:
    async def main() -> None:
        model = Parts(alpha=[sleep_until(minutes=1), say("so")])
        async with LiveSession(options, model=model) as session:
            Clock(session)
            await run(session, "alpha")
            branched = replace(options, resume=session.id, fork=True)
            async with LiveSession(branched, model=model) as fork:
                assert list_wake_ups(fork.runtime.agent.session) == ()
            assert len(list_wake_ups(session.runtime.agent.session)) == 1

    anyio.run(main)


@pytest.mark.parametrize("when", [{}, {"minutes": 1, "at": "12:00"}, {"task_id": "bash_9"}])
def test_a_call_without_one_clear_condition_changes_nothing(
    options: Options, when: dict[str, object]
) -> None:
    async def main() -> None:
        async with LiveSession(
            options, model=Parts(alpha=[sleep_until(**when), say("so")])
        ) as session:
            session.runtime.agent.runtime.stays_open = True
            await run(session, "alpha")
            (told,) = facts(session, Result)
            assert told.error and list_wake_ups(session.runtime.agent.session) == ()

    anyio.run(main)


def test_a_time_of_day_is_the_next_one() -> None:
    now = datetime.fromisoformat("2025-11-19T12:30").timestamp()
    assert parse_wake_time("12:31", now) == now + 60
    assert parse_wake_time("12:30", now) == datetime.fromisoformat("2025-11-20T12:30").timestamp()
    assert parse_wake_time("2025-11-19T12:45", now) == now + 900
    for wrong in ("25:00", "soon", "2025-11-19T12:00", "2035-01-01T00:00"):
        with pytest.raises(ToolError):
            parse_wake_time(wrong, now)
