"""A model that is too small to be trusted with words: rules summarise, remember and choose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
from msgspec.structs import replace

from tests.context.test_manage import shown, weighed, working
from tests.engine.fakes import agent, begun, facts, log, play, with_parts
from tests.memory.test_dreaming import opened, parent, run
from tests.memory.test_extraction import PROMPT, bodies, ended, remembering
from travois.compose.models import find_small_model
from travois.context.compaction.compact import compact_conversation
from travois.context.layers import ContextLayers
from travois.core.facts import Compacted, Noted, Spawned
from travois.engine.agent import Agent
from travois.memory.memory import Memory
from travois.providers.catalog import load_catalog, resolve_model
from travois.testing import Scripted, say

CARD = resolve_model("local/smollm2", {})


def frail(one: Agent) -> Agent:
    """The same agent on the embedded model, which says what is scripted and no more."""
    epoch = one.session.view.epoch
    assert epoch is not None
    card = replace(epoch.model, quirks=CARD.quirks[-1:])
    one.session.append(replace(epoch, model=card, why="asked for"))
    return one


def asked(one: Agent) -> int:
    assert isinstance(one.model, Scripted)
    return len(one.model.requests)


def test_the_embedded_model_is_frail_and_has_no_smaller_one_that_could_choose() -> None:
    assert CARD.is_frail and not resolve_model("opus", {}).is_frail
    assert find_small_model(CARD, lambda card: Scripted(), among=load_catalog()) is None


def test_what_a_person_compacts_is_told_by_the_ledger_alone(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 10)
    play(one)
    frail(one).model = Scripted()
    fact = anyio.run(lambda: compact_conversation(one, trigger="manual", focus="the lexer"))
    assert isinstance(fact, Compacted)
    assert (fact.by, asked(one), facts(one, Spawned)) == ("ledger", 0, [])
    assert shown(one)


def test_nothing_is_drafted_or_noted_beside_the_conversation(tmp_path: Path) -> None:
    one, _ = working(tmp_path, 45)
    wanted: list[Callable[[], Awaitable[None]]] = []
    with_parts(frail(one), layers=ContextLayers(notes=True), background=wanted.append)
    play(one)
    before = asked(one)
    for job in wanted:
        anyio.run(job)
    assert (asked(one), facts(one, Spawned), facts(one, Noted)) == (before, [], [])


def test_what_the_user_asked_for_is_remembered_by_rule(tmp_path: Path) -> None:
    one, held = remembering(tmp_path, say("ok"))
    ended(frail(one), PROMPT)
    assert bodies(held) == ["Always run the linter before you commit."]
    assert (asked(one), facts(one, Spawned)) == (1, [])


def test_memories_are_put_in_order_by_rule(tmp_path: Path) -> None:
    some = opened(tmp_path, Memory("a", "Deploys are on Fridays.", "project", "Deploys."))
    done = run(some, frail(parent(tmp_path)))
    assert (done.state, done.alone) == (
        "completed",
        "lab/echo-1 is too small for this",
    )


def test_a_window_of_8k_is_kept_by_rule_for_as_long_as_one_talks(tmp_path: Path) -> None:
    one = frail(agent(tmp_path, session=begun(window=8_192, output=512)))
    one.model = Scripted(*(weighed(say(f"answer {n}: {'word ' * 200}")) for n in range(40)))
    for number in range(40):
        play(one, f"question {number}: {'what ' * 200}")
    made = facts(one, Compacted)
    assert made and {fact.by for fact in made} == {"ledger"}
    assert asked(one) == 40
    assert max(len(request.body) for request in one.model.requests) / 3 < 8_192
    assert log(one).entries
