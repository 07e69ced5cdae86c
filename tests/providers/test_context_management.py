"""What a request asks for besides a reply: members of the body that are no pieces."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from travois.core.content import Call, Text
from travois.core.cost import compute_cost
from travois.core.facts import AnyFact, Assistant, Cleared, Compacted, Entry, Epoch, Result, User
from travois.core.models import COMPACTION_BETA, CONTEXT_EDITING_BETA, ModelCard, Price, Usage
from travois.core.view import View, project_view
from travois.providers.anthropic import (
    beta_of_field,
    count_cleared_results,
    to_cache_warming_request,
    to_summary_request,
)
from travois.providers.anthropic_reply import AnthropicReplyParser
from travois.providers.encoder import RequestEncoder
from travois.providers.request import Request

OPUS = ModelCard(
    "a", "m", "anthropic", output=9_000, betas=("x-1", CONTEXT_EDITING_BETA, COMPACTION_BETA)
)


def told(*more: AnyFact, names: str = "RRTRRR", model: ModelCard = OPUS) -> View:
    """Calls c0, c1, …: R is a Read, T a TodoWrite."""
    facts: list[AnyFact] = [Epoch(model, "s"), User((Text("go"),))]
    for number, letter in enumerate(names):
        name = {"R": "Read", "T": "TodoWrite"}[letter]
        facts.append(Assistant((Call(f"c{number}", name, "{}"),), "calls"))
        facts.append(Result(f"c{number}", (Text("r"),)))
    return project_view(Entry(seq, 1.0, fact) for seq, fact in enumerate((*facts, *more), 1))


def request(view: View) -> Request:
    return RequestEncoder(lambda name: b"").build_request(view)


def edits(view: View) -> object:
    return json.loads(request(view).body).get("context_management")


def betas(found: Request) -> str:
    return dict(found.headers)["anthropic-beta"]


def test_the_set_is_told_by_what_is_kept_and_by_what_is_spared() -> None:
    view = told(Cleared(("c0", "c1", "c3"), "", "server"))
    uses = {"type": "tool_uses", "value": 2}
    clear = {"type": "clear_tool_uses_20250919", "trigger": uses, "keep": uses}
    assert edits(view) == {
        "edits": [
            {"type": "clear_thinking_20251015", "keep": "all"},
            {**clear, "exclude_tools": ["TodoWrite"]},
        ]
    }
    assert count_cleared_results(view) == 3


def test_inputs_are_cleared_by_the_names_of_tools_and_only_of_calls_that_are_cleared() -> None:
    facts = (Cleared(("c1", "c4"), "", "server", "inputs"), Cleared(("c0", "c1"), "", "server"))
    assert '"clear_tool_inputs":["Read"]' in request(told(*facts)).body.decode()
    assert "clear_tool_inputs" not in request(told(facts[1])).body.decode()


def test_long_arguments_are_shown_as_where_they_are() -> None:
    view = told(names="R")
    args = json.dumps({"file_path": "a.py", "content": "x" * 900, "edits": [{"new": "y" * 900}]})
    reply = Assistant((Call("w", "Write", args),), "calls")
    view.add(Entry(50, 1.0, reply))
    view.add(Entry(51, 1.0, Result("w", (Text("done"),))))
    view.add(Entry(52, 1.0, Cleared(("w",), "[in {call}.txt]", what="inputs")))
    (shown,) = (b for b in view.items[-2].fact.content if isinstance(b, Call))
    marker = "[in w.txt]"
    expected = {"file_path": "a.py", "content": marker, "edits": [{"new": marker}]}
    assert json.loads(shown.args) == expected


def test_the_pieces_are_the_same_and_the_digest_is_not() -> None:
    plain, edited = request(told()), request(told(Cleared(("c0",), "", "server")))
    assert (plain.pieces, plain.chain) == (edited.pieces, edited.chain)
    assert plain.digest != edited.digest
    assert (betas(plain), betas(edited)) == ("x-1", f"x-1,{CONTEXT_EDITING_BETA}")


def test_after_a_compaction_only_what_is_left_is_counted() -> None:
    view = told(Cleared(("c0", "c1"), "", "server"), Compacted(2, 4, (Text("s"),), "notes"))
    assert count_cleared_results(view) == 1
    assert str(edits(view)).count("'value': 4") == 2
    gone = told(Cleared(("c0", "c1"), "", "server"), Compacted(2, 8, (Text("s"),), "notes"))
    assert (edits(gone), count_cleared_results(gone)) == (None, 0)


@pytest.mark.parametrize("model", [replace(OPUS, betas=()), replace(OPUS, protocol="chat")])
def test_a_model_that_cannot_is_not_asked(model: ModelCard) -> None:
    assert edits(told(Cleared(("c0",), "", "server"), model=model)) is None


def test_a_request_that_only_warms_asks_for_no_token_and_no_stream() -> None:
    plain = request(told(model=replace(OPUS, params='"thinking":{"type":"adaptive"}')))
    warm = json.loads(to_cache_warming_request(plain).body)
    assert (warm.pop("max_tokens"), warm.pop("thinking")) == (0, {"type": "adaptive"})
    asked = json.loads(plain.body)
    assert warm == {k: v for k, v in asked.items() if k in ("model", "system", "messages")}


def test_a_request_for_a_summary_is_the_same_but_for_that() -> None:
    plain = request(told())
    asked = to_summary_request(plain)
    assert json.loads(asked.body) == json.loads(plain.body) | {"compaction": {"type": "summarize"}}
    assert betas(asked) == f"x-1,{COMPACTION_BETA}"


def test_what_was_refused_is_known_by_its_field() -> None:
    assert (
        beta_of_field("context_management.edits.1")
        == beta_of_field("clear_tool_uses_20250919")
        == CONTEXT_EDITING_BETA
    )
    assert (beta_of_field("compaction"), beta_of_field("b-7")) == (COMPACTION_BETA, "b-7")


def counted(**usage: object) -> Usage:
    reading = AnthropicReplyParser()
    body = {"content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn", "usage": usage}
    reading.parse_body(json.dumps(body).encode())
    return reading.build_reply().usage


def test_of_several_steps_the_last_reply_is_the_window_and_all_are_billed() -> None:
    rows = [
        {"type": "compaction", "input_tokens": 100, "output_tokens": 10},
        {"type": "advisor_message", "input_tokens": 7, "output_tokens": 1},
        {"type": "message", "input_tokens": 20, "output_tokens": 5},
    ]
    usage = counted(input_tokens=20, output_tokens=5, iterations=rows)
    assert usage == Usage(input=20, output=5, beside=Usage(input=107, output=11))
    assert (usage.prompt, usage.context) == (20, 25)
    assert compute_cost(usage, Price(input=1.0, output=10.0)) == pytest.approx(
        (127 + 160) / 1_000_000
    )
    assert usage + usage == Usage(input=40, output=10, beside=Usage(input=214, output=22))


def test_a_single_step_is_what_the_sum_says() -> None:
    rows = [{"type": "message", "input_tokens": 20, "output_tokens": 5}]
    assert counted(input_tokens=20, output_tokens=5, iterations=rows) == Usage(input=20, output=5)
    alone = [{"type": "compaction", "input_tokens": 100, "output_tokens": 10}]
    assert counted(input_tokens=0, iterations=alone) == Usage(input=100, output=10)
