"""Replaying many entries at once comes to the same as taking them into account one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.told import EPOCH, OTHER, reply, result, user
from travois.core.content import Media, Text
from travois.core.facts import (
    IMPORTED_DETAIL,
    AnyFact,
    Asked,
    Assistant,
    Changed,
    Compacted,
    Decided,
    Ended,
    Entry,
    Failed,
    Finished,
    Hooked,
    Noted,
    Offloaded,
    Opened,
    Result,
    Sent,
    Spawned,
    Unknown,
    User,
)
from travois.core.models import Price, Usage
from travois.sessions.derived import DerivedState, LogDerivation, LogReplay

IDS = ("a", "b", "c")
DEAR = EPOCH.model.__class__("lab", "dear-1", "anthropic", price=Price(3.0, 15.0, 0.3, 3.75))
USAGES = st.builds(
    Usage,
    input=st.integers(0, 9_000),
    read=st.integers(0, 90_000),
    write=st.integers(0, 90_000),
    output=st.integers(0, 900),
    estimated=st.booleans(),
    beside=st.none() | st.just(Usage(input=7)),
    searches=st.integers(0, 2),
)
PICTURE = Media("image", "image/png", "blob", 4)


def replied(ids: list[str], usage: Usage, detail: str) -> Assistant:
    return reply("so", *ids, usage=usage, detail=detail)


def pictured(call: str) -> Result:
    return Result(call, (Text("x"), PICTURE))


FACTS: st.SearchStrategy[AnyFact] = st.one_of(
    st.builds(
        replied,
        st.lists(st.sampled_from(IDS), max_size=2, unique=True),
        USAGES,
        st.sampled_from(["", "", "", IMPORTED_DETAIL]),
    ),
    st.builds(result, st.sampled_from(IDS)),
    st.builds(pictured, st.sampled_from(IDS)),
    st.builds(Sent, st.integers(1, 99), st.just("chain"), st.just("digest"), st.just(1)),
    st.builds(Decided, st.sampled_from(IDS), st.just("allow"), st.just("rule")),
    st.builds(Changed, st.sampled_from(["cwd", "todos", "job:1", "fork"]), st.text(max_size=3)),
    st.builds(
        User,
        st.sampled_from([(Text("say"),), (Text("see"), PICTURE)]),
        st.sampled_from(("human", "human", "note", "task", "mail")),
        st.sampled_from(["", "", "job:1", "child"]),
    ),
    st.sampled_from(
        [
            EPOCH,
            OTHER,
            EPOCH.__class__(DEAR, "Be brief."),
            Opened("s1", "/", "p", "1", parent="s0", at=1),
            Compacted(2, 5, (Text("so far"),), "ledger", before=50_000),
            Offloaded("a", "blob", "short"),
            Spawned("child", "fork", "draft"),
            Spawned("child", "agent", "task", call="a"),
            Finished("child", "done", Usage(input=3), dollars=0.1),
            Failed("compaction", "no"),
            Ended("end"),
            Asked("a", "may I?"),
            Hooked("Stop", "true", "ok"),
            Noted("notes", "n"),
            Noted("draft", "d"),
            Unknown("{}"),
        ]
    ),
)


def one_by_one(entries: list[Entry]) -> DerivedState:
    """What follows from these entries, each taken into account in full."""
    known = LogDerivation()
    known.load_state(DerivedState())
    for entry in entries:
        known.count_entry(entry)
        known.view.add(entry)
        known.apply_state(entry)
        known.seq = entry.seq
    return value(known)


def many_at_once(entries: list[Entry], size: int) -> DerivedState:
    """The same by a replay of blocks."""
    known = LogDerivation()
    known.load_state(DerivedState())
    replay = LogReplay(known)
    for begin in range(0, len(entries), size):
        replay.add(entries[begin : begin + size])
    replay.finish()
    return value(known)


def value(known: LogDerivation) -> DerivedState:
    return DerivedState(**{name: getattr(known, name) for name in DerivedState.__struct_fields__})


@settings(max_examples=400, deadline=None)
@given(
    facts=st.lists(st.tuples(FACTS, st.floats(0, 900)), max_size=40),
    size=st.integers(1, 40),
)
def test_a_replay_of_blocks_is_what_the_entries_say(
    facts: list[tuple[AnyFact, float]], size: int
) -> None:
    told: list[Entry] = []
    now = 1_000.0
    for seq, (fact, pause) in enumerate(facts, 1):
        now += pause
        told.append(Entry(seq, now, fact))
    assert many_at_once(told, size) == one_by_one(told)


def test_costs_of_many_replies_are_added_in_their_order() -> None:
    told = [Entry(1, 1.0, EPOCH.__class__(DEAR, "Be brief.")), Entry(2, 2.0, user("go"))]
    for number in range(3, 3_000):
        usage = Usage(input=number % 7, read=number * 3, output=number % 11)
        told.append(Entry(number, float(number), Assistant((Text("x"),), "end", usage)))
    assert many_at_once(told, 500).spent == one_by_one(told).spent
