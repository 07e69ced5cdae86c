"""The lab's side of the protocol rows: each stimulus that a client must survive can be given."""

from __future__ import annotations

import msgspec
import pytest

from tests.lab.client import CC, Client, Json, assistant, block, counts, user

HI = [user(block(5))]
CALL: Json = {"tool_use": {"name": "f", "input": {"path": "a.py"}}}
BROKEN: Json = {"tool_use": {"name": "f", "args": '{"path": "a'}}


def streamed(turn: Json, **fields: object) -> list[Json]:
    lab = Client([turn])
    lab.ask(HI, stream=True, **fields)
    lines = [line[6:] for line in lab.raw.split(b"\n") if line.startswith(b"data: ")]
    return [msgspec.json.decode(line) for line in lines]


def arguments(events: list[Json]) -> str:
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    return "".join(delta.get("partial_json", "") for delta in deltas)


def test_f8_arguments_may_end_before_they_are_json() -> None:
    events = streamed({"say": [BROKEN]})
    assert arguments(events) == '{"path": "a'
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_f9_the_output_limit_may_cut_a_call() -> None:
    events = streamed({"say": [BROKEN], "stop": "max_tokens"})
    assert (arguments(events), events[-2]["delta"]["stop_reason"]) == ('{"path": "a', "max_tokens")


def test_f10_a_refusal_may_follow_a_call() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "no"}
    events = streamed({"say": [CALL], "stop": "refusal", "stop_details": details})
    delta = events[-2]["delta"]
    assert (delta["stop_reason"], delta["stop_details"]) == ("refusal", details)


@pytest.mark.parametrize(
    "stop", ["pause_turn", "model_context_window_exceeded"], ids=["F11", "F12"]
)
def test_a_turn_may_stop_for_reasons_of_the_server(stop: str) -> None:
    assert streamed({"say": "so far", "stop": stop})[-2]["delta"]["stop_reason"] == stop


def test_f13_f14_a_prompt_too_long_is_too_long_for_its_compaction_too() -> None:
    lab = Client()
    long = [user(block(200_001))]
    said = "prompt is too long: 200001 tokens > 200000 maximum"
    compaction = {
        "compaction": {"type": "summarize"},
        "headers": {"anthropic_beta": "compact-2026-09-04"},
    }
    for extra in ({}, compaction):
        lab.ask(long, model="claude-haiku-4-5", **extra)
        assert (lab.status, lab.error()) == (400, said)


def test_f16_the_prefix_is_the_same_without_the_unknown_beta() -> None:
    lab = Client()
    lab.ask(HI, headers={"anthropic_beta": "made-up-2026-01-01"})
    first = lab.world.ledger[0].body
    lab.ask(HI)
    assert (lab.status, lab.world.ledger[1].body) == (200, first)


def test_f19_call_ids_may_come_twice_and_tools_may_not_exist() -> None:
    twin: Json = {"tool_use": {"name": "none", "id": "toolu_same", "input": {}}}
    starts = [
        event["content_block"]
        for event in streamed({"say": [twin, twin]})
        if event["type"] == "content_block_start"
    ]
    assert [(b["id"], b["name"]) for b in starts] == [("toolu_same", "none")] * 2


def test_f28_openrouter_may_put_an_error_into_a_stream_that_began_well() -> None:
    fault = {"match": {"after": {"events": 2}}, "do": {"sse_error": {"type": "server_error"}}}
    lab = Client("lab-echo", dialect="openrouter", faults=[fault])
    ask = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    status, _ = lab.post("/v1/chat/completions", ask)
    last = msgspec.json.decode(lab.raw.rpartition(b"data: ")[2])
    assert (status, last["error"]["type"], b"[DONE]" in lab.raw) == (200, "server_error", False)


def test_f28_done_may_be_missing() -> None:
    lab = Client("lab-echo", faults=[{"do": "no_done"}])
    ask = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    lab.post("/v1/chat/completions", ask)
    assert b'"finish_reason":"stop"' in lab.raw and b"[DONE]" not in lab.raw


def test_f30_after_an_hour_everything_is_written_again_though_nothing_changed() -> None:
    lab = Client()
    hour = {"type": "ephemeral", "ttl": "1h"}
    history = [user(block(1000, hour))]
    lab.ask(history, system=[block(4000, hour, "s")])
    lab.world.clock.advance(3601)
    grown = [*history, assistant(block(5)), user(block(100, CC))]
    exchange = lab.ask(grown, system=[block(4000, hour, "s")])
    assert counts(exchange.usage) == (0, 0, 105, 5000)
    lab.world.ledger.append_only()


def test_the_capacity_of_the_cache_can_be_bounded() -> None:
    lab = Client(capacity=1)
    for say in ("a", "b", "a"):
        exchange = lab.ask([user(block(1000, CC, say))])
    assert counts(exchange.usage) == (0, 0, 1000, 0)


def test_a_server_s_compaction_fits_its_own_window_check() -> None:
    small = {"tiny": {"like": "claude-opus-5-5", "window": 100}}
    lab = Client(models=small)
    lab.ask([user(block(101))], model="tiny")
    assert lab.error() == "prompt is too long: 101 tokens > 100 maximum"


# --- where a reply is cut -------------------------------------------------------------------------


def cut_at(limit: int, *say: object, **fields: object) -> tuple[list[Json], str]:
    lab = Client([{"say": list(say)}])
    lab.ask(HI, max_tokens=limit, **fields)
    return lab.body["content"], lab.body["stop_reason"]


def test_f9_a_reply_is_cut_at_its_limit() -> None:
    content, stop = cut_at(3, "x" * 100)
    assert (content[0]["text"], stop) == ("x" * 12, "max_tokens")


def test_f9_a_call_is_cut_within_its_arguments() -> None:
    events = streamed({"say": ["abcd", CALL]}, max_tokens=4)
    assert (arguments(events), events[-2]["delta"]["stop_reason"]) == ('{"path":', "max_tokens")


def test_a_reply_that_just_fits_is_whole() -> None:
    assert cut_at(1, "abcd") == ([{"type": "text", "text": "abcd"}], "end_turn")


def test_a_stop_sequence_ends_the_reply_and_is_named() -> None:
    lab = Client([{"say": "one STOP two"}])
    lab.ask(HI, stop_sequences=["HALT", "STOP"])
    body = lab.body
    assert (body["content"][0]["text"], body["stop_sequence"]) == ("one ", "STOP")
    assert body["stop_reason"] == "stop_sequence"


def test_a_summary_that_does_not_fit_is_an_empty_reply() -> None:
    lab = Client([{"when": {"purpose": "compaction"}, "say": "x" * 100}])
    headers = {"anthropic_beta": "compact-2026-09-04"}
    lab.ask(HI, compaction={"type": "summarize"}, max_tokens=5, headers=headers)
    assert (lab.body["content"], lab.body["stop_reason"]) == ([], "max_tokens")


def test_a_model_whose_writes_are_free_bills_them_as_input() -> None:
    lab = Client("lab-echo")
    long = [{"role": "user", "content": "{{tok:2000}}"}]
    for model in ("gpt-5.5", "gpt-6.1-sol"):
        lab.post("/v1/chat/completions", {"model": model, "messages": long})
    assert [(e.usage.input, e.usage.write) for e in lab.world.ledger] == [(2000, 0), (0, 2000)]
