"""`travois cost`: every dollar by turn and by kind, and every cache miss with its price."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.core.told import EPOCH, entries, reply, user
from travois.commands.cost import compute_session_cost, render_session_cost
from travois.context.switch_model import TrialLog
from travois.core.facts import AnyFact, Finished, Opened, Rewound, Sent
from travois.core.models import Price, Usage
from travois.sessions.session import Session

DEAR = Price(input=6.0, output=30.0, read=0.6, write=7.5)
PRICE = Price(input=3.0, output=15.0, read=0.3, write=3.75, over=200_000, above=DEAR)
HEAD = replace(EPOCH, model=replace(EPOCH.model, price=PRICE))
SENT = Sent(3, "c", "d", 10)
FIRST = Usage(write=60_001, output=7)
SECOND = Usage(read=60_001, write=333, output=11)
FORK = Usage(read=60_333, write=19, output=113)
LARGE = Usage(write=250_000, output=1)

STORY: tuple[AnyFact, ...] = (
    Opened("s1", "/w", "p", "1"),
    HEAD,
    user("the first thing"),
    *(SENT, reply("ok", usage=FIRST), SENT, reply("ok", usage=SECOND)),
    Finished("f", "done", FORK),
    user("the second thing"),
    *(SENT, reply("ok", usage=LARGE), Rewound(9)),
)


def test_the_sum_is_exactly_what_the_session_counts() -> None:
    found, session = compute_session_cost(entries(*STORY)), Session(TrialLog(entries(*STORY)))
    assert (found.dollars, found.usage) == (session.dollars, session.usage)


def test_turns_and_kinds_each_sum_to_the_whole() -> None:
    found = compute_session_cost(entries(*STORY))
    assert [(turn.number, turn.said, turn.replies) for turn in found.turns] == [
        (1, "the first thing", 2),
        (2, "the second thing", 1),
    ]
    assert found.turns[0].forks == FORK
    assert sum(turn.dollars for turn in found.turns) == pytest.approx(found.dollars)
    assert sum(kind.dollars for kind in found.kinds.values()) == pytest.approx(found.dollars)
    assert {name: kind.tokens for name, kind in found.kinds.items()} == {
        "input": 0,
        "read": 60_001,
        "write": 310_334,
        "output": 19,
        "forks": FORK.context,
    }
    assert found.kinds["write"].dollars == pytest.approx((60_334 * 3.75 + 250_000 * 7.5) / 1e6)


def test_a_miss_is_told_with_its_cause_and_its_price() -> None:
    found = compute_session_cost(entries(*STORY))
    out = render_session_cost(found, now=12.0)
    (miss,) = [line for line in out.splitlines() if line.startswith("MISS")]
    more = 60_334 * (7.5 - 0.6) / 1e6
    assert miss == (
        f"MISS: entry 11: 60,334 tokens resent, ${more:.4f} extra: "
        "provider (nothing changed on our side)"
    )
    assert out.splitlines()[-1].startswith(f"${found.dollars:.6f}: input 0 $0.0000 · read 60,001 ")
    assert "cache warm for 4:58, up to the change (rewind)" in out


def test_a_fork_pays_only_for_what_came_after_it() -> None:
    fork = (*STORY[:5], Opened("s2", "/w", "p", "1", parent="s1", at=5), user("go"))
    found = compute_session_cost(entries(*fork, SENT, reply("ok", usage=SECOND)))
    assert [turn.said for turn in found.turns] == ["go"]
    assert found.usage == SECOND
