from __future__ import annotations

import json
from typing import Any

import pytest

from travois.core.content import Call, Opaque, Text
from travois.core.models import ModelCard, ModelQuirk, Usage
from travois.providers.openai_chat import make_call_id
from travois.providers.replies import ApiError, BlockBegan, BlockEnded, Grew, Reply, ReplyBegan
from travois.providers.stream_reader import create_reply_reader

DONE = b"data: [DONE]\n\n"


def model(*quirks: ModelQuirk) -> ModelCard:
    return ModelCard("openai", "gpt", "chat", quirks=quirks)


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> dict[str, Any]:
    return {
        "id": "c-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-x",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": None, **choice}],
    }


def finish(reason: str, **more: Any) -> dict[str, Any]:
    return {**chunk(finish_reason=reason), **more}


def tool(index: int | None = 0, id: str | None = None, **function: Any) -> dict[str, Any]:
    """A delta of one tool call."""
    call: dict[str, Any] = {"function": function}
    call |= {} if index is None else {"index": index}
    call |= {} if id is None else {"id": id, "type": "function"}
    return chunk({"tool_calls": [call]})


def counted(**usage: Any) -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": usage}


def sse(*chunks: dict[str, Any]) -> bytes:
    lines = (f"data: {json.dumps(one, ensure_ascii=False)}\n\n" for one in chunks)
    return "".join(lines).encode()


def heard(*parts: bytes, using: ModelCard | None = None) -> Reply:
    reading = create_reply_reader(using or model())
    for part in parts:
        reading.feed(part)
    return reading.finish()


def calls(*chunks: dict[str, Any]) -> tuple[Any, ...]:
    """The content of a reply that ends after these chunks."""
    return heard(sse(*chunks, finish("tool_calls")), DONE).content


WHOLE = (
    b": OPENROUTER PROCESSING\n\n"
    + sse(
        chunk({"role": "assistant", "content": None, "reasoning_content": "Hm, "}),
        chunk({"reasoning_content": "ünï."}),
        chunk({"content": "I "}),
        chunk({"content": "look."}),
        tool(0, "call_1", name="Read", arguments=""),
        tool(0, arguments='{"path"'),
        tool(0, arguments=': "a.py"}'),
        tool(1, "call_2", name="Bash", arguments="{}"),
        finish("tool_calls"),
        counted(
            prompt_tokens=100,
            completion_tokens=20,
            total_tokens=120,
            prompt_tokens_details={"cached_tokens": 60, "cache_write_tokens": 10},
            completion_tokens_details={"reasoning_tokens": 5},
        ),
    )
    + DONE
)
CONTENT = (
    Opaque("chat", "reasoning", '{"reasoning_content":"Hm, ünï."}', "Hm, ünï."),
    Text("I look."),
    Call("call_1", "Read", '{"path": "a.py"}'),
    Call("call_2", "Bash", "{}"),
)
REPLY = Reply(
    CONTENT,
    "calls",
    Usage(input=30, read=60, write=10, output=20, reasoning=5),
    id="c-1",
    model="gpt-x",
)


def test_a_reply_with_thoughts_words_and_calls():
    assert heard(WHOLE) == REPLY


def test_what_there_is_to_see_of_a_reply():
    assert create_reply_reader(model()).feed(WHOLE) == [
        ReplyBegan("c-1", "gpt-x"),
        BlockBegan(0, "thinking"),
        Grew(0, "thinking", "Hm, "),
        Grew(0, "thinking", "ünï."),
        BlockEnded(0),
        BlockBegan(1, "text"),
        Grew(1, "text", "I "),
        Grew(1, "text", "look."),
        BlockEnded(1),
        BlockBegan(2, "call", id="call_1", name="Read"),
        Grew(2, "call", '{"path"'),
        Grew(2, "call", ': "a.py"}'),
        BlockEnded(2),
        BlockBegan(3, "call", id="call_2", name="Bash"),
        Grew(3, "call", "{}"),
        BlockEnded(3),
    ]


def test_a_stream_in_two_portions_cut_anywhere_gives_the_same_reply():
    for cut in range(len(WHOLE)):
        assert heard(WHOLE[:cut], WHOLE[cut:]) == REPLY, cut


def outcome(stream: bytes) -> tuple[Any, ...] | str:
    try:
        return heard(stream).content
    except ApiError as problem:
        return problem.kind


def test_a_stream_that_ends_at_any_byte_is_whole_or_garbled_and_never_half():
    outcomes = [outcome(WHOLE[:cut]) for cut in range(len(WHOLE))]
    assert all(one in ("garbled", CONTENT) for one in outcomes)
    finished = WHOLE.index(b'"finish_reason": "tool_calls"')
    assert set(outcomes[:finished]) == {"garbled"}
    assert outcomes[-len(DONE)] == CONTENT


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "end"),
        ("tool_calls", "end"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("model_context_window_exceeded", "window"),
        ("something_new", "unknown"),
    ],
)
def test_every_finish_reason_without_calls(reason: str, stop: str):
    assert heard(sse(chunk({"content": "Hi."}), finish(reason)), DONE).stop == stop


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "function_call", "length", "new"])
def test_whole_calls_are_calls_whatever_the_finish_reason(reason: str):
    reply = heard(sse(tool(0, "a", name="Read", arguments="{}"), finish(reason)), DONE)
    assert (reply.content, reply.stop) == ((Call("a", "Read", "{}"),), "calls")


def test_a_call_cut_by_the_limit_is_dropped():
    first = tool(0, "a", name="Read", arguments="{}")
    second = tool(1, "b", name="Read", arguments='{"path": "x')
    reply = heard(sse(first, second, finish("length")), DONE)
    assert (reply.content, reply.stop) == ((Call("a", "Read", "{}"),), "length")


def test_a_filtered_reply_runs_nothing():
    reply = heard(sse(tool(0, "a", name="Read", arguments="{}"), finish("content_filter")), DONE)
    assert (reply.content, reply.stop) == ((), "refusal")


def test_a_refusal_is_said_and_told():
    reply = heard(sse(chunk({"refusal": "I "}), chunk({"refusal": "won't."}), finish("stop")))
    assert (reply.content, reply.stop, reply.detail) == (
        (Text("I won't."),),
        "refusal",
        "I won't.",
    )


def test_the_end_mark_may_be_missing_after_a_finish_reason_but_not_before():
    assert heard(sse(chunk({"content": "Hi."}), finish("stop"))).content == (Text("Hi."),)
    with pytest.raises(ApiError) as caught:
        heard(sse(chunk({"content": "Hi."})))
    assert caught.value.kind == "garbled"


def test_what_follows_the_end_mark_is_ignored():
    assert heard(WHOLE, b"data: {nonsense\n\n", sse(chunk({"content": "?"}))) == REPLY


def test_arguments_may_be_an_object():
    assert calls(tool(0, "a", name="Read", arguments={"path": "x", "n": 1})) == (
        Call("a", "Read", '{"path":"x","n":1}'),
    )


@pytest.mark.parametrize("nothing", ["", None, " ", "null", '""'])
def test_no_arguments_are_an_empty_object(nothing: str | None):
    assert calls(tool(0, "a", name="Read", arguments=nothing)) == (Call("a", "Read", "{}"),)


def test_arguments_encoded_twice_are_unwrapped():
    assert calls(tool(0, "a", name="Read", arguments=json.dumps('{"path":"x"}'))) == (
        Call("a", "Read", '{"path":"x"}'),
    )


@pytest.mark.parametrize("odd", ['"just words"', '"half', "[1]", '{"a":'])
def test_arguments_that_are_no_object_stay_as_they_are(odd: str):
    assert calls(tool(0, "a", name="Read", arguments=odd)) == (Call("a", "Read", odd),)


def test_parallel_calls_that_all_have_index_0_are_told_apart_by_id():
    assert calls(
        tool(0, "a", name="Read", arguments='{"n":1}'),
        tool(0, "b", name="Read", arguments='{"n":2}'),
    ) == (Call("a", "Read", '{"n":1}'), Call("b", "Read", '{"n":2}'))


def test_parallel_calls_without_arguments_that_all_have_index_0_are_told_apart_by_id():
    assert calls(
        tool(0, "a", name="Read", arguments=""),
        tool(0, "b", name="Bash", arguments=""),
    ) == (Call("a", "Read", "{}"), Call("b", "Bash", "{}"))


def test_parallel_calls_without_ids_that_all_have_index_0_are_told_apart_when_whole():
    assert calls(
        tool(0, name="Read", arguments='{"n":1}'),
        tool(0, name="Read", arguments='{"n":2}'),
    ) == (
        Call(make_call_id("c-1", 0), "Read", '{"n":1}'),
        Call(make_call_id("c-1", 1), "Read", '{"n":2}'),
    )


def test_an_id_repeated_with_every_delta_is_one_call():
    assert calls(
        tool(0, "a", name="Read", arguments='{"n"'),
        tool(0, "a", name="Read", arguments=":1}"),
    ) == (Call("a", "Read", '{"n":1}'),)


def test_another_id_with_every_delta_but_no_name_is_one_call():
    assert calls(
        tool(0, "a", name="Read", arguments='{"n"'),
        tool(0, "b", arguments=":1}"),
    ) == (Call("a", "Read", '{"n":1}'),)


def test_calls_without_index_go_by_id_and_those_without_id_by_order():
    assert calls(
        tool(None, "a", name="Read", arguments='{"n"'),
        tool(None, "b", name="Bash", arguments='{"m"'),
        tool(None, "a", arguments=":1}"),
        tool(None, arguments=":2}"),
    ) == (Call("a", "Read", '{"n":1}'), Call("b", "Bash", '{"m":2}'))
    assert calls(
        tool(None, name="Read", arguments='{"n"'),
        tool(None, arguments=":1}"),
        tool(None, name="Bash", arguments="{}"),
    ) == (
        Call(make_call_id("c-1", 0), "Read", '{"n":1}'),
        Call(make_call_id("c-1", 1), "Bash", "{}"),
    )


def test_interleaved_calls_go_by_index():
    assert calls(
        tool(0, "a", name="Read", arguments='{"n"'),
        tool(1, "b", name="Bash", arguments='{"m"'),
        tool(0, arguments=":1}"),
        tool(1, arguments=":2}"),
    ) == (Call("a", "Read", '{"n":1}'), Call("b", "Bash", '{"m":2}'))


def test_an_old_function_call_is_a_call():
    delta = {"function_call": {"name": "Read", "arguments": "{}"}}
    assert calls(chunk(delta)) == (Call(make_call_id("c-1", 0), "Read", "{}"),)


def test_the_signature_of_a_call_is_kept():
    first = tool(0, "a", name="Read", arguments="{}")
    extra = {"google": {"thought_signature": "s"}}
    first["choices"][0]["delta"]["tool_calls"][0]["extra_content"] = extra
    assert calls(first) == (
        Call("a", "Read", "{}", extra='"extra_content":{"google":{"thought_signature":"s"}}'),
    )


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text"])
def test_thoughts_come_under_many_names(field: str):
    reply = heard(sse(chunk({field: "so"}), chunk({"content": "Hi."}), finish("stop")), DONE)
    assert reply.content == (
        Opaque("chat", "reasoning", '{"reasoning_content":"so"}', "so"),
        Text("Hi."),
    )


def test_reasoning_details_are_put_together_and_kept():
    details = [
        {"type": "reasoning.text", "text": "So", "index": 0, "format": "f"},
        {"type": "reasoning.text", "text": " it is", "index": 0, "signature": None},
        {"type": "reasoning.text", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "e", "index": 1, "id": "r"},
    ]
    chunks = [chunk({"reasoning": "x", "reasoning_details": [one]}) for one in details]
    (opaque,) = heard(sse(*chunks, finish("stop")), DONE).content
    assert isinstance(opaque, Opaque)
    assert json.loads(opaque.raw) == {
        "reasoning_content": "xxxx",
        "reasoning_details": [
            {
                "type": "reasoning.text",
                "text": "So it is",
                "index": 0,
                "format": "f",
                "signature": "s",
            },
            {"type": "reasoning.encrypted", "data": "e", "index": 1, "id": "r"},
        ],
    }


def test_content_may_be_a_list_of_parts():
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "so"}]},
        {"type": "text", "text": "Hi."},
    ]
    assert heard(sse(chunk({"content": parts}), finish("stop"))).content == (
        Opaque("chat", "reasoning", '{"reasoning_content":"so"}', "so"),
        Text("Hi."),
    )


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(input=9, output=2)),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None},
            Usage(input=9, output=2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_cache_hit_tokens": 7,
                "prompt_cache_miss_tokens": 2,
            },
            Usage(input=2, read=7, output=2),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4},
            Usage(input=5, read=4, output=2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 99},
            },
            Usage(read=9, output=2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "total_tokens": 16,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=9, output=7, reasoning=5),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 7,
                "total_tokens": 16,
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(input=9, output=7, reasoning=5),
        ),
    ],
)
def test_counts_never_overlap(usage: dict[str, Any], counted: Usage):
    end = {"id": "c-1", "choices": [], "usage": usage}
    assert heard(sse(chunk({"content": "Hi."}), finish("stop"), end), DONE).usage == counted


def test_counts_come_in_many_places_and_the_last_one_holds():
    early = {"prompt_tokens": 1, "completion_tokens": 1}
    late = {"prompt_tokens": 9, "completion_tokens": 2}
    counted = Usage(input=9, output=2)
    assert heard(sse(chunk(usage=early), finish("stop", usage=late)), DONE).usage == counted
    assert heard(sse(chunk({"content": "a"}, finish_reason="stop", usage=late))).usage == counted
    assert heard(sse(finish("stop", x_groq={"usage": late}))).usage == counted
    assert heard(sse(finish("stop", usage=late), {"choices": [], "usage": None})).usage == counted


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_a_server_that_does_not_count_gets_an_estimate(usage: dict[str, int] | None):
    reading = create_reply_reader(model(), size=3030)
    reading.feed(sse(chunk({"content": "some words"}), finish("stop", usage=usage)))
    assert reading.finish().usage == Usage(input=1000, output=2, estimated=True)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"code": 502, "message": "Upstream is gone"}},
        chunk(error={"code": 502, "message": "Upstream is gone"}, finish_reason="error"),
        {"x_groq": {"error": {"code": 502, "message": "Upstream is gone"}}},
    ],
)
def test_an_error_inside_the_stream_is_a_problem_of_its_kind(error: dict[str, Any]):
    reading = create_reply_reader(model())
    reading.feed(sse(chunk({"content": "Hi"})))
    with pytest.raises(ApiError) as caught:
        reading.feed(sse(error))
    assert (caught.value.kind, caught.value.status) == ("server", 502)
    assert caught.value.message == "Upstream is gone"


def test_a_named_error_event_is_a_problem_too():
    with pytest.raises(ApiError) as caught:
        heard(b'event: error\ndata: {"message":"maximum context length is 10 tokens"}\n\n')
    assert (caught.value.kind, caught.value.limit) == ("overflow", 10)


@pytest.mark.parametrize(
    "bad",
    [b"data: {nonsense\n\n", b"data: [1]\n\n", b'data: {"a":"\xff"}\n\n', b"{}", b"<html>", b""],
)
def test_a_stream_that_makes_no_sense_is_garbled(bad: bytes):
    with pytest.raises(ApiError) as caught:
        heard(bad)
    assert caught.value.kind == "garbled"


def test_a_reply_that_was_not_streamed_is_heard_all_the_same():
    call = {"id": "a", "type": "function", "function": {"name": "Read", "arguments": "{}"}}
    body = {
        "id": "c-1",
        "model": "gpt-x",
        "choices": [{"message": {"content": "Hi.", "tool_calls": [call]}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    }
    assert heard(json.dumps(body).encode()) == Reply(
        (Text("Hi."), Call("a", "Read", "{}")),
        "calls",
        Usage(input=3, output=4),
        id="c-1",
        model="gpt-x",
    )


@pytest.mark.parametrize(
    ("text", "words", "count"),
    [
        ('Ok.\n<tool_call>\n{"name":"Read","arguments":{"a":1}}\n</tool_call>', "Ok.", 1),
        (
            '<tool_call>{"name":"Read","arguments":{"a":1}}</tool_call>'
            '<tool_call>{"name":"Read","parameters":{"a":1}}</tool_call>',
            "",
            2,
        ),
        ('[TOOL_CALLS] [{"name":"Read","arguments":{"a":1}}]', "", 1),
        ('```json\n{"name":"Read","arguments":"{\\"a\\":1}"}\n```', "", 1),
    ],
)
def test_calls_written_as_text_are_found_only_where_the_model_is_known_for_it(
    text: str, words: str, count: int
):
    stream = sse(chunk({"content": text}), finish("stop"))
    said = (Text(words),) if words else ()
    made = tuple(Call(make_call_id("c-1", n), "Read", '{"a":1}') for n in range(count))
    found = heard(stream, using=model("text-calls"))
    assert (found.content, found.stop) == ((*said, *made), "calls")
    assert heard(stream).content == (Text(text),)


@pytest.mark.parametrize(
    "text", ["<tool_call>{nonsense}</tool_call>", '```json\n{"a": 1}\n```', "Use <tool_call>."]
)
def test_text_that_only_looks_like_a_call_stays_text(text: str):
    stream = sse(chunk({"content": text}), finish("stop"))
    assert heard(stream, using=model("text-calls")).content == (Text(text),)
