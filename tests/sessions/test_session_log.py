"""What the engine may expect of a log: the same for the one on disk and the one in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.fakes import OPENED, MemoryLog, epoch
from travois.core.content import Call, Text
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Assistant, Changed, Noted, Result, User
from travois.core.view import project_view
from travois.ports.world import SessionLog
from travois.sessions import log_file as store
from travois.sessions.session import Session

Full = Callable[[int], bool]
Make = Callable[[Full], SessionLog]
FACTS: list[AnyFact] = [
    epoch(),
    User((Text("hello \u2028 ünï"),)),
    Assistant((Text("let me look"), Call("c1", "Read", '{"path": 1e2}')), "calls"),
    Result("c1", (Text("line\nline"),)),
    Changed("cwd", "/w/src"),
]


def in_memory(full: Full, folder: Path) -> SessionLog:
    log = MemoryLog(fails=full)
    log.append(OPENED)
    return log


def on_disk(full: Full, folder: Path) -> SessionLog:
    import os

    writes = 0

    def write(fd: int, data: bytes) -> int:
        nonlocal writes
        writes += 1
        if full(writes):
            os.write(fd, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return os.write(fd, data)

    ticks = iter(range(10**6))
    return store.SessionLog.create(
        folder / "s1", OPENED, clock=lambda: float(next(ticks)), write=write
    )


@pytest.fixture(params=[in_memory, on_disk])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    return lambda full: request.param(full, tmp_path)


def never(number: int) -> bool:
    return False


def test_what_is_appended_is_read_again_in_order_and_equal(make: Make) -> None:
    log = make(never)
    written = [log.append(fact) for fact in FACTS]
    assert [entry.fact for entry in written] == FACTS
    assert list(log.read())[1:] == written


def test_numbers_rise_by_one_from_the_opening(make: Make) -> None:
    log = make(never)
    seqs = [log.append(fact).seq for fact in FACTS]
    assert seqs == [2, 3, 4, 5, 6]


def test_an_entry_can_be_read_as_soon_as_it_is_appended(make: Make) -> None:
    log = make(never)
    for count, fact in enumerate(FACTS, 2):
        log.append(fact)
        assert len(list(log.read())) == count


def test_syncing_changes_nothing_that_can_be_read(make: Make) -> None:
    log = make(never)
    log.sync()
    before = [log.append(fact) for fact in FACTS]
    log.sync()
    log.sync()
    assert list(log.read())[1:] == before


@pytest.mark.parametrize("bad", range(2, 7))
def test_a_full_disk_is_a_fault_and_leaves_no_trace(make: Make, bad: int) -> None:
    log = make(lambda number: number == bad)
    kept = []
    for fact in FACTS:
        try:
            kept.append(log.append(fact))
        except UserError:
            assert list(log.read())[1:] == kept
    assert len(kept) == len(FACTS) - 1
    assert list(log.read())[1:] == kept
    assert [entry.seq for entry in kept] == [2, 3, 4, 5]


def test_a_session_on_it_sees_what_its_log_says(make: Make) -> None:
    log = make(never)
    session = Session(log)
    for fact in FACTS:
        session.append(fact)
    assert session.view == project_view(log.read()) == Session(log).view
    assert session.state == {"cwd": "/w/src"}


def test_any_text_can_be_kept(make: Make) -> None:
    log = make(never)
    texts = ["", "\0", '{"seq":1}', "\r\n", "🙂", "x" * 100_000]
    written = [log.append(Noted("n", text)) for text in texts]
    assert list(log.read())[1:] == written
