"""Purses: what is spent below is spent above, and no limit of a tree is ever passed."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.core.content import Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Ended,
    Entry,
    Finished,
    Opened,
    Result,
    Sent,
    User,
)
from travois.core.models import Usage
from travois.core.spending import Amount, Budget, Limits, RunTotals, measure_runs

limits = st.builds(
    Limits,
    turns=st.integers(0, 12),
    tokens=st.integers(0, 3_000),
    dollars=st.integers(0, 40).map(lambda quarters: quarters / 4),
)
needs = st.builds(
    Amount,
    turns=st.integers(0, 1),
    tokens=st.integers(1, 500),
    dollars=st.integers(0, 8).map(lambda quarters: quarters / 4),
)


def covers(most: Amount, need: Amount) -> bool:
    return need.turns <= most.turns and need.tokens <= most.tokens and need.dollars <= most.dollars


def under(spent: Amount, most: Limits) -> bool:
    return covers(Amount(most.turns or inf, most.tokens or inf, most.dollars or inf), spent)


def draws(purse: Budget | None, *, top: Budget) -> bool:
    """Whether a purse is that one or below it."""
    return purse is not None and (purse is top or draws(purse.parent, top=top))


@given(st.data())
def test_no_limit_of_a_tree_is_passed_whoever_spends_in_which_order(data: st.DataObject) -> None:
    purses = [Budget(data.draw(limits))]
    paid: list[tuple[int, Amount]] = []
    away: list[tuple[int, Amount]] = []
    for _ in range(data.draw(st.integers(5, 60))):
        act = data.draw(st.sampled_from(("child", "ask", "ask", "ask", "answer")))
        who = data.draw(st.integers(0, len(purses) - 1))
        if act == "child" and len(purses) < 8:
            purses.append(purses[who].create_child(data.draw(limits)))
        elif act == "ask":
            need = data.draw(needs)
            allowed = not purses[who].exhausted_text() and covers(purses[who].remaining(), need)
            if allowed:
                purses[who].reserve(need)
                away.append((who, need))
        elif act == "answer" and away:
            who, need = away.pop(data.draw(st.integers(0, len(away) - 1)))
            purses[who].reserve(Amount() - need)
            part = data.draw(st.integers(0, 4)) / 4
            usage = Usage(output=int(need.tokens * part))
            purses[who].spend(usage, need.dollars * part, turns=int(need.turns))
            paid.append((who, Amount(need.turns, usage.context, need.dollars * part)))
        for purse in purses:
            below = [spent for who, spent in paid if draws(purses[who], top=purse)]
            assert purse.spent == sum(below, Amount())
            assert under(purse.spent + purse.held, purse.limits)
            assert covers(purse.remaining(), Amount())


def test_a_child_stops_at_its_own_limit_and_at_those_above_it() -> None:
    top = Budget(Limits(dollars=1.0))
    child = top.create_child(Limits(tokens=100), whose="agent a")
    other = top.create_child(Limits(), whose="agent b")
    child.spend(Usage(input=60, output=40), 0.5)
    assert child.exhausted_text() == "agent a's limit of 100 tokens"
    assert other.exhausted_text() == ""
    other.spend(Usage(output=9), 0.5)
    assert other.exhausted_text() == "the session's limit of $1.0000"
    assert top.spent == Amount(0, 109, 1.0)


def test_what_is_held_is_not_left_and_what_was_not_needed_is_left_again() -> None:
    top = Budget(Limits(turns=3, tokens=100, dollars=1.0))
    child, need = top.create_child(Limits()), Amount(1, 70, 0.5)
    child.reserve(need)
    assert top.remaining() == Amount(2, 30, 0.5)
    assert top.has_reservations()
    child.reserve(Amount() - need)
    child.spend(Usage(input=10), 0.25, turns=1)
    assert top.remaining() == Amount(2, 90, 0.75)
    assert not top.has_reservations()


@pytest.mark.parametrize(
    ("most", "spent", "now", "told"),
    [
        (Limits(tokens=100), Amount(tokens=79), 0.0, ""),
        (Limits(tokens=100), Amount(tokens=80), 0.0, "the session's limit of 100 tokens"),
        (Limits(dollars=1.0), Amount(dollars=0.85), 0.0, "the session's limit of $1.0000"),
        (Limits(turns=5), Amount(turns=3), 0.0, ""),
        (Limits(turns=5), Amount(turns=4), 0.0, "the session's limit of 5 turns"),
        (Limits(turns=2), Amount(turns=1), 0.0, "the session's limit of 2 turns"),
        (Limits(turns=1), Amount(turns=0), 0.0, ""),
        (Limits(seconds=60), Amount(), 47.0, ""),
        (Limits(seconds=60), Amount(), 48.0, "the session's limit of 60 seconds"),
        (Limits(), Amount(99, 99, 99.0), 99.0, ""),
    ],
)
def test_four_fifths_of_a_limit_are_near_it(
    most: Limits, spent: Amount, now: float, told: str
) -> None:
    assert Budget(most, spent=spent, began=0.0).near_limit_text(now) == told


def test_turns_and_seconds_count_for_one_run_and_money_for_the_session() -> None:
    purse = Budget(Limits(turns=1, seconds=10, dollars=5.0))
    purse.begin_run(100.0)
    purse.spend(Usage(input=1), 1.0, turns=1)
    assert purse.exhausted_text(101.0) == "the session's limit of 1 turns"
    purse.begin_run(200.0)
    assert (purse.exhausted_text(209.0), purse.seconds_left(209.0)) == ("", 1.0)
    assert purse.exhausted_text(210.0) == "the session's limit of 10 seconds"
    assert purse.spent == Amount(0, 1, 1.0)


def test_all_limits_can_count_for_the_session_or_for_one_run() -> None:
    whole = Budget(Limits(turns=3, seconds=10), scope="session", spent=Amount(turns=1), worked=4.0)
    whole.begin_run(100.0)
    assert whole.seconds_left(101.0) == 5.0
    whole.spend(Usage(input=1), turns=1)
    whole.end_run(103.0)
    assert whole.seconds_left(900.0) == inf  # no time counts between runs
    whole.begin_run(1000.0)
    assert (whole.remaining().turns, whole.seconds_left(1000.0)) == (1, 3.0)
    assert whole.exhausted_text(1003.0) == "the session's limit of 10 seconds"
    run = Budget(Limits(dollars=1.0), scope="run", spent=Amount(dollars=5.0))
    run.begin_run(0.0)
    assert run.remaining().dollars == 1.0


def entry(at: float, fact: AnyFact) -> Entry:
    return Entry(round(at * 10), at, fact)


def test_the_time_of_a_killed_run_counts_to_its_last_work() -> None:
    sent, said = Sent(1, "", "", 1), Assistant((), "end")
    child = Finished("a1", "done", turns=4)
    log = [
        *(entry(0, Opened("s", "/", "p", "1")), entry(1, sent), entry(3, said)),
        *(entry(3.5, child), entry(4, Ended("end"))),
        # An hour later, a run that is killed while a call is under way.
        *(entry(3600, User((Text("more"),))), entry(3601, sent), entry(3602, said)),
        *(entry(9000, Result("c", ())), entry(9000, Ended("crashed"))),
        *(entry(9001, sent), entry(9003, said), entry(9005, Ended("aborted"))),
    ]
    assert measure_runs(log) == RunTotals(turns=7, seconds=3 + 1 + 4)
    assert measure_runs([*log, entry(9999, Opened("f", "/", "p", "1"))]) == RunTotals()


def test_time_runs_for_children_too() -> None:
    top = Budget(Limits(seconds=10))
    top.begin_run(0.0)
    child = top.create_child(Limits(seconds=100))
    child.begin_run(5.0)
    assert child.seconds_left(6.0) == 4.0
    assert child.exhausted_text(10.0) == "the session's limit of 10 seconds"
    assert Budget().seconds_left(6.0) == inf


def test_depth_and_number_of_agents_are_limited_from_above() -> None:
    top = Budget(Limits(depth=2, agents=3))
    child = top.create_child(Limits())
    grandchild = child.create_child(Limits())
    assert grandchild.spawn_blocker() == "the session's limit of 2 levels of agents"
    assert child.spawn_blocker() == ""
    top.create_child(Limits())
    assert (top.spawn_blocker(), top.agents) == ("the session's limit of 3 agents", 3)
    assert child.spawn_blocker() == "the session's limit of 3 agents"
    with pytest.raises(AssertionError):
        top.create_child(Limits())
