"""What the model sees, as a function of the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.told import EPOCH, OTHER, histories, ids, reply, result, seen, shown, thinking, user
from tests.engine.fakes import MemoryLog, sendable
from travois.core.content import Opaque, Text
from travois.core.facts import (
    Assistant,
    Cleared,
    Compacted,
    Ended,
    Entry,
    Noted,
    Offloaded,
    Restored,
    Result,
    Rewound,
    Sent,
    User,
)
from travois.core.view import (
    LOST_RESULT,
    LOST_START,
    View,
    ViewItem,
    awaits_model,
    keep_live_entries,
    open_calls,
    project_view,
)
from travois.engine.loop import UNKNOWN_RESULT, answer_open_calls
from travois.sessions.session import Session


def test_results_are_shown_in_the_order_asked_not_in_that_of_the_log() -> None:
    view = seen(EPOCH, user("go"), reply("", "a", "b", "c"), result("c"), result("a"), result("b"))
    assert shown(view) == [
        "user: go",
        "model: a? b? c?",
        "a = result of a",
        "b = result of b",
        "c = result of c",
    ]
    assert [item.seq for item in view.items] == [2, 3, 5, 6, 4]


def test_what_is_said_while_calls_are_open_is_shown_after_all_results() -> None:
    view = seen(
        EPOCH, user("go"), reply("", "a", "b"), result("b"), user("wait"), result("a"), user("ok")
    )
    assert shown(view)[2:] == ["a = result of a", "b = result of b", "user: wait", "user: ok"]
    assert view.queued == []


def test_open_calls_are_those_without_a_result_in_the_order_asked() -> None:
    view = seen(EPOCH, user("go"), reply("", "a", "b", "c"), result("b"))
    assert [call.id for call in open_calls(view)] == ["a", "c"]
    assert not awaits_model(view)
    assert shown(view) == ["user: go", "model: a? b? c?"]


def test_the_next_word_is_the_models_after_a_person_a_result_or_a_pause() -> None:
    assert not awaits_model(seen(EPOCH))
    assert awaits_model(seen(EPOCH, user("go")))
    assert awaits_model(seen(EPOCH, user("go"), reply("", "a"), result("a")))
    assert awaits_model(seen(EPOCH, user("go"), reply("hm", stop="pause")))
    for stop in ("end", "length", "window", "refusal", "compaction", "unknown"):
        assert not awaits_model(seen(EPOCH, user("go"), reply("done", stop=stop)))


def test_a_second_or_foreign_result_changes_nothing() -> None:
    facts = (EPOCH, user("go"), reply("", "a", "b"), result("a"))
    assert seen(*facts, result("a", "other"), result("z")) == seen(*facts)


def test_facts_for_audit_do_not_show() -> None:
    assert shown(seen(EPOCH, user("go"), Ended("end"), Noted("n", "x"))) == ["user: go"]


def test_a_reply_after_lost_results_is_told_that_they_are_lost() -> None:
    view = seen(EPOCH, user("go"), reply("", "a", "b"), result("b"), reply("done"))
    lost = Result("a", (Text(LOST_RESULT),), error=True)
    assert [item.fact for item in view.items][2:4] == [lost, result("b")]


def test_a_conversation_that_lost_its_start_says_so() -> None:
    view = seen(EPOCH, reply("hello"))
    assert shown(view) == [f"user: {LOST_START}", "model: hello"]


def test_an_offloaded_result_shows_its_preview_in_view_and_while_held() -> None:
    facts = (EPOCH, user("go"), reply("", "a", "b"), result("b"))
    preview = Offloaded("b", "blob", "short")
    held = seen(*facts, preview, result("a"))
    after = seen(*facts, result("a"), preview)
    assert shown(held) == shown(after)
    assert shown(held)[-1] == "b = short"
    assert held.moves == seen(*facts).moves


def test_a_local_clear_shows_its_text_and_moves_the_prefix() -> None:
    facts = (EPOCH, user("go"), reply("", "a", "b", thought="hm"), result("a"), result("b"))
    view = seen(*facts, Cleared(("a",), "gone"))
    assert shown(view) == ["user: go", "model: a? b?", "a = gone", "b = result of b"]
    assert (view.moves, view.anchor) == (seen(*facts).moves + 1, 0)


def test_a_servers_clear_leaves_our_history_as_it_is() -> None:
    facts = (EPOCH, user("go"), reply("", "a", thought="hm"), result("a"))
    view = seen(*facts, Cleared(("a",), "see a.txt", "server"))
    assert (view.items[:-1], view.moves) == (seen(*facts).items, seen(*facts).moves)
    assert view.items[-1].fact == user("see a.txt", origin="note")
    assert view.cleared == ("a",)


def test_what_goes_with_a_providers_own_summary_is_told_at_the_tail() -> None:
    block = Opaque("anthropic", "compaction", "{}", "sum")
    facts = (EPOCH, user("go"), reply("", "a", thought="hm"), result("a"), reply("", "b"))
    told = Compacted(2, 4, (block, Text("files: x.txt")), "provider")
    view = seen(*facts, result("b"), told)
    assert shown(view) == ["model: <sum>", "model: b?", "b = result of b", "user: files: x.txt"]


def test_compaction_names_its_span_by_identity() -> None:
    facts = (EPOCH, user("one"), reply("", "a", "b"), result("b"), result("a"), reply("ok"))
    view = seen(*facts, user("two"), Compacted(2, 4, (Text("summary"),), "model"))
    assert shown(view) == ["user: summary", "model: ok", "user: two"]
    assert view.items[0] == ViewItem(4, User((Text("summary"),), origin="note"))
    assert view.replied == 1


def test_after_a_compaction_it_is_still_known_what_the_model_has_seen() -> None:
    facts = (EPOCH, user("one"), reply("ok"), user("two"), Sent(1, "c", "d", 9))
    view = seen(*facts, reply("", "a"), result("a"), Compacted(2, 3, (Text("s"),), "model"))
    assert (view.seen, len(view.items)) == (2, 4)


def test_a_span_whose_ends_are_gone_is_left_as_it_is() -> None:
    facts = (EPOCH, user("one"), reply("ok"))
    assert seen(*facts, Compacted(1, 99, (Text("s"),), "model")) == seen(*facts)


def test_a_providers_summary_stays_the_models_block_and_keeps_thinking() -> None:
    block = Opaque("anthropic", "compaction", '{"type":"compaction"}', "summary")
    facts = (EPOCH, user("one"), reply("ok"), user("two"), reply("fine", thought="hm"))
    view = seen(*facts, Compacted(2, 3, (block,), "provider"))
    assert view.items[0].fact == Assistant((block,), stop="compaction")
    assert shown(view)[1:] == ["user: two", "model: <hm> fine"]


def test_compaction_by_us_lets_go_of_all_thinking() -> None:
    facts = (EPOCH, user("one"), reply("ok"), user("two"), reply("fine", thought="hm"))
    view = seen(*facts, Compacted(2, 3, (Text("summary"),), "notes"))
    assert shown(view) == ["user: summary", "user: two", "model: fine"]


@pytest.mark.parametrize("by", ["notes", "model", "dropped", "provider"])
def test_compactions_can_be_compacted(by: str) -> None:
    facts = [EPOCH, user("one"), reply("ok"), user("two"), reply("fine")]
    once = Compacted(2, 3, (Text("s1"),), "model")
    twice = Compacted(3, 5, (Text("s2"),), by)  # type: ignore[arg-type]
    assert [item.seq for item in seen(*facts, once, twice).items] == [5]


def test_thinking_is_let_go_when_the_head_changes_and_only_then() -> None:
    facts = (EPOCH, user("go"), reply("ok", thought="hm"))
    assert shown(seen(*facts, EPOCH))[1] == "model: <hm> ok"
    assert shown(seen(*facts, OTHER))[1] == "model: ok"
    unbound = EPOCH.__class__(EPOCH.model, EPOCH.system, EPOCH.tools, unbind=True)
    assert shown(seen(*facts, unbound))[1] == "model: ok"
    assert shown(seen(*facts, OTHER, user("x"), reply("y", thought="new")))[3] == "model: <new> y"


def test_blocks_that_are_no_thinking_stay_when_the_head_changes() -> None:
    search = Opaque("anthropic", "server_tool_use", "{}", "search")
    said = Assistant((thinking("hm"), search, Text("ok")), "end")
    assert shown(seen(EPOCH, user("go"), said, OTHER))[1] == "model: <search> ok"


def test_the_cache_ends_where_the_last_answered_request_did() -> None:
    facts = (EPOCH, user("go"), Sent(4, "c", "d", 9))
    assert (seen(*facts).anchor, seen(*facts).seen) == (0, 1)
    assert seen(*facts, reply("ok")).anchor == 4
    assert seen(*facts, reply("ok"), OTHER).anchor == 0


def test_a_rewind_shows_the_conversation_as_it_was() -> None:
    facts = (EPOCH, user("one"), reply("ok"), user("two"), reply("fine"))
    assert shown(seen(*facts, Rewound(3))) == ["user: one", "model: ok"]
    assert shown(seen(*facts, Rewound(3), user("other"))) == [
        "user: one",
        "model: ok",
        "user: other",
    ]


def test_a_rewind_into_open_calls_opens_them_again() -> None:
    view = seen(EPOCH, user("go"), reply("", "a", "b"), result("a"), result("b"), Rewound(4))
    assert [call.id for call in open_calls(view)] == ["b"]


def test_rewinds_nest_and_can_be_undone() -> None:
    facts = (EPOCH, user("one"), user("two"), user("three"), Rewound(3), user("four"))
    assert shown(seen(*facts)) == ["user: one", "user: two", "user: four"]
    assert shown(seen(*facts, Rewound(2))) == ["user: one"]
    assert shown(seen(*facts, Rewound(5), user("five"))) == [
        "user: one",
        "user: two",
        "user: five",
    ]
    assert shown(seen(*facts, Rewound(4))) == ["user: one", "user: two", "user: three"]


def test_a_rewind_to_what_is_not_there_yet_changes_nothing() -> None:
    facts = (EPOCH, user("one"), Rewound(99), user("two"))
    assert shown(seen(*facts)) == ["user: one", "user: two"]
    assert shown(seen(*facts, user("three"), Rewound(3))) == ["user: one"]


def test_ids_of_calls_that_were_rewound_are_never_used_again() -> None:
    view = seen(EPOCH, user("go"), reply("", "a"), result("a"), Rewound(2))
    assert (view.open, view.ids) == ({}, {"a"})


def test_a_rewind_cannot_be_added_to_a_living_view() -> None:
    with pytest.raises(AssertionError):
        View().add(Entry(1, 0.0, Rewound(1)))


@given(histories())
@settings(max_examples=150, deadline=None)
def test_a_view_grown_entry_by_entry_is_the_projection(log: list[Entry]) -> None:
    view = View()
    for count, entry in enumerate(log, 1):
        if isinstance(entry.fact, Rewound | Restored):
            view = project_view(log[:count])
        else:
            view.add(entry)
        assert view == project_view(log[:count])


@given(histories(), st.data())
@settings(max_examples=300, deadline=None)
def test_whatever_lines_are_lost_the_rest_can_be_sent(
    log: list[Entry], data: st.DataObject
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(log), max_size=len(log)))
    left = [entry for entry, kept in zip(log, keep, strict=True) if kept]
    session = Session(MemoryLog(left))
    answer_open_calls(session, started=UNKNOWN_RESULT)
    assert not session.view.open
    repaired = session._log.read()
    sendable(repaired, protocol="anthropic")
    sendable(repaired, protocol="chat")


@pytest.mark.parametrize("answered", [(), ("a",), ("a", "b")])
def test_a_compaction_whose_first_one_was_lost_takes_calls_and_results_along(
    answered: tuple[str, ...],
) -> None:
    facts = [EPOCH, user("go"), reply("", "a", "b"), user("more"), *map(result, answered)]
    log = [Entry(seq, 0.0, fact) for seq, fact in enumerate(facts, 1)]
    again = Compacted(3, 3, (Text("summary"),), by="model")
    session = Session(MemoryLog([*log, Entry(9, 0.0, again)]))
    answer_open_calls(session, started=UNKNOWN_RESULT)
    assert session.view.open == {}
    assert user("more") in [item.fact for item in session.view.items]
    sendable(session._log.read(), protocol="anthropic")
    sendable(session._log.read(), protocol="chat")


@given(histories())
@settings(max_examples=150, deadline=None)
def test_no_call_id_is_ever_used_twice_in_a_log(log: list[Entry]) -> None:
    assert len(set(ids(log))) == len(ids(log))


@given(histories(), st.data())
@settings(max_examples=150, deadline=None)
def test_a_rewind_to_the_end_of_any_prefix_shows_that_prefix(
    log: list[Entry], data: st.DataObject
) -> None:
    to = data.draw(st.integers(1, len(log)))
    back = [*log, Entry(log[-1].seq + 1, 0.0, Rewound(to))]
    assert shown(project_view(back)) == shown(project_view(log[:to]))
    assert keep_live_entries(back) == keep_live_entries(log[:to])
