from __future__ import annotations

import json
from typing import Any

import pytest
from inline_snapshot import snapshot

from travois.core.content import Call, Opaque, Text
from travois.core.models import ModelCard, Usage
from travois.providers.replies import (
    ApiError,
    BlockBegan,
    BlockEnded,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
)
from travois.providers.stream_reader import create_reply_reader

OPUS = ModelCard("anthropic", "claude-opus-5-5", "anthropic")
START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": "claude-opus-5-5",
        "usage": {
            "input_tokens": 12,
            "cache_read_input_tokens": 48210,
            "cache_creation_input_tokens": 930,
            "cache_creation": {"ephemeral_5m_input_tokens": 900, "ephemeral_1h_input_tokens": 30},
            "output_tokens": 1,
        },
    },
}
STOP = {"type": "message_stop"}


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ended(reason: str | None, **more: Any) -> dict[str, Any]:
    usage = {"output_tokens": 143, "output_tokens_details": {"thinking_tokens": 88}}
    return {"type": "message_delta", "delta": {"stop_reason": reason, **more}, "usage": usage}


def sse(*events: dict[str, Any]) -> bytes:
    lines = (f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n" for e in events)
    return "".join(lines).encode()


def text(index: int, *words: str) -> list[dict[str, Any]]:
    deltas = ({"type": "text_delta", "text": word} for word in words)
    return block(index, {"type": "text", "text": ""}, *deltas)


def call(index: int, *parts: str, id: str = "toolu_1", **more: Any) -> list[dict[str, Any]]:
    start = {"type": "tool_use", "id": id, "name": "Read", "input": {}, **more}
    deltas = ({"type": "input_json_delta", "partial_json": part} for part in parts)
    return block(index, start, *deltas)


THINKING = block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Hm, ", "estimated_tokens": 3},
    {"type": "thinking_delta", "thinking": "ünï."},
    {"type": "signature_delta", "signature": "c2ln"},
)
WHOLE = sse(
    START,
    {"type": "ping"},
    *THINKING,
    *text(1, "I ", "look."),
    *call(2, '{"path"', ': "a.py"', "}", caller={"type": "direct"}),
    {"type": "a_new_event", "index": 9, "message": "?"},
    ended("tool_use"),
    STOP,
)
REPLY = Reply(
    (
        Opaque(
            "anthropic",
            "thinking",
            '{"type":"thinking","thinking":"Hm, ünï.","signature":"c2ln"}',
            "Hm, ünï.",
        ),
        Text("I look."),
        Call("toolu_1", "Read", '{"path": "a.py"}', extra='"caller":{"type": "direct"}'),
    ),
    "calls",
    Usage(input=12, read=48210, write=900, write_1h=30, output=143, reasoning=88),
    id="msg_1",
    model="claude-opus-5-5",
)


def heard(*chunks: bytes) -> Reply:
    reading = create_reply_reader(OPUS)
    for chunk in chunks:
        reading.feed(chunk)
    return reading.finish()


def shown(stream: bytes) -> list[StreamDelta]:
    return create_reply_reader(OPUS).feed(stream)


def test_a_reply_with_thoughts_words_and_a_call():
    assert heard(WHOLE) == REPLY


def test_what_there_is_to_see_of_a_reply():
    assert shown(WHOLE) == [
        ReplyBegan("msg_1", "claude-opus-5-5", Usage(12, 48210, 900, 30, 1)),
        BlockBegan(0, "thinking"),
        Grew(0, "thinking", "Hm, "),
        Grew(0, "thinking", "ünï."),
        BlockEnded(0),
        BlockBegan(1, "text"),
        Grew(1, "text", "I "),
        Grew(1, "text", "look."),
        BlockEnded(1),
        BlockBegan(2, "call", id="toolu_1", name="Read"),
        Grew(2, "call", '{"path"'),
        Grew(2, "call", ': "a.py"'),
        Grew(2, "call", "}"),
        BlockEnded(2),
    ]


def test_a_stream_in_two_portions_cut_anywhere_gives_the_same_reply():
    for cut in range(len(WHOLE)):
        assert heard(WHOLE[:cut], WHOLE[cut:]) == REPLY, cut


def outcome(stream: bytes) -> Reply | str:
    try:
        return heard(stream)
    except ApiError as problem:
        return problem.kind


def test_a_stream_that_ends_at_any_byte_is_whole_or_garbled_and_never_half():
    outcomes = [outcome(WHOLE[:cut]) for cut in range(len(WHOLE))]
    whole = outcomes.index(REPLY)
    assert whole >= len(WHOLE) - 2, "only line breaks at the very end may be missing"
    assert outcomes == ["garbled"] * whole + [REPLY] * (len(WHOLE) - whole)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("tool_use", "end"),
        ("pause_turn", "pause"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "window"),
        ("refusal", "refusal"),
        ("compaction", "compaction"),
        ("something_new", "unknown"),
        (None, "unknown"),
    ],
)
def test_every_stop_reason_without_calls(reason: str | None, stop: str):
    assert heard(sse(START, *text(0, "Hi."), ended(reason), STOP)).stop == stop


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", "calls"),
        ("tool_use", "calls"),
        (None, "calls"),
        ("pause_turn", "pause"),
        ("max_tokens", "length"),
    ],
)
def test_every_stop_reason_with_a_whole_call(reason: str | None, stop: str):
    reply = heard(sse(START, *call(0, "{}"), ended(reason), STOP))
    assert (reply.content, reply.stop) == ((Call("toolu_1", "Read", "{}"),), stop)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
@pytest.mark.parametrize("parts", [(), ("",), ('{"path": "a',)])
def test_a_call_cut_by_a_limit_is_dropped(reason: str, parts: tuple[str, ...]):
    events = [*call(0, "{}", id="toolu_0"), *call(1, *parts), ended(reason), STOP]
    assert heard(sse(START, *events)).content == (Call("toolu_0", "Read", "{}"),)


def test_a_call_with_bad_arguments_that_was_not_cut_keeps_them():
    reply = heard(sse(START, *call(0, '{"path": "a'), ended("tool_use"), STOP))
    assert reply.content == (Call("toolu_1", "Read", '{"path": "a'),)


def test_a_refusal_runs_nothing_and_says_why():
    why = {"category": "cyber", "explanation": "Not that."}
    events = [*text(0, "I "), *call(1, "{}"), ended("refusal", stop_details=why), STOP]
    reply = heard(sse(START, *events))
    assert (reply.content, reply.stop, reply.detail) == (
        (Text("I "),),
        "refusal",
        "cyber: Not that.",
    )


@pytest.mark.parametrize("parts", [(), ("",)])
def test_no_arguments_are_an_empty_object(parts: tuple[str, ...]):
    reply = heard(sse(START, *call(0, *parts), ended("tool_use"), STOP))
    assert reply.content == (Call("toolu_1", "Read", "{}"),)


def test_a_call_that_came_whole_keeps_its_arguments():
    start = {"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a"}}
    assert heard(sse(START, *block(0, start), ended("tool_use"), STOP)).content == (
        Call("t", "Read", '{"path": "a"}'),
    )


def test_blocks_of_any_other_kind_are_kept_whole():
    events = [
        *block(0, {"type": "redacted_thinking", "data": "ZGF0"}),
        *block(
            1,
            {"type": "server_tool_use", "id": "s", "name": "search", "input": {}, "x": 1.0},
            {"type": "input_json_delta", "partial_json": '{"q":'},
            {"type": "input_json_delta", "partial_json": " 1.50}"},
        ),
        *block(2, {"type": "of_tomorrow", "deep": {"n": 1e2, "big": 12345678901234567890123}}),
        *block(
            3,
            {"type": "text", "text": "", "citations": []},
            {"type": "text_delta", "text": "cited"},
            {"type": "citations_delta", "citation": {"a": 1}},
            {"type": "citations_delta", "citation": {"b": 2}},
        ),
        *block(
            4,
            {"type": "compaction", "content": None, "signature": "s"},
            {"type": "compaction_delta", "content": "past", "encrypted_content": "e"},
        ),
        *block(5, {"type": "text", "text": ""}),
        *block(6, {"type": "text", "text": "plain", "citations": None}),
        ended("end_turn"),
        STOP,
    ]
    content = heard(sse(START, *events)).content
    assert (len(content), content[-1]) == (6, Text("plain"))
    assert [(b.kind, b.raw, b.text) for b in content if isinstance(b, Opaque)] == snapshot(
        [
            ("redacted_thinking", '{"type":"redacted_thinking","data":"ZGF0"}', ""),
            (
                "server_tool_use",
                '{"type":"server_tool_use","id":"s","name":"search","input":{"q": 1.50},"x":1.0}',
                "",
            ),
            (
                "of_tomorrow",
                '{"type":"of_tomorrow","deep":{"n": 100.0, "big": 12345678901234567890123}}',
                "",
            ),
            ("text", '{"type":"text","text":"cited","citations":[{"a":1},{"b":2}]}', "cited"),
            (
                "compaction",
                '{"type":"compaction","content":"past","signature":"s","encrypted_content":"e"}',
                "past",
            ),
        ]
    )


def test_thoughts_without_a_signature_are_dropped():
    start = {"type": "thinking", "thinking": "", "signature": ""}
    events = block(0, start, {"type": "thinking_delta", "thinking": "Hm"})
    assert heard(sse(START, *events, *text(1, "Hi."), ended("end_turn"), STOP)).content == (
        Text("Hi."),
    )


def test_blocks_stand_where_their_index_says():
    events = [*text(1, "two"), *text(0, "one"), ended("end_turn"), STOP]
    assert heard(sse(START, *events)).content == (Text("one"), Text("two"))


def test_deltas_of_unknown_types_are_ignored():
    events = block(0, {"type": "text", "text": "a"}, {"type": "new_delta", "text": "?"})
    assert heard(sse(START, *events, ended("end_turn"), STOP)).content == (Text("a"),)


def test_what_follows_the_end_is_ignored():
    assert heard(WHOLE + b"data: nonsense\n\n") == REPLY


def test_counts_are_cumulative_and_null_means_unchanged():
    more = {
        "type": "message_delta",
        "delta": {},
        "usage": {"output_tokens": 7, "input_tokens": None, "cache_read_input_tokens": 5},
    }
    assert heard(sse(START, *text(0, "a"), ended("end_turn"), more, STOP)).usage == Usage(
        input=12, read=5, write=900, write_1h=30, output=7, reasoning=88
    )


def test_a_server_that_does_not_count_gets_an_estimate():
    reading = create_reply_reader(OPUS, size=3030)
    reading.feed(sse(*text(0, "some words"), {"type": "message_delta", "delta": {}}, STOP))
    assert reading.finish().usage == Usage(input=1000, output=2, estimated=True)


def test_an_error_inside_the_stream_is_a_problem_of_its_kind():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    reading = create_reply_reader(OPUS)
    reading.feed(sse(START))
    with pytest.raises(ApiError) as caught:
        reading.feed(sse(error))
    assert (caught.value.kind, caught.value.message) == ("overloaded", "Overloaded")


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {nonsense\n\n",
        sse({"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta"}}),
        sse({"type": "content_block_start", "content_block": {"type": "text"}}),
        sse({"type": "content_block_start", "index": 0, "content_block": "text"}),
        sse({"type": "content_block_start", "index": 0, "content_block": {"text": "Hello"}}),
        b'{"content":[{"text":"Hello"}],"stop_reason":"end_turn"}',
        b'data: {"type":"\xff"}\n\n',
        b'{"content":"\xff"}',
        b'{"content":7}',
        b"<html>Bad gateway</html>",
        b"",
    ],
)
def test_a_stream_that_makes_no_sense_is_garbled(bad: bytes):
    with pytest.raises(ApiError) as caught:
        heard(bad)
    assert caught.value.kind == "garbled"


def test_a_reply_that_was_not_streamed_is_heard_all_the_same():
    body = {
        "id": "msg_1",
        "type": "message",
        "model": "m",
        "content": [
            {"type": "text", "text": "Hi."},
            {"type": "tool_use", "id": "t", "name": "Read", "input": {"a": 1.0}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    raw = json.dumps(body).encode()
    assert heard(raw[:10], raw[10:]) == Reply(
        (Text("Hi."), Call("t", "Read", '{"a": 1.0}')),
        "calls",
        Usage(input=3, output=4),
        id="msg_1",
        model="m",
    )
    with pytest.raises(ApiError) as caught:
        heard(raw[:-30])
    assert caught.value.kind == "garbled"


def test_an_error_that_was_not_streamed_is_a_problem_of_its_kind():
    body = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}'
    with pytest.raises(ApiError) as caught:
        heard(body)
    assert (caught.value.kind, caught.value.message) == ("rate", "Slow down")
