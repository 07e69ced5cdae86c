"""What a turn has come to, as clients of other agents are told."""

from __future__ import annotations

import pytest

from travois.compose.turn_tally import TurnTally
from travois.core.content import Call, Text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Ended,
    Entry,
    Epoch,
    Failed,
    Finished,
    Hooked,
    Sent,
)
from travois.core.models import ModelCard, Price, Usage
from travois.headless.stream_json import StreamJsonWriter, build_result_json
from travois.ports.world import RequestRetrying

DEAR = ModelCard("lab", "dear", "anthropic", price=Price(input=10, output=10))
CHEAP = ModelCard("lab", "cheap", "anthropic", price=Price(input=1, output=1))
SENT = Sent(pieces=1, chain="", digest="", size=1)
REPLY = Assistant((Text("Fine."),), "end", usage=Usage(input=1_000_000))
ACTS = Assistant((Call("c1", "Bash", "{}"),), "calls")


def tally(*facts: AnyFact, minds: dict[str, ModelCard] | None = None) -> TurnTally:
    found = TurnTally(DEAR, minds)
    for seq, fact in enumerate(facts):
        found.add(Entry(seq, float(seq), fact))
    return found


@pytest.mark.parametrize(
    ("facts", "subtype", "reason"),
    [
        ((SENT, REPLY, Ended("end")), "success", "completed"),
        ((SENT, REPLY, Ended("turns")), "error_max_turns", "max_turns"),
        ((SENT, REPLY, Ended("budget")), "error_max_budget_usd", "budget_exhausted"),
        ((SENT, Ended("aborted")), "error_during_execution", "aborted_streaming"),
        ((SENT, ACTS, Ended("aborted")), "error_during_execution", "aborted_tools"),
        ((SENT, ACTS, SENT, Ended("aborted")), "error_during_execution", "aborted_streaming"),
        ((Hooked("Stop", "x", ""), Ended("hook")), "error_during_execution", "stop_hook_prevented"),
        ((Hooked("PreToolUse", "x", ""), Ended("hook")), "error_during_execution", "hook_stopped"),
        ((SENT, Failed("media", "x"), Ended("failed")), "success", "image_error"),
        ((SENT, Failed("server", "x"), Ended("failed")), "success", "api_error"),
        (
            (SENT, Failed("overflow", "x"), Ended("failed")),
            "success",
            "prompt_too_long",
        ),
        (
            (SENT, Failed("rate", "x"), SENT, REPLY, Ended("failed", "it goes in circles")),
            "error_during_execution",
            "model_error",
        ),
        ((Ended("crashed"),), "error_during_execution", "turn_setup_failed"),
    ],
)
def test_why_a_turn_is_over_has_a_word_of_its_own(
    facts: tuple[AnyFact, ...], subtype: str, reason: str
) -> None:
    told = build_result_json(tally(*facts), seconds=0.0)
    assert (told["subtype"], told["terminal_reason"]) == (subtype, reason)


def test_each_model_has_its_own_bill_and_all_are_summed_up() -> None:
    agent = Finished("a1", "done", Usage(input=500_000), 0.5)
    beside = Finished("f1", "done", Usage(output=100_000))
    other = Epoch(CHEAP, "system")
    found = tally(SENT, REPLY, agent, beside, other, SENT, REPLY, minds={"a1": CHEAP})
    told = build_result_json(found, seconds=0.0)
    bills = told["modelUsage"]
    assert isinstance(bills, dict)
    assert told["total_cost_usd"] == 10 + 0.5 + 1 + 1
    assert {id: bill["costUSD"] for id, bill in bills.items() if isinstance(bill, dict)} == {
        "dear": 11,
        "cheap": 1.5,
    }
    assert found.usage.input == 2_000_000


def test_a_provider_that_wants_fewer_requests_is_told_of() -> None:
    speaker = StreamJsonWriter("s", TurnTally(DEAR))
    first, second = speaker.lines(RequestRetrying("rate", "slow down", 429, 1, 10, 7.0))
    info = first["rate_limit_info"]
    assert isinstance(info, dict)
    assert (first["type"], info["status"], second["subtype"]) == (
        "rate_limit_event",
        "rejected",
        "api_retry",
    )
    (only,) = speaker.lines(RequestRetrying("server", "oops", 500, 1, 10, 7.0))
    assert only["subtype"] == "api_retry"


@pytest.mark.parametrize(
    ("kind", "error"),
    [("auth", "authentication_failed"), ("rate", "rate_limit"), ("invalid", "invalid_request")],
)
def test_a_reply_that_did_not_come_is_an_error_that_clients_know(kind: str, error: str) -> None:
    found = tally(SENT, Failed(kind, "x", status=401), Ended("failed"))
    assert (found.api_error_name, build_result_json(found, seconds=0.0)["api_error_status"]) == (
        error,
        401,
    )
    assert tally(SENT, REPLY, Ended("end")).api_error_name == ""
