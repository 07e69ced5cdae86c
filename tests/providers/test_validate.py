"""The judge of Anthropic requests is itself judged: each rule must be able to say no."""

from __future__ import annotations

import json
from typing import Any

import pytest

from travois_lab.validate import anthropic_faults

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(id: str = "t1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "Read", "input": {}, **more}


def result(id: str = "t1", content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def system(words: str) -> dict[str, Any]:
    return {"role": "system", "content": words}


HELLO = user(text("hello"))
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
TOOL = {"name": "Read", "description": "d", "input_schema": {"type": "object"}}
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}


def request(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": list(messages), **fields}


def judged(*messages: dict[str, Any], **fields: Any) -> list[str]:
    return anthropic_faults(json.dumps(request(*messages, **fields)).encode())


@pytest.mark.parametrize(
    "messages",
    [
        (HELLO,),
        ({"role": "user", "content": "hello"},),
        (HELLO, HELLO),
        (HELLO, assistant(THOUGHT, text("a"), use()), user(result(), text("and"))),
        (HELLO, assistant(use("a"), use("b")), user(result("b")), user(result("a"), text("x"))),
        (HELLO, assistant(text("a")), HELLO, system("mind")),
        (HELLO, system("mind"), assistant(text("a")), HELLO),
        (HELLO, assistant(SEARCH)),
        (assistant({"type": "compaction", "content": "was"}), HELLO),
        (user(text("a", **HOUR), IMAGE, text("b", **MARK)),),
        (HELLO, assistant(use()), user(result(content=[text("a"), IMAGE], is_error=False))),
    ],
)
def test_what_the_api_takes_is_without_fault(messages: tuple[dict[str, Any], ...]):
    assert judged(*messages, system="be brief", tools=[TOOL], stream=True) == []


UNANSWERED = (
    "`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` "
    "block must have a corresponding `tool_result` block in the next message."
)
UNASKED = (
    "unexpected `tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` block must "
    "have a corresponding `tool_use` block in the previous message."
)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ((), "messages: at least one message is required"),
        ((assistant(text("a")), HELLO), 'messages: first message must use the "user" role'),
        (
            (HELLO, assistant(text("a"))),
            "This model does not support assistant message prefill. The conversation must end with "
            "a user message.",
        ),
        ((user(),), "messages.0: user messages must have non-empty content"),
        ((user(text("")),), "messages.0.content.0: text content blocks must be non-empty"),
        (
            (user(text(" \n")),),
            "messages.0.content.0: text content blocks must contain non-whitespace text",
        ),
        ((HELLO, assistant(use()), HELLO), "messages.2: " + UNANSWERED.format("t1")),
        ((HELLO, assistant(use())), "messages.1: " + UNANSWERED.format("t1")),
        (
            (HELLO, assistant(use()), user(text("a"), result())),
            "messages.2: " + UNANSWERED.format("t1"),
        ),
        (
            (HELLO, assistant(use("a"), use("b")), user(result("a"))),
            "messages.2: " + UNANSWERED.format("b"),
        ),
        ((user(result("x")),), "messages.0: " + UNASKED.format("x")),
        (
            (HELLO, assistant(use()), user(result()), assistant(text("a")), user(result())),
            "messages.4: " + UNASKED.format("t1"),
        ),
        (
            (HELLO, assistant(use()), user(result(), result())),
            "messages.2: each tool_use must have a single result. Found multiple `tool_result` "
            "blocks with id: t1",
        ),
        (
            (HELLO, assistant(use(), use()), user(result())),
            "messages.1: `tool_use` ids must be unique",
        ),
        (
            (HELLO, assistant(use()), user(result()), assistant(use()), user(result())),
            "messages.3: `tool_use` ids must be unique",
        ),
        (
            (HELLO, assistant(THOUGHT), HELLO),
            "messages.1: The final block in an assistant message cannot be `thinking`.",
        ),
        (
            (HELLO, assistant({**THOUGHT, **MARK}, text("a")), HELLO),
            "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        ),
        (
            (HELLO, assistant({"type": "thinking", "thinking": ""}, text("a")), HELLO),
            "messages.1.content.0.thinking.signature: Field required",
        ),
        (
            (HELLO, assistant(use(input="{}")), user(result())),
            "messages.1.content.0.tool_use.input: Input should be a valid dictionary",
        ),
        (
            (HELLO, assistant(use("a b")), user(result("a b"))),
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        ),
        (
            (HELLO, assistant(use(name="a.b")), user(result())),
            "messages.1.content.0.tool_use.name: String should match pattern "
            "'^[a-zA-Z0-9_-]{1,64}$'",
        ),
        (
            (HELLO, assistant(use(extra_content=1)), user(result())),
            "messages.1.content.0.tool_use.extra_content: Extra inputs are not permitted",
        ),
        (
            (HELLO, assistant(use()), user(result(content=[IMAGE], is_error=True))),
            "messages.2.content.0.tool_result: all content must be type `text` if `is_error` is "
            "true",
        ),
        (
            (HELLO, assistant(use()), user(result(content=[text("")]))),
            "messages.2.content.0.content.0: text content blocks must be non-empty",
        ),
        (
            (HELLO, assistant(use()), user(result(content=[text("a", **MARK)]))),
            "messages.2.content.0.content.0.cache_control: Extra inputs are not permitted",
        ),
        (
            (HELLO, assistant(use()), user(result(content=[use()]))),
            "messages.2.content.0.content.0: Input tag 'tool_use' is not expected inside a "
            "tool_result",
        ),
        (
            (HELLO, assistant(use()), user(result(content=7))),
            "messages.2.content.0.tool_result.content: Input should be a string or a list",
        ),
        (
            (HELLO, assistant(use()), user(result(is_error="yes"))),
            "messages.2.content.0.tool_result.is_error: Input should be a valid boolean",
        ),
        (
            (HELLO, assistant(IMAGE), HELLO),
            "messages.1.content.0: Input tag 'image' is not expected in a message of role "
            "'assistant'",
        ),
        (
            (user(use()), HELLO),
            "messages.0.content.0: Input tag 'tool_use' is not expected in a message of role "
            "'user'",
        ),
        (
            (
                user(
                    {
                        **IMAGE,
                        "source": {"type": "base64", "media_type": "image/tiff", "data": "AA=="},
                    }
                ),
            ),
            "messages.0.content.0.image.source.base64.media_type: Input should be one of "
            "['image/gif', 'image/jpeg', 'image/png', 'image/webp']",
        ),
        (
            (
                user(
                    {**IMAGE, "source": {"type": "base64", "media_type": "image/png", "data": "%"}}
                ),
            ),
            "messages.0.content.0.image.source.base64: invalid base64 data",
        ),
        (
            (user({**IMAGE, "source": {"type": "path"}}),),
            "messages.0.content.0.image.source.type: Input should be 'base64', 'url' or 'file'",
        ),
        (
            (user(text("a", citations=[{}])),),
            "messages.0.content.0.citations: not permitted in a user message",
        ),
        (
            ({"role": "tool", "content": "a"}, HELLO),
            "messages.0.role: Input should be 'user', 'assistant' or 'system'",
        ),
        (
            ({"role": "user", "content": "a", "name": "x"},),
            "messages.0.name: Extra inputs are not permitted",
        ),
        (
            (HELLO, assistant(text("a")), system("b"), HELLO),
            "messages.2: role 'system' must stand between user and assistant",
        ),
        (
            (user(*(text("a", **MARK) for _ in range(5))),),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        (
            (user(text("a", **MARK), text("b", **HOUR)),),
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            "Note that blocks are processed in the following order: `tools`, `system`, `messages`.",
        ),
        (
            (user(text("a", cache_control={"type": "ephemeral", "ttl": "2h"})),),
            "cache_control: Input should be {'type': 'ephemeral', 'ttl'?: '5m' | '1h'}",
        ),
    ],
)
def test_each_rule_of_a_conversation_says_no_in_its_words(
    messages: tuple[dict[str, Any], ...], fault: str
):
    assert fault in judged(*messages)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"temperature": 1}, "temperature: Extra inputs are not permitted"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"max_tokens": 0, "stream": True}, "max_tokens: 0 cannot be combined with streaming"),
        ({"tools": [TOOL, TOOL]}, "tools: Tool names must be unique."),
        (
            {"tools": [{**TOOL, "name": "a.b"}]},
            "tools.0.name: String should match pattern '^[a-zA-Z0-9_-]{1,64}$'",
        ),
        ({"tools": [{"name": "a"}]}, "tools.0.input_schema: Field required"),
        (
            {"tools": [{**TOOL, "input_schema": {}}]},
            "tools.0.input_schema.type: Input should be 'object'",
        ),
        ({"tools": [{**TOOL, "x": 1}]}, "tools.0.x: Extra inputs are not permitted"),
        (
            {"tools": [{**TOOL, "defer_loading": True}]},
            "At least one tool must have defer_loading=false.",
        ),
        (
            {"tools": [TOOL, {**TOOL, "name": "b", "defer_loading": True, **MARK}]},
            "tools.1.cache_control: cannot be set on a tool with defer_loading",
        ),
        ({"system": [text("")]}, "system.0: text content blocks must be non-empty"),
        ({"system": [IMAGE]}, "system.0.type: Input should be 'text'"),
        (
            {"system": [text("a", **MARK)], "tools": [{**TOOL, **MARK}], **MARK,
             "messages": [user(text("b", **MARK), text("c", **MARK))]},
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
    ],
)  # fmt: skip
def test_each_rule_of_the_head_says_no_in_its_words(fields: dict[str, Any], fault: str):
    assert fault in anthropic_faults(json.dumps(request(HELLO) | fields).encode())


def test_a_body_that_is_no_object_is_refused():
    assert "not valid JSON" in anthropic_faults(b"[1]")[0]
    assert "not valid JSON" in anthropic_faults(b'{"a":"\xff"}')[0]
    assert anthropic_faults(b"{}") == [
        "model: Field required",
        "max_tokens: Field required",
        "messages: at least one message is required",
    ]
