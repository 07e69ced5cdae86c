"""The judge of chat requests is itself judged: each rule must be able to say no."""

from __future__ import annotations

import json
from typing import Any

import pytest

from travois_lab.validate_chat import Dialect, chat_faults

HELLO = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "Read", "parameters": {"type": "object"}}}


def call(id: str = "abc123def", **function: Any) -> dict[str, Any]:
    inside = {"name": "Read", "arguments": "{}", **function}
    return {"id": id, "type": "function", "function": inside}


def asks(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def given(id: str = "abc123def", content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def said(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def judged(*messages: dict[str, Any], dialect: Dialect = "openai", **fields: Any) -> list[str]:
    body = {"model": "m", "messages": list(messages), **fields}
    return chat_faults(json.dumps(body).encode(), dialect)


UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
    "'tool_call_id'. The following tool_call_ids did not have response messages: {}"
)
UNASKED = "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."


@pytest.mark.parametrize("dialect", ["openai", "mistral", "deepseek"])
def test_what_every_server_takes_is_without_fault(dialect: Dialect):
    thought = {} if dialect == "mistral" else {"reasoning_content": "so"}
    messages = (HELLO, asks(call(), call("abc123deg"), **thought), given("abc123deg"), given())
    assert judged(*messages, dialect=dialect, tools=[TOOL], stream=True) == []


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ((), "[] is too short - 'messages'"),
        ((HELLO, asks(call()), HELLO), UNANSWERED.format("abc123def")),
        ((HELLO, asks(call())), UNANSWERED.format("abc123def")),
        ((HELLO, asks(call("a"), call("b")), given("a")), UNANSWERED.format("b")),
        ((HELLO, given("x")), "messages[1]: " + UNASKED),
        ((HELLO, asks(call()), given(), given()), "messages[3]: " + UNASKED),
        (
            (HELLO, asks(call("a"), call("a")), given("a")),
            "messages[1]: duplicate tool call ids: ['a', 'a']",
        ),
        (
            (HELLO, asks(call(arguments={})), given()),
            "Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string.",
        ),
        (
            (HELLO, asks(call(name="a.b")), given()),
            "Invalid 'messages[1].tool_calls[0].function.name': 'a.b'",
        ),
        (
            (HELLO, asks(call("x" * 41)), given("x" * 41)),
            "Invalid 'messages[1].tool_calls[0].id': expected a string of 1 to 40 characters.",
        ),
        (
            (HELLO, asks({"id": "a", "function": {"name": "b", "arguments": ""}}), given("a")),
            "Missing required parameter: 'messages[1].tool_calls[0].type'.",
        ),
        (
            (HELLO, asks()),
            "Invalid 'messages[1].tool_calls': empty array. Expected at least one element.",
        ),
        (
            (HELLO, said(None)),
            "Invalid value for 'content' of 'messages[1]': expected a string, got null.",
        ),
        (
            ({"role": "user", "content": []},),
            "Invalid value for 'content' of 'messages[0]': expected a string or a list.",
        ),
        (
            ({"role": "user", "content": [{"type": "text", "text": ""}]},),
            "Invalid 'messages[0].content[0].text': empty string.",
        ),
        (
            (HELLO, asks(call()), given(content=[{"type": "image_url"}])),
            "Invalid value: 'image_url' at 'messages[2].content[0].type'",
        ),
        (
            (HELLO, {"role": "tool", "content": "a"}),
            "Missing required parameter: 'messages[1].tool_call_id'.",
        ),
        ((HELLO, said(thinking="x")), "Unknown parameter: 'messages[1].thinking'."),
        (
            ({"role": "robot", "content": "a"},),
            "Invalid value: 'robot'. Supported values are: ['assistant', 'developer', 'system', "
            "'tool', 'user']",
        ),
    ],
)
def test_each_rule_says_no_in_its_words(messages: tuple[dict[str, Any], ...], fault: str):
    assert fault in judged(*messages)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"system": "x"}, "Unrecognized request argument supplied: system"),
        ({"model": None}, "you must provide a model parameter"),
        (
            {"max_tokens": 1, "max_completion_tokens": 1},
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
        ),
        (
            {"stream_options": {}},
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ),
        (
            {"tools": [{"type": "custom", "function": {"name": "a"}}]},
            "Invalid value: 'tools[0].type'. Supported values are: 'function'.",
        ),
        ({"tools": [{**TOOL, "function": {}}]}, "Invalid 'tools[0].function.name'"),
        (
            {"tools": [{**TOOL, "function": {"name": "a", "parameters": {}}}]},
            "Invalid schema for function 'a': type must be 'object'",
        ),
    ],
)
def test_each_rule_of_the_head_says_no_in_its_words(fields: dict[str, Any], fault: str):
    assert fault in judged(HELLO, **fields)


@pytest.mark.parametrize(
    ("messages", "fields", "fault"),
    [
        (
            (HELLO, asks(call("call_1")), given("call_1")),
            {},
            "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
        ((HELLO, asks(call()), given(), HELLO), {}, "Unexpected role 'user' after role 'tool'"),
        (
            (HELLO, said()),
            {},
            "Expected last role User or Tool (or Assistant with prefix True) but got assistant",
        ),
        (({"role": "developer", "content": "a"}, HELLO), {}, "Invalid role 'developer'"),
        ((HELLO, said(reasoning_content="x"), HELLO), {}, "extra_forbidden: reasoning_content"),
        (
            (HELLO,),
            {"stream": True, "stream_options": {}},
            "Unrecognized request argument supplied: stream_options",
        ),
        (
            (HELLO,),
            {"tool_choice": {"type": "function"}},
            "tool_choice: Input should be 'auto', 'none', 'any' or 'required'",
        ),
    ],
)
def test_mistral_has_rules_of_its_own(
    messages: tuple[dict[str, Any], ...], fields: dict[str, Any], fault: str
):
    assert fault in judged(*messages, dialect="mistral", **fields)


def test_deepseek_has_rules_of_its_own():
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    assert judged(parts, said(), HELLO, dialect="deepseek") == [
        "Failed to deserialize the JSON body: content must be a string",
        "The reasoning_content in the thinking mode must be passed back to the API.",
    ]


def test_a_body_that_is_no_object_is_refused():
    assert "could not parse" in chat_faults(b"[1]")[0]
