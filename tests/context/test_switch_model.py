"""Going on with another model: all fits, or what is older gives way first, or nothing happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.engine.fakes import agent, begun, check, facts, log, play
from travois.context.switch_model import switch_to_model
from travois.core.errors import UserError
from travois.core.facts import Compacted, Epoch
from travois.core.models import Usage
from travois.core.tokens import context_tokens, stop_threshold
from travois.engine.agent import Agent
from travois.ports.world import UserWarned
from travois.testing import say


def talked(folder: Path, turns: int = 12) -> Agent:
    one = agent(folder, say("Very well. " * 200, usage=Usage(input=9_000, output=600)))
    for number in range(turns):
        play(one, f"Never touch file {number}.py. " + "Some words about it. " * 100)
    return one


def head(one: Agent, **more: object) -> Epoch:
    epoch = one.session.view.epoch
    assert epoch is not None
    model = replace(epoch.model, id="other", **more)
    return replace(epoch, model=model, why="asked for")


def test_what_fits_goes_on_as_it_is(tmp_path: Path) -> None:
    one = talked(tmp_path)
    items = list(one.session.view.items)
    switch_to_model(one, head(one))
    assert facts(one, Compacted) == []
    assert one.session.view.items == items
    assert one.session.view.epoch == head(one)


@pytest.mark.parametrize("window", [8_000, 32_000])
def test_what_does_not_fit_is_shortened_first_without_a_model(tmp_path: Path, window: int) -> None:
    one = talked(tmp_path, turns=40)
    asked = len(one.model.requests)  # type: ignore[attr-defined]
    with one.session.watch() as events:
        switch_to_model(one, head(one, window=window, output=1_000))
        told = [event for event in iter_events(events) if isinstance(event, UserWarned)]
    (fact,) = facts(one, Compacted)
    assert (fact.trigger, fact.by) == ("switch", "ledger")
    assert [type(entry.fact) for entry in log(one).entries[-2:]] == [Compacted, Epoch]
    assert context_tokens(one.session.view) < stop_threshold(head(one, window=window).model)
    assert "Never touch file 3.py." in str(one.session.view.items[0].fact.content)
    assert len(one.model.requests) == asked  # type: ignore[attr-defined]
    assert len(told) == 1 and told[0].text.startswith("Compacted (switch)")
    check(one)
    assert play(one, "go on") == "end"


def test_what_cannot_fit_changes_nothing(tmp_path: Path) -> None:
    one = talked(tmp_path, turns=2)
    one.session.append(replace(head(one), system="Rules of the house. " * 2_000))
    before = list(log(one).entries)
    with pytest.raises(UserError, match="Cannot switch to lab/other") as refused:
        switch_to_model(one, head(one, window=8_000, output=1_000))
    assert "system prompt and tools); 7,600 of 8,000 are available" in refused.value.why
    assert log(one).entries == before


def test_a_miss_that_nobody_asked_for_is_told_once_with_its_cause(tmp_path: Path) -> None:
    full, none = Usage(write=50_000, output=5), Usage(write=60_000, output=5)
    one = agent(
        tmp_path,
        *(say("one", usage=full), say("two", usage=none), say("three", usage=none)),
        session=begun(),
        clock=lambda: 1_700_000_000.0,
    )
    with one.session.watch() as events:
        for _ in range(3):
            play(one)
        told = [event.text for event in iter_events(events) if isinstance(event, UserWarned)]
    assert told == [
        "prompt cache miss: 50,000 tokens not read from the cache (+$0.1725): "
        "provider (nothing changed on our side)"
    ]
    assert [miss.cause for miss in one.session.cache.misses] == ["provider", "provider"]


def iter_events(events: object) -> list[object]:
    found: list[object] = []
    while events.statistics().current_buffer_used:  # type: ignore[attr-defined]
        found.append(events.receive_nowait())  # type: ignore[attr-defined]
    return found
