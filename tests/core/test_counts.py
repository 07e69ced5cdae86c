"""Tokens, windows and money."""

from __future__ import annotations

import pytest

from tests.core.told import EPOCH, reply, result, seen, user
from travois.core.content import Text
from travois.core.cost import compute_cost
from travois.core.facts import Cleared, Compacted
from travois.core.models import ModelCard, Price, Usage
from travois.core.tokens import (
    compact_threshold,
    context_tokens,
    effective_window,
    stop_threshold,
    warn_threshold,
)

USAGE = Usage(input=10, read=100, write=20, write_1h=5, output=40, reasoning=30)


@pytest.mark.parametrize(
    ("window", "output", "expected"),
    [
        (200_000, 20_000, (180_000, 167_000, 147_000, 197_000)),
        (200_000, 64_000, (180_000, 167_000, 147_000, 197_000)),
        (200_000, 8_000, (192_000, 179_000, 159_000, 197_000)),
        (1_000_000, 128_000, (980_000, 967_000, 947_000, 997_000)),
        (128_000, 16_384, (111_616, 98_616, 78_616, 125_000)),
        (8_192, 8_192, (6_144, 5_888, 4_523, 7_783)),
    ],
)
def test_the_thresholds_of_a_window(window: int, output: int, expected: tuple[int, ...]) -> None:
    model = ModelCard("lab", "m", "chat", window=window, output=output)
    found = (
        effective_window(model),
        compact_threshold(model),
        warn_threshold(model),
        stop_threshold(model),
    )
    assert found == expected


def test_usage_adds_up() -> None:
    assert (USAGE.prompt, USAGE.context) == (135, 175)
    twice = Usage(input=20, read=200, write=40, write_1h=10, output=80, reasoning=60)
    assert twice == USAGE + USAGE
    assert (USAGE + Usage(estimated=True)).estimated


def test_each_kind_of_token_has_its_price_and_reasoning_is_output() -> None:
    price = Price(input=3.0, output=15.0, read=0.3, write=3.75, write_1h=6.0)
    assert compute_cost(USAGE, price) == pytest.approx(
        (10 * 3 + 100 * 0.3 + 20 * 3.75 + 5 * 6 + 40 * 15) / 1e6
    )
    assert compute_cost(Usage(), price) == 0.0


def test_a_long_lived_write_without_a_price_costs_as_much_as_a_short_lived_one() -> None:
    assert compute_cost(Usage(write_1h=1_000_000), Price(write=3.75)) == pytest.approx(3.75)


def test_a_model_is_named_as_a_user_writes_it() -> None:
    assert ModelCard("lab", "a/b", "chat").name == "lab/a/b"


def test_a_count_from_before_a_compaction_does_not_stand() -> None:
    big = Usage(input=190_000, output=1_000)
    facts = (EPOCH, user("one"), reply("ok"), user("two"), reply("x" * 303, usage=big))
    assert context_tokens(seen(*facts)) == 191_000
    small = seen(*facts, Compacted(2, 3, (Text("s"),), "model"))
    assert context_tokens(small) < 1_000
    assert context_tokens(seen(*facts, Compacted(2, 3, (Text("s"),), "model"), user("3"))) < 1_000


def test_a_count_from_before_a_clear_does_not_stand_but_the_next_one_does() -> None:
    big, after = Usage(input=190_000), Usage(input=50)
    facts = (EPOCH, user("go"), reply("", "a", usage=big), result("a"))
    cleared = (*facts, Cleared(("a",), "gone"))
    assert context_tokens(seen(*cleared)) < 1_000
    assert context_tokens(seen(*facts, Cleared(("a",), "", "server"))) < 1_000
    assert context_tokens(seen(*cleared, reply("ok", usage=after))) == 50
