"""Which old results are cleared, by whom, and when that pays."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from travois.context.layers import ContextLayers
from travois.context.microcompact.plan import (
    ClearingConditions,
    ClearingPlan,
    find_old_thinking,
    is_clearable_tool,
    plan_clearing,
)
from travois.core.content import AnyBlock, Call, Opaque, Text
from travois.core.facts import AnyFact, Assistant, Cleared, Entry, Epoch, Result, Sent, User
from travois.core.models import ModelCard
from travois.core.tokens import fact_tokens
from travois.core.view import View, ViewItem, project_view

THOUGHT = Opaque("anthropic", "thinking", '{"type":"thinking","thinking":"","signature":"s"}')
COLD = ClearingConditions(cold=True)
BIG = "some words of a result " * 200
LAYERS = ContextLayers(kept=2, cleared=500)


def told(*steps: tuple[str, str], thinking: bool = False, unsent: int = 0) -> View:
    """A conversation of calls c0, c1, …: each is the name of a tool and what it brought."""
    facts: list[AnyFact] = [Epoch(ModelCard("a", "m", "anthropic"), "s"), User((Text("go"),))]
    for number, (name, text) in enumerate(steps):
        if number == len(steps) - unsent:
            facts.append(Sent(1, "", "", 1))
        thought: tuple[AnyBlock, ...] = (THOUGHT,) if thinking else ()
        facts.append(Assistant((*thought, Call(f"c{number}", name, "{}")), "calls"))
        facts.append(Result(f"c{number}", (Text(text),)))
    if not unsent:
        facts.append(Sent(1, "", "", 1))
    return project_view(Entry(seq, 1.0, fact) for seq, fact in enumerate(facts, 1))


def cleared(
    view: View, now: ClearingConditions = COLD, layers: ContextLayers = LAYERS
) -> Iterable[str]:
    found = plan_clearing(view, layers, now=now)
    return found.calls if found else ()


@pytest.mark.parametrize(
    ("name", "again"),
    [
        *((name, True) for name in ("Read", "Bash", "Grep", "Glob", "WebFetch", "WebSearch")),
        *((name, True) for name in ("Edit", "MultiEdit", "Write", "apply_patch", "GitDiff")),
        *((name, False) for name in ("AskUserQuestion", "TodoWrite", "NotebookEdit", "Task")),
        ("mcp__files__read", False),
        ("", False),
    ],
)
def test_only_results_that_can_be_had_again_are_cleared(name: str, again: bool) -> None:
    assert is_clearable_tool(name) is again
    assert list(cleared(told((name, BIG), *[("Read", "new")] * 2))) == (["c0"] if again else [])


def test_when_the_cache_is_gone_all_but_the_newest_large_results_are_cleared() -> None:
    view = told(("Read", BIG), ("Read", "small"), ("Bash", BIG), ("Read", BIG), ("Read", BIG))
    size = fact_tokens(view.items[2].fact)
    assert plan_clearing(view, LAYERS, now=COLD) == ClearingPlan(
        ("c0", "c2"), "local", 2 * (size - 40)
    )


def test_while_the_cache_is_warm_and_there_is_room_nothing_is_cleared() -> None:
    assert (
        cleared(told(*[("Read", BIG)] * 50), ClearingConditions(size=100, warn=200, limit=300))
        == ()
    )


def test_what_frees_little_is_left_alone() -> None:
    assert cleared(told(*[("Read", BIG)] * 3), layers=ContextLayers(kept=2, cleared=5_000)) == ()


def test_the_newest_result_stays_whatever_the_settings_say() -> None:
    assert list(cleared(told(*[("Read", BIG)] * 2), layers=ContextLayers(kept=0, cleared=1))) == [
        "c0"
    ]


def test_what_the_model_has_not_seen_stays() -> None:
    assert list(cleared(told(*[("Read", BIG)] * 6, unsent=3), layers=LAYERS)) == ["c0"]


def test_bound_history_is_cleared_by_the_provider_or_not_at_all() -> None:
    steps = (("Read", BIG), ("TodoWrite", BIG), ("Read", "small"), *[("Read", BIG)] * 3)
    view = told(*steps, thinking=True)
    assert cleared(view) == ()
    found = plan_clearing(view, LAYERS, now=ClearingConditions(cold=True, server=True))
    assert found is not None
    assert (found.calls, found.where) == (("c0", "c2", "c3"), "server")


def pressed(read: float) -> ClearingConditions:
    return ClearingConditions(size=90_000, warn=80_000, limit=100_000, read=read)


def test_under_pressure_the_change_must_be_won_back_before_the_window_is_full() -> None:
    view = told(*[("Read", BIG * 3)] * 25)
    assert cleared(view, pressed(0.1)) == ()
    assert len(tuple(cleared(view, pressed(0.9)))) > 5


def test_under_pressure_forty_thousand_tokens_of_results_are_protected() -> None:
    view = told(*[("Read", BIG * 3)] * 25)
    kept = [i.fact for i in view.items if isinstance(i.fact, Result)]
    gone = set(cleared(view, pressed(0.9)))
    left = [fact for fact in kept if fact.call not in gone]
    assert sum(map(fact_tokens, left)) >= 40_000
    assert sum(map(fact_tokens, left[1:])) < 40_000


def test_what_the_provider_has_cleared_frees_nothing_more() -> None:
    view = told(*[("Read", BIG)] * 6, thinking=True)
    view.cleared = ("c0", "c1", "c2", "c3")
    assert plan_clearing(view, LAYERS, now=ClearingConditions(cold=True, server=True)) is None


WRITTEN = '{"file_path":"a.py","content":"' + "x = 1; " * 400 + '"}'


def wrote(count: int, *, thinking: bool = False) -> View:
    """Calls of Write with long arguments, then two reads."""
    view = told(*[("Write", "done")] * count, *[("Read", BIG)] * 2, thinking=thinking)
    for index, item in enumerate(view.items):
        if isinstance(item.fact, Assistant) and index <= 2 * count:
            blocks = tuple(
                replace(b, args=WRITTEN) if isinstance(b, Call) else b for b in item.fact.content
            )
            view.items[index] = ViewItem(item.seq, replace(item.fact, content=blocks))
    return view


@pytest.mark.parametrize("thinking", [False, True])
def test_long_inputs_of_old_writes_are_cleared_if_that_is_wanted(thinking: bool) -> None:
    view = wrote(3, thinking=thinking)
    now = ClearingConditions(cold=True, server=thinking)
    assert plan_clearing(view, LAYERS, now=now) is None
    found = plan_clearing(view, ContextLayers(kept=2, cleared=500, inputs=True), now=now)
    assert found is not None
    assert (found.inputs, found.where) == (("c0", "c1", "c2"), "server" if thinking else "local")
    assert found.freed > 3 * 700


def test_short_inputs_and_those_of_other_tools_stay() -> None:
    view = told(("Write", BIG), ("Read", BIG), *[("Read", BIG)] * 2)
    found = plan_clearing(view, ContextLayers(kept=2, cleared=500, inputs=True), now=COLD)
    assert found is not None
    assert found.inputs == ()


def test_pressure_can_be_switched_off_alone() -> None:
    view = told(*[("Read", BIG * 3)] * 25)
    assert tuple(cleared(view, pressed(0.9)))
    assert cleared(view, pressed(0.9), ContextLayers(pressure=False)) == ()
    assert tuple(cleared(view, COLD, ContextLayers(pressure=False)))


def test_only_thinking_of_turns_before_the_last_is_old() -> None:
    thought = Opaque("anthropic", "thinking", "t" * 9_000)
    facts: list[AnyFact] = [Epoch(ModelCard("a", "m", "anthropic"), "s")]
    for turn in range(3):
        facts.append(User((Text(f"turn {turn}"),)))
        call = Call(f"c{turn}", "Read", "{}")
        facts += [Assistant((thought, call), "calls"), Result(call.id, (Text("x"),))]
        facts.append(Assistant((thought, Text("done")), "end"))
    facts.append(User((Text("and now"),)))
    view = project_view(Entry(seq, 1.0, fact) for seq, fact in enumerate(facts, 1))
    last = [item.seq for item in view.items if isinstance(item.fact, User)][2]
    assert find_old_thinking(view) == last
    assert find_old_thinking(view, least=1_000_000) == 0
    view.add(Entry(99, 1.0, Cleared((), "", what="thinking", until=last)))
    thoughts = [
        i.seq
        for i in view.items
        if isinstance(i.fact, Assistant) and any(isinstance(b, Opaque) for b in i.fact.content)
    ]
    assert thoughts and min(thoughts) > last
    assert find_old_thinking(view) == 0
