"""Which old results are cleared in place of a compaction that is due."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from travois.context.layers import ContextLayers
from travois.context.microcompact.clear import plan_clearing_instead
from travois.context.microcompact.plan import ClearingConditions, ClearingPlan
from travois.core.content import AnyBlock, Call, Opaque, Text
from travois.core.facts import AnyFact, Assistant, Cleared, Entry, Epoch, Result, Sent, User
from travois.core.models import ModelCard
from travois.core.tokens import fact_tokens, head_tokens
from travois.core.view import View, project_view

BIG = "some words of a result " * 200
LAYERS = ContextLayers(pressed_kept=1, pressed_tokens=1_000, pressed_cleared=3_000)
FULL = ClearingConditions(size=100_000, limit=100_000)
THOUGHT = Opaque("anthropic", "thinking", '{"type":"thinking","thinking":"","signature":"s"}')


def told(*steps: tuple[str, str], thinking: bool = False) -> View:
    """A conversation of calls c0, c1, … that each brought much: the tool, and its file."""
    facts: list[AnyFact] = [Epoch(ModelCard("a", "m", "anthropic"), "s"), User((Text("go"),))]
    for number, (name, path) in enumerate(steps):
        thought: tuple[AnyBlock, ...] = (THOUGHT,) if thinking else ()
        args = json.dumps({"file_path": path, "command": path})
        facts.append(Assistant((*thought, Call(f"c{number}", name, args)), "calls"))
        facts.append(Result(f"c{number}", (Text(BIG),)))
    facts.append(Sent(1, "", "", 1))
    return project_view(Entry(seq, 1.0, fact) for seq, fact in enumerate(facts, 1))


def found(
    view: View,
    *,
    now: ClearingConditions = FULL,
    layers: ContextLayers = LAYERS,
    names: Mapping[str, float] | None = None,
) -> ClearingPlan | None:
    return plan_clearing_instead(view, layers, now=now, names=names or {})


def numbers(clearing: ClearingPlan | None) -> list[int]:
    return [int(call[1:]) for call in clearing.calls] if clearing else []


def test_what_stands_in_the_first_half_stays_with_its_cache() -> None:
    view = told(*[("Bash", f"ls {number}") for number in range(20)])
    cleared = numbers(found(view))
    assert view.epoch is not None
    first = next(i for i, item in enumerate(view.items) if item.seq == 4 + 2 * cleared[0])
    before = head_tokens(view.epoch) + sum(fact_tokens(i.fact) for i in view.items[:first])
    whole = head_tokens(view.epoch) + sum(fact_tokens(i.fact) for i in view.items)
    assert before >= whole / 2
    assert cleared == list(range(cleared[0], 18))


def test_commands_give_way_before_files_as_last_read() -> None:
    steps = [("Read" if number % 2 else "Bash", f"{number}.py") for number in range(40)]
    assert all(number % 2 == 0 for number in numbers(found(told(*steps))))


def test_of_a_file_that_was_read_again_the_earlier_text_gives_way() -> None:
    steps = [("Read", "a.py" if number < 39 else "b.py") for number in range(40)]
    cleared = numbers(found(told(*steps)))
    assert len(cleared) > 10
    assert 38 not in cleared


def test_of_files_as_few_give_way_as_it_takes_and_the_least_spoken_of() -> None:
    steps = [("Read", f"f{number}.py") for number in range(40)]
    names = {f"f{number}": 5.0 for number in range(40) if number % 2}
    few = numbers(found(told(*steps), names=names))
    assert few
    assert all(number % 2 == 0 for number in few)


def test_files_that_were_changed_and_left_give_way_before_those_yet_to_be_changed() -> None:
    """Of files spoken of alike, or even more: what is done is needed less than what is to come."""
    steps = [("Read", f"f{number}.py") for number in range(36)]
    changed = [("Edit", f"f{number}.py") for number in (25, 27, 29)]
    names = {f"f{number}.py": 5.0 for number in (25, 27, 29)}
    layers = msgspec.structs.replace(LAYERS, pressed_cleared=1_500)
    few = numbers(found(told(*steps, *changed), names=names, layers=layers))
    assert {number for number in few if number < 36} >= {25}
    assert not {27, 29} & set(few), "the last two are still being worked with"


def test_what_does_not_make_enough_room_is_left_to_a_compaction() -> None:
    view = told(*[("Bash", f"ls {number}") for number in range(20)])
    clearing = found(view)
    assert clearing is not None
    short = ClearingConditions(size=100_000 + clearing.freed, limit=100_000)
    assert found(view, now=short) is None
    assert found(told(*[("Bash", "ls")] * 4)) is None
    assert found(told(*[("TodoWrite", "x")] * 20)) is None


def test_nothing_is_cleared_where_clearing_under_pressure_is_off() -> None:
    view = told(*[("Bash", "ls")] * 20)
    assert found(view, layers=ContextLayers(pressure=False)) is None


def test_bound_history_is_left_to_the_provider_and_only_beyond_its_first_half() -> None:
    view = told(*[("Bash", "ls")] * 20, thinking=True)
    assert found(view) is None
    server = ClearingConditions(server=True, size=1, limit=1)
    assert found(view, now=server) is None  # a provider clears from the first result on
    view.cleared = tuple(f"c{number}" for number in range(12))
    clearing = found(view, now=server)
    assert clearing is not None
    assert (clearing.where, numbers(clearing)) == ("server", list(range(18)))


def test_what_was_cleared_before_is_not_cleared_again() -> None:
    view = told(*[("Bash", f"ls {number}") for number in range(20)])
    clearing = found(view)
    assert clearing is not None
    view.add(Entry(99, 1.0, Cleared(clearing.calls, "cleared")))
    assert found(view) is None


@pytest.mark.parametrize("thinking", [True, False])
def test_clearing_nothing_stands_in_for_no_compaction(thinking: bool) -> None:
    layers = msgspec.structs.replace(LAYERS, pressed_cleared=0)
    view = told(("Bash", "ls"), thinking=thinking)
    assert (
        found(view, layers=layers, now=ClearingConditions(size=1, limit=100_000, server=thinking))
        is None
    )
