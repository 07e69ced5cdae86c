"""Ollama's own API: builds request bodies (`OllamaEncoder`) and parses replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from travois.core.content import AnyBlock, Call, Media, Text, TextOrMedia, extract_text
from travois.core.facts import Epoch, Result
from travois.core.json import (
    JsonMembers,
    as_object,
    as_string,
    ensure_json_object,
    quote_json,
    read_count,
)
from travois.core.models import ModelCard
from travois.providers.http.sse import SseEvent
from travois.providers.openai_chat import (
    ChatEncoder,
    ChatReplyParser,
    collect_thoughts,
    decode_stream_object,
    encode_chat_message,
    encode_chat_tool,
)
from travois.providers.replies import Reply, StreamDelta
from travois.providers.request import (
    EMPTY_MESSAGE_TEXT,
    RequestHead,
    RequestPart,
    encode_base64,
    encode_closing_options,
    make_legal_tool_name,
    media_placeholder,
)


class OllamaEncoder(ChatEncoder):
    """An encoder of chat messages without ids: results name their tool, arguments are objects."""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        super().__init__(epoch, fetch)
        self.head = _build_ollama_head(epoch)
        self._nothing = b'""'

    def _encode_user(
        self, content: tuple[TextOrMedia, ...], *, before: str
    ) -> Iterator[RequestPart]:
        """Encode text as one string, with the images beside it."""
        told, images = list[Text](), list[bytes]()
        for block in map(self._replace_unshowable, content):
            data = encode_base64(block, self._fetch) if isinstance(block, Media) else None
            if data is not None:
                images.append(b'"' + data + b'"')
            else:
                told.append(
                    block
                    if isinstance(block, Text)
                    else Text(media_placeholder(block, "it is lost"))
                )
        text = extract_text(tuple(told))
        said = b'{"role":"user","content":' + quote_json(
            text if text.strip() else EMPTY_MESSAGE_TEXT
        )
        shown = b',"images":[' + b",".join(images) + b"]" if images else b""
        yield RequestPart("user", said + shown + b"}")

    def _encode_result(self, fact: Result, call: Call) -> RequestPart:
        said = b'{"role":"tool","tool_name":%s,"content":%s}'
        return RequestPart(
            "tool",
            said
            % (quote_json(make_legal_tool_name(call.name)), quote_json(self._result_text(fact))),
        )

    def _reasoning_members(self, content: tuple[AnyBlock, ...]) -> JsonMembers:
        thoughts = collect_thoughts(content).get("reasoning_content")
        return {} if thoughts is None else {"thinking": thoughts}

    def _encode_call(self, call: Call) -> bytes:
        name, args = quote_json(make_legal_tool_name(call.name)), ensure_json_object(call.args)
        return b'{"function":{"name":%s,"arguments":%s}}' % (name, args)


def _build_ollama_head(epoch: Epoch) -> RequestHead:
    """Build the head of an Ollama request; without a window it truncates prompts."""
    model = epoch.model
    tools = [encode_chat_tool(tool) for tool in epoch.tools]
    system = (
        [encode_chat_message("system", quote_json(epoch.system))] if epoch.system.strip() else []
    )
    sizes = b'"num_ctx":%d,"num_predict":%d' % (model.window, model.output)
    opening = b'{"model":' + quote_json(model.id) + b',"options":{' + sizes + b"}"
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    return RequestHead(
        path="/api/chat",
        headers=(("content-type", "application/json"),),
        pieces=(*(RequestPart("tools", tool) for tool in tools), *system),
        opening=opening + b',"messages":[' + b"".join(piece.data for piece in system),
        closing=b'],"stream":true' + encode_closing_options(model) + b"}",
        role="system" if system else "",
    )


# Ollama's own API: how a reply is heard.


OLLAMA_LINE_MEMBERS = ("error", "message", "done")
"""What a line that matters has one of."""


class OllamaReplyParser:
    """A parser of Ollama's JSON lines, which say the same as chat chunks."""

    def __init__(self, model: ModelCard, *, size: int = 0) -> None:
        self._chat = ChatReplyParser(model, size=size)
        self.done = False
        """Whether the server has said that nothing more comes."""

    def parse_event(self, event: SseEvent) -> Iterator[StreamDelta]:
        """Parse one line; anything after the end is ignored."""
        line = decode_stream_object(event.data)
        if self.done or not any(name in line for name in OLLAMA_LINE_MEMBERS):
            return
        yield from self._chat.parse_chat_chunk(_to_chat_chunk(line))
        if line.get("done") is True:
            self.done = True
            yield from self._chat.parse_event(SseEvent("", b"[DONE]"))

    def parse_body(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        list(self.parse_event(SseEvent("", body)))

    def build_reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        return self._chat.build_reply()


def _to_chat_chunk(line: dict[str, Any]) -> dict[str, Any]:
    """Convert an Ollama line to a chat chunk; tool calls get IDs from its timestamp."""
    message = as_object(line.get("message"))
    counts = {
        "prompt_tokens": read_count(line, "prompt_eval_count"),
        "completion_tokens": read_count(line, "eval_count"),
    }
    delta = {**message, "reasoning": message.get("thinking")}
    finish = as_string(line.get("done_reason")) or ("stop" if line.get("done") else "")
    return {
        "id": as_string(line.get("created_at")),
        "model": line.get("model"),
        "choices": [{"delta": delta, "finish_reason": finish}],
        "usage": counts if line.get("done") else None,
        "error": line.get("error"),
    }
