"""Anthropic requests beyond a plain reply: context edits, cache warming, provider summaries.

To leave out old results, to sum up the conversation, or only to keep the cache alive.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from travois.core.content import Call, extract_calls
from travois.core.facts import Assistant
from travois.core.json import quote_json
from travois.core.models import COMPACTION_BETA, CONTEXT_EDITING_BETA
from travois.core.view import View
from travois.providers.options import make_legal_tool_name
from travois.providers.request import Headers, Request

BETA_HEADER = "anthropic-beta"
ON_DEMAND_BETAS = frozenset((CONTEXT_EDITING_BETA, COMPACTION_BETA))
"""Betas that are named only in requests that need them."""
STREAM_MEMBER = b'],"stream":true'


def encode_context_edits(view: View) -> bytes:
    """Encode the context edits that clear exactly the cleared tool results; empty if none.

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
    """Return the number of results that the provider should report as cleared."""
    gone = set(view.cleared)
    return (
        sum(use.id in gone for use in _tool_calls_in_view(view))
        if encode_context_edits(view)
        else 0
    )


def add_beta_header(headers: Headers, beta: str) -> Headers:
    """Return the headers with one more beta."""
    named = [value for name, value in headers if name == BETA_HEADER]
    others = tuple(header for header in headers if header[0] != BETA_HEADER)
    return (*others, (BETA_HEADER, ",".join((*named, beta))))


def beta_of_field(field: str) -> str:
    """Return the beta that a rejected field belongs to; the field itself if it is not ours."""
    if field.startswith(("context_management", "clear_")):
        return CONTEXT_EDITING_BETA
    return COMPACTION_BETA if field.startswith("compaction") else field


def to_cache_warming_request(request: Request) -> Request:
    """Return the request changed to ask for no reply: it only keeps the prompt cache warm."""
    body = re.sub(rb'"max_tokens":\d+', b'"max_tokens":0', request.body, count=1)
    at = body.rindex(STREAM_MEMBER)
    return replace(request, body=body[: at + 1] + body[at + len(STREAM_MEMBER) :])


def to_summary_request(request: Request) -> Request:
    """Return the request changed to ask for a signed summary instead of a reply."""
    body = request.body[:-1] + b',"compaction":{"type":"summarize"}}'
    return replace(request, body=body, headers=add_beta_header(request.headers, COMPACTION_BETA))


def _tool_calls_in_view(view: View) -> list[Call]:
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    return [call for reply in replies for call in extract_calls(reply.content)]
