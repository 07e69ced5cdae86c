"""What takes long is named on a terminal, with its size and time, and nowhere else."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from travois import progress_line
from travois.core.facts import Entry, Result
from travois.ports.world import ActivityShown, CompactionProgress, ToolStarted
from travois.presentation import describe_activity
from travois.progress_line import ProgressLine


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setattr(progress_line, "REDRAW_SECONDS", 0.01)
    monkeypatch.setattr(progress_line, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress_line, "LINE_SECONDS", (0.0, 0.05))
    stream = Terminal()
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=stream))
    return stream


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.01)


def test_work_is_named_with_its_size_and_time_and_the_line_goes(terminal: Terminal) -> None:
    with ProgressLine() as line:
        line.show("Indexing the code: 100 of 5,000 files")
        until(lambda: "Indexing the code · 100 of 5,000 files · 0 s" in terminal.getvalue())
        line.show("Indexing the code: 200 of 5,000 files")
        until(lambda: "· 200 of 5,000 files · " in terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_nothing_is_drawn_after_the_line_was_cleared(terminal: Terminal) -> None:
    with ProgressLine() as line:
        line.show("Working")
        until(lambda: "Working" in terminal.getvalue())
        line.clear()
        before = terminal.getvalue()
        time.sleep(0.1)
        assert terminal.getvalue() == before


def test_for_screen_readers_lines_are_whole_and_become_rare(terminal: Terminal) -> None:
    with ProgressLine(whole_lines=True) as line:
        line.show("Taking a snapshot: 9 files\x1b[2J")
        until(lambda: terminal.getvalue().count("\n") == 2)
        time.sleep(0.1)
    told = terminal.getvalue()
    assert told.count("\n") == 2 and told.startswith("· Taking a snapshot · 9 files")
    assert "\x1b" not in told and "\r" not in told


def test_what_is_over_before_it_is_noticed_is_not_named(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_line, "QUIET_SECONDS", 3600.0)
    with ProgressLine() as line:
        line.show("Working")
        time.sleep(0.1)
    assert terminal.getvalue() == ""


def test_nothing_is_written_where_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(progress_line, "sys", SimpleNamespace(stderr=pipe))
    monkeypatch.setattr(progress_line, "QUIET_SECONDS", 0.0)
    with ProgressLine() as line:
        line.show("Working")
    assert pipe.getvalue() == ""


def test_events_tell_what_goes_on() -> None:
    events = (
        ActivityShown("Taking a snapshot: 12,000 files"),
        CompactionProgress(30.0, tokens=120_000),
        CompactionProgress(over=True),
        ToolStarted("c1", "Bash"),
        Entry(1, 0.0, Result("c1", ())),
    )
    assert [describe_activity(one) for one in events] == [
        "Taking a snapshot: 12,000 files",
        "Summarising: 120,000 tokens",
        "Working",
        "Running Bash",
        "Working",
    ]
