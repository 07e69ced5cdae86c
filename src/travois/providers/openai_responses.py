"""OpenAI Responses: how a view is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import assert_never

import msgspec

from travois.core.content import AnyBlock, Call, Media, Opaque, Shown, Text, calls, words
from travois.core.facts import Assistant, Epoch, Result, ToolSpec, User
from travois.core.json import joined, members, quote, utf8
from travois.core.models import Model
from travois.core.view import Item
from travois.providers.media import IMAGES, PDF, shown
from travois.providers.names import (
    GO_ON,
    NO_OUTPUT,
    NO_WORDS,
    STARTED_BEFORE,
    call_id,
    spoken,
    tool_name,
)
from travois.providers.options import further
from travois.providers.request import Head, Piece, asked

MINE = "responses"
INPUT = "input"
"""The one argument of a call that came as plain text."""
FREEFORM = '"responses":{"custom":true}'
"""What such a call has besides."""
BESIDE = "message"
"""A block that holds what a message has besides its words, for the words after it."""


class Responses:
    """Pieces are input items."""

    close = b""

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """A comma, but not before the first item."""
        return b"," if before else b""

    def pieces(self, items: Sequence[Item], index: int, *, before: str) -> Iterator[Piece]:
        """The input items of one item of the view."""
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
        if fact.error and not words(content).lower().startswith("error"):
            content = (Text("Error:"), *content)
        output = self._content(content, nothing=NO_OUTPUT)
        id = quote(_id(fact.call))
        kind = b"custom_tool_call_output" if freeform else b"function_call_output"
        return b'{"type":"%s","call_id":%s,"output":%s}' % (kind, id, output)

    def _content(self, content: tuple[Shown, ...], *, nothing: str) -> bytes:
        """Plain text as one string; parts only where media need them."""
        if all(isinstance(block, Text) for block in content):
            text = words(content)
            return quote(text if text.strip() else nothing)
        parts = (self._part(b) for b in content if isinstance(b, Media) or b.text.strip())
        return b"[" + b",".join(parts) + b"]"

    def _part(self, block: Shown) -> bytes:
        if isinstance(block, Text):
            return b'{"type":"input_text","text":' + quote(block.text) + b"}"
        taken = self._images and block.mime in (*IMAGES, PDF)
        data = shown(block, self._fetch, taken=taken)
        if isinstance(data, str):
            return self._part(Text(data))
        url = b'"data:' + utf8(block.mime) + b";base64," + data + b'"'
        if block.mime == PDF:
            name = quote(block.name or "document.pdf")
            return b'{"type":"input_file","filename":%s,"file_data":%s}' % (name, url)
        return b'{"type":"input_image","detail":"auto","image_url":' + url + b"}"


def _head(epoch: Epoch) -> Head:
    model = epoch.model
    tools = [_tool(tool) for tool in epoch.tools]
    system = quote(epoch.system) if epoch.system.strip() else b""
    opening = b'{"model":' + quote(model.id) + b',"max_output_tokens":%d' % model.output
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


def _options(model: Model, opening: bytes) -> bytes:
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
    name, said, schema = quote(tool.name), quote(tool.description), utf8(tool.schema)
    if tool.grammar:
        grammar = b'{"type":"grammar","syntax":"lark","definition":%s}' % quote(tool.grammar)
        inside = b'"name":%s,"description":%s,"format":%s' % (name, said, grammar)
        return b'{"type":"custom",' + inside + b"}"
    inside = b'"name":%s,"description":%s,"parameters":%s' % (name, said, schema)
    return b'{"type":"function",' + inside + b',"strict":false}'


def _reply(fact: Assistant, *, before: str) -> Iterator[Piece]:
    """A reply as it came; reasoning that led to nothing is refused, so it stays here."""
    items = list(_items(fact.content))
    while items and items[-1].role == "sealed":
        items.pop()
    if items and not before:
        yield _user(quote(STARTED_BEFORE))
    yield from items
    open_end = bool(items) or before == "assistant"
    if fact.stop == "pause" and open_end and not calls(fact.content):
        yield _user(quote(GO_ON))


def _items(content: tuple[AnyBlock, ...]) -> Iterator[Piece]:
    beside = b""
    for block in content:
        match block:
            case Call():
                yield Piece("call", _call(block))
            case Opaque(protocol="responses", kind="message"):
                beside = b"," + utf8(block.raw)[1:-1]
                continue
            case Opaque(protocol="responses"):
                yield Piece(block.kind, utf8(block.raw))
            case _ if spoken(block).strip():
                yield Piece("assistant", _said(spoken(block), beside))
            case _:
                continue
        beside = b""


def _said(text: str, beside: bytes) -> bytes:
    said = b'{"type":"message","role":"assistant","content":' + quote(text)
    return said + beside + b"}"


def _call(call: Call) -> bytes:
    id, name = quote(_id(call.id)), quote(tool_name(call.name))
    if is_freeform(call):
        text = quote(msgspec.json.decode(call.args, type=dict[str, str])[INPUT])
        said = b'{"type":"custom_tool_call","call_id":%s,"name":%s,"input":' % (id, name)
        return said + text + b"}"
    said = b'{"type":"function_call","call_id":%s,"name":%s,"arguments":' % (id, name)
    extra = members(b"{" + utf8(call.extra) + b"}").get(MINE)
    more = joined(members(bytes(extra))) if extra is not None else ""
    return said + quote(call.args) + (b"," + utf8(more) if more else b"") + b"}"


def is_freeform(call: Call) -> bool:
    """Whether a call came as plain text, and must go back as that."""
    return FREEFORM in call.extra


def _user(content: bytes) -> Piece:
    return Piece("user", b'{"type":"message","role":"user","content":' + content + b"}")


def _id(id: str) -> str:
    return call_id(id, legal=r"[\x21-\x7e]{1,64}", start="call_")
