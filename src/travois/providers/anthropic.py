"""The Anthropic Messages API: builds request bodies from a view (`AnthropicEncoder`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from msgspec.structs import replace

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
from travois.core.facts import Assistant, Epoch, Result, ToolSpec, User
from travois.core.json import (
    encode_utf8,
    ensure_json_object,
    join_members,
    quote_json,
    split_members,
)
from travois.core.models import COMPACTION_BETA, CONTEXT_EDITING_BETA, ModelCard
from travois.core.view import View, ViewItem
from travois.providers.request import (
    CONTINUE_TEXT,
    EMPTY_MESSAGE_TEXT,
    IMAGE_TYPES,
    NO_OUTPUT_TEXT,
    PDF_TYPE,
    PROTOCOL_CALL_MEMBERS,
    STARTED_EARLIER_TEXT,
    Headers,
    Request,
    RequestHead,
    RequestPart,
    encode_closing_options,
    make_legal_call_id,
    make_legal_tool_name,
    media_or_placeholder,
    media_placeholder,
)

BETA_HEADER = "anthropic-beta"
ON_DEMAND_BETAS = frozenset((CONTEXT_EDITING_BETA, COMPACTION_BETA))
"""Betas that are named only in requests that need them."""
STREAM_MEMBER = b'],"stream":true'


def encode_context_edits(view: View) -> bytes:
    """Encode Anthropic context edits that clear exactly the tool results to clear; empty if none.

    The provider works them out anew for each request. What it keeps is counted from the end, so
    that count grows with each call and the set stays as it was decided.
    """
    if not view.cleared or view.epoch is None or not view.epoch.model.has_context_editing:
        return b""
    uses, gone = _tool_calls_in_view(view), set(view.cleared)
    count = max((n for n, use in enumerate(uses, 1) if use.id in gone), default=0)
    if not count:
        return b""
    spared = sorted({make_legal_tool_name(use.name) for use in uses[:count] if use.id not in gone})
    names = b',"exclude_tools":[' + b",".join(map(quote_json, spared)) + b"]" if spared else b""
    whole = {
        make_legal_tool_name(use.name) for use in uses[:count] if use.id in view.cleared_inputs
    }
    inputs = b",".join(map(quote_json, sorted(whole)))
    names += b',"clear_tool_inputs":[' + inputs + b"]" if inputs else b""
    newest = b'{"type":"tool_uses","value":%d}' % (len(uses) - count)
    return (
        b',"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"},'
        b'{"type":"clear_tool_uses_20250919","trigger":%s,"keep":%s%s}]}' % (newest, newest, names)
    )


def count_cleared_results(view: View) -> int:
    """Return how many tool results Anthropic should report as cleared."""
    gone = set(view.cleared)
    return (
        sum(use.id in gone for use in _tool_calls_in_view(view))
        if encode_context_edits(view)
        else 0
    )


def add_beta_header(headers: Headers, beta: str) -> Headers:
    """Return Anthropic request headers with one more beta."""
    named = [value for name, value in headers if name == BETA_HEADER]
    others = tuple(header for header in headers if header[0] != BETA_HEADER)
    return (*others, (BETA_HEADER, ",".join((*named, beta))))


def beta_of_field(field: str) -> str:
    """Return the Anthropic beta that a rejected field belongs to; the field itself if unknown."""
    if field.startswith(("context_management", "clear_")):
        return CONTEXT_EDITING_BETA
    return COMPACTION_BETA if field.startswith("compaction") else field


def to_cache_warming_request(request: Request) -> Request:
    """Return an Anthropic request that asks for no reply: it only keeps the prompt cache warm."""
    body = re.sub(rb'"max_tokens":\d+', b'"max_tokens":0', request.body, count=1)
    at = body.rindex(STREAM_MEMBER)
    return replace(request, body=body[: at + 1] + body[at + len(STREAM_MEMBER) :])


def to_summary_request(request: Request) -> Request:
    """Return an Anthropic request that asks for a signed summary instead of a reply."""
    body = request.body[:-1] + b',"compaction":{"type":"summarize"}}'
    return replace(request, body=body, headers=add_beta_header(request.headers, COMPACTION_BETA))


def _tool_calls_in_view(view: View) -> list[Call]:
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    return [call for reply in replies for call in extract_calls(reply.content)]


ANTHROPIC_API_VERSION = "2026-10-21"
THINKING_BLOCKS = frozenset(("thinking", "redacted_thinking"))
SEPARATE_MESSAGE_MARK = "."
"""Marks a role whose message stays apart from its neighbours: a signed summary's."""
NEEDS_CONTINUE_BLOCKS = THINKING_BLOCKS | {"", "text"}
"""Blocks that alone cannot be gone on from: the API takes no words put into the model's mouth."""


class AnthropicEncoder:
    """An encoder of views as Anthropic requests: parts are content blocks, grouped by role."""

    close = b"]}"

    def __init__(self, epoch: Epoch, fetch: Callable[[str], bytes]) -> None:
        self.head = _build_anthropic_head(epoch)
        self._images = epoch.model.images
        self._fetch = fetch

    def encode_separator(self, before: str, role: str) -> bytes:
        """Return a comma inside a message, else the end of one and the start of the next."""
        if before == role:
            return b","
        opening = b'{"role":"' + role.rstrip(SEPARATE_MESSAGE_MARK).encode() + b'","content":['
        return b"]}," + opening if before else opening

    def encode_item(
        self, items: Sequence[ViewItem], index: int, *, before: str
    ) -> Iterator[RequestPart]:
        """Encode one item as content blocks."""
        fact = items[index].fact
        match fact:
            case User():
                blocks = self._encode_blocks(fact.content) or [
                    _encode_text_block(EMPTY_MESSAGE_TEXT)
                ]
                yield from (RequestPart("user", block, markable=True) for block in blocks)
            case Result():
                yield RequestPart("user", self._encode_tool_result(fact), markable=True)
            case Assistant():
                yield from _encode_anthropic_reply(fact, before=before)
            case _:
                assert_never(fact)

    def _encode_blocks(self, content: tuple[TextOrMedia, ...]) -> list[bytes]:
        return [
            self._encode_block(b) for b in content if isinstance(b, Media) or not _is_blank_text(b)
        ]

    def _encode_block(self, block: TextOrMedia) -> bytes:
        return (
            _encode_text_block(block.text)
            if isinstance(block, Text)
            else self._encode_media_block(block)
        )

    def _encode_media_block(self, media: Media) -> bytes:
        known = media.mime == PDF_TYPE if media.kind == "document" else media.mime in IMAGE_TYPES
        data = media_or_placeholder(media, self._fetch, taken=self._images and known)
        if isinstance(data, str):
            return _encode_text_block(data)
        source = (
            b'{"type":"base64","media_type":' + quote_json(media.mime) + b',"data":"' + data + b'"}'
        )
        return b'{"type":"' + media.kind.encode() + b'","source":' + source + b"}"

    def _encode_tool_result(self, fact: Result) -> bytes:
        content = tuple(_as_text_block(b) for b in fact.content) if fact.error else fact.content
        blocks = self._encode_blocks(content) or [_encode_text_block(NO_OUTPUT_TEXT)]
        # A plain string for the usual case: fewer bytes and tokens than a list of one block.
        body = b"[" + b",".join(blocks) + b"]"
        if len(content) <= 1 and all(isinstance(block, Text) for block in content):
            body = quote_json(
                extract_text(content) if extract_text(content).strip() else NO_OUTPUT_TEXT
            )
        error = b',"is_error":true' if fact.error else b""
        call = quote_json(make_legal_call_id(fact.call))
        return b'{"type":"tool_result","tool_use_id":' + call + b',"content":' + body + error + b"}"


def _build_anthropic_head(epoch: Epoch) -> RequestHead:
    """Build the path, headers, tools and system text that all requests of an epoch share."""
    model = epoch.model
    marker = _cache_control_marker(model)
    tools = [_encode_anthropic_tool(tool) for tool in epoch.tools]
    system = [_encode_text_block(epoch.system)] if epoch.system.strip() else []
    opening = b'{"model":' + quote_json(model.id) + b',"max_tokens":%d' % model.output
    opening += _encode_marked_list("system", system, marker=marker)
    opening += _encode_marked_list("tools", tools, marker=b"" if system else marker)
    return RequestHead(
        path="/v1/messages",
        headers=_anthropic_headers(model),
        pieces=(
            *(RequestPart("tool", t) for t in tools),
            *(RequestPart("system", s) for s in system),
        ),
        opening=opening + b',"messages":[',
        closing=b'],"stream":true' + _encode_thinking(model) + encode_closing_options(model) + b"}",
        marker=marker,
    )


def _encode_thinking(model: ModelCard) -> bytes:
    """Ask for a summary of the thinking, which a person can read; it is hidden by default."""
    if "thinking-summaries" not in model.quirks or "no-thinking-summaries" in model.quirks:
        return b""
    return b',"thinking":{"type":"adaptive","display":"summarized"}'


def _anthropic_headers(model: ModelCard) -> Headers:
    """Return the HTTP headers of a Messages API request: version and betas."""
    headers = (("content-type", "application/json"), ("anthropic-version", ANTHROPIC_API_VERSION))
    always = [beta for beta in model.betas if beta not in ON_DEMAND_BETAS]
    return (*headers, (BETA_HEADER, ",".join(always))) if always else headers


def _cache_control_marker(model: ModelCard) -> bytes:
    """Return Anthropic's cache marker; the API requires the same lifetime for all."""
    if "no-cache-markers" in model.quirks:
        return b""
    ttl = b',"ttl":"1h"' if model.cache_ttl == "1h" else b""
    return b',"cache_control":{"type":"ephemeral"' + ttl + b"}"


def _encode_marked_list(name: str, blocks: list[bytes], *, marker: bytes) -> bytes:
    """Encode Anthropic's tools or system blocks, with any cache marker on the last one."""
    if not blocks:
        return b""
    return b',"%s":[%s%s}]' % (name.encode(), b",".join(blocks)[:-1], marker)


def _encode_anthropic_tool(tool: ToolSpec) -> bytes:
    """Encode a tool definition for the Messages API."""
    name, words = quote_json(tool.name), quote_json(tool.description)
    return b'{"name":%s,"description":%s,"input_schema":%s}' % (
        name,
        words,
        encode_utf8(tool.schema),
    )


def _encode_anthropic_reply(fact: Assistant, *, before: str) -> Iterator[RequestPart]:
    """Encode an earlier reply for Anthropic, without blocks that the API refuses."""
    blocks = [block for block in fact.content if _is_sendable_block(block)]
    # A reply that was cut off while thinking ends in a thinking block, which the API refuses.
    while blocks and _anthropic_block_type(blocks[-1]) in THINKING_BLOCKS:
        blocks.pop()
    # The API wants a user message first; after a compaction the view may begin with a reply.
    if blocks and not before and _anthropic_block_type(blocks[0]) != "compaction":
        yield RequestPart("user", _encode_text_block(STARTED_EARLIER_TEXT), markable=True)
    role = "assistant" + SEPARATE_MESSAGE_MARK * (fact.stop == "compaction")
    yield from (RequestPart(role, _encode_reply_block(block)) for block in blocks)
    open_end = bool(blocks) or before.startswith("assistant")
    if fact.stop == "pause" and open_end and all(_can_end_reply(block) for block in blocks):
        yield RequestPart("user", _encode_text_block(CONTINUE_TEXT), markable=True)


def _can_end_reply(block: AnyBlock) -> bool:
    """Return whether an Anthropic reply may end here: no open call, no server-side tool block."""
    return not isinstance(block, Call) and _anthropic_block_type(block) in NEEDS_CONTINUE_BLOCKS


def _anthropic_block_type(block: AnyBlock) -> str:
    """Return the type of one of Anthropic's own blocks; empty for blocks any provider has."""
    return block.kind if isinstance(block, Opaque) and block.protocol == "anthropic" else ""


def _is_sendable_block(block: AnyBlock) -> bool:
    """Return whether the Messages API takes back this block of a reply."""
    match block:
        case Text():
            return not _is_blank_text(block)
        case Opaque():
            return block.protocol == "anthropic" or _is_foreign_summary(block)
        case Call():
            return True
        case Media():
            return False
        case _:
            assert_never(block)


def _is_foreign_summary(block: Opaque) -> bool:
    """Return whether another provider's block has a summary or text to send to Anthropic."""
    return block.kind in ("compaction", "text") and bool(block.text.strip())


def _encode_reply_block(block: AnyBlock) -> bytes:
    """Encode a block of an earlier reply for the Messages API."""
    match block:
        case Text():
            return _encode_text_block(block.text)
        case Opaque():
            return (
                encode_utf8(block.raw)
                if block.protocol == "anthropic"
                else _encode_text_block(block.text)
            )
        case Call():
            return _encode_tool_use(block)
        case Media():
            raise AssertionError("models send no media")
        case _:
            assert_never(block)


def _encode_tool_use(call: Call) -> bytes:
    """Encode a tool call as a `tool_use` block, with members that only Anthropic knows."""
    id, name = quote_json(make_legal_call_id(call.id)), quote_json(make_legal_tool_name(call.name))
    # Members that we do not know came with the call and go back with it, or its signature would
    # fail.
    said = b'{"type":"tool_use","id":%s,"name":%s,"input":' % (id, name) + ensure_json_object(
        call.args
    )
    known = {
        k: v
        for k, v in split_members("{" + call.extra + "}").items()
        if k not in PROTOCOL_CALL_MEMBERS
    }
    return said + (b"," + encode_utf8(join_members(known)) if known else b"") + b"}"


def _encode_text_block(text: str) -> bytes:
    return b'{"type":"text","text":' + quote_json(text) + b"}"


def _is_blank_text(text: Text) -> bool:
    return not text.text.strip()


def _as_text_block(block: TextOrMedia) -> Text:
    """Return a tool result's block as text: Anthropic errors may contain nothing else."""
    if isinstance(block, Text):
        return block
    return Text(media_placeholder(block, "not shown with an error"))
