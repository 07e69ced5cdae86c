"""Tools that take plain text on the Responses protocol: offered, called, and replayed verbatim."""

from __future__ import annotations

import msgspec

from travois.core.content import Call, Text
from travois.core.facts import Assistant, Entry, Epoch, Result, ToolSpec, User
from travois.core.models import ModelCard
from travois.core.view import project_view
from travois.providers.encoder import RequestEncoder
from travois.providers.http.sse import SseEvent
from travois.providers.openai_responses import ResponsesReplyParser
from travois_lab.validate_items import responses_faults

PATCH = '*** Begin Patch\n*** Add File: ä "b"\n+\\n\n*** End Patch'
MODEL = ModelCard("openai", "gpt-5.2", "responses")
TOOL = ToolSpec("apply_patch", "Change files.", '{"type":"object"}', 'start: "x"')


def heard() -> tuple[Call, ...]:
    item = {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_1",
        "name": "apply_patch",
        "input": PATCH,
        "status": "completed",
    }
    reply = ResponsesReplyParser()
    list(
        reply.parse_event(
            SseEvent(
                "",
                msgspec.json.encode(
                    {"type": "response.output_item.done", "output_index": 0, "item": item}
                ),
            )
        )
    )
    whole = {"id": "r", "status": "completed", "output": [item], "model": "m"}
    list(
        reply.parse_event(
            SseEvent("", msgspec.json.encode({"type": "response.completed", "response": whole}))
        )
    )
    found = reply.build_reply()
    assert found.stop == "calls"
    return tuple(block for block in found.content if isinstance(block, Call))


def sent(model: ModelCard, call: Call) -> dict[str, object]:
    facts = (
        Epoch(model, "system", (TOOL,)),
        User((Text("go"),)),
        Assistant((call,), "calls"),
        Result(call.id, (Text("done"),)),
    )
    view = project_view([Entry(n, 0.0, fact) for n, fact in enumerate(facts, 1)])
    return msgspec.json.decode(RequestEncoder(lambda name: b"").build_request(view).body)


def test_a_tool_with_a_grammar_is_offered_called_and_replayed_as_plain_text() -> None:
    (call,) = heard()
    assert msgspec.json.decode(call.args) == {"input": PATCH}
    body = sent(MODEL, call)
    assert body["tools"] == [
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Change files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
        }
    ]
    items = body["input"]
    assert isinstance(items, list)
    assert items[1:] == [
        {
            "type": "custom_tool_call",
            "call_id": "call_1",
            "name": "apply_patch",
            "input": PATCH,
        },
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "done"},
    ]
    assert responses_faults(msgspec.json.encode(body)) == []


def test_another_protocol_gets_the_same_call_as_a_function() -> None:
    (call,) = heard()
    body = sent(ModelCard("x", "y", "chat"), call)
    messages = body["messages"]
    assert isinstance(messages, list)
    assert messages[2]["tool_calls"][0]["function"] == {
        "name": "apply_patch",
        "arguments": msgspec.json.encode({"input": PATCH}).decode(),
    }
