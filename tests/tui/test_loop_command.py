"""/loop in a session without a screen: listed, started, stopped, and refused in words."""

from __future__ import annotations

import pytest

from tests.tui.test_slash_commands import Reader, at_desk, options
from travois.compose.options import Options
from travois.core.errors import UserError
from travois.engine.wake_ups import list_wake_ups
from travois.tui.line_mode import LineModeHost
from travois.tui.slash import run_slash_line

__all__ = ["options"]


def test_a_loop_is_started_listed_and_stopped(options: Options) -> None:
    async def use(desk: LineModeHost) -> None:
        desk.session.runtime.agent.runtime.stays_open = True
        log = desk.session.runtime.agent.session
        assert "No loops" in str(await run_slash_line(desk, "/loop"))
        started = str(await run_slash_line(desk, "/loop 10m is the build green?"))
        (wake,) = list_wake_ups(log)
        assert wake.every == 600 and wake.id in started
        listed = str(await run_slash_line(desk, "/loop list"))
        assert wake.id in listed and "is the build green?" in listed and "0:10:00" in listed
        assert wake.id in str(await run_slash_line(desk, f"/loop stop {wake.id}"))
        assert list_wake_ups(log) == ()

    at_desk(options, use, Reader())


@pytest.mark.parametrize(
    "line", ["/loop soon look", "/loop 10m", "/loop 1s look", "/loop 10m /compact", "/loop stop w1"]
)
def test_a_wrong_loop_changes_nothing(options: Options, line: str) -> None:
    async def use(desk: LineModeHost) -> None:
        desk.session.runtime.agent.runtime.stays_open = True
        try:
            answer = str(await run_slash_line(desk, line))
        except UserError as fault:
            answer = str(fault)
        assert "/loop" in answer or "No loop" in answer
        assert list_wake_ups(desk.session.runtime.agent.session) == ()

    at_desk(options, use, Reader())
