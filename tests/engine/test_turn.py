"""One turn: asking, acting, and when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.fakes import (
    RecordingPerson,
    agent,
    begun,
    card,
    facts,
    log,
    play,
    small,
)
from travois.core.content import Call, Opaque, Text
from travois.core.facts import Assistant, Decided, Ended, Epoch, Opened, Result, Rewound, Sent, User
from travois.core.models import Price, Usage
from travois.core.spending import Budget, Limits
from travois.engine.loop import (
    CUT_CALL_NUDGE,
    CUT_REPLY_NUDGE,
    EMPTY_REPLY_NUDGE,
    MAX_NUDGES,
    NEVER_RAN_RESULT,
    UNKNOWN_RESULT,
    answer_open_calls,
)
from travois.ports.world import PersonAnswer
from travois.providers.replies import Reply
from travois.testing import call, calls, say

READ, EDIT = small("Look"), small("Edit", kind="write")
THOUGHT = Opaque("anthropic", "thinking", '{"type":"thinking","thinking":"","signature":"s"}')


def cut(*content: object, stop: str = "length") -> Reply:
    return Reply(content, stop=stop, usage=Usage(input=10, output=5))  # type: ignore[arg-type]


def notes(agent_: object) -> list[str]:
    said = [fact for fact in facts(agent_, User) if fact.origin == "note"]  # type: ignore[arg-type]
    return [fact.content[0].text for fact in said]


def test_a_turn_of_words_is_a_request_a_reply_and_an_end(tmp_path: Path) -> None:
    one = agent(tmp_path, say("hello"))
    assert play(one) == "end"
    assert [type(fact) for fact in facts(one, object)] == [
        Opened,
        Epoch,
        User,
        Sent,
        Assistant,
        Ended,
    ]
    assert facts(one, Assistant) == [
        Assistant((Text("hello"),), "end", Usage(input=10, output=5), request="", id="", model="")
    ]
    assert log(one).synced == len(log(one).entries)


def test_calls_are_answered_and_the_model_is_asked_again(tmp_path: Path) -> None:
    lines = call("Look", path="a"), call("Look", path="b"), say("done")
    one = agent(tmp_path, *lines, tools=[READ])
    assert play(one) == "end"
    assert [result.content[0].text for result in facts(one, Result)] == ["saw a", "saw b"]
    assert len(facts(one, Sent)) == 3


def test_a_turn_with_nothing_to_say_asks_nothing(tmp_path: Path) -> None:
    import anyio

    from travois.engine.loop import run_turn

    one = agent(tmp_path, say("hello"))
    assert anyio.run(run_turn, one) == "end"
    assert facts(one, Sent) == []


def test_what_comes_in_during_a_turn_is_let_in_after_the_results(tmp_path: Path) -> None:
    def interrupting(request: object) -> Reply:
        one.turn.inbox.append(User((Text("and quickly"),)))
        return call("Look", path="a")

    one = agent(tmp_path, interrupting, say("done"), tools=[READ])
    assert play(one) == "end"
    assert [type(item.fact) for item in one.session.view.items] == [
        User,
        Assistant,
        Result,
        User,
        Assistant,
    ]


def test_a_word_after_the_last_word_is_answered_in_the_same_turn(tmp_path: Path) -> None:
    def interrupting(request: object) -> Reply:
        if not facts(one, Assistant):
            one.turn.inbox.append(User((Text("one more thing"),)))
        return say("done")

    one = agent(tmp_path, interrupting)
    assert play(one) == "end"
    assert len(facts(one, Sent)) == 2


def test_a_call_that_was_cut_never_runs_and_the_model_is_told(tmp_path: Path) -> None:
    broken = Call("x", "Edit", '{"path":"a')
    one = agent(tmp_path, cut(Text("now"), broken), say("done"), tools=[EDIT])
    assert play(one) == "end"
    assert facts(one, Decided, Result) == []
    assert notes(one) == [CUT_CALL_NUDGE]
    assert facts(one, Assistant)[0].content == (Text("now"),)


def test_whole_calls_before_a_cut_one_run_and_the_model_is_told_of_the_cut_one(
    tmp_path: Path,
) -> None:
    reply = cut(Call("x", "Look", '{"path":"a"}'), Call("y", "Look", '{"path":"b'))
    one = agent(tmp_path, reply, say("done"), tools=[READ])
    assert play(one) == "end"
    assert [result.call for result in facts(one, Result)] == ["x"]
    assert notes(one) == [CUT_CALL_NUDGE]


@pytest.mark.parametrize("stop", ["window", "refusal"])
def test_a_call_in_a_reply_that_broke_off_never_runs(tmp_path: Path, stop: str) -> None:
    reply = cut(Text("now"), Call("x", "Edit", '{"path":"a"}'), stop=stop)
    one = agent(tmp_path, reply, say("done"), tools=[EDIT])
    assert play(one) == ("refusal" if stop == "refusal" else "end")
    assert facts(one, Decided, Result) == []
    assert facts(one, Assistant)[0].content == (Text("now"),)


def test_a_reply_that_is_always_cut_is_nudged_a_few_times_only(tmp_path: Path) -> None:
    one = agent(tmp_path, cut(Text("so much to say")))
    assert play(one) == "end"
    assert notes(one) == [CUT_REPLY_NUDGE] * MAX_NUDGES
    assert len(facts(one, Sent)) == MAX_NUDGES + 1


def test_a_cut_reply_without_words_is_still_followed_by_a_valid_request(tmp_path: Path) -> None:
    one = agent(tmp_path, cut(), cut(THOUGHT), say("done"))
    assert play(one) == "end"
    assert notes(one) == [CUT_REPLY_NUDGE, CUT_REPLY_NUDGE]


def test_nudges_are_counted_anew_after_a_real_reply(tmp_path: Path) -> None:
    cuts = [cut(Text("long"))] * MAX_NUDGES
    lines = (*cuts, call("Look", path="a"), *cuts, say("done"))
    one = agent(tmp_path, *lines, tools=[READ])
    assert play(one) == "end"
    assert notes(one) == [CUT_REPLY_NUDGE] * MAX_NUDGES * 2


def test_notes_of_others_are_no_nudges(tmp_path: Path) -> None:
    one = agent(tmp_path, cut(Text("long")))
    one.turn.inbox.extend(User((Text(f"note {n}"),), origin="note") for n in range(5))
    assert play(one) == "end"
    assert notes(one)[5:] == [CUT_REPLY_NUDGE] * MAX_NUDGES


@pytest.mark.parametrize("content", [(), (Text("  "),), (THOUGHT,)])
def test_an_empty_reply_after_results_is_nudged_once(tmp_path: Path, content: tuple) -> None:
    empty = Reply(content, stop="end", usage=Usage(input=1))
    one = agent(tmp_path, call("Look", path="a"), empty, empty, tools=[READ])
    assert play(one) == "end"
    assert notes(one) == [EMPTY_REPLY_NUDGE]
    assert len(facts(one, Sent)) == 3


def test_an_empty_reply_to_a_person_is_a_last_word(tmp_path: Path) -> None:
    one = agent(tmp_path, Reply((), stop="end", usage=Usage()))
    assert play(one) == "end"
    assert notes(one) == []


def test_a_paused_turn_goes_on_by_itself(tmp_path: Path) -> None:
    one = agent(tmp_path, cut(Text("searching"), stop="pause"), say("found"))
    assert play(one) == "end"
    assert len(facts(one, Sent)) == 2
    assert len(facts(one, User)) == 1


def test_a_pause_without_content_does_not_go_on_for_ever(tmp_path: Path) -> None:
    one = agent(tmp_path, Reply((), stop="pause", usage=Usage()))
    assert play(one) == "end"
    assert len(facts(one, Sent)) == 1


def test_a_refusal_ends_the_turn_and_the_next_prompt_is_sent(tmp_path: Path) -> None:
    one = agent(tmp_path, cut(Text("no"), stop="refusal"), say("gladly"))
    assert play(one) == "refusal"
    assert play(one, "something else") == "end"
    assert [ended.why for ended in facts(one, Ended)] == ["refusal", "end"]


def test_a_turn_stops_at_its_limit_of_requests(tmp_path: Path) -> None:
    one = agent(tmp_path, call("Look", path="a"), tools=[READ], budget=Budget(Limits(turns=3)))
    assert play(one) == "turns"
    assert len(facts(one, Sent)) == 3
    assert len(facts(one, Result)) == 3
    assert facts(one, Ended) == [Ended("turns", "reached the session's limit of 3 turns", "turns")]
    one.budget = Budget()
    one.model = agent(tmp_path, say("done")).model
    assert play(one) == "end"


def test_money_once_spent_stays_spent_after_a_rewind_and_the_old_price_holds_again(
    tmp_path: Path,
) -> None:
    one = agent(tmp_path, say("hello"), session=begun(price=Price(input=100_000.0)))
    play(one)
    dear = Epoch(card(price=Price(input=900_000.0)), "Be brief.")
    one.session.append(dear)
    play(one)
    assert one.session.dollars == pytest.approx(10.0)
    one.session.append(Rewound(2))
    assert one.session.dollars == pytest.approx(10.0)
    play(one)
    assert one.session.dollars == pytest.approx(11.0)
    assert one.session.usage == Usage(input=30, output=15)


def test_calls_left_open_by_a_crash_are_answered_before_anything_is_sent(tmp_path: Path) -> None:
    one = agent(tmp_path, say("I see"), tools=[READ])
    one.session.append(User((Text("go"),)))
    asked = tuple(Call(id, "Look", '{"path":"a"}') for id in ("a", "b", "c"))
    one.session.append(Assistant(asked, "calls"))
    one.session.append(Decided("a", "allow", "free"))
    one.session.append(Decided("b", "deny", "no"))
    assert play(one, "what happened?") == "end"
    told = {result.call: result.content[0].text for result in facts(one, Result)}
    assert told == {"a": UNKNOWN_RESULT, "b": NEVER_RAN_RESULT, "c": NEVER_RAN_RESULT}
    assert len(facts(one, Sent)) == 1


def test_answering_open_calls_twice_answers_them_once() -> None:
    session = begun([READ])
    session.append(User((Text("go"),)))
    session.append(Assistant((Call("a", "Look", "{}"),), "calls"))
    answer_open_calls(session, started=UNKNOWN_RESULT)
    before = list(session.view.items)
    answer_open_calls(session, started=UNKNOWN_RESULT)
    assert session.view.items == before


def test_a_server_that_numbers_its_calls_from_nought_each_time_gets_unique_ids(
    tmp_path: Path,
) -> None:
    again = Reply(
        tuple(Call(f"call_{n}", "Look", '{"path":"a"}') for n in (0, 1)),
        stop="calls",
        usage=Usage(),
    )
    twins = Reply((again.content[0], again.content[0]), stop="calls", usage=Usage())
    nameless = calls(("Look", {"path": "a"}), ("Look", {"path": "b"}))
    lines = (again, again, twins, nameless, say("done"))
    one = agent(tmp_path, *lines, tools=[READ])
    assert play(one) == "end"
    ids = [result.call for result in facts(one, Result)]
    assert len(ids) == len(set(ids)) == 8


def test_a_person_is_asked_what_the_judge_leaves_open(tmp_path: Path) -> None:
    person = RecordingPerson(
        PersonAnswer(allow=True), PersonAnswer(allow=False, reason="not today")
    )
    net = small("Fetch", kind="net")
    lines = call("Fetch", path="https://a"), call("Fetch", path="https://b"), say("done")
    one = agent(tmp_path, *lines, tools=[net], person=person)
    assert play(one) == "end"
    assert [(q.tool, q.args, q.summary, q.because) for q in person.asked] == [
        ("Fetch", '{"path":"https://a"}', "Fetch https://a", "uses the network: https://a"),
        ("Fetch", '{"path":"https://b"}', "Fetch https://b", "uses the network: https://b"),
    ]
    yes, no = facts(one, Decided)
    assert (yes.verdict, yes.because, yes.by) == ("allow", "uses the network: https://a", "person")
    assert (no.verdict, no.because, no.by) == ("deny", "not today", "person")
    assert [r.content[0].text for r in facts(one, Result)] == [
        "saw https://a",
        "Permission denied: not today. Nothing was run.",
    ]
    assert [r.error for r in facts(one, Result)] == [False, True]
