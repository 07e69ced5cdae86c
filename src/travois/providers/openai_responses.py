"""The OpenAI Responses API: builds request bodies (`ResponsesEncoder`) and parses replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, assert_never

import msgspec

from travois.core.content import (
    AnyBlock,
    Call,
    Media,
    Opaque,
    Text,
    TextOrMedia,
    extract_calls,
    extract_text,
)
from travois.core.facts import Assistant, Epoch, Result, StopReason, ToolSpec, User
from travois.core.json import (
    JsonMembers,
    as_list,
    as_object,
    as_string,
    encode_utf8,
    join_members,
    quote_json,
    read_count,
    split_members,
)
from travois.core.models import ModelCard, Usage
from travois.core.view import ViewItem
from travois.providers.errors import parse_stream_error
from travois.providers.http.sse import SseEvent
from travois.providers.openai_chat import decode_stream_object, make_call_id, normalize_arguments
from travois.providers.replies import (
    ApiError,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Reply,
    ReplyBegan,
    StreamDelta,
    estimate_reply_usage,
)
from travois.providers.request import (
    CONTINUE_TEXT,
    EMPTY_MESSAGE_TEXT,
    IMAGE_TYPES,
    NO_OUTPUT_TEXT,
    PDF_TYPE,
    STARTED_EARLIER_TEXT,
    RequestHead,
    RequestPart,
    encode_closing_options,
    find_call_of_result,
    make_legal_call_id,
    make_legal_tool_name,
    media_or_placeholder,
    text_of_block,
)
from travois.providers.web_search import collect_annotation_hits, merge_hits

RESPONSES_PROTOCOL = "responses"
FREEFORM_ARGUMENT = "input"
"""The one argument of a call that came as plain text."""
FREEFORM_MARK = '"responses":{"custom":true}'
"""What such a call has besides."""
MESSAGE_EXTRA_KIND = "message"
"""A block that holds what a message has besides its words, for the words after it."""


class ResponsesEncoder:
    """An encoder of views as Responses requests: parts are input items."""

    close = b""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _build_responses_head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def encode_separator(self, before: str, role: str) -> bytes:
        """Return a comma, except before the first item."""
        return b"," if before else b""

    def encode_item(
        self, items: Sequence[ViewItem], index: int, *, before: str
    ) -> Iterator[RequestPart]:
        """Encode one item of the view as input items."""
        fact = items[index].fact
        match fact:
            case User():
                yield _encode_user_message(
                    self._encode_input_content(fact.content, nothing=EMPTY_MESSAGE_TEXT)
                )
            case Result():
                freeform = is_freeform_call(find_call_of_result(items, index, fact.call))
                yield RequestPart("result", self._encode_call_output(fact, freeform=freeform))
            case Assistant():
                yield from _encode_responses_reply(fact, before=before)
            case _:
                assert_never(fact)

    def _encode_call_output(self, fact: Result, *, freeform: bool) -> bytes:
        content = fact.content
        if fact.error and not extract_text(content).lower().startswith("error"):
            content = (Text("Error:"), *content)
        output = self._encode_input_content(content, nothing=NO_OUTPUT_TEXT)
        id = quote_json(_responses_call_id(fact.call))
        kind = b"custom_tool_call_output" if freeform else b"function_call_output"
        return b'{"type":"%s","call_id":%s,"output":%s}' % (kind, id, output)

    def _encode_input_content(self, content: tuple[TextOrMedia, ...], *, nothing: str) -> bytes:
        """Encode text as one string; as parts only where media need them."""
        if all(isinstance(block, Text) for block in content):
            text = extract_text(content)
            return quote_json(text if text.strip() else nothing)
        parts = (
            self._encode_input_part(b) for b in content if isinstance(b, Media) or b.text.strip()
        )
        return b"[" + b",".join(parts) + b"]"

    def _encode_input_part(self, block: TextOrMedia) -> bytes:
        if isinstance(block, Text):
            return b'{"type":"input_text","text":' + quote_json(block.text) + b"}"
        taken = self._images and block.mime in (*IMAGE_TYPES, PDF_TYPE)
        data = media_or_placeholder(block, self._fetch, taken=taken)
        if isinstance(data, str):
            return self._encode_input_part(Text(data))
        url = b'"data:' + encode_utf8(block.mime) + b";base64," + data + b'"'
        if block.mime == PDF_TYPE:
            name = quote_json(block.name or "document.pdf")
            return b'{"type":"input_file","filename":%s,"file_data":%s}' % (name, url)
        return b'{"type":"input_image","detail":"auto","image_url":' + url + b"}"


def _build_responses_head(epoch: Epoch) -> RequestHead:
    """Build the path, tools and instructions that all Responses requests of an epoch share."""
    model = epoch.model
    tools = [_encode_responses_tool(tool) for tool in epoch.tools]
    system = quote_json(epoch.system) if epoch.system.strip() else b""
    opening = b'{"model":' + quote_json(model.id) + b',"max_output_tokens":%d' % model.output
    opening += b',"instructions":' + system if system else b""
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    said = [RequestPart("system", system)] if system else []
    return RequestHead(
        path="/responses",
        headers=(("content-type", "application/json"),),
        pieces=(*(RequestPart("tool", tool) for tool in tools), *said),
        opening=opening + b',"input":[',
        closing=b'],"stream":true,"store":false' + _encode_responses_options(model, opening) + b"}",
    )


def _encode_responses_options(model: ModelCard, opening: bytes) -> bytes:
    """Encode Responses options that some servers refuse, such as the prompt cache key."""
    options = b""
    if "no-include" not in model.quirks:
        options += b',"include":["reasoning.encrypted_content"]'
    if "no-stream-options" not in model.quirks:
        options += b',"stream_options":{"include_obfuscation":false}'
    if "no-cache-key" not in model.quirks:
        options += (
            b',"prompt_cache_key":"%s"' % blake2b(opening, digest_size=8).hexdigest().encode()
        )
    return options + encode_closing_options(model)


def _encode_responses_tool(tool: ToolSpec) -> bytes:
    """Encode a tool definition for the Responses API; one with a grammar is custom."""
    name, said, schema = (
        quote_json(tool.name),
        quote_json(tool.description),
        encode_utf8(tool.schema),
    )
    if tool.grammar:
        grammar = b'{"type":"grammar","syntax":"lark","definition":%s}' % quote_json(tool.grammar)
        inside = b'"name":%s,"description":%s,"format":%s' % (name, said, grammar)
        return b'{"type":"custom",' + inside + b"}"
    inside = b'"name":%s,"description":%s,"parameters":%s' % (name, said, schema)
    return b'{"type":"function",' + inside + b',"strict":false}'


def _encode_responses_reply(fact: Assistant, *, before: str) -> Iterator[RequestPart]:
    """Encode an earlier reply for the Responses API, which refuses trailing reasoning."""
    items = list(_encode_output_items(fact.content))
    while items and items[-1].role == "sealed":
        items.pop()
    if items and not before:
        yield _encode_user_message(quote_json(STARTED_EARLIER_TEXT))
    yield from items
    open_end = bool(items) or before == "assistant"
    if fact.stop == "pause" and open_end and not extract_calls(fact.content):
        yield _encode_user_message(quote_json(CONTINUE_TEXT))


def _encode_output_items(content: tuple[AnyBlock, ...]) -> Iterator[RequestPart]:
    """Encode the blocks of an earlier reply as items of the Responses API."""
    beside = b""
    for block in content:
        match block:
            case Call():
                yield RequestPart("call", _encode_responses_call(block))
            case Opaque(protocol="responses", kind="message"):
                beside = b"," + encode_utf8(block.raw)[1:-1]
                continue
            case Opaque(protocol="responses"):
                yield RequestPart(block.kind, encode_utf8(block.raw))
            case _ if text_of_block(block).strip():
                yield RequestPart(
                    "assistant", _encode_assistant_message(text_of_block(block), beside)
                )
            case _:
                continue
        beside = b""


def _encode_assistant_message(text: str, beside: bytes) -> bytes:
    said = b'{"type":"message","role":"assistant","content":' + quote_json(text)
    return said + beside + b"}"


def _encode_responses_call(call: Call) -> bytes:
    """Encode a tool call for the Responses API, as plain text if it came that way."""
    id, name = quote_json(_responses_call_id(call.id)), quote_json(make_legal_tool_name(call.name))
    if is_freeform_call(call):
        text = quote_json(msgspec.json.decode(call.args, type=dict[str, str])[FREEFORM_ARGUMENT])
        said = b'{"type":"custom_tool_call","call_id":%s,"name":%s,"input":' % (id, name)
        return said + text + b"}"
    said = b'{"type":"function_call","call_id":%s,"name":%s,"arguments":' % (id, name)
    extra = split_members(b"{" + encode_utf8(call.extra) + b"}").get(RESPONSES_PROTOCOL)
    more = join_members(split_members(bytes(extra))) if extra is not None else ""
    return said + quote_json(call.args) + (b"," + encode_utf8(more) if more else b"") + b"}"


def is_freeform_call(call: Call) -> bool:
    """Return whether a Responses tool call's input came as plain text, to send it back so."""
    return FREEFORM_MARK in call.extra


def _encode_user_message(content: bytes) -> RequestPart:
    return RequestPart("user", b'{"type":"message","role":"user","content":' + content + b"}")


def _responses_call_id(id: str) -> str:
    return make_legal_call_id(id, legal=r"[\x21-\x7e]{1,64}", start="call_")


# OpenAI Responses: how a reply is heard.


RESPONSES_ITEM_KINDS: dict[str, BlockKind] = {
    "message": "text",
    "function_call": "call",
    "custom_tool_call": "call",
    "reasoning": "thinking",
}
RESPONSES_DELTA_KINDS: dict[str, BlockKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
RESPONSES_CUT_REASONS: dict[str, StopReason] = {
    "max_output_tokens": "length",
    "content_filter": "refusal",
}
KNOWN_ITEM_MEMBERS = frozenset(
    ("id", "type", "status", "role", "content", "call_id", "name", "arguments")
)
"""Members of an item that are kept as ours, or that name it only within one reply."""


class ResponsesReplyParser:
    """A parser of Responses events that builds up one reply."""

    def __init__(self, *, size: int = 0) -> None:
        self._size = size
        self._items: dict[int, bytes] = {}
        self._whole: dict[str, Any] = {}
        self.done = False
        """Whether the server has said that nothing more comes."""

    def parse_event(self, event: SseEvent) -> Iterator[StreamDelta]:
        """Parse one event; anything after the end is ignored."""
        data = event.data.strip()
        if self.done or not data or data == b"[DONE]":
            return
        told = decode_stream_object(data)
        kind = as_string(told.get("type")) or event.name
        index = read_count(told, "output_index")
        if grown := RESPONSES_DELTA_KINDS.get(kind):
            yield Grew(index, grown, as_string(told.get("delta")))
            return
        match kind:
            case "error":
                raise parse_stream_error(told.get("error") or told, protocol="responses")
            case "response.created":
                begun = as_object(told.get("response"))
                yield ReplyBegan(as_string(begun.get("id")), as_string(begun.get("model")))
            case "response.output_item.added":
                yield _begin_item_block(index, as_object(told.get("item")))
            case "response.reasoning_summary_part.added" if read_count(told, "summary_index"):
                yield Grew(index, "thinking", "\n\n")
            case "response.output_item.done":
                self._items[index] = bytes(split_members(data)["item"])
                yield BlockEnded(index)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._finish_response(bytes(split_members(data)["response"]))
            case _:
                pass

    def parse_body(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        self._finish_response(body)

    def build_reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self.done:
            raise ApiError("garbled", "The stream ended before the reply was complete.")
        id, whole = as_string(self._whole.get("id")), self._whole
        found = [
            b
            for n, item in sorted(self._items.items())
            for b in _decode_output_item(item, f"{id}/{n}")
        ]
        content, refusal = tuple(found), _refusal_text(self._items)
        reason = as_string(as_object(whole.get("incomplete_details")).get("reason"))
        stop: StopReason = RESPONSES_CUT_REASONS.get(reason, "unknown") if reason else "end"
        if refusal:
            stop = "refusal"
        elif stop == "end" and extract_calls(content):
            stop = "calls"
        usage = _parse_responses_usage(as_object(whole.get("usage"))) or estimate_reply_usage(
            content, size=self._size
        )
        usage = msgspec.structs.replace(usage, searches=_count_web_searches(content))
        model, detail = (
            as_string(whole.get("model")),
            refusal or ("" if reason in RESPONSES_CUT_REASONS else reason),
        )
        hits = merge_hits(collect_annotation_hits(_message_parts(self._items)))
        return Reply(content, stop, usage, id=id, model=model, detail=detail, hits=hits)

    def _finish_response(self, body: bytes) -> None:
        """Finish the response; items that were streamed win over those of the whole."""
        self._whole = decode_stream_object(body)
        error = self._whole.get("error")
        if error or self._whole.get("status") in ("failed", "cancelled"):
            raise parse_stream_error(error or "The response failed.", protocol="responses")
        if not isinstance(self._whole.get("output"), list):
            raise ApiError("garbled", "The answer is not a response: it has no output.")
        if not self._items:
            given = msgspec.json.decode(split_members(body)["output"], type=list[msgspec.Raw])
            self._items = {n: bytes(item) for n, item in enumerate(given)}
        self.done = True


def _begin_item_block(index: int, item: dict[str, Any]) -> BlockBegan:
    """Return the delta that opens a block for an output item of the Responses API."""
    kind = RESPONSES_ITEM_KINDS.get(as_string(item.get("type")), "other")
    return BlockBegan(
        index, kind, id=as_string(item.get("call_id")), name=as_string(item.get("name"))
    )


def _decode_output_item(data: bytes, where: str) -> Iterator[AnyBlock]:
    """Decode one output item as blocks; unknown items are kept as they came."""
    item = decode_stream_object(data)
    kind = as_string(item.get("type"))
    match kind:
        case "message":
            if rest := _unknown_members(split_members(data)):
                yield Opaque(RESPONSES_PROTOCOL, MESSAGE_EXTRA_KIND, "{" + join_members(rest) + "}")
            if text := "".join(_message_texts(item)):
                yield Text(text)
        case "function_call":
            rest = _unknown_members(split_members(data))
            extra = f'"{RESPONSES_PROTOCOL}":{{{join_members(rest)}}}' if rest else ""
            id = as_string(item.get("call_id")) or make_call_id(where, 0)
            args = normalize_arguments(as_string(item.get("arguments")))
            yield Call(id, as_string(item.get("name")), args, extra=extra)
        case "custom_tool_call":
            id = as_string(item.get("call_id")) or make_call_id(where, 0)
            args = msgspec.json.encode({FREEFORM_ARGUMENT: as_string(item.get("input"))}).decode()
            yield Call(id, as_string(item.get("name")), args, extra=FREEFORM_MARK)
        case "reasoning":
            told = (*as_list(item.get("summary")), *as_list(item.get("content")))
            text = "\n\n".join(as_string(as_object(part).get("text")) for part in told)
            yield Opaque(RESPONSES_PROTOCOL, "sealed", data.decode(), text)
        case _:
            yield Opaque(RESPONSES_PROTOCOL, kind, data.decode())


def _unknown_members(inside: JsonMembers) -> JsonMembers:
    return {k: v for k, v in inside.items() if k not in KNOWN_ITEM_MEMBERS and bytes(v) != b"null"}


def _message_texts(item: dict[str, Any]) -> Iterator[str]:
    for part in map(as_object, as_list(item.get("content"))):
        yield as_string(part.get("text")) + as_string(part.get("refusal"))


def _refusal_text(items: dict[int, bytes]) -> str:
    return "".join(as_string(as_object(part).get("refusal")) for part in _message_parts(items))


def _message_parts(items: dict[int, bytes]) -> list[object]:
    """Return the content parts of all output items of a Responses API reply."""
    return [
        part
        for data in items.values()
        for part in as_list(decode_stream_object(data).get("content"))
    ]


def _count_web_searches(content: tuple[AnyBlock, ...]) -> int:
    return sum(isinstance(b, Opaque) and b.kind == "web_search_call" for b in content)


def _parse_responses_usage(usage: dict[str, Any]) -> Usage | None:
    """Parse a Responses reply's token counts without overlap; None if there are none."""
    prompt, output = read_count(usage, "input_tokens"), read_count(usage, "output_tokens")
    if not prompt and not output:
        return None
    inside = as_object(usage.get("input_tokens_details"))
    read = min(prompt, read_count(inside, "cached_tokens"))
    write = min(prompt - read, read_count(inside, "cache_write_tokens"))
    reasoning = read_count(as_object(usage.get("output_tokens_details")), "reasoning_tokens")
    return Usage(prompt - read - write, read=read, write=write, output=output, reasoning=reasoning)
