"""Undoing a compaction: the view is as if it had never been, and everything since is there."""

from __future__ import annotations

from hypothesis import given

from tests.core.told import EPOCH, entries, histories, reply, result, seen, shown, user
from travois.core.content import Text
from travois.core.facts import Compacted, Restored, Rewound
from travois.core.legality import find_violation
from travois.core.view import project_view

TALK = (EPOCH, user("one"), reply("", "a"), result("a"), reply("two"))
SUMMARY = (Text("summary"),)


def test_what_gave_way_is_shown_again_with_all_that_was_said_since() -> None:
    facts = (*TALK, Compacted(2, 5, SUMMARY, "notes"), user("three"), reply("four"), Restored(6))
    told = ["user: one", "model: a?", "a = result of a", "model: two", "user: three", "model: four"]
    assert shown(seen(*facts)) == told
    assert seen(*facts).summaries == {}


def test_thinking_on_both_sides_is_let_go() -> None:
    first = (EPOCH, user("one"), reply("two", thought="A"), Compacted(2, 3, SUMMARY, "notes"))
    facts = (*first, user("three"), reply("four", thought="B"), Restored(4))
    assert shown(seen(*facts)) == ["user: one", "model: two", "user: three", "model: four"]


def test_only_a_summary_that_is_shown_can_be_undone() -> None:
    once = (*TALK, Compacted(2, 4, SUMMARY, "notes"))
    twice = (*once, user("three"), reply("four"), Compacted(4, 7, SUMMARY, "notes"))
    assert find_violation(seen(*TALK), Restored(6)) == "no summary of entry 6 is shown"
    assert find_violation(seen(*once), Restored(6)) == ""
    assert find_violation(seen(*twice), Restored(6)) == "no summary of entry 6 is shown"
    assert find_violation(seen(*twice), Restored(9)) == ""
    assert find_violation(seen(*twice, Restored(9)), Restored(6)) == ""
    whole = [*shown(seen(*TALK)), "user: three", "model: four"]
    assert shown(seen(*twice, Restored(9), Restored(6))) == whole


def test_a_rewind_to_before_it_makes_the_compaction_count_again() -> None:
    facts = (*TALK, Compacted(2, 5, SUMMARY, "notes"), Restored(6), user("three"), Rewound(6))
    assert shown(seen(*facts)) == ["user: summary"]


@given(histories())
def test_it_always_counts_as_a_move_beyond_all_before(log: list[object]) -> None:
    told = project_view(log)  # type: ignore[arg-type]
    for number in told.summaries:
        undone = [*entries(*(e.fact for e in log)), *entries(Restored(number))]  # type: ignore[attr-defined]
        assert project_view(undone).moves > told.moves
