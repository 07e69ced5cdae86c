"""A session: one log, the view of it, and whoever watches."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings

from tests.core.told import histories
from tests.engine.fakes import OPENED, MemoryLog, begun, epoch
from travois.core.content import Text
from travois.core.errors import UserError
from travois.core.facts import (
    Assistant,
    Changed,
    Decided,
    Entry,
    Finished,
    Noted,
    Opened,
    Result,
    Rewound,
    Spawned,
    User,
)
from travois.core.models import Usage
from travois.core.view import project_view
from travois.ports.world import UserWarned
from travois.sessions.session import Session


def test_an_illegal_fact_is_refused_before_it_is_on_file() -> None:
    session = begun()
    with pytest.raises(AssertionError, match="Result: no open call x"):
        session.append(Result("x", (Text("?"),)))
    assert [type(entry.fact) for entry in session._log.read()] == [Opened, type(epoch())]


def test_what_could_not_be_written_is_not_in_the_view_and_nobody_is_told() -> None:
    log = MemoryLog(fails=lambda number: number == 3)
    session = Session(log)
    session.append(OPENED)
    session.append(epoch())
    with session.watch() as events:
        with pytest.raises(UserError):
            session.append(User((Text("hi"),)))
        assert events.statistics().current_buffer_used == 0
    assert session.view == project_view(log.entries)
    session.append(User((Text("hi"),)))
    assert len(session.view.items) == 1


def test_watchers_see_entries_and_deltas_in_order_from_where_they_began() -> None:
    session = begun()
    with session.watch() as early:
        first = session.append(Noted("a", "1"))
        session.emit(UserWarned("careful"))
        with session.watch() as late:
            second = session.append(Noted("a", "2"))
            assert [late.receive_nowait()] == [second]
        seen = [early.receive_nowait() for _ in range(3)]
    assert seen == [first, UserWarned("careful"), second]


def test_a_watcher_that_left_or_closed_early_disturbs_no_append() -> None:
    session = begun()
    with session.watch() as closed, session.watch() as other:
        closed.close()
        entry = session.append(Noted("a", "1"))
        assert other.receive_nowait() == entry
    session.append(Noted("a", "2"))
    assert session._watchers == []


def test_a_watcher_that_never_reads_never_blocks() -> None:
    session = begun()
    with session.watch() as lazy:
        for number in range(10_000):
            session.emit(UserWarned(str(number)))
        assert lazy.statistics().current_buffer_used == 10_000


def test_a_watcher_in_another_task_gets_everything_and_then_the_end() -> None:
    session = begun()
    got: list[object] = []

    async def main() -> None:
        async def listen(events: object) -> None:
            got.extend([event async for event in events])  # type: ignore[attr-defined]

        async with anyio.create_task_group() as group:
            with session.watch() as events:
                group.start_soon(listen, events.clone())
                await anyio.lowlevel.checkpoint()
                session.append(Noted("a", "1"))

    anyio.run(main)
    assert [type(event) for event in got] == [Entry]


def test_state_and_decisions_are_the_newest_and_go_back_with_a_rewind() -> None:
    session = begun()
    session.append(Changed("cwd", "/a"))
    session.append(Changed("cwd", "/b"))
    session.append(Decided("x", "allow", "free"))
    assert (session.state, list(session.decided)) == ({"cwd": "/b"}, ["x"])
    session.append(Rewound(3))
    assert (session.state, list(session.decided)) == ({"cwd": "/a"}, [])


def test_a_reply_forgets_the_decisions_before_it() -> None:
    session = begun()
    session.append(Decided("x", "allow", "free"))
    session.append(User((Text("hi"),)))
    session.append(Assistant((Text("ok"),), "end"))
    assert session.decided == {}


def test_side_requests_are_counted_and_leave_nothing_behind() -> None:
    session = begun()
    for number in range(3):
        session.append(Spawned(f"fork-{number}", "fork", "notes"))
        session.append(Finished(f"fork-{number}", "done", Usage(output=5)))
    session.append(Spawned("a4", "explore", "look", "call"))
    session.append(Finished("a4", "done"))
    assert (session.spawned, [*session.children], session.outcomes) == (4, ["a4"], {"a4": "done"})
    assert ([*session.owed], session.running, session.usage.output) == (["a4"], {}, 15)


def test_a_fork_has_spent_nothing_yet() -> None:
    session = begun()
    session.append(User((Text("hi"),)))
    session.append(Assistant((Text("ok"),), "end", Usage(input=1_000_000)))
    assert session.dollars == pytest.approx(3.0)
    fork = Session(MemoryLog(session._log.read()))
    fork.append(Opened("s2", "/w", "dir-1", "0.1", parent="s1", at=4))
    assert (fork.dollars, fork.usage, len(fork.view.items)) == (0.0, Usage(), 2)


@given(histories())
@settings(max_examples=60, deadline=None)
def test_a_session_that_wrote_a_log_equals_one_that_reads_it(log: list[Entry]) -> None:
    writer = Session(MemoryLog())
    for entry in log:
        writer.append(entry.fact)
    reader = Session(MemoryLog(writer._log.read()))
    for name in ("view", "state", "decided", "usage", "dollars", "last"):
        assert getattr(writer, name) == getattr(reader, name)
