"""How long the provider should remember, told from pauses."""

from __future__ import annotations

from travois.context.cache_lifetime import (
    RequestInterval,
    TtlChoice,
    choose_cache_ttl,
    list_request_intervals,
)
from travois.core.content import Text
from travois.core.facts import AnyFact, Assistant, Entry, Sent
from travois.core.models import Price, Usage

PRICE = Price(input=4.0, output=20.0, read=0.2, write=5.0, write_1h=8.0)


def work(*pauses: float) -> list[RequestInterval]:
    """Ten quick steps after each pause, on a prompt of 100K that grows by 1K."""
    quick = [RequestInterval(5.0, 100_000, 101_000)] * 10
    return [step for pause in pauses for step in (RequestInterval(pause, 100_000, 101_000), *quick)]


def test_coffee_breaks_make_the_life_longer() -> None:
    found = choose_cache_ttl(work(900.0, 1_200.0, 600.0), PRICE, life="5m", most=200_000)
    assert found is not None
    assert (found.life, found.pauses) == ("1h", 3)
    assert found.saved > 1.0


def test_quick_work_and_nights_do_not() -> None:
    for pauses in ((20.0, 40.0, 100.0), (50_000.0, 60_000.0, 50_000.0)):
        assert choose_cache_ttl(work(*pauses), PRICE, life="5m", most=200_000) is None


def test_one_pause_is_no_habit() -> None:
    assert choose_cache_ttl(work(900.0), PRICE, life="5m", most=200_000) is None


def test_where_a_longer_life_has_no_price_there_is_no_choice() -> None:
    assert (
        choose_cache_ttl(work(900.0, 900.0, 900.0), Price(input=4.0), life="5m", most=200_000)
        is None
    )


def test_what_is_compacted_after_a_pause_anyway_is_no_reason() -> None:
    assert choose_cache_ttl(work(900.0, 900.0, 900.0), PRICE, life="5m", most=5_000) is None


def test_a_life_that_was_too_long_becomes_short_again() -> None:
    found = choose_cache_ttl(work(20.0, 20.0, 7_200.0), PRICE, life="1h", most=200_000)
    assert found is not None
    assert (found.life, found.pauses) == ("5m", 0)
    assert isinstance(found, TtlChoice)


def test_steps_are_told_from_the_log_and_failed_requests_are_no_steps() -> None:
    sent, said = (
        Sent(1, "", "", 1),
        [Assistant((Text("x"),), "end", usage=Usage(input=size)) for size in (10, 0, 30)],
    )
    told: list[tuple[float, AnyFact]] = [
        (5.0, sent), (6.0, said[0]), (50.0, sent), (60.0, sent), (61.0, said[1]),
        (70.0, sent), (72.0, said[2]),
    ]  # fmt: skip
    entries = [Entry(seq, at, fact) for seq, (at, fact) in enumerate(told, 1)]
    assert list(list_request_intervals(entries)) == [RequestInterval(65.0, 10, 30)]
