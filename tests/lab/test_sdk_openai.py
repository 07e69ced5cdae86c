"""The official `openai` package drives the lab unmodified: chat completions and responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

import travois_lab as lab

MODEL = "gpt-6.1-sol"
HI: Any = [{"role": "user", "content": "hi"}]
FUNCTION: Any = {"name": "read", "description": "Read.", "parameters": {"type": "object"}}
TOOL: Any = {"type": "function", "function": FUNCTION}
TURN = {"say": ["Reading é.", {"tool_use": {"name": "read", "input": {"path": "a.py"}}}]}


@contextmanager
def client(script: object = None, **options: object) -> Iterator[tuple[lab.Api, openai.OpenAI]]:
    with (
        lab.server(script, **options) as api,
        openai.OpenAI(api_key="k", base_url=f"{api.url}/v1", max_retries=0) as sdk,
    ):
        yield api, sdk


def test_a_completion_and_its_stream_say_the_same() -> None:
    ask: Any = {"model": MODEL, "messages": HI, "tools": [TOOL]}
    with client([TURN, {**TURN, "chunks": {"by": "char"}}], dialect="openai") as (_, sdk):
        whole = sdk.chat.completions.create(**ask)
        usage: Any = {"include_usage": True}
        chunks = list(sdk.chat.completions.create(**ask, stream=True, stream_options=usage))
    message = whole.choices[0].message
    assert (message.content, whole.choices[0].finish_reason) == ("Reading é.", "tool_calls")
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"path":"a.py"}'
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "Reading é."
    parts = [call for delta in deltas for call in delta.tool_calls or ()]
    assert "".join(part.function.arguments or "" for part in parts) == '{"path":"a.py"}'
    assert chunks[-1].usage == whole.usage


def test_a_tool_loop_in_chat_completions() -> None:
    with client([TURN, {"when": {"tool_result": {"name": "read"}}, "say": "done"}]) as (api, sdk):
        first = sdk.chat.completions.create(model=MODEL, messages=HI, tools=[TOOL])
        message = first.choices[0].message
        call = message.tool_calls[0]
        history = [
            *HI,
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "x = 1"},
        ]
        second = sdk.chat.completions.create(model=MODEL, messages=history, tools=[TOOL])
        assert second.choices[0].message.content == "done"
        api.append_only()
        api.no_invalid()


def test_a_long_prefix_is_read_from_cache_the_second_time() -> None:
    long: Any = [{"role": "system", "content": "{{tok:5000}}"}, *HI]
    with client() as (api, sdk):
        for _ in range(2):
            answer = sdk.chat.completions.create(model=MODEL, messages=long)
        assert answer.usage.prompt_tokens_details.cached_tokens == 5001
        assert api.ledger[1].cost < api.ledger[0].cost


def test_an_unknown_model_is_not_found_by_openai_itself() -> None:
    with client(dialect="openai") as (_, sdk), pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model="gpt-none", messages=HI)
    assert caught.value.code == "model_not_found"


def test_overflow_has_its_code() -> None:
    long: Any = [{"role": "user", "content": "{{tok:922001}}"}]
    with client(dialect="openai") as (_, sdk), pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model=MODEL, messages=long)
    assert caught.value.code == "context_length_exceeded"


# --- responses ------------------------------------------------------------------------------------

RFUNCTION: Any = {"type": "function", "strict": False, **FUNCTION}
RTURN = {"say": [{"thinking": "plan"}, *TURN["say"]]}


def test_a_response_and_its_stream_say_the_same() -> None:
    ask: Any = {"model": MODEL, "input": "hi", "tools": [RFUNCTION], "store": False}
    with client([RTURN, {**RTURN, "chunks": {"by": "char"}}]) as (_, sdk):
        whole = sdk.responses.create(**ask)
        with sdk.responses.stream(**ask) as stream:
            numbers = [event.sequence_number for event in stream]
            streamed = stream.get_final_response()
    assert numbers == list(range(len(numbers)))
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call"]
    assert (whole.output_text, streamed.output_text) == ("Reading é.", "Reading é.")
    assert [i.type for i in streamed.output] == [i.type for i in whole.output]
    assert streamed.usage == whole.usage


def test_a_tool_loop_replays_every_item() -> None:
    with client([RTURN, {"when": {"tool_result": "x = 1"}, "say": "done"}]) as (api, sdk):
        first = sdk.responses.create(model=MODEL, input="hi", tools=[RFUNCTION], store=False)
        call = first.output[-1]
        items: Any = [
            {"role": "user", "content": "hi"},
            *(item.model_dump(exclude_none=True) for item in first.output),
            {"type": "function_call_output", "call_id": call.call_id, "output": "x = 1"},
        ]
        second = sdk.responses.create(model=MODEL, input=items, tools=[RFUNCTION], store=False)
        assert second.output_text == "done"
        api.no_invalid()


def test_a_stored_response_can_be_continued_and_fetched() -> None:
    with client("lab-forgetful") as (_, sdk):
        first = sdk.responses.create(model=MODEL, input="The password is swordfish.")
        second = sdk.responses.create(model=MODEL, input="password?", previous_response_id=first.id)
        assert "swordfish" in second.output_text
        assert sdk.responses.retrieve(first.id).id == first.id


def test_compaction_returns_user_messages_and_an_item_that_can_be_sent_back() -> None:
    with client("lab-forgetful") as (_, sdk):
        said: Any = [{"role": "user", "content": "The bug is in src/parser.py"}]
        done = sdk.responses.compact(model=MODEL, input=said)
        assert done.output[-1].type == "compaction"
        items: Any = [done.output[-1].model_dump(exclude_none=True)]
        items.append({"role": "user", "content": "src/parser.py?"})
        answer = sdk.responses.create(model=MODEL, input=items)
        assert "src/parser.py" in answer.output_text


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"type": "function_call_output", "call_id": "x", "output": ""}], "No tool call found"),
        (
            [{"type": "function_call", "call_id": "x", "name": "f", "arguments": "{}"}],
            "No tool output found",
        ),
        (
            [
                {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "AAAA"},
                {"role": "assistant", "content": "so"},
            ],
            "could not be verified",
        ),
        ([{"type": "compaction_trigger"}, {"role": "user", "content": "x"}], "must be the last"),
    ],
)
def test_bad_items_are_refused(items: Any, said: str) -> None:
    with client() as (_, sdk), pytest.raises(openai.BadRequestError, match=said):
        sdk.responses.create(model=MODEL, input=items)


def failing(kind: str) -> list[Any]:
    rule = {"match": {"after": {"events": 4}}, "do": {"sse_error": {"type": kind}}}
    with client(faults=[rule]) as (_, sdk):
        return list(sdk.responses.create(model=MODEL, input="hi", stream=True))


def test_f28_a_failed_response_says_so_within_the_stream() -> None:
    last = failing("server_error")[-1]
    assert (last.type, last.response.error.code) == ("response.failed", "server_error")


def test_f28_any_other_error_is_an_event_that_ends_the_stream() -> None:
    last = failing("overloaded_error")[-1]
    assert (last.type, last.code) == ("error", "overloaded_error")
