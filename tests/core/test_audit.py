"""What the log tells of money and cache."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from tests.core.told import EPOCH, OTHER, TOOLS, reply, user
from travois.core.cache_audit import CacheMiss, PromptCache, SessionSpending, format_duration
from travois.core.content import Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Entry,
    Epoch,
    Finished,
    Opened,
    Restored,
    Rewound,
    Sent,
    Spawned,
    ToolSpec,
)
from travois.core.models import Price, Usage

PRICE = Price(input=3.0, output=15.0, read=0.3, write=3.75)
PRICED = replace(EPOCH, model=replace(EPOCH.model, price=PRICE))
SENT = Sent(3, "c", "d", 10)


def said(*, read: int, write: int, **more: int) -> Assistant:
    return reply("ok", usage=Usage(read=read, write=write, **more))


def fold(steps: Iterable[AnyFact | float]) -> PromptCache:
    """Facts one second apart; a number is a pause before the next."""
    cache, at = PromptCache(), 1_000.0
    for seq, step in enumerate(steps, 1):
        if isinstance(step, float):
            at += step
            continue
        at += 1.0
        cache = cache.after_entry(Entry(seq, at, step))
    return cache


WARM = (PRICED, user("one"), SENT, said(read=0, write=50_000))
COLD = (SENT, said(read=0, write=51_000))


@pytest.mark.parametrize(
    ("between", "cause", "detail", "expected"),
    [
        ((), "provider", "nothing changed on our side", False),
        ((301.0,), "expiry", "idle for 5:04, and the cache lives 5:00", True),
        ((Compacted(2, 4, (Text("s"),), "notes"),), "compaction", "", True),
        ((Cleared(("a",), "cleared"),), "clearing", "", True),
        ((Rewound(2),), "rewind", "", True),
        ((Restored(3),), "undo", "", True),
        ((replace(PRICED, system="Be long.", why="asked for"),), "system", "asked for", True),
        (
            (replace(PRICED, tools=(*TOOLS, ToolSpec("Bash", "Runs.", "{}"))),),
            "tools",
            "Bash",
            False,
        ),
        (
            (replace(PRICED, model=replace(PRICED.model, id="echo-2")),),
            "model",
            "lab/echo-1 became lab/echo-2",
            True,
        ),
        (
            (replace(PRICED, model=replace(PRICED.model, effort="high")),),
            "model",
            "effort is now high",
            True,
        ),
        (
            (replace(PRICED, model=replace(PRICED.model, betas=("x",)), why="beta"),),
            "request",
            "beta",
            False,
        ),
        (
            (replace(PRICED, why="prefix break: they differ first at piece 7", unbind=True),),
            "message",
            "they differ first at piece 7",
            False,
        ),
    ],
)
def test_every_miss_has_its_cause(
    between: tuple[AnyFact | float, ...], cause: str, detail: str, expected: bool
) -> None:
    (miss,) = fold((*WARM, user("two"), *between, *COLD)).misses
    assert (miss.cause, miss.detail, miss.tokens, miss.is_expected) == (
        cause,
        detail,
        50_000,
        expected,
    )


def test_a_miss_costs_what_the_tokens_cost_more_than_if_they_had_been_read() -> None:
    (miss,) = fold((*WARM, *COLD)).misses
    assert miss.dollars == pytest.approx(50_000 * (3.75 - 0.3) / 1e6)


@pytest.mark.parametrize(
    ("read", "missed"), [(50_000, False), (48_100, False), (47_400, True), (20_000, True)]
)
def test_a_fall_counts_from_five_in_a_hundred_and_two_thousand(read: int, missed: bool) -> None:
    found = fold((*WARM, SENT, said(read=read, write=60_000 - read)))
    assert bool(found.misses) == missed
    small = (PRICED, SENT, said(read=0, write=1_900), SENT, said(read=0, write=3_000))
    assert fold(small).misses == ()


def test_a_shorter_request_could_only_have_read_itself() -> None:
    shorter = (Compacted(2, 4, (Text("s"),), "notes"), SENT, said(read=2_000, write=8_000))
    (miss,) = fold((*WARM, *shorter)).misses
    assert (miss.cause, miss.tokens) == ("compaction", 8_000)
    kept = fold((*WARM, *shorter, SENT, said(read=10_000, write=500)))
    assert kept.misses == (miss,)
    assert kept.held == 10_500


def test_a_fork_keeps_the_cache_alive_and_a_retry_is_no_pause() -> None:
    kept = (*WARM, 200.0, Spawned("f", "fork", "summary"), 200.0, SENT, said(read=50_000, write=9))
    assert fold(kept).misses == ()
    late = (*WARM, 400.0, SENT, 5.0, *COLD)
    (miss,) = fold(late).misses
    assert miss.cause == "expiry"


def test_a_server_without_a_cache_misses_nothing() -> None:
    plain = reply("ok", usage=Usage(input=50_000))
    guessed = reply("ok", usage=Usage(input=9, estimated=True))
    assert fold((PRICED, SENT, plain, SENT, plain, SENT, guessed)).misses == ()


def test_a_cache_is_warm_for_its_lifetime_after_the_last_request() -> None:
    found = fold(WARM)
    assert [found.seconds_left(found.used + seconds) for seconds in (0, 299, 301)] == [
        300.0,
        1.0,
        0.0,
    ]
    assert fold(WARM[:3]).seconds_left(1_000.0) == 0.0
    assert [format_duration(192.0), format_duration(59.9), format_duration(7_300.0)] == [
        "3:12",
        "0:59",
        "2 h 1 min",
    ]


def test_a_miss_says_why() -> None:
    assert CacheMiss(1, "tools", "Bash", 10, 0.1).cause_text == "tools (Bash)"
    assert CacheMiss(1, "compaction", "", 10, 0.1).cause_text == "compaction"


def spend(*facts: AnyFact) -> SessionSpending:
    spent = SessionSpending()
    for seq, fact in enumerate(facts, 1):
        spent = spent.after_entry(Entry(seq, 0.0, fact))
    return spent


def priced(dollars: float) -> Epoch:
    return replace(OTHER, model=replace(OTHER.model, price=Price(input=dollars)))


ONE = reply("ok", usage=Usage(input=1_000_000))


def test_each_reply_and_each_fork_costs_what_held_when_it_came() -> None:
    found = spend(priced(2.0), ONE, priced(5.0), ONE, Finished("f", "done", ONE.usage))
    assert (found.dollars, found.usage.input) == (12.0, 3_000_000)


def test_a_rewind_brings_the_old_price_back_and_no_money() -> None:
    rewound = (priced(2.0), ONE, priced(5.0), ONE, Rewound(2), ONE)
    assert spend(*rewound).dollars == 9.0
    assert spend(*rewound, Rewound(4), ONE).dollars == 14.0


def test_a_fork_of_a_session_starts_at_nil_with_the_price_that_held() -> None:
    opened = Opened("s2", "/w", "p", "1", parent="s1", at=2)
    assert spend(priced(2.0), ONE, opened, ONE).dollars == 2.0
