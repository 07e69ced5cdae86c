"""Where a conversation is cut for notes: what they do not cover stays, and never too much of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.context.compaction.cut import (
    MIN_TEXT_MESSAGES,
    SUMMARY_OPENING,
    ConversationCut,
    cut_after_entry,
)
from travois.core.content import Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Entry, Result, User
from travois.core.tokens import fact_tokens
from travois.core.view import View, ViewItem

WORDS = "some words that mean nothing at all " * 4


def conversation(sizes: list[tuple[int, int, bool]]) -> View:
    """Rounds of a prompt now and then, a reply with calls, and their results."""
    view, seq = View(), 0

    def add(fact: User | Assistant | Result) -> None:
        nonlocal seq
        seq += 1
        view.add(Entry(seq, 0.0, fact))

    add(User((Text("Begin."),)))
    for number, (count, length, prompted) in enumerate(sizes):
        if prompted:
            add(Assistant((Text("Done."),), "end"))
            add(User((Text(f"Go on {number}."),)))
        ids = [f"c{number}_{n}" for n in range(count)]
        asked = tuple(Call(id, "Read", '{"file_path":"a.py"}') for id in ids)
        add(Assistant((Text(f"Step {number}."), *asked), "calls" if asked else "end"))
        for id in ids:
            add(Result(id, (Text(WORDS * length),)))
    return view


def size(cut: ConversationCut) -> int:
    return sum(fact_tokens(item.fact) for item in cut.kept)


rounds = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 8), st.booleans()), min_size=2, max_size=25
)


@given(rounds, st.data())
def test_what_notes_do_not_cover_stays_and_no_pair_is_parted(
    sizes: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    view = conversation(sizes)
    covers = data.draw(st.integers(0, view.items[-1].seq))
    cut = cut_after_entry(view, covers, least=300, most=1_500)
    if cut is None:
        return
    assert (*cut.dropped, *cut.kept) == tuple(view.items)
    assert all(item.seq <= covers for item in cut.dropped)
    assert size(cut) <= 1_500
    made = {
        c.id
        for i in cut.kept
        if isinstance(i.fact, Assistant)
        for c in extract_calls(i.fact.content)
    }
    assert made == {i.fact.call for i in cut.kept if isinstance(i.fact, Result)}


def test_enough_of_the_newest_stays_even_if_notes_cover_all() -> None:
    view = conversation([(1, 2, False)] * 30)
    cut = cut_after_entry(view, view.items[-1].seq, least=1_000, most=4_000)
    assert cut is not None
    texts = [i for i in cut.kept if isinstance(i.fact, Assistant) and extract_text(i.fact.content)]
    assert len(texts) >= MIN_TEXT_MESSAGES
    assert 1_000 <= size(cut) <= 1_400


@pytest.mark.parametrize(("covers", "found"), [(0, False), (20, False), (55, True)])
def test_notes_that_are_too_far_behind_are_refused(covers: int, found: bool) -> None:
    view = conversation([(1, 2, False)] * 30)
    assert (cut_after_entry(view, covers, least=500, most=1_500) is not None) is found


def test_an_earlier_summary_gives_way_again_and_is_never_kept() -> None:
    view = conversation([(1, 1, False)] * 9)
    note = User((Text(SUMMARY_OPENING),), origin="note")
    view.items[0] = ViewItem(view.items[0].seq, note)
    cut = cut_after_entry(view, view.items[-1].seq, least=200, most=5_000)
    assert cut is not None
    assert cut.dropped[0].fact == note
    assert cut_after_entry(view, view.items[-1].seq, least=100_000, most=200_000) is None
