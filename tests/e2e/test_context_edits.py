"""What the provider leaves out for us, against the lab: a frozen set, and a cache that is read."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec.structs import replace

from tests.engine.against import OPUS, LabModel, opened, say
from tests.engine.fakes import facts, log
from travois.context.compaction.compact import compact_conversation
from travois.context.keep_warm import keep_cache_warm
from travois.context.layers import ContextLayers
from travois.core.content import Text
from travois.core.facts import Cleared, Compacted, Epoch, Sent, User
from travois.core.view import project_view
from travois.engine.agent import Agent
from travois.ports.world import Event, UserWarned
from travois.providers.encoder import RequestEncoder
from travois_lab import Prompt, call, text, thinking
from travois_lab.exchange import Exchange
from travois_lab.faults import parse_rules
from travois_lab.objects import Json

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


def heard(events: MemoryObjectReceiveStream[Event]) -> list[Event]:
    return [events.receive_nowait() for _ in range(events.statistics().current_buffer_used)]


def cleared_ids(exchange: Exchange) -> list[str]:
    """The calls whose results the model did not see."""
    applied = [e for e in exchange.applied if e["type"].startswith("clear_tool_uses")]
    return [str(edit["cleared_tool_uses"]) for edit in applied]


def test_after_a_pause_the_provider_leaves_out_old_results_and_thinking_stays(
    tmp_path: Path,
) -> None:
    one, model = worked(tmp_path)
    before = model.ledger[-1].usage.prompt
    with one.session.watch() as events:
        assert say(one, "0") == "end"
        told = [e.text for e in heard(events) if isinstance(e, UserWarned)]
    (fact,) = facts(one, Cleared)
    assert fact.where == "server"
    (line,) = told
    assert line.startswith(f"Cleared {len(fact.calls)} old tool results after a ")
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
        view = project_view(entries[:index])
        assert RequestEncoder(lambda name: b"").build_request(view).body == body
        assert (
            RequestEncoder(lambda name: b"").build_request(view).digest
            == entries[index].fact.digest
        )
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
    assert len([fact for fact in facts(one, Cleared) if fact.what == "results"]) == 1


def test_where_the_provider_cannot_clear_bound_history_stays_as_it_is(tmp_path: Path) -> None:
    model = LabModel(reading)
    one, _ = opened(tmp_path, model, card=replace(OPUS, betas=()))
    say(one, "20")
    model.world.clock.advance(PAUSE)
    say(one, "0")
    assert facts(one, Cleared) == []
    assert not any(exchange.applied for exchange in model.ledger)


# --- the provider's own summary -------------------------------------------------------------------


def summed(folder: Path, **options: object) -> tuple[Agent, LabModel]:
    """A conversation with thinking that is compacted by hand while its cache is warm."""

    def program(prompt: Prompt, state: dict[str, int]) -> list[Json]:
        return [text("SIGNED")] if prompt.purpose == "compaction" else reading(prompt, state)

    model = LabModel(program, **options)
    layers = ContextLayers(signed=True, draft=False, tail=4_000)
    one, _ = opened(folder, model, layers=layers)
    assert say(one, "12") == "end"
    one.turn.inbox.append(User((Text("7"),)))
    return one, model


def shrink(one: Agent) -> Compacted:
    async def main() -> Compacted | None:
        one.session.append(one.turn.inbox.popleft())
        return await compact_conversation(one, trigger="manual")

    fact = anyio.run(main)
    assert fact is not None
    return fact


def test_the_provider_sums_up_and_the_tail_keeps_its_thinking(tmp_path: Path) -> None:
    one, model = summed(tmp_path)
    fact = shrink(one)
    assert fact.by == "provider"
    asked = model.ledger[-1]
    assert asked.json["compaction"] == {"type": "summarize"}
    assert asked.usage.read > 0.9 * asked.usage.prompt
    assert say(one, "2") == "end"
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)
    first, second, *_ = model.ledger[-1].json["messages"]
    assert [block["type"] for block in first["content"]] == ["compaction"]
    assert (second["role"], second["content"][0]["type"]) == ("assistant", "thinking")
    told = str(model.ledger[-1].json["messages"])
    assert all(part in told for path in fact.files for part in path.rsplit("/", 1))
    assert one.session.spent.dollars == pytest.approx(model.world.ledger.cost())


def test_a_second_summary_takes_the_place_of_the_first(tmp_path: Path) -> None:
    one, model = summed(tmp_path)
    shrink(one)
    say(one, "12")
    one.turn.inbox.append(User((Text("1"),)))
    assert shrink(one).by == "provider"
    assert say(one, "1") == "end"
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)
    assert str(model.ledger[-1].json["messages"]).count("'type': 'compaction'") == 1


def test_where_the_provider_fails_our_own_summary_stands(tmp_path: Path) -> None:
    one, model = summed(tmp_path)
    error = {"status": 400, "type": "invalid_request_error", "message": "no"}
    model.world.faults.rules += parse_rules([{"match": {"n": 1}, "do": {"http": error}}])
    assert shrink(one).by == "ledger"
    assert say(one, "2") == "end"


# --- keeping the cache ----------------------------------------------------------------------------


def test_a_cache_that_is_kept_is_read_after_the_pause(tmp_path: Path) -> None:
    model = LabModel(reading)

    async def sleep(seconds: float) -> None:
        model.world.clock.advance(seconds)
        await anyio.lowlevel.checkpoint()

    one, _ = opened(tmp_path, model, layers=ContextLayers(keep_warm=3), sleep=sleep)
    say(one, "5")
    before = model.ledger[-1].usage.prompt
    anyio.run(keep_cache_warm, one)
    kept = model.ledger[-3:]
    assert [exchange.usage.read for exchange in kept] == [before] * 3
    assert [exchange.json["max_tokens"] for exchange in kept] == [0] * 3
    assert not any("stream" in exchange.json for exchange in kept)
    assert model.world.clock.now() == 3 * 270.0
    model.world.clock.advance(250.0)
    say(one, "0")
    assert model.ledger[-1].usage.read >= before
    assert one.session.spent.dollars == pytest.approx(model.world.ledger.cost())


def test_nothing_is_kept_unless_it_was_asked_for(tmp_path: Path) -> None:
    one, model = worked(tmp_path, first=2)
    count = len(model.ledger)
    anyio.run(keep_cache_warm, one)
    assert len(model.ledger) == count


def test_pauses_that_cost_more_than_a_longer_life_make_it_longer(tmp_path: Path) -> None:
    model = LabModel(reading)
    one, _ = opened(tmp_path, model, layers=ContextLayers(clear=False))
    say(one, "20")
    for _ in range(5):
        model.world.clock.advance(900.0)
        say(one, "1")
    assert one.session.view.epoch is not None
    assert one.session.view.epoch.model.cache_ttl == "1h"
    last = model.ledger[-1]
    assert "'ttl': '1h'" in str(last.json)
    assert last.usage.read > 0.9 * last.usage.prompt
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)


def test_killed_at_any_entry_a_session_has_all_of_a_change_or_nothing(tmp_path: Path) -> None:
    one, model = summed(tmp_path)
    fact = shrink(one)
    entries = log(one).entries
    where = next(i for i, entry in enumerate(entries) if entry.fact == fact)
    before, after = project_view(entries[:where]), project_view(entries[: where + 1])
    assert before.items[0].fact != after.items[0].fact
    told = str(after.items[-1].fact.content)
    assert all(part in told for path in fact.files for part in path.rsplit("/", 1))
    again, _ = opened(tmp_path, model, entries=entries[: where + 1])
    assert say(again, "1") == "end"
    assert [exchange.status for exchange in model.ledger] == [200] * len(model.ledger)
