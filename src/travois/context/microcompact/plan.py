"""L2, microcompaction plans: old results that can be fetched again shrink to one line each.

Model sees: in place of a cleared result, where its text can be read.
Tokens: about 40 for each cleared result; where the provider clears, about 40 in one note.
Cache: moves the prefix, so only when the cache is gone anyway or the change pays for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.context.layers import ContextLayers
from travois.context.ledger.extractors import (
    TOOL_FAMILIES,
    ActionKind,
    classify_tool,
)
from travois.core.content import Opaque, Text, extract_calls
from travois.core.facts import Assistant, Result, User
from travois.core.tokens import block_tokens, estimate_tokens, fact_tokens
from travois.core.view import THINKING_KINDS, View, ViewItem, has_thinking, shorten_arguments

CLEARABLE_KINDS: tuple[ActionKind, ...] = ("shell", "read", "edit", "write", "delete", "patch")
SEARCH_TOOLS = (
    "grep glob ls list search findfiles websearch webfetch fetch bashoutput recall "
    "gitstatus gitdiff gitlog gitshow gitblame"
)
CLEARABLE_TOOLS = frozenset(
    " ".join((*(TOOL_FAMILIES[kind] for kind in CLEARABLE_KINDS), SEARCH_TOOLS)).split()
) - {"notebookedit"}
"""Tools whose results can be had again, by the last part of their name in small letters."""
MIN_CLEARED_TOKENS = 300
"""A result below this costs less than the line that would take its place is worth."""
INPUT_CLEARED_KINDS: tuple[ActionKind, ...] = ("edit", "write", "patch")
"""Tools whose arguments are what is long, not their results."""
MIN_INPUT_TOKENS = 400
"""The tokens from which on arguments are worth clearing."""
MIN_THINKING_TOKENS = 500
"""Thinking of fewer tokens is not worth clearing."""
CLEARED_LINE_TOKENS = 40
"""The tokens of what takes the place of a result."""


class ClearingConditions(msgspec.Struct, frozen=True):
    """The conditions that clearing depends on besides the view."""

    cold: bool = False
    """True if a pause is reason enough: the provider's cache is gone."""
    early: bool = False
    """True if only a half-full window makes it a reason: then more of the newest stays."""
    server: bool = False
    """True if the provider can clear."""
    size: int = 0
    warn: int = 0
    limit: int = 0
    """The window in use, where the user is warned, and where compaction starts."""
    read: float = 0.1
    write: float = 1.25
    """Prices of cached and of written tokens, for one of plain input."""


class ClearingPlan(msgspec.Struct, frozen=True):
    """A plan: the results to clear, who clears them, and how many tokens that frees."""

    calls: tuple[str, ...]
    where: Literal["local", "server"]
    freed: int
    inputs: tuple[str, ...] = ()
    """Calls whose long arguments give way."""


def plan_clearing(
    view: View, layers: ContextLayers, *, now: ClearingConditions
) -> ClearingPlan | None:
    """Plan which old tool results to clear before the next request; None if none."""
    bound = has_thinking(view)
    if bound and not now.server:
        return None
    old = _clearable_results(view, layers, now)
    if not old:
        return None
    found = plan_server_clearing(view, old, layers) if bound else plan_local_clearing(view, old)
    if not bound and layers.inputs:
        written, freed = _long_inputs(view, old)
        found = replace(found, inputs=written, freed=found.freed + freed)
    if now.cold:
        return found if found.freed >= layers.cleared else None
    enough = found.freed >= layers.pressed_cleared
    return found if enough and clearing_pays(view, found, now=now) else None


def find_old_thinking(view: View, *, least: int = MIN_THINKING_TOKENS) -> int:
    """Return the last entry whose thinking can be cleared, as a later turn has some; else 0."""
    facts = [item.fact for item in view.items]
    last = max((i for i, fact in enumerate(facts) if _thinking_blocks(fact)), default=0)
    while last > 0 and not isinstance(facts[last - 1], User):
        last -= 1
    gone = sum(map(_count_thinking_tokens, facts[:last]))
    return view.items[last - 1].seq if gone >= least else 0


def _thinking_blocks(fact: User | Assistant | Result) -> list[Opaque]:
    blocks = fact.content if isinstance(fact, Assistant) else ()
    return [b for b in blocks if isinstance(b, Opaque) and b.kind in THINKING_KINDS]


def _count_thinking_tokens(fact: User | Assistant | Result) -> int:
    """Estimate the tokens of a reply's thinking, which is billed even if hidden."""
    thoughts = _thinking_blocks(fact)
    if not thoughts or not isinstance(fact, Assistant):
        return 0
    others = sum(block_tokens(block) for block in fact.content if block not in thoughts)
    return max(sum(estimate_tokens(b.raw) for b in thoughts), fact.usage.output - others)


def _clearable_results(
    view: View, layers: ContextLayers, now: ClearingConditions
) -> list[ViewItem]:
    """Return the tool results that may be cleared now."""
    if now.cold:
        held = min(layers.pressed_tokens, now.limit // 4) if now.early else 0
        return list_oldest_results(view, kept=max(1, layers.kept), protected=held)
    if not layers.pressure or not now.warn <= now.size < now.limit:
        return []
    return list_oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)


def is_clearable_tool(name: str) -> bool:
    """Return whether a tool of this name can be called again for the same result."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return plain in CLEARABLE_TOOLS and not name.startswith("mcp__")


def clearing_pays(view: View, plan: ClearingPlan, *, now: ClearingConditions) -> bool:
    """Return whether rewriting the cache after the first cleared result pays off in time.

    A session is assumed to last as long again as it has lasted; the compaction that would otherwise
    follow frees more, so no gain counts beyond it.
    """
    replies = sum(isinstance(item.fact, Assistant) for item in view.items)
    growth = max(1.0, now.size / max(1, replies))
    left = min(replies, (now.limit - now.size) / growth)
    tail = _tokens_after(view.items, {*plan.calls, *plan.inputs}) - plan.freed
    return left >= (now.write - now.read) * tail / (now.read * plan.freed)


def _tokens_after(items: Sequence[ViewItem], gone: set[str]) -> int:
    """Return the tokens from the first cleared result on, which the cache must rewrite."""
    results = [isinstance(item.fact, Result) and item.fact.call in gone for item in items]
    return sum(fact_tokens(item.fact) for item in items[results.index(True) :])


def list_oldest_results(view: View, *, kept: int, protected: int) -> list[ViewItem]:
    """Return the sent tool results without the newest ones and so many tokens."""
    results = [item for item in view.items[: view.seen] if isinstance(item.fact, Result)]
    end, size = max(0, len(results) - kept), 0
    size = sum(fact_tokens(item.fact) for item in results[end:])
    while end > 0 and size < protected:
        end -= 1
        size += fact_tokens(results[end].fact)
    return results[:end]


def plan_local_clearing(view: View, old: Sequence[ViewItem]) -> ClearingPlan:
    """Plan to clear the large results of tools that can be called again."""
    names = dict(_pair_calls_with_tools(view))
    sizes = {
        fact.call: size
        for item in old
        if isinstance(fact := item.fact, Result)
        and is_clearable_tool(names.get(fact.call, ""))
        and all(isinstance(block, Text) for block in fact.content)
        and (size := fact_tokens(fact)) >= MIN_CLEARED_TOKENS
    }
    return ClearingPlan(
        tuple(sizes), "local", sum(sizes.values()) - CLEARED_LINE_TOKENS * len(sizes)
    )


def _long_inputs(view: View, old: Sequence[ViewItem]) -> tuple[tuple[str, ...], int]:
    """Return old calls with long arguments, and what clearing them frees."""
    done = {item.fact.call for item in old if isinstance(item.fact, Result)}
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    made = [call for reply in replies for call in extract_calls(reply.content) if call.id in done]
    sizes = {
        call.id: size - estimate_tokens(shorten_arguments(call.args, ""))
        for call in made
        if classify_tool(call.name, {}) in INPUT_CLEARED_KINDS
        and (size := estimate_tokens(call.args)) >= MIN_INPUT_TOKENS
    }
    sizes = {
        call: size - CLEARED_LINE_TOKENS
        for call, size in sizes.items()
        if size > CLEARED_LINE_TOKENS
    }
    return tuple(sizes), sum(sizes.values())


def plan_server_clearing(
    view: View, old: Sequence[ViewItem], layers: ContextLayers
) -> ClearingPlan:
    """Plan to let the provider clear all such calls up to a point, the only set it accepts."""
    names = dict(_pair_calls_with_tools(view))
    sizes = {
        fact.call: fact_tokens(fact)
        for item in old
        if isinstance(fact := item.fact, Result) and is_clearable_tool(names.get(fact.call, ""))
    }
    freed = sum(
        max(0, size - CLEARED_LINE_TOKENS)
        for call, size in sizes.items()
        if call not in view.cleared
    )
    if not layers.inputs:
        return ClearingPlan(tuple(sizes), "server", freed)
    written, more = _long_inputs(
        view, [item for item in old if _call_id_of(item) not in view.cleared_inputs]
    )
    inputs = tuple(call for call in written if call in sizes)
    return ClearingPlan(tuple(sizes), "server", freed + more, inputs)


def _call_id_of(item: ViewItem) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""


def _pair_calls_with_tools(view: View) -> Iterator[tuple[str, str]]:
    """Yield each tool call's ID and tool name, to plan clearing."""
    for item in view.items:
        if isinstance(item.fact, Assistant):
            yield from ((call.id, call.name) for call in extract_calls(item.fact.content))
