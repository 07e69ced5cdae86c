"""What must hold for every request, whatever the history."""

from __future__ import annotations

import json
import re

from tests.providers.stories import Story, fetch
from travois.core.models import ModelCard
from travois.providers.encoder import RequestEncoder
from travois.providers.request import Request
from travois_lab.validate import anthropic_faults
from travois_lab.validate_chat import Dialect, chat_faults
from travois_lab.validate_items import gemini_faults, ollama_faults, responses_faults

OTHERS = {"responses": responses_faults, "gemini": gemini_faults, "ollama": ollama_faults}
DIALECTS: dict[str, Dialect] = {"mistral": "mistral", "deepseek": "deepseek"}
MARKER = re.compile(rb',"cache_control":\{"type":"ephemeral"(,"ttl":"1h")?\}')


def faults(model: ModelCard, request: Request) -> list[str]:
    """What the provider would refuse."""
    if model.protocol == "anthropic":
        return anthropic_faults(request.body)
    if model.protocol == "chat":
        return chat_faults(request.body, DIALECTS.get(model.provider, "openai"))
    return OTHERS[model.protocol](request.body)


def spine(request: Request) -> bytes:
    """The bytes up to the end of the last piece, without markers."""
    plain = MARKER.sub(b"", request.body)
    if "streamGenerateContent" in request.path:
        return plain.removesuffix(b"]}]}")
    return plain[: plain.rindex(b'],"stream":true')].removesuffix(b"]}")


class Witness:
    """Sees one session's requests and swears that each is what it must be."""

    def __init__(self) -> None:
        self.encoder = RequestEncoder(fetch)
        self.last: tuple[int, Request] | None = None
        self.sent = 0

    def request(self, story: Story) -> Request:
        """The request for this story now, after everything that must hold of it was seen to."""
        view = story.view
        request = self.encoder.build_request(view)
        assert view.epoch is not None
        assert request == RequestEncoder(fetch).build_request(view), "warm and cold differ"
        assert faults(view.epoch.model, request) == []
        self._prefix(story, request)
        self.last, self.sent = (view.moves, request), self.sent + 1
        return request

    def rewound(self) -> None:
        """The last request is no longer part of the conversation."""
        self.last = None

    def _prefix(self, story: Story, request: Request) -> None:
        if self.last is None or self.last[0] != story.view.moves:
            return
        before = self.last[1]
        assert spine(request).startswith(spine(before)), "the prefix moved"
        assert request.pieces >= before.pieces
        if request.pieces == before.pieces:
            assert request.chain == before.chain


def results_follow_calls_in_order(body: bytes) -> bool:
    """Whether each batch of results stands in the order in which they were asked for."""
    request = json.loads(body)
    if "contents" in request:
        parts = [part for content in request["contents"] for part in content["parts"]]
        calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        return calls == [p["functionResponse"]["name"] for p in parts if "functionResponse" in p]
    if "input" in request:
        items = [(item["type"], item.get("call_id")) for item in request["input"]]
        calls = [id for kind, id in items if kind == "function_call"]
        return calls == [id for kind, id in items if kind == "function_call_output"]
    asked: list[str] = []
    given: list[str] = []
    for message in request["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        asked += [b["id"] for b in content if b["type"] == "tool_use"]
        asked += [c.get("id") or c["function"]["name"] for c in message.get("tool_calls", ())]
        given += [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
        if message["role"] == "tool":
            given.append(message.get("tool_call_id") or message["tool_name"])
    return asked == given
