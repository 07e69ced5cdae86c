"""What the provider leaves out for us, against the lab: a frozen set, and a cache that is read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.engine.against import OPUS, LabModel, opened, say
from tests.engine.fakes import facts, log
from travois.engine.agent import Agent
from travois.kernel.facts import Cleared, Epoch, Sent
from travois.kernel.view import project
from travois.lab import Prompt, call, text, thinking
from travois.lab.exchange import Exchange
from travois.lab.faults import parse_rules
from travois.lab.objects import Json
from travois.wire.encode import Encoder

PAUSE = 3_700.0
BETA = "context-management-2025-06-27"


def reading(prompt: Prompt, state: dict[str, int]) -> list[Json]:
    """Think, then read: as many files in each turn as the human said."""
    for line in prompt.last_text.splitlines():
        state["left"] = int(line) if line.isdigit() else state.get("left", 0)
    if not state.get("left"):
        return [thinking("enough"), text("done")]
    state["left"] -= 1
    state["n"] = state.get("n", 0) + 1
    if state["n"] % 7 == 3:
        return [thinking(f"plan {state['n']}"), call("TodoWrite", path=f"todo{state['n']}")]
    return [thinking(f"look {state['n']}"), call("Read", path=f"file{state['n']}")]


def worked(folder: Path, *, first: int = 20) -> tuple[Agent, LabModel]:
    """Some calls, then an hour's pause: by the next request the cache is gone."""
    model = LabModel(reading)
    one, _ = opened(folder, model)
    assert say(one, str(first)) == "end"
    model.world.clock.advance(PAUSE)
    return one, model


def cleared_ids(exchange: Exchange) -> list[str]:
    """The calls whose results the model did not see."""
    applied = [e for e in exchange.applied if e["type"].startswith("clear_tool_uses")]
    return [str(edit["cleared_tool_uses"]) for edit in applied]


def test_after_a_pause_the_provider_leaves_out_old_results_and_thinking_stays(
    tmp_path: Path,
) -> None:
    one, model = worked(tmp_path)
    before = model.ledger[-1].usage.prompt
    assert say(one, "0") == "end"
    (fact,) = facts(one, Cleared)
    assert fact.where == "server"
    last = model.ledger[-1]
    assert BETA in last.betas
    assert cleared_ids(last) == [str(len(fact.calls))]
    assert last.usage.prompt < before / 2
    assert (last.usage.read, last.status) == (0, 200)
    assert one.session.view.items[1].fact.content[0].kind == "thinking"
    names = {item["name"] for item in last.json["messages"][1]["content"] if "name" in item}
    assert names == {"Read"}


def test_the_set_stays_as_it_was_over_thirty_calls_and_each_reads_what_was_before(
    tmp_path: Path,
) -> None:
    one, model = worked(tmp_path)
    assert say(one, "30") == "end"
    after = [exchange for exchange in model.ledger if exchange.applied]
    assert len(after) == 31
    assert {tuple(cleared_ids(exchange)) for exchange in after} == {
        (str(len(facts(one, Cleared)[0].calls)),)
    }
    for earlier, later in pairwise(after):
        assert later.usage.read >= earlier.usage.prompt - 64
        assert later.usage.write < 3_000
    keeps = [e.json["context_management"]["edits"][1]["keep"]["value"] for e in after]
    assert keeps == [keeps[0] + n for n in range(31)]
    model.world.ledger.append_only(allowed=1)


def test_the_pieces_do_not_change_and_what_was_sent_does(tmp_path: Path) -> None:
    one, model = worked(tmp_path)
    say(one, "0")
    before, after = model.ledger[-2].json["messages"], model.ledger[-1].json["messages"]
    assert [_bare(m) for m in after[: len(before)]] == [_bare(m) for m in before]


def _bare(message: Json) -> list[Json]:
    return [{k: v for k, v in b.items() if k != "cache_control"} for b in message["content"]]


def test_a_session_that_was_killed_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    one, model = worked(tmp_path)
    say(one, "3")
    entries = log(one).entries
    sent = [index for index, entry in enumerate(entries) if isinstance(entry.fact, Sent)]
    bodies = [exchange.body for exchange in model.ledger]
    for index, body in zip(sent[-5:], bodies[-5:], strict=True):
        view = project(entries[:index])
        assert Encoder(lambda name: b"").request(view).body == body
        assert Encoder(lambda name: b"").request(view).digest == entries[index].fact.digest
    assert b"context_management" in bodies[-1]


@pytest.mark.parametrize(
    "words",
    [
        "claude-opus-5-5 does not support the clear_tool_uses_20250919 context management strategy",
        f"Unexpected value(s) `{BETA}` for the `anthropic-beta` header. Please consult our docs",
        "context_management: Extra inputs are not permitted",
    ],
)
def test_a_model_that_refuses_is_never_asked_again(tmp_path: Path, words: str) -> None:
    one, model = worked(tmp_path)
    error = {"status": 400, "type": "invalid_request_error", "message": words}
    rule = {"match": {"n": 1}, "do": {"http": error}}
    model.world.faults.rules += parse_rules([rule])
    assert say(one, "5") == "end"
    assert [exchange.status for exchange in model.ledger[-7:]] == [400, *[200] * 6]
    assert not any("context_management" in e.json for e in model.ledger[-6:])
    assert BETA not in facts(one, Epoch)[-1].model.betas
    assert one.session.view.cleared == ()
    model.world.clock.advance(PAUSE)
    assert say(one, "0") == "end"
    assert len(facts(one, Cleared)) == 1


def test_where_the_provider_cannot_clear_bound_history_stays_as_it_is(tmp_path: Path) -> None:
    model = LabModel(reading)
    one, _ = opened(tmp_path, model, card=replace(OPUS, betas=()))
    say(one, "20")
    model.world.clock.advance(PAUSE)
    say(one, "0")
    assert facts(one, Cleared) == []
    assert not any(exchange.applied for exchange in model.ledger)
