"""The Anthropic Messages API: builds request bodies from a view (`AnthropicEncoder`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from travois.core.content import AnyBlock, Call, Media, Opaque, Text, TextOrMedia, extract_text
from travois.core.facts import Assistant, Epoch, Result, ToolSpec, User
from travois.core.json import (
    encode_utf8,
    ensure_json_object,
    join_members,
    quote_json,
    split_members,
)
from travois.core.models import ModelCard
from travois.core.view import ViewItem
from travois.providers.anthropic_extras import BETAS, ON_DEMAND
from travois.providers.options import (
    FOREIGN,
    GO_ON,
    IMAGES,
    NO_OUTPUT,
    NO_WORDS,
    PDF,
    STARTED_BEFORE,
    call_id,
    further,
    note,
    shown,
    tool_name,
)
from travois.providers.request import Head, Headers, Piece

VERSION = "2026-10-21"
THINKING = frozenset(("thinking", "redacted_thinking"))
ALONE = "."
"""Marks a role whose message stays apart from its neighbours: a signed summary's."""
UNPAUSED = THINKING | {"", "text"}
"""Blocks that alone cannot be gone on from: the API takes no words put into the model's mouth."""


class Anthropic:
    """An encoder of views as Anthropic requests: parts are content blocks, grouped by role."""

    close = b"]}"

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def glue(self, before: str, role: str) -> bytes:
        """Return a comma inside a message, else the end of one and the start of the next."""
        if before == role:
            return b","
        opening = b'{"role":"' + role.rstrip(ALONE).encode() + b'","content":['
        return b"]}," + opening if before else opening

    def pieces(self, items: Sequence[ViewItem], index: int, *, before: str) -> Iterator[Piece]:
        """Encode one item as content blocks."""
        fact = items[index].fact
        match fact:
            case User():
                blocks = self._shown(fact.content) or [_text(NO_WORDS)]
                yield from (Piece("user", block, markable=True) for block in blocks)
            case Result():
                yield Piece("user", self._result(fact), markable=True)
            case Assistant():
                yield from _reply(fact, before=before)
            case _:
                assert_never(fact)

    def _shown(self, content: tuple[TextOrMedia, ...]) -> list[bytes]:
        return [self._show(b) for b in content if isinstance(b, Media) or not _blank(b)]

    def _show(self, block: TextOrMedia) -> bytes:
        return _text(block.text) if isinstance(block, Text) else self._media(block)

    def _media(self, media: Media) -> bytes:
        known = media.mime == PDF if media.kind == "document" else media.mime in IMAGES
        data = shown(media, self._fetch, taken=self._images and known)
        if isinstance(data, str):
            return _text(data)
        source = (
            b'{"type":"base64","media_type":' + quote_json(media.mime) + b',"data":"' + data + b'"}'
        )
        return b'{"type":"' + media.kind.encode() + b'","source":' + source + b"}"

    def _result(self, fact: Result) -> bytes:
        content = tuple(_told(b) for b in fact.content) if fact.error else fact.content
        blocks = self._shown(content) or [_text(NO_OUTPUT)]
        body = b"[" + b",".join(blocks) + b"]"
        if len(content) <= 1 and all(isinstance(block, Text) for block in content):
            body = quote_json(extract_text(content) if extract_text(content).strip() else NO_OUTPUT)
        error = b',"is_error":true' if fact.error else b""
        call = quote_json(call_id(fact.call))
        return b'{"type":"tool_result","tool_use_id":' + call + b',"content":' + body + error + b"}"


def _head(epoch: Epoch) -> Head:
    """Build the path, headers, tools and system text that all requests of an epoch share."""
    model = epoch.model
    marker = _marker(model)
    tools = [_tool(tool) for tool in epoch.tools]
    system = [_text(epoch.system)] if epoch.system.strip() else []
    opening = b'{"model":' + quote_json(model.id) + b',"max_tokens":%d' % model.output
    opening += _list("system", system, marker=marker)
    opening += _list("tools", tools, marker=b"" if system else marker)
    return Head(
        path="/v1/messages",
        headers=_headers(model),
        pieces=(*(Piece("tool", t) for t in tools), *(Piece("system", s) for s in system)),
        opening=opening + b',"messages":[',
        closing=b'],"stream":true' + further(model) + b"}",
        marker=marker,
    )


def _headers(model: ModelCard) -> Headers:
    headers = (("content-type", "application/json"), ("anthropic-version", VERSION))
    always = [beta for beta in model.betas if beta not in ON_DEMAND]
    return (*headers, (BETAS, ",".join(always))) if always else headers


def _marker(model: ModelCard) -> bytes:
    """One lifetime for all markers, so that a longer one never follows a shorter one."""
    if "no-cache-markers" in model.quirks:
        return b""
    ttl = b',"ttl":"1h"' if model.cache_ttl == "1h" else b""
    return b',"cache_control":{"type":"ephemeral"' + ttl + b"}"


def _list(name: str, blocks: list[bytes], *, marker: bytes) -> bytes:
    if not blocks:
        return b""
    return b',"%s":[%s%s}]' % (name.encode(), b",".join(blocks)[:-1], marker)


def _tool(tool: ToolSpec) -> bytes:
    name, words = quote_json(tool.name), quote_json(tool.description)
    return b'{"name":%s,"description":%s,"input_schema":%s}' % (
        name,
        words,
        encode_utf8(tool.schema),
    )


def _reply(fact: Assistant, *, before: str) -> Iterator[Piece]:
    """Encode a reply as it came, without the blocks that the API refuses to take back."""
    blocks = [block for block in fact.content if _sendable(block)]
    while blocks and _kind(blocks[-1]) in THINKING:
        blocks.pop()
    if blocks and not before and _kind(blocks[0]) != "compaction":
        yield Piece("user", _text(STARTED_BEFORE), markable=True)
    role = "assistant" + ALONE * (fact.stop == "compaction")
    yield from (Piece(role, _said(block)) for block in blocks)
    open_end = bool(blocks) or before.startswith("assistant")
    if fact.stop == "pause" and open_end and all(_stands(block) for block in blocks):
        yield Piece("user", _text(GO_ON), markable=True)


def _stands(block: AnyBlock) -> bool:
    """Return whether a reply may end here: no open call, no block of a server-side tool."""
    return not isinstance(block, Call) and _kind(block) in UNPAUSED


def _kind(block: AnyBlock) -> str:
    """Return the type of one of Anthropic's own blocks; empty for blocks any provider has."""
    return block.kind if isinstance(block, Opaque) and block.protocol == "anthropic" else ""


def _sendable(block: AnyBlock) -> bool:
    match block:
        case Text():
            return not _blank(block)
        case Opaque():
            return block.protocol == "anthropic" or _summary(block)
        case Call():
            return True
        case Media():
            return False
        case _:
            assert_never(block)


def _summary(block: Opaque) -> bool:
    """Return whether another provider's block holds a summary or text that must be kept."""
    return block.kind in ("compaction", "text") and bool(block.text.strip())


def _said(block: AnyBlock) -> bytes:
    match block:
        case Text():
            return _text(block.text)
        case Opaque():
            return encode_utf8(block.raw) if block.protocol == "anthropic" else _text(block.text)
        case Call():
            return _call(block)
        case Media():
            raise AssertionError("models send no media")
        case _:
            assert_never(block)


def _call(call: Call) -> bytes:
    id, name = quote_json(call_id(call.id)), quote_json(tool_name(call.name))
    said = b'{"type":"tool_use","id":%s,"name":%s,"input":' % (id, name) + ensure_json_object(
        call.args
    )
    known = {k: v for k, v in split_members("{" + call.extra + "}").items() if k not in FOREIGN}
    return said + (b"," + encode_utf8(join_members(known)) if known else b"") + b"}"


def _text(text: str) -> bytes:
    return b'{"type":"text","text":' + quote_json(text) + b"}"


def _blank(text: Text) -> bool:
    return not text.text.strip()


def _told(block: TextOrMedia) -> Text:
    """Return the block as text, since a tool error may hold nothing else."""
    if isinstance(block, Text):
        return block
    return Text(note(block, "not shown with an error"))
