"""Clearing in a running session: on file first, named in the marker, and found again later."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.e2e.test_context_edits import worked
from tests.engine.against import Disk, LabModel, opened, say
from tests.engine.fakes import facts
from travois.context.layers import Layers
from travois.engine.agent import Agent
from travois.engine.compaction import compact
from travois.kernel.blocks import words
from travois.kernel.facts import Changed, Cleared, Compacted, Offloaded, Result
from travois.lab import Prompt, call, editing, text
from travois.lab.objects import Json


def reading(prompt: Prompt, state: dict[str, int]) -> list[Json]:
    """Read as many files as the human said; no thinking."""
    for line in prompt.last_text.splitlines():
        state["left"] = int(line) if line.isdigit() else state.get("left", 0)
    if not state.get("left"):
        return [text("done")]
    state["left"] -= 1
    state["n"] = state.get("n", 0) + 1
    return [call("Read", path=f"file{state['n']}")]


def paused(folder: Path, *, layers: Layers | None = None) -> tuple[Agent, LabModel, Disk]:
    model = LabModel(reading)
    one, disk = opened(folder, model, layers=layers or Layers())
    assert say(one, "12") == "end"
    model.world.clock.advance(3_700.0)
    assert say(one, "0") == "end"
    return one, model, disk


def results(one: Agent) -> list[str]:
    items = [item.fact for item in one.session.view.items]
    return [words(fact.content) for fact in items if isinstance(fact, Result)]


def test_a_cleared_result_says_where_its_whole_text_is(tmp_path: Path) -> None:
    one, _, disk = paused(tmp_path)
    (fact,) = facts(one, Cleared)
    assert (fact.where, len(fact.calls)) == ("local", 7)
    whole = {result.call: words(result.content) for result in facts(one, Result)}
    for id, shown in zip(fact.calls, results(one), strict=False):
        path = f"/kept/{id}-result.txt"
        assert shown == f"[This result was cleared. Its whole text is in {path}.]"
        assert disk.held[path] == whole[id]
    assert results(one)[7:] == list(whole.values())[7:]


def test_a_result_that_was_stored_before_stays_where_it_is(tmp_path: Path) -> None:
    one, _, disk = paused(tmp_path, layers=Layers(caps={"Read": 600}, cleared=1_000))
    stored = {fact.call: fact.blob for fact in facts(one, Offloaded)}
    assert stored
    assert all(disk.held[path].startswith("the text of file") for path in stored.values())
    assert all(disk.held[path].count("x") >= 4_000 for path in stored.values())
    assert all(stored[id] in results(one)[n] for n, id in enumerate(facts(one, Cleared)[0].calls))


def test_clearing_can_be_turned_off(tmp_path: Path) -> None:
    one, _, _ = paused(tmp_path, layers=Layers(clear=False))
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
        return await compact(one, trigger="manual")

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
