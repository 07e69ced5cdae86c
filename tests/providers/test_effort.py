"""How much a model is asked to think, in the words of each protocol."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from travois.core.content import Text
from travois.core.facts import Entry, Epoch, User
from travois.core.models import ApiProtocol, Effort, ModelCard, ModelQuirk
from travois.core.view import project_view
from travois.engine.retry import FIELD_QUIRKS
from travois.providers.encoder import RequestEncoder
from travois.providers.errors import parse_error_response
from travois.providers.request import EFFORT_LEVELS, effort_for_thinking_tokens, is_effort_field

TOLD: dict[ApiProtocol, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "anthropic": (("output_config", "effort"), ("low", "medium", "high", "xhigh", "max")),
    "responses": (("reasoning", "effort"), ("low", "medium", "high", "xhigh", "xhigh")),
    "chat": (("reasoning_effort",), ("low", "medium", "high", "high", "high")),
    "gemini": (
        ("generationConfig", "thinkingConfig", "thinkingLevel"),
        ("low", "medium", "high", "high", "high"),
    ),
    "ollama": (("think",), ("low", "medium", "high", "high", "high")),
}


def body(protocol: ApiProtocol, effort: Effort) -> Any:
    """What is sent to a model that was asked for this effort."""
    epoch = Epoch(ModelCard("lab", "any", protocol, effort=effort), "Be brief.")
    view = project_view([Entry(1, 0.0, epoch), Entry(2, 0.0, User((Text("hi"),)))])
    return msgspec.json.decode(RequestEncoder(lambda name: b"").build_request(view).body)


@pytest.mark.parametrize("protocol", TOLD)
def test_each_protocol_hears_the_effort_where_it_looks_for_it(protocol: ApiProtocol) -> None:
    path, words = TOLD[protocol]
    found: list[str] = []
    for level in EFFORT_LEVELS:
        told: Any = body(protocol, level)
        for name in path:
            told = told[name]
        found.append(told)
    assert tuple(found) == words


@pytest.mark.parametrize("protocol", TOLD)
def test_nothing_is_said_where_nothing_was_chosen(protocol: ApiProtocol) -> None:
    (first, *_), _ = TOLD[protocol]
    plain = body(protocol, "")
    assert first not in plain or "thinkingConfig" not in plain[first]


def test_all_protocols_and_levels_are_known() -> None:
    assert set(TOLD) == set(get_args(ApiProtocol))
    assert ("", *EFFORT_LEVELS) == get_args(Effort)


@pytest.mark.parametrize(
    "message",
    [
        "This model does not support the effort parameter.",
        "output_config.effort: Input should be 'low', 'medium' or 'high'",
        'output_config.effort: "max" is not supported with thinking.type "disabled"',
        "output_config: Extra inputs are not permitted",
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        "Unsupported value: 'reasoning_effort' does not support 'xhigh' with this model.",
        "Unrecognized request argument supplied: reasoning_effort",
        'Invalid JSON payload received. Unknown name "thinkingConfig"',
        "Thinking level is not supported for this model.",
        '"llama3.2" does not support thinking',
    ],
)
def test_a_server_that_refuses_the_effort_is_understood(message: str) -> None:
    told = msgspec.json.encode({"error": {"type": "invalid_request_error", "message": message}})
    found = parse_error_response(400, {}, body=told, protocol="chat", now=0.0)
    assert (found.kind, is_effort_field(found.field)) == ("field", True)


@pytest.mark.parametrize(
    "field", ["", "stream_options", "tools.0.reason", "max_tokens", "thinking"]
)
def test_other_fields_are_not_taken_for_it(field: str) -> None:
    assert not is_effort_field(field)


@pytest.mark.parametrize(
    ("tokens", "effort"), [(0, "low"), (7_999, "low"), (10_000, "medium"), (31_999, "high")]
)
def test_a_budget_of_tokens_is_worth_an_effort(tokens: int, effort: str) -> None:
    assert effort_for_thinking_tokens(tokens) == effort
    assert effort_for_thinking_tokens(32_000) == "max"


def test_hidden_thinking_is_asked_for_as_a_summary_unless_the_server_refuses_the_question() -> None:
    def sent(*quirks: ModelQuirk) -> Any:
        epoch = Epoch(ModelCard("lab", "any", "anthropic", quirks=quirks), "Be brief.")
        view = project_view([Entry(1, 0.0, epoch), Entry(2, 0.0, User((Text("hi"),)))])
        return msgspec.json.decode(RequestEncoder(lambda name: b"").build_request(view).body)

    assert "thinking" not in sent()
    assert sent("thinking-summaries")["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert "thinking" not in sent("thinking-summaries", "no-thinking-summaries")


@pytest.mark.parametrize(
    "message",
    [
        "thinking: Extra inputs are not permitted",
        "thinking.adaptive.display: Extra inputs are not permitted",
    ],
)
def test_a_server_that_knows_no_summaries_is_understood(message: str) -> None:
    told = msgspec.json.encode({"error": {"type": "invalid_request_error", "message": message}})
    found = parse_error_response(400, {}, body=told, protocol="anthropic", now=0.0)
    assert found.kind == "field"
    assert FIELD_QUIRKS[found.field.rpartition(".")[2]] == "no-thinking-summaries"
