"""Replies of OpenAI's Responses, of Gemini and of Ollama's own API, however they are cut."""

from __future__ import annotations

import json
from typing import Any

import pytest

from travois.core.content import Call, Opaque, Text
from travois.core.models import ApiProtocol, ModelCard, Usage
from travois.providers.openai_chat import make_call_id
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

REASONING = (
    '{"id": "rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"hm"}],'
    '"encrypted_content":"e="}'
)
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "Read",
    "arguments": '{"path": "a"}',
    "status": "completed",
}
WHOLE: dict[str, Any] = {
    "id": "resp_1",
    "model": "gpt-6",
    "status": "completed",
    "incomplete_details": None,
    "error": None,
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120,
    },
}


def sse(*events: dict[str, Any] | str) -> bytes:
    told = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return b"".join(b"data: " + text.encode() + b"\n\n" for text in told)


def lines(*events: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def hear(protocol: ApiProtocol, body: bytes, *, step: int = 0) -> tuple[list[StreamDelta], Reply]:
    reading = create_reply_reader(ModelCard("p", "m", protocol), size=303)
    deltas: list[StreamDelta] = []
    for at in range(0, len(body), step or len(body)):
        deltas += reading.feed(body[at : at + (step or len(body))])
    return deltas, reading.finish()


def ended(output: list[Any], **more: Any) -> dict[str, Any]:
    whole = {**WHOLE, "output": output, **more}
    return {"type": f"response.{whole['status']}", "response": whole}


RESPONSES = sse(
    {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-6"}},
    {"type": "response.in_progress", "response": {}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning"}},
    {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
    f'{{"type":"response.output_item.done","output_index":0,"item":{REASONING}}}',
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "I lo"},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "ok."},
    {"type": "response.output_item.done", "output_index": 1, "item": MESSAGE},
    {"type": "response.output_item.added", "output_index": 2, "item": {**CALL, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"path": "a"}'},
    {"type": "response.of.tomorrow", "output_index": 2},
    {"type": "response.output_item.done", "output_index": 2, "item": CALL},
    ended([]),
)
RESPONSES_REPLY = Reply(
    (
        Opaque("responses", "sealed", REASONING, "hm"),
        Opaque("responses", "message", '{"phase":"commentary"}'),
        Text("I look."),
        Call("call_1", "Read", '{"path": "a"}'),
    ),
    stop="calls",
    usage=Usage(input=10, read=60, write=30, output=20, reasoning=5),
    id="resp_1",
    model="gpt-6",
)


def chunk(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    finish = {"finishReason": more.pop("finish")} if "finish" in more else {}
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **finish}
    return {"candidates": [candidate], "responseId": "r1", "modelVersion": "gemini-3", **more}


COUNTS = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "candidatesTokenCount": 15,
    "thoughtsTokenCount": 5,
    "toolUsePromptTokenCount": 7,
}
GEMINI = sse(
    chunk({"text": "h", "thought": True}),
    chunk({"text": "m", "thought": True}),
    chunk({"text": "I lo"}, usageMetadata={"promptTokenCount": 100}),
    chunk({"text": "ok."}),
    chunk({"text": "", "thoughtSignature": "czE="}),
    '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"Read","args":{"path": 1.0}},'
    '"thoughtSignature":"czI="}]}}]}',
    chunk({"functionCall": {"id": "f2", "name": "Bash"}}, finish="STOP", usageMetadata=COUNTS),
)
GEMINI_REPLY = Reply(
    (
        Opaque("gemini", "thinking", '{"text":"hm","thought":true}', "hm"),
        Opaque("gemini", "part", '{"thoughtSignature":"czE="}'),
        Text("I look."),
        Call(
            make_call_id("r1", 2),
            "Read",
            '{"path": 1.0}',
            extra='"gemini":{"thoughtSignature":"czI="}',
        ),
        Call("f2", "Bash", "{}", extra='"gemini":{"id":"f2"}'),
    ),
    stop="calls",
    usage=Usage(input=47, read=60, output=20, reasoning=5),
    id="r1",
    model="gemini-3",
)


def said(**message: Any) -> dict[str, Any]:
    return {"model": "qwen3", "created_at": "t1", "message": message, "done": False}


def asked(name: str, **args: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": args}}


END = {
    "model": "qwen3",
    "message": {"role": "assistant", "content": ""},
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 100,
    "eval_count": 20,
}
OLLAMA = lines(
    said(content="", thinking="h"),
    said(content="", thinking="m"),
    said(content="I lo"),
    said(content="ok."),
    {"lab_unknown": True},
    said(content="", tool_calls=[asked("Read", path="a")]),
    said(content="", tool_calls=[asked("Read", path="b"), asked("Bash")]),
    END,
)
OLLAMA_REPLY = Reply(
    (
        Opaque("chat", "reasoning", '{"reasoning_content":"hm"}', "hm"),
        Text("I look."),
        Call(make_call_id("t1", 0), "Read", '{"path":"a"}'),
        Call(make_call_id("t1", 1), "Read", '{"path":"b"}'),
        Call(make_call_id("t1", 2), "Bash", "{}"),
    ),
    stop="calls",
    usage=Usage(input=100, output=20),
    id="t1",
    model="qwen3",
)
STREAMS: list[tuple[ApiProtocol, bytes, Reply]] = [
    ("responses", RESPONSES, RESPONSES_REPLY),
    ("gemini", GEMINI, GEMINI_REPLY),
    ("ollama", OLLAMA, OLLAMA_REPLY),
]
EVERY = pytest.mark.parametrize(("protocol", "body", "reply"), STREAMS, ids=lambda v: str(v)[:9])


@EVERY
@pytest.mark.parametrize("step", [0, 1, 7, 1000])
def test_a_reply_is_the_same_however_its_bytes_arrive(
    protocol: ApiProtocol, body: bytes, reply: Reply, step: int
) -> None:
    assert hear(protocol, body, step=step)[1] == reply


@EVERY
def test_lines_may_end_as_on_windows(protocol: ApiProtocol, body: bytes, reply: Reply) -> None:
    assert hear(protocol, body.replace(b"\n", b"\r\n"), step=3)[1] == reply


@EVERY
def test_a_stream_that_breaks_off_is_no_reply(
    protocol: ApiProtocol, body: bytes, reply: Reply
) -> None:
    for end in range(0, body.rstrip().rindex(b"\n"), 40):
        reading = create_reply_reader(ModelCard("p", "m", protocol))
        with pytest.raises(ApiError) as caught:
            _ = (reading.feed(body[:end]), reading.finish())
        assert (caught.value.kind, caught.value.retry) == ("garbled", True)


def test_what_there_is_to_see_while_a_response_grows() -> None:
    assert hear("responses", RESPONSES)[0] == [
        ReplyBegan("resp_1", "gpt-6"),
        BlockBegan(0, "thinking"),
        Grew(0, "thinking", "hm"),
        BlockEnded(0),
        BlockBegan(1, "text"),
        Grew(1, "text", "I lo"),
        Grew(1, "text", "ok."),
        BlockEnded(1),
        BlockBegan(2, "call", id="call_1", name="Read"),
        Grew(2, "call", '{"path": "a"}'),
        BlockEnded(2),
    ]


def test_what_there_is_to_see_while_gemini_speaks() -> None:
    call = GEMINI_REPLY.content[3]
    assert isinstance(call, Call)
    assert hear("gemini", GEMINI)[0] == [
        ReplyBegan("r1", "gemini-3"),
        BlockBegan(0, "thinking"),
        Grew(0, "thinking", "h"),
        Grew(0, "thinking", "m"),
        BlockBegan(1, "text"),
        Grew(1, "text", "I lo"),
        Grew(1, "text", "ok."),
        BlockBegan(2, "call", id=call.id, name="Read"),
        Grew(2, "call", '{"path": 1.0}'),
        BlockEnded(2),
        BlockBegan(3, "call", id="f2", name="Bash"),
        Grew(3, "call", "{}"),
        BlockEnded(3),
    ]


def test_a_response_that_was_not_streamed_is_heard() -> None:
    items = [json.loads(REASONING), MESSAGE, CALL]
    _, reply = hear("responses", json.dumps({**WHOLE, "output": items}).encode())
    assert (reply.stop, reply.content[1:]) == ("calls", RESPONSES_REPLY.content[1:])


STOPS: list[tuple[ApiProtocol, bytes, str, str]] = [
    ("responses", sse(ended([MESSAGE])), "end", ""),
    (
        "responses",
        sse(
            ended([], status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        ),
        "length",
        "",
    ),
    (
        "responses",
        sse(ended([], status="incomplete", incomplete_details={"reason": "content_filter"})),
        "refusal",
        "",
    ),
    (
        "responses",
        sse(ended([], status="incomplete", incomplete_details={"reason": "steered"})),
        "unknown",
        "steered",
    ),
    (
        "responses",
        sse(ended([{**MESSAGE, "content": [{"type": "refusal", "refusal": "No."}]}])),
        "refusal",
        "No.",
    ),
    ("gemini", sse(chunk({"text": "x"}, finish="STOP")), "end", ""),
    ("gemini", sse(chunk({"text": "x"}, finish="MAX_TOKENS")), "length", ""),
    ("gemini", sse(chunk(finish="SAFETY")), "refusal", "SAFETY"),
    ("gemini", sse(chunk({"text": "x"}, finish="OTHER")), "unknown", "OTHER"),
    (
        "gemini",
        sse({"promptFeedback": {"blockReason": "SAFETY"}}),
        "refusal",
        "the prompt was blocked: SAFETY",
    ),
    ("ollama", lines(said(content="x"), END), "end", ""),
    ("ollama", lines(said(content="x"), {**END, "done_reason": "length"}), "length", ""),
]


@pytest.mark.parametrize(("protocol", "body", "stop", "detail"), STOPS)
def test_why_it_stopped(protocol: ApiProtocol, body: bytes, stop: str, detail: str) -> None:
    _, reply = hear(protocol, body)
    assert (reply.stop, reply.detail) == (stop, detail)


PROBLEMS: list[tuple[ApiProtocol, bytes, str, bool]] = [
    (
        "responses",
        sse(
            ended([], status="failed", error={"code": "server_error", "message": "oops"}),
        ),
        "server",
        True,
    ),
    (
        "responses",
        sse({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}),
        "rate",
        True,
    ),
    (
        "responses",
        sse(ended([], status="failed", error={"code": "invalid_prompt", "message": "no"})),
        "invalid",
        False,
    ),
    ("responses", b'{"hello":"world"}', "garbled", True),
    ("responses", b"data: [1]\n\n", "garbled", True),
    ("gemini", sse(chunk(finish="MALFORMED_FUNCTION_CALL")), "garbled", True),
    (
        "gemini",
        sse({"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}),
        "server",
        True,
    ),
    ("gemini", b'data: {"candidates":"none"}\n\n', "garbled", True),
    ("ollama", lines({"error": "model 'x' not found"}), "missing", False),
    ("ollama", lines({"error": "an error was encountered while running"}), "server", True),
    ("ollama", b"<p>hello</p>\n", "garbled", True),
]


@pytest.mark.parametrize(("protocol", "body", "kind", "retry"), PROBLEMS)
def test_what_went_wrong(protocol: ApiProtocol, body: bytes, kind: str, retry: bool) -> None:
    with pytest.raises(ApiError) as caught:
        hear(protocol, body)
    assert (caught.value.kind, caught.value.retry) == (kind, retry)


def test_a_server_that_does_not_count_is_estimated() -> None:
    quiet = {key: value for key, value in END.items() if not key.endswith("count")}
    _, reply = hear("ollama", lines(said(content="hello"), quiet))
    assert (reply.usage.estimated, reply.usage.input) == (True, 100)
