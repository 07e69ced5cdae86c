"""Clearing in a running session: on file first, named in the marker, and found again later."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.e2e.test_context_edits import worked
from tests.engine.against import Disk, LabModel, opened, say
from tests.engine.fakes import facts
from travois.context.compaction.compact import compact_conversation
from travois.context.layers import ContextLayers
from travois.core.content import Opaque, extract_text
from travois.core.facts import Changed, Cleared, Compacted, Offloaded, Result
from travois.engine.agent import Agent
from travois_lab import Prompt, call, editing, text, thinking
from travois_lab.objects import Json


def reading(prompt: Prompt, state: dict[str, int]) -> list[Json]:
    """Read as many files as the human said; no thinking."""
    for line in prompt.last_text.splitlines():
        state["left"] = int(line) if line.isdigit() else state.get("left", 0)
    if not state.get("left"):
        return [text("done")]
    state["left"] -= 1
    state["n"] = state.get("n", 0) + 1
    return [call("Read", path=f"file{state['n']}")]


def paused(folder: Path, *, layers: ContextLayers | None = None) -> tuple[Agent, LabModel, Disk]:
    model = LabModel(reading)
    one, disk = opened(folder, model, layers=layers or ContextLayers())
    assert say(one, "12") == "end"
    model.world.clock.advance(3_700.0)
    assert say(one, "0") == "end"
    return one, model, disk


def results(one: Agent) -> list[str]:
    items = [item.fact for item in one.session.view.items]
    return [extract_text(fact.content) for fact in items if isinstance(fact, Result)]


def test_a_cleared_result_says_where_its_whole_text_is(tmp_path: Path) -> None:
    one, _, disk = paused(tmp_path)
    (fact,) = facts(one, Cleared)
    assert (fact.where, len(fact.calls)) == ("local", 7)
    whole = {result.call: extract_text(result.content) for result in facts(one, Result)}
    for id, shown in zip(fact.calls, results(one), strict=False):
        path = f"/kept/{id}-result.txt"
        assert shown == f"[This result was cleared. Its whole text is in {path}.]"
        assert disk.held[path] == whole[id]
    assert results(one)[7:] == list(whole.values())[7:]


def test_a_result_that_was_stored_before_stays_where_it_is(tmp_path: Path) -> None:
    one, _, disk = paused(tmp_path, layers=ContextLayers(caps={"Read": 600}, cleared=1_000))
    stored = {fact.call: fact.blob for fact in facts(one, Offloaded)}
    assert stored
    assert all(disk.held[path].startswith("the text of file") for path in stored.values())
    assert all(disk.held[path].count("x") >= 4_000 for path in stored.values())
    assert all(stored[id] in results(one)[n] for n, id in enumerate(facts(one, Cleared)[0].calls))


def test_clearing_can_be_turned_off(tmp_path: Path) -> None:
    one, _, _ = paused(tmp_path, layers=ContextLayers(clear=False))
    assert facts(one, Cleared) == []


def test_the_cache_is_lost_once_and_no_request_is_refused(tmp_path: Path) -> None:
    one, model, _ = paused(tmp_path)
    assert say(one, "10") == "end"
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)
    model.world.ledger.append_only(allowed=1)
    assert all(exchange.usage.read > 0 for exchange in model.ledger[-11:])


def test_a_compaction_sets_aside_what_was_cleared_word_for_word(tmp_path: Path) -> None:
    one, _, disk = paused(tmp_path)

    async def shrink() -> Compacted | None:
        return await compact_conversation(one, trigger="manual")

    fact = anyio.run(shrink)
    assert fact is not None
    spans = "".join(disk.held[path] for path in fact.files)
    assert "the text of file1 " in spans
    assert "[This result was cleared" not in spans


def test_a_provider_that_leaves_out_something_else_is_told_of_once(tmp_path: Path) -> None:
    one, model = worked(tmp_path)
    model.world.clock.advance(1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(editing, "_triggered", lambda body, wanted, uses: False)
        say(one, "3")
    (told,) = facts(one, Changed)
    assert (told.what, told.value.split()[0]) == ("left-out", "0")


def thoughtful(prompt: Prompt, state: dict[str, int]) -> list[Json]:
    """Think in every reply; read one file in each turn."""
    thought = thinking("a long thought, " * 600)
    if prompt.results:
        return [thought, text("done")]
    state["n"] = state.get("n", 0) + 1
    return [thought, call("Read", path=f"file{state['n']}")]


def thoughts(one: Agent) -> list[int]:
    """The entries whose thinking is shown."""
    return [
        i.seq for i in one.session.view.items if any(isinstance(b, Opaque) for b in i.fact.content)
    ]


@pytest.mark.parametrize("server", [True, False])
def test_after_an_hour_only_the_last_turns_thinking_is_sent(tmp_path: Path, server: bool) -> None:
    """Taken from the front it leaves what is bound valid: the lab checks every signature."""
    model = LabModel(thoughtful)
    one, _ = opened(tmp_path, model, layers=ContextLayers(server=server))
    for number in range(3):
        assert say(one, f"turn {number}") == "end"
    before = thoughts(one)
    model.world.clock.advance(3_700.0)
    assert say(one, "and now") == "end"
    assert thoughts(one)[:2] == before[-2:]
    (fact,) = (fact for fact in facts(one, Cleared) if fact.what == "thinking")
    assert before[-3] <= fact.until < before[-2]
    assert say(one, "go on") == "end"
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)
    assert model.ledger[-1].usage.read > 0


@pytest.mark.parametrize("pause", [600.0, 3_700.0])
def test_thinking_stays_in_a_short_pause_and_where_that_is_wanted(
    tmp_path: Path, pause: float
) -> None:
    model = LabModel(thoughtful)
    one, _ = opened(tmp_path, model, layers=ContextLayers(thinking=pause < 3_600.0))
    for number in range(3):
        assert say(one, f"turn {number}") == "end"
    before = thoughts(one)
    model.world.clock.advance(pause)
    assert say(one, "and now") == "end"
    assert thoughts(one)[: len(before)] == before


def writing(prompt: Prompt, state: dict[str, int]) -> list[Json]:
    """Write as many long files as the human said."""
    if prompt.last_text.strip().isdigit():
        state["left"] = int(prompt.last_text)
    if not state.get("left"):
        return [text("done")]
    state["left"] -= 1
    return [call("Write", path=f"file{state['left']}", content="a line of code\n" * 300)]


def test_long_inputs_are_on_file_before_they_give_way(tmp_path: Path) -> None:
    model = LabModel(writing)
    one, disk = opened(tmp_path, model, layers=ContextLayers(inputs=True, kept=2, cleared=500))
    assert say(one, "6") == "end"
    model.world.clock.advance(3_700.0)
    assert say(one, "0") == "end"
    found = [fact for fact in facts(one, Cleared) if fact.what == "inputs"]
    assert [len(fact.calls) for fact in found] == [4]
    for id in found[0].calls:
        assert "a line of code" in disk.held[f"/kept/{id}-input.txt"]
    body = model.ledger[-1].json
    assert str(body).count("The whole input of the call is in /kept/") == 4
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)
