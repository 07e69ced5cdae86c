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
from travois.providers.errors import streamed
from travois.providers.http.sse import Event
from travois.providers.openai_chat import arguments, decode, made_id
from travois.providers.options import (
    GO_ON,
    IMAGES,
    NO_OUTPUT,
    NO_WORDS,
    PDF,
    STARTED_BEFORE,
    call_id,
    further,
    shown,
    spoken,
    tool_name,
)
from travois.providers.replies import (
    Began,
    BlockBegan,
    BlockEnded,
    BlockKind,
    Grew,
    Problem,
    Reply,
    StreamDelta,
    guess,
)
from travois.providers.request import Head, Piece, asked
from travois.providers.web_search import annotated, merged

MINE = "responses"
INPUT = "input"
"""The one argument of a call that came as plain text."""
FREEFORM = '"responses":{"custom":true}'
"""What such a call has besides."""
BESIDE = "message"
"""A block that holds what a message has besides its words, for the words after it."""


class Responses:
    """An encoder of views as Responses requests: parts are input items."""

    close = b""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """Return a comma, except before the first item."""
        return b"," if before else b""

    def pieces(self, items: Sequence[ViewItem], index: int, *, before: str) -> Iterator[Piece]:
        """Encode one item of the view as input items."""
        fact = items[index].fact
        match fact:
            case User():
                yield _user(self._content(fact.content, nothing=NO_WORDS))
            case Result():
                freeform = is_freeform(asked(items, index, fact.call))
                yield Piece("result", self._result(fact, freeform=freeform))
            case Assistant():
                yield from _reply(fact, before=before)
            case _:
                assert_never(fact)

    def _result(self, fact: Result, *, freeform: bool) -> bytes:
        content = fact.content
        if fact.error and not extract_text(content).lower().startswith("error"):
            content = (Text("Error:"), *content)
        output = self._content(content, nothing=NO_OUTPUT)
        id = quote_json(_id(fact.call))
        kind = b"custom_tool_call_output" if freeform else b"function_call_output"
        return b'{"type":"%s","call_id":%s,"output":%s}' % (kind, id, output)

    def _content(self, content: tuple[TextOrMedia, ...], *, nothing: str) -> bytes:
        """Encode text as one string; as parts only where media need them."""
        if all(isinstance(block, Text) for block in content):
            text = extract_text(content)
            return quote_json(text if text.strip() else nothing)
        parts = (self._part(b) for b in content if isinstance(b, Media) or b.text.strip())
        return b"[" + b",".join(parts) + b"]"

    def _part(self, block: TextOrMedia) -> bytes:
        if isinstance(block, Text):
            return b'{"type":"input_text","text":' + quote_json(block.text) + b"}"
        taken = self._images and block.mime in (*IMAGES, PDF)
        data = shown(block, self._fetch, taken=taken)
        if isinstance(data, str):
            return self._part(Text(data))
        url = b'"data:' + encode_utf8(block.mime) + b";base64," + data + b'"'
        if block.mime == PDF:
            name = quote_json(block.name or "document.pdf")
            return b'{"type":"input_file","filename":%s,"file_data":%s}' % (name, url)
        return b'{"type":"input_image","detail":"auto","image_url":' + url + b"}"


def _head(epoch: Epoch) -> Head:
    """Build the path, tools and instructions that all requests of an epoch share."""
    model = epoch.model
    tools = [_tool(tool) for tool in epoch.tools]
    system = quote_json(epoch.system) if epoch.system.strip() else b""
    opening = b'{"model":' + quote_json(model.id) + b',"max_output_tokens":%d' % model.output
    opening += b',"instructions":' + system if system else b""
    opening += b',"tools":[' + b",".join(tools) + b"]" if tools else b""
    said = [Piece("system", system)] if system else []
    return Head(
        path="/responses",
        headers=(("content-type", "application/json"),),
        pieces=(*(Piece("tool", tool) for tool in tools), *said),
        opening=opening + b',"input":[',
        closing=b'],"stream":true,"store":false' + _options(model, opening) + b"}",
    )


def _options(model: ModelCard, opening: bytes) -> bytes:
    """What a server may refuse; the key leads requests with one head to one cache."""
    options = b""
    if "no-include" not in model.quirks:
        options += b',"include":["reasoning.encrypted_content"]'
    if "no-stream-options" not in model.quirks:
        options += b',"stream_options":{"include_obfuscation":false}'
    if "no-cache-key" not in model.quirks:
        options += (
            b',"prompt_cache_key":"%s"' % blake2b(opening, digest_size=8).hexdigest().encode()
        )
    return options + further(model)


def _tool(tool: ToolSpec) -> bytes:
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


def _reply(fact: Assistant, *, before: str) -> Iterator[Piece]:
    """Encode a reply without trailing reasoning, which the API refuses."""
    items = list(_items(fact.content))
    while items and items[-1].role == "sealed":
        items.pop()
    if items and not before:
        yield _user(quote_json(STARTED_BEFORE))
    yield from items
    open_end = bool(items) or before == "assistant"
    if fact.stop == "pause" and open_end and not extract_calls(fact.content):
        yield _user(quote_json(GO_ON))


def _items(content: tuple[AnyBlock, ...]) -> Iterator[Piece]:
    beside = b""
    for block in content:
        match block:
            case Call():
                yield Piece("call", _call(block))
            case Opaque(protocol="responses", kind="message"):
                beside = b"," + encode_utf8(block.raw)[1:-1]
                continue
            case Opaque(protocol="responses"):
                yield Piece(block.kind, encode_utf8(block.raw))
            case _ if spoken(block).strip():
                yield Piece("assistant", _said(spoken(block), beside))
            case _:
                continue
        beside = b""


def _said(text: str, beside: bytes) -> bytes:
    said = b'{"type":"message","role":"assistant","content":' + quote_json(text)
    return said + beside + b"}"


def _call(call: Call) -> bytes:
    id, name = quote_json(_id(call.id)), quote_json(tool_name(call.name))
    if is_freeform(call):
        text = quote_json(msgspec.json.decode(call.args, type=dict[str, str])[INPUT])
        said = b'{"type":"custom_tool_call","call_id":%s,"name":%s,"input":' % (id, name)
        return said + text + b"}"
    said = b'{"type":"function_call","call_id":%s,"name":%s,"arguments":' % (id, name)
    extra = split_members(b"{" + encode_utf8(call.extra) + b"}").get(MINE)
    more = join_members(split_members(bytes(extra))) if extra is not None else ""
    return said + quote_json(call.args) + (b"," + encode_utf8(more) if more else b"") + b"}"


def is_freeform(call: Call) -> bool:
    """Return whether a call's input came as plain text, and must go back as that."""
    return FREEFORM in call.extra


def _user(content: bytes) -> Piece:
    return Piece("user", b'{"type":"message","role":"user","content":' + content + b"}")


def _id(id: str) -> str:
    return call_id(id, legal=r"[\x21-\x7e]{1,64}", start="call_")


# OpenAI Responses: how a reply is heard.


KINDS: dict[str, BlockKind] = {
    "message": "text",
    "function_call": "call",
    "custom_tool_call": "call",
    "reasoning": "thinking",
}
GROWS: dict[str, BlockKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
    "response.function_call_arguments.delta": "call",
}
CUT: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refusal"}
OWN = frozenset(("id", "type", "status", "role", "content", "call_id", "name", "arguments"))
"""Members of an item that are kept as ours, or that name it only within one reply."""


class ResponsesReply:
    """A parser of Responses events that builds up one reply."""

    def __init__(self, *, size: int = 0) -> None:
        self._size = size
        self._items: dict[int, bytes] = {}
        self._whole: dict[str, Any] = {}
        self.done = False
        """Whether the server has said that nothing more comes."""

    def event(self, event: Event) -> Iterator[StreamDelta]:
        """Parse one event; anything after the end is ignored."""
        data = event.data.strip()
        if self.done or not data or data == b"[DONE]":
            return
        told = decode(data)
        kind = as_string(told.get("type")) or event.name
        index = read_count(told, "output_index")
        if grown := GROWS.get(kind):
            yield Grew(index, grown, as_string(told.get("delta")))
            return
        match kind:
            case "error":
                raise streamed(told.get("error") or told, protocol="responses")
            case "response.created":
                begun = as_object(told.get("response"))
                yield Began(as_string(begun.get("id")), as_string(begun.get("model")))
            case "response.output_item.added":
                yield _began(index, as_object(told.get("item")))
            case "response.reasoning_summary_part.added" if read_count(told, "summary_index"):
                yield Grew(index, "thinking", "\n\n")
            case "response.output_item.done":
                self._items[index] = bytes(split_members(data)["item"])
                yield BlockEnded(index)
            case "response.completed" | "response.incomplete" | "response.failed":
                self._end(bytes(split_members(data)["response"]))
            case _:
                pass

    def whole(self, body: bytes) -> None:
        """Parse a reply that was not streamed."""
        self._end(body)

    def reply(self) -> Reply:
        """Build the finished reply; raises `ApiError` if it is incomplete."""
        if not self.done:
            raise Problem("garbled", "The stream ended before the reply was complete.")
        id, whole = as_string(self._whole.get("id")), self._whole
        found = [b for n, item in sorted(self._items.items()) for b in _blocks(item, f"{id}/{n}")]
        content, refusal = tuple(found), _refused(self._items)
        reason = as_string(as_object(whole.get("incomplete_details")).get("reason"))
        stop: StopReason = CUT.get(reason, "unknown") if reason else "end"
        if refusal:
            stop = "refusal"
        elif stop == "end" and extract_calls(content):
            stop = "calls"
        usage = _usage(as_object(whole.get("usage"))) or guess(content, size=self._size)
        usage = msgspec.structs.replace(usage, searches=_searches(content))
        model, detail = as_string(whole.get("model")), refusal or ("" if reason in CUT else reason)
        hits = merged(annotated(_message_parts(self._items)))
        return Reply(content, stop, usage, id=id, model=model, detail=detail, hits=hits)

    def _end(self, body: bytes) -> None:
        """Finish the response; items that were streamed win over those of the whole."""
        self._whole = decode(body)
        error = self._whole.get("error")
        if error or self._whole.get("status") in ("failed", "cancelled"):
            raise streamed(error or "The response failed.", protocol="responses")
        if not isinstance(self._whole.get("output"), list):
            raise Problem("garbled", "The answer is not a response: it has no output.")
        if not self._items:
            given = msgspec.json.decode(split_members(body)["output"], type=list[msgspec.Raw])
            self._items = {n: bytes(item) for n, item in enumerate(given)}
        self.done = True


def _began(index: int, item: dict[str, Any]) -> BlockBegan:
    kind = KINDS.get(as_string(item.get("type")), "other")
    return BlockBegan(
        index, kind, id=as_string(item.get("call_id")), name=as_string(item.get("name"))
    )


def _blocks(data: bytes, where: str) -> Iterator[AnyBlock]:
    """Decode one output item as blocks; unknown items are kept as they came."""
    item = decode(data)
    kind = as_string(item.get("type"))
    match kind:
        case "message":
            if rest := _rest(split_members(data)):
                yield Opaque(MINE, BESIDE, "{" + join_members(rest) + "}")
            if text := "".join(_words(item)):
                yield Text(text)
        case "function_call":
            rest = _rest(split_members(data))
            extra = f'"{MINE}":{{{join_members(rest)}}}' if rest else ""
            id = as_string(item.get("call_id")) or made_id(where, 0)
            args = arguments(as_string(item.get("arguments")))
            yield Call(id, as_string(item.get("name")), args, extra=extra)
        case "custom_tool_call":
            id = as_string(item.get("call_id")) or made_id(where, 0)
            args = msgspec.json.encode({INPUT: as_string(item.get("input"))}).decode()
            yield Call(id, as_string(item.get("name")), args, extra=FREEFORM)
        case "reasoning":
            told = (*as_list(item.get("summary")), *as_list(item.get("content")))
            text = "\n\n".join(as_string(as_object(part).get("text")) for part in told)
            yield Opaque(MINE, "sealed", data.decode(), text)
        case _:
            yield Opaque(MINE, kind, data.decode())


def _rest(inside: JsonMembers) -> JsonMembers:
    return {k: v for k, v in inside.items() if k not in OWN and bytes(v) != b"null"}


def _words(item: dict[str, Any]) -> Iterator[str]:
    for part in map(as_object, as_list(item.get("content"))):
        yield as_string(part.get("text")) + as_string(part.get("refusal"))


def _refused(items: dict[int, bytes]) -> str:
    return "".join(as_string(as_object(part).get("refusal")) for part in _message_parts(items))


def _message_parts(items: dict[int, bytes]) -> list[object]:
    return [part for data in items.values() for part in as_list(decode(data).get("content"))]


def _searches(content: tuple[AnyBlock, ...]) -> int:
    return sum(isinstance(b, Opaque) and b.kind == "web_search_call" for b in content)


def _usage(usage: dict[str, Any]) -> Usage | None:
    """Parse the token counts without overlap; None if there are none."""
    prompt, output = read_count(usage, "input_tokens"), read_count(usage, "output_tokens")
    if not prompt and not output:
        return None
    inside = as_object(usage.get("input_tokens_details"))
    read = min(prompt, read_count(inside, "cached_tokens"))
    write = min(prompt - read, read_count(inside, "cache_write_tokens"))
    reasoning = read_count(as_object(usage.get("output_tokens_details")), "reasoning_tokens")
    return Usage(prompt - read - write, read=read, write=write, output=output, reasoning=reasoning)
