"""Turns that start by themselves, on the screen: slept for, killed, resumed."""

from __future__ import annotations

import signal

from tests.e2e.glass import Glass
from tests.e2e.program import Program
from tests.e2e.test_jobs import script
from travois.core.content import extract_text
from travois.core.facts import User
from travois_lab import call, text


def woken(program: Program) -> list[str]:
    told = (fact for entry in program.facts() if isinstance(fact := entry.fact, User))
    return [extract_text(fact.content) for fact in told if fact.mail.startswith("wake-up:")]


def test_a_wake_up_that_was_slept_through_counts_once_after_the_kill(program: Program) -> None:
    sleep = [call("ScheduleWakeup", prompt="look at the build", minutes=0.1)]
    with program.served(script(sleep, [text("Sleeping now.")], [text("Awake again.")])) as api:
        glass = Glass(program, *program.model, columns=120)
        glass.ready()
        glass.type("go\r")
        glass.until("Sleeping now.")
        glass.child.kill(signal.SIGKILL)
        glass.end()
        assert woken(program) == []
        glass = Glass(program, *program.model, "-c", columns=120)
        glass.until("look at the build", "Awake again.")
        assert glass.leave() == 0
        again = Glass(program, *program.model, "-c", columns=120)
        again.ready()
        again.type("/loop\r")
        again.until("No loops")
        assert again.leave() == 0
        assert len(woken(program)) == 1 and len(api.ledger) == 3
        api.append_only()


def test_a_loop_runs_until_it_is_stopped(program: Program) -> None:
    with program.served(script([text("First look.")], [text("Second look.")])):
        glass = Glass(program, *program.model, columns=120)
        glass.ready()
        glass.type("/loop 10s is the build green?\r")
        glass.until("now and every 10s", "First look.")
        glass.until("Second look.")
        glass.type("/loop stop\r")
        glass.until("Stopped: w")
        assert glass.leave() == 0
    assert len(woken(program)) == 2


def test_a_headless_run_is_told_that_nothing_would_wake_it(program: Program) -> None:
    sleep = [call("ScheduleWakeup", prompt="look", minutes=1)]
    with program.served(script(sleep, [text("Then not.")])) as api:
        done = program.run("-p", "go", *program.model)
        assert done.code == 0 and done.out == "Then not.\n"
        assert "Nothing can wake this conversation" in api.ledger[1].body.decode()
