"""The official `anthropic` package drives the lab unmodified, and its types parse all it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message

import travois_lab as lab
from tests.lab.client import OPUS

HI: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
TURN = {
    "say": [
        {"thinking": "plan"},
        {"text": "Reading é now."},
        {"tool_use": {"name": "read", "input": {"path": "a.py", "deep": {"x": [1, 2]}}}},
    ]
}


@contextmanager
def client(
    script: object = None, **options: object
) -> Iterator[tuple[lab.Api, anthropic.Anthropic]]:
    with (
        lab.server(script, **options) as api,
        anthropic.Anthropic(api_key="k", base_url=api.url, max_retries=0) as sdk,
    ):
        yield api, sdk


def streamed(sdk: anthropic.Anthropic) -> Message:
    with sdk.messages.stream(model=OPUS, max_tokens=9, messages=HI) as stream:
        return stream.get_final_message()


def typed(message: Message) -> None:
    """The whole message fits the package's own types, with nothing left over."""
    again = Message.model_validate(message.model_dump())
    assert again.model_dump() == message.model_dump()
    for block in message.content:
        assert not (block.model_extra or {}), block


def test_a_message_and_its_stream_say_the_same() -> None:
    ask: Any = {"model": OPUS, "max_tokens": 99, "messages": HI, "tools": [TOOL]}
    with client([TURN]) as (_, sdk):
        whole = sdk.messages.create(**ask)
    with client([{**TURN, "chunks": {"by": "char"}}]) as (_, sdk), sdk.messages.stream(**ask) as s:
        grown = s.get_final_message()
    typed(whole)
    kinds = [block.type for block in whole.content]
    assert (kinds, whole.stop_reason) == (["thinking", "text", "tool_use"], "tool_use")
    assert whole.content[2].input == {"path": "a.py", "deep": {"x": [1, 2]}}
    texts = [block.text for block in grown.content if block.type == "text"]
    inputs = [block.input for block in grown.content if block.type == "tool_use"]
    assert (texts, inputs) == (["Reading é now."], [whole.content[2].input])
    assert grown.usage.output_tokens == whole.usage.output_tokens


def test_a_whole_tool_loop_runs_with_its_thinking_replayed() -> None:
    with client([TURN, {"when": {"tool_result": "x = 1"}, "say": "It says x = 1."}]) as (api, sdk):
        history: Any = list(HI)
        first = sdk.messages.create(model=OPUS, max_tokens=99, messages=history, tools=[TOOL])
        use = first.content[-1]
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "x = 1"}
        history += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [result]},
        ]
        second = sdk.messages.create(model=OPUS, max_tokens=99, messages=history, tools=[TOOL])
        assert second.content[0].text == "It says x = 1."
        api.append_only()
        api.no_orphans()
        api.no_invalid()


ERRORS = [
    (400, anthropic.BadRequestError),
    (401, anthropic.AuthenticationError),
    (403, anthropic.PermissionDeniedError),
    (404, anthropic.NotFoundError),
    (429, anthropic.RateLimitError),
    (500, anthropic.InternalServerError),
    (529, anthropic.InternalServerError),
]


@pytest.mark.parametrize(("status", "error"), ERRORS, ids=[str(e[0]) for e in ERRORS])
def test_errors_arrive_as_the_package_s_own(status: int, error: type[Exception]) -> None:
    fault = {"do": {"http": {"status": status, "message": "no"}}}
    with client(faults=[fault]) as (_, sdk), pytest.raises(error) as caught:
        sdk.messages.create(model=OPUS, max_tokens=9, messages=HI)
    assert caught.value.body["error"]["message"] == "no"


def test_f1_the_package_retries_an_overload_and_the_cache_is_written_once() -> None:
    system: Any = [{"type": "text", "text": "{{tok:6000}}", "cache_control": {"type": "ephemeral"}}]
    overload = {
        "match": {"n": [1, 2]},
        "do": {"http": {"status": 529, "headers": {"retry-after-ms": "1"}}},
    }
    with lab.server(faults=[overload]) as api:
        with anthropic.Anthropic(api_key="k", base_url=api.url, max_retries=3) as sdk:
            sdk.messages.create(model=OPUS, max_tokens=9, messages=HI, system=system)
        assert [e.status for e in api.ledger] == [529, 529, 200]
        assert [e.usage.write for e in api.ledger] == [0, 0, 6000]


def test_an_error_within_a_stream_is_raised() -> None:
    fault = {"match": {"after": {"events": 4}}, "do": {"sse_error": {"type": "overloaded_error"}}}
    with client(faults=[fault]) as (_, sdk), pytest.raises(anthropic.APIStatusError) as caught:
        streamed(sdk)
    assert caught.value.body["error"]["type"] == "overloaded_error"


def test_tokens_are_counted() -> None:
    with client() as (_, sdk):
        counted = sdk.messages.count_tokens(model=OPUS, messages=HI, tools=[TOOL])
    assert counted.input_tokens == 1 + 3 + 5


def test_models_are_listed_and_shown() -> None:
    with client() as (_, sdk):
        models = {model.id: model for model in sdk.models.list()}
        one = sdk.models.retrieve(OPUS)
    assert one == models[OPUS] and one.max_input_tokens == 1_000_000
    assert one.capabilities is not None and one.capabilities.thinking.types.adaptive.supported


def test_betas_edit_the_context_and_the_types_hold_the_edits() -> None:
    with client() as (_, sdk):
        edit: Any = {
            "type": "clear_tool_uses_20250919",
            "trigger": {"type": "tool_uses", "value": 0},
        }
        history: Any = [*HI]
        for i in range(5):
            use = {"type": "tool_use", "id": f"t{i}", "name": "read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": "x" * 400}
            history += [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [result]},
            ]
        message = sdk.beta.messages.create(
            model=OPUS,
            max_tokens=9,
            messages=history,
            tools=[TOOL],
            context_management={"edits": [edit]},
            betas=["context-management-2025-06-27"],
        )
    assert message.context_management is not None
    assert [e.cleared_tool_uses for e in message.context_management.applied_edits] == [2]


def test_compaction_on_demand_streams_as_the_package_expects() -> None:
    with (
        client() as (_, sdk),
        sdk.beta.messages.stream(
            model=OPUS,
            max_tokens=99,
            messages=[{"role": "user", "content": "look at src/a.py"}],
            compaction={"type": "summarize"},
            betas=["compact-2026-09-04"],
        ) as stream,
    ):
        message = stream.get_final_message()
    (block,) = message.content
    assert (block.type, message.stop_reason) == ("compaction", "compaction")
    assert "src/a.py" in block.content and block.signature


def test_a_refusal_carries_its_details() -> None:
    with client("lab-refuser") as (_, sdk):
        message = sdk.messages.create(model=OPUS, max_tokens=9, messages=HI)
    assert message.stop_reason == "refusal" and message.stop_details is not None
    assert message.stop_details.category == "cyber"


@pytest.mark.parametrize(
    "fault",
    [
        "crlf",
        "split_utf8",
        {"ping_flood": {"n": 200}},
        {"giant_event": {"bytes": 2_000_000}},
        {"drip": {"bytes": 7}},
        "unknown_event",
    ],
    ids=str,
)
def test_f17_harmless_faults_leave_the_message_as_it_was(fault: object) -> None:
    rule = {"match": {"after": {"events": 3}}, "do": fault}
    ask: Any = {"model": OPUS, "max_tokens": 99, "messages": HI, "tools": [TOOL]}
    finals = []
    for faults in ([], [rule]):
        with client([TURN], faults=faults) as (_, sdk), sdk.messages.stream(**ask) as stream:
            finals.append(stream.get_final_message().model_dump())
    assert finals[0] == finals[1]


@pytest.mark.parametrize("fault", ["disconnect", "reset"])
def test_f6_a_cut_connection_is_an_error_to_the_client(fault: str) -> None:
    rule = {"match": {"after": {"bytes": 700}}, "do": fault}
    broken = (httpx2.TransportError, anthropic.APIConnectionError)
    with client([TURN], faults=[rule]) as (_, sdk), pytest.raises(broken):
        streamed(sdk)
