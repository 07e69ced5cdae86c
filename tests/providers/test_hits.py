"""What a provider's own search found, in each protocol's words, and how it is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from travois.core.content import Opaque
from travois.core.cost import compute_cost
from travois.core.facts import Assistant, Entry, Epoch, User
from travois.core.models import ApiProtocol, ModelCard, Usage
from travois.core.view import project_view
from travois.providers.encoder import RequestEncoder
from travois.providers.replies import Reply
from travois.providers.stream_reader import create_reply_reader
from travois.providers.web_search import SearchHit, encode_web_search_tool, merge_hits

URL = "https://docs.example.org/a"
SEARCH = (
    '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"a  b"}}',
    '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":'
    f'"web_search_result","url":"{URL}","title":"A","page_age":"May 1, 2026",'
    '"encrypted_content":"EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUtODgxNC1kNjNjNTk1ZWI3Y"}]}',
    '{"type":"text","text":"It is so.","citations":[{"type":"web_search_result_location",'
    f'"url":"{URL}","title":"A","cited_text":"so it is","encrypted_index":"Eo8BCi"}}]}}',
)
"""As it came, to the byte."""


def heard(protocol: ApiProtocol, body: dict[str, Any] | str) -> Reply:
    read = create_reply_reader(ModelCard("p", "m", protocol))
    read.feed((body if isinstance(body, str) else json.dumps(body)).encode())
    return read.finish()


def anthropic() -> Reply:
    usage = '{"input_tokens":5,"output_tokens":7,"server_tool_use":{"web_search_requests":2}}'
    return heard(
        "anthropic",
        '{"type":"message","id":"m","model":"c","role":"assistant","stop_reason":"end_turn",'
        f'"content":[{",".join(SEARCH)}],"usage":{usage}}}',
    )


def test_anthropic_names_pages_and_cites_them() -> None:
    reply = anthropic()
    assert reply.hits == (SearchHit(URL, "A", "so it is", "May 1, 2026"),)
    assert reply.usage == Usage(input=5, output=7, searches=2)


def test_blocks_of_a_search_are_sent_back_to_the_byte() -> None:
    reply, model = anthropic(), ModelCard("anthropic", "c", "anthropic")
    assert [block.raw for block in reply.content if isinstance(block, Opaque)] == list(SEARCH)
    facts = (Epoch(model, "s"), User(()), Assistant(reply.content, "end"), User(()))
    view = project_view([Entry(n, 0.0, fact) for n, fact in enumerate(facts, 1)])
    body = RequestEncoder(lambda name: b"").build_request(view).body.decode()
    assert f'"role":"assistant","content":[{",".join(SEARCH)}]' in body


def test_a_search_is_paid_for() -> None:
    price = ModelCard("p", "m", "anthropic").price
    assert compute_cost(Usage(searches=3), price) == 0
    assert compute_cost(Usage(searches=3), type(price)(search=10)) == pytest.approx(0.03)


def test_responses_annotate_their_words() -> None:
    note = {"type": "url_citation", "url": URL, "title": "A", "start_index": 0, "end_index": 4}
    part = {"type": "output_text", "text": "So.", "annotations": [note]}
    output = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "message", "id": "msg", "role": "assistant", "content": [part]},
    ]
    usage = {"input_tokens": 3, "output_tokens": 2}
    reply = heard("responses", {"id": "r", "status": "completed", "output": output, "usage": usage})
    assert reply.hits == (SearchHit(URL, "A"),)
    assert reply.usage == Usage(input=3, output=2, searches=1)


def test_gemini_grounds_its_words() -> None:
    told = {
        "webSearchQueries": ["a", "b"],
        "groundingChunks": [{"web": {"uri": URL, "title": "A"}}, {"web": {}}],
        "groundingSupports": [
            {"segment": {"text": "so it is"}, "groundingChunkIndices": [0, 7, "x"]},
            {"segment": {"text": "indeed"}, "groundingChunkIndices": [0]},
        ],
    }
    content = {"parts": [{"text": "So it is."}]}
    candidate = {"content": content, "finishReason": "STOP", "groundingMetadata": told}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2}
    reply = heard("gemini", {"candidates": [candidate], "usageMetadata": usage})
    assert reply.hits == (SearchHit(URL, "A", "so it is … indeed"),)
    assert reply.usage == Usage(input=3, output=2, searches=2)


def test_chat_annotates_its_words_where_openrouter_serves_it() -> None:
    note = {"type": "url_citation", "url_citation": {"url": URL, "title": "A", "content": "so"}}
    message = {"role": "assistant", "content": "So.", "annotations": [note, "odd"]}
    reply = heard("chat", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert reply.hits == (SearchHit(URL, "A", "so"),)


def test_pages_are_named_once() -> None:
    hits = (
        SearchHit("u", text="a"),
        SearchHit("u", "T", "b", "D"),
        SearchHit(""),
        SearchHit("v"),
        SearchHit("u", text="a"),
    )
    assert merge_hits(hits) == (SearchHit("u", "T", "a … b", "D"), SearchHit("v"))


@pytest.mark.parametrize(
    ("protocol", "only", "never", "said"),
    [
        ("anthropic", (), (), '"tools":[{"type":"t","name":"web_search","max_uses":5}]'),
        (
            "anthropic",
            (),
            ("b.org",),
            '"tools":[{"type":"t","name":"web_search","max_uses":5,"blocked_domains":["b.org"]}]',
        ),
        (
            "responses",
            ("a.org",),
            (),
            '"tools":[{"type":"t","filters":{"allowed_domains":["a.org"]}}]',
        ),
        ("gemini", ("a.org",), (), '"tools":[{"t":{}}]'),
        ("chat", (), (), '"plugins":[{"id":"t"}]'),
    ],
)
def test_each_protocol_is_asked_in_its_own_words(
    protocol: ApiProtocol, only: tuple[str, ...], never: tuple[str, ...], said: str
) -> None:
    assert encode_web_search_tool(protocol, "t", only=only, never=never) == said
