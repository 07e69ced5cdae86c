"""The context window: threshold, free tokens, state of the prompt cache, and what fills it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.context.compaction.cut import is_summary
from travois.context.layers import ContextLayers
from travois.context.tool_results import (
    ResultRoom,
    WindowLimits,
    calls_of_last_reply,
    compute_results_room,
    share_results_room,
)
from travois.core.cache_audit import PromptCache
from travois.core.content import AnyBlock, Call, Text, extract_calls, extract_text
from travois.core.facts import Assistant, Cleared, Compacted, Entry, Epoch, Offloaded, Result
from travois.core.models import ModelCard, Usage
from travois.core.tokens import (
    TOKENS_PER_RESULT,
    block_tokens,
    compact_threshold,
    context_tokens,
    effective_window,
    estimate_tokens,
    fact_tokens,
    head_tokens,
    stop_threshold,
    token_ratio,
)
from travois.core.view import View, ViewItem
from travois.engine.agent import Agent
from travois.memory.recall_text import INDEX_CHANGED_TAG, INDEX_TAG, RECALLED_TAG
from travois.prompt import environment, instruction_text

PortionKind = Literal["tools", "system", "instructions", "memory", "summary", "messages", "results"]
CacheStatus = Literal["read", "written", "not cached", "not yet sent", "cold"]
PORTION_KINDS: tuple[PortionKind, ...] = (
    "system",
    "tools",
    "instructions",
    "memory",
    "summary",
    "messages",
    "results",
)
MAX_SOURCE_CHARS = 60
MEMORY_MARKS = (RECALLED_TAG, INDEX_TAG, INDEX_CHANGED_TAG)
EMPTY_MAPPING: Mapping[str, str] = {}


def current_model(agent: Agent) -> ModelCard:
    """Return the model whose context window the session uses."""
    epoch = agent.session.view.epoch
    assert epoch is not None
    return epoch.model


def compaction_threshold(agent: Agent) -> int:
    """Return the context window size at which compaction starts."""
    return threshold_for_model(current_model(agent), agent.context.layers)


def threshold_for_model(card: ModelCard, layers: ContextLayers) -> int:
    """Return the context size at which a conversation with this model is compacted."""
    used = _limit_model_window(card, layers)
    own = compact_threshold(used)
    share = round(effective_window(used) * layers.percent / 100)
    return min(own, layers.threshold or own, share or own)


def hard_stop(card: ModelCard, layers: ContextLayers) -> int:
    """Return the context size beyond which nothing is sent to this model."""
    own = stop_threshold(card)
    return min(own, layers.hard_limit or own)


def explain_how_to_make_room(agent: Agent) -> str:
    """Explain what to do about a full context window when auto-compaction is off."""
    layers, smaller = agent.context.layers, "go back with /rewind, or start a new session"
    if layers.is_automatic:
        return ""
    larger = "switch to a model with a larger window (/model)"
    by = f" ({layers.off_by})" if layers.off_by else ""
    if layers.shorten:
        ask = "Compact with /compact or `travois compact`"
        return f"Automatic compaction is off{by}. {ask}, {larger}, {smaller}."
    return f"Compaction is off{by}. Turn it back on, {larger}, {smaller}."


def _limit_model_window(card: ModelCard, layers: ContextLayers) -> ModelCard:
    """Return the model with its context window limited to the usable part."""
    return replace(card, window=min(card.window, layers.window or card.window))


def scaled_layers(agent: Agent) -> ContextLayers:
    """Return the context layers' limits, scaled to the available window."""
    return agent.context.layers.scale_to_room(room_beside_head(agent))


def room_beside_head(agent: Agent) -> int:
    """Return how many tokens the window has between the request head and compaction."""
    epoch = agent.session.view.epoch
    return compaction_threshold(agent) - (head_tokens(epoch) if epoch else 0)


def results_room(agent: Agent) -> int:
    """Return how many tokens of the window the last reply's tool results may take together."""
    card = _limit_model_window(current_model(agent), agent.context.layers)
    kept = effective_window(card) - compact_threshold(card)
    grows = agent.context.layers.is_automatic and not agent.session.strikes.is_out
    window = WindowLimits(compaction_threshold(agent) + kept, room_beside_head(agent), grows=grows)
    return compute_results_room(agent.session.view, agent.context.layers, window=window)


def result_room_for_call(agent: Agent, call: Call) -> ResultRoom:
    """Return the window's room for a call's result; all of it for a call outside a reply."""
    asked = calls_of_last_reply(agent.session.view)
    among = asked if any(one.id == call.id for one in asked) else (call,)
    # A stand-in is asked for under one name and runs under another: the latter has the cap.
    named = [call if one.id == call.id else one for one in among]
    return share_results_room(named, agent.context.layers, room=results_room(agent))[call.id]


def cache_is_cold(agent: Agent) -> bool:
    """Return whether the prompt cache has expired, so that changing the prefix costs nothing.

    A restored part counts as warm until it was sent, or it would be cut again at once.
    """
    cache = agent.session.cache
    asked = any(cause == "undo" for cause, _ in cache.moved)
    return not asked and 0 < cache.used < agent.runtime.clock() - current_model(agent).cache_seconds


def should_clear_after_pause(agent: Agent) -> bool:
    """Return whether a pause is a reason to make room in the window before the next request.

    Time alone is no pressure: it is a reason only between turns, once the cache is gone, and after
    an hour or in a window that is half full. `cheap` costs least.
    """
    layers = agent.context.layers
    if layers.idle == "off" or not cache_is_cold(agent):
        return False
    if layers.idle == "cheap":
        return True
    return not is_in_turn(agent) and (
        seconds_since_request(agent) >= layers.idle_seconds or is_half_full(agent)
    )


def seconds_since_request(agent: Agent) -> float:
    """Return how many seconds ago the last request was sent, to judge the prompt cache."""
    return agent.runtime.clock() - agent.session.cache.used


def is_half_full(agent: Agent) -> bool:
    """Return whether the context window is filled to over half of its compaction threshold."""
    return context_tokens(agent.session.view) > compaction_threshold(agent) / 2


def is_in_turn(agent: Agent) -> bool:
    """Return whether the model has replied in this turn, so that the window is in use."""
    view = agent.session.view
    return view.replied >= 0 and view.items[view.replied].seq > agent.turn.began


class WindowPortion(msgspec.Struct, frozen=True):
    """One block of the next request."""

    kind: PortionKind
    source: str
    tokens: int
    why: str
    entry: int = 0
    """The entry that brought it."""
    cache: CacheStatus = "not yet sent"


class WindowBreakdown(msgspec.Struct, frozen=True):
    """The whole window. Sizes are estimates, scaled to agree with the provider's count."""

    portions: tuple[WindowPortion, ...]
    measured: int
    """The provider's own count for all up to its last reply; zero if there is none that holds."""
    scale: float
    """The factor by which the estimates were scaled to agree with it."""

    @property
    def total_tokens(self) -> int:
        """The tokens of all portions."""
        return sum(portion.tokens for portion in self.portions)

    @property
    def tokens_by_kind(self) -> dict[PortionKind, int]:
        """The tokens of each kind."""
        return {
            kind: sum(one.tokens for one in self.portions if one.kind == kind)
            for kind in PORTION_KINDS
        }


def break_down_window(
    view: View, entries: Iterable[Entry], *, cache: PromptCache, now: float
) -> WindowBreakdown:
    """Break down the context window that the next request would send."""
    first, body = (
        list(list_head_portions(view.epoch)) if view.epoch else [],
        list(_list_body_portions(view, entries)),
    )
    last = view.items[view.counted] if view.counted >= 0 else None
    usage = last.fact.usage if last and isinstance(last.fact, Assistant) else Usage()
    told = sum(index <= view.counted for index, _ in body) if usage.context else 0
    known = [*first, *(one for _, one in body[:told])] if told else []
    later = [one for _, one in body[told:]] if told else [*first, *(one for _, one in body)]
    guessed = sum(one.tokens for one in known)
    scale = usage.context / guessed if guessed else token_ratio(view)
    sizes = (*_scale_portions(known, scale), *_scale_portions(later, token_ratio(view)))
    sized = tuple(replace(o, tokens=n) for o, n in zip((*known, *later), sizes, strict=True))
    alive = cache.seconds_left(now) > 0
    return WindowBreakdown(
        _assign_cache_state(sized, usage if told else Usage(), alive=alive), usage.context, scale
    )


def list_head_portions(epoch: Epoch) -> Iterator[WindowPortion]:
    """Yield the window's tools and system prompt, in the order in which they are cached."""
    for tool in epoch.tools:
        size = estimate_tokens(tool.name + tool.description + tool.schema)
        yield WindowPortion("tools", tool.name, size, "tool definition")
    yield WindowPortion(
        "system",
        "system prompt",
        estimate_tokens(epoch.system),
        f"fixed prompt prefix ({epoch.why})",
    )


def _list_body_portions(
    view: View, entries: Iterable[Entry]
) -> Iterator[tuple[int, WindowPortion]]:
    """Yield the context window's blocks of each message, with the message's index."""
    shaped = {key: why for entry in entries for key, why in _explain_shape(entry)}
    shaped |= dict.fromkeys(view.cleared, "cleared by the provider")
    asked = {
        call.id: f"{call.name} {' '.join(call.args.split())[:MAX_SOURCE_CHARS]}"
        for item in view.items
        if isinstance(item.fact, Assistant)
        for call in extract_calls(item.fact.content)
    }
    for index, item in enumerate(view.items):
        for one in list_item_portions(item, cleared=view.cleared, shaped=shaped, asked=asked):
            yield index, one


def list_item_portions(
    item: ViewItem,
    *,
    cleared: Collection[str] = (),
    shaped: Mapping[str, str] = EMPTY_MAPPING,
    asked: Mapping[str, str] = EMPTY_MAPPING,
) -> Iterator[WindowPortion]:
    """Yield one message's blocks with estimated sizes; `shaped` and `asked` describe calls."""
    fact = item.fact
    if isinstance(fact, Result):
        size = fact_tokens(fact)
        size = min(size, 2 * TOKENS_PER_RESULT) if fact.call in cleared else size
        why = shaped.get(fact.call, "tool result")
        yield WindowPortion("results", asked.get(fact.call, fact.call), size, why, item.seq)
    elif isinstance(fact, Assistant):
        said = extract_text(fact.content) or ", ".join(
            call.name for call in extract_calls(fact.content)
        )
        source = f"reply: {_shorten_source(said)}"
        yield WindowPortion("messages", source, fact_tokens(fact), "model reply", item.seq)
    else:
        yield from (_classify_user_block(block, item, shaped) for block in fact.content)


def _classify_user_block(
    block: AnyBlock, item: ViewItem, shaped: Mapping[str, str]
) -> WindowPortion:
    """Classify a context window block from the user or from Travois."""
    text, size = extract_text((block,)), block_tokens(block)
    human = getattr(item.fact, "origin", "") == "human"
    if human:
        return WindowPortion(
            "messages", f"you: {_shorten_source(text)}", size, "your message", item.seq
        )
    if text.startswith(instruction_text.INSTRUCTIONS_TAG):
        return WindowPortion(
            "instructions", "instruction files", size, "project instructions", item.seq
        )
    if text.startswith(MEMORY_MARKS):
        return WindowPortion(
            "memory", "memories", size, "remembered from earlier sessions", item.seq
        )
    if text.startswith(environment.ENVIRONMENT_OPENING):
        return WindowPortion(
            "messages", "environment", size, "date, folder and git state", item.seq
        )
    if isinstance(block, Text) and is_summary(item):
        why = shaped.get(str(item.seq), "replaces an earlier part")
        files = text.startswith("<files>")
        return WindowPortion(
            "summary", "files shown again" if files else "summary", size, why, item.seq
        )
    return WindowPortion(
        "messages", f"note: {_shorten_source(text)}", size, "added by Travois", item.seq
    )


def _explain_shape(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield why a window block is shown as it is: cleared, offloaded or restored."""
    match entry.fact:
        case Offloaded() as fact:
            yield fact.call, f"shortened; full text in {fact.blob}"
        case Cleared() as fact:
            yield from ((call, "cleared; full text on disk") for call in fact.calls)
        case Compacted() as fact:
            yield str(fact.last), f"replaces entries {fact.first} to {fact.last} ({fact.trigger})"
        case _:
            return


def _scale_portions(portions: list[WindowPortion], scale: float) -> Iterator[int]:
    return scale_sizes((one.tokens for one in portions), scale)


def scale_sizes(sizes: Iterable[int], scale: float) -> Iterator[int]:
    """Scale window block sizes by a factor, rounding the sum only once."""
    exact, told = 0.0, 0
    for size in sizes:
        exact += size * scale
        yield round(exact) - told
        told = round(exact)


def _assign_cache_state(
    portions: tuple[WindowPortion, ...], usage: Usage, *, alive: bool
) -> tuple[WindowPortion, ...]:
    """Mark which window blocks the last reply read from the prompt cache or wrote to it."""
    found: list[WindowPortion] = []
    read, held = usage.read, usage.read + usage.write + usage.write_1h
    at = 0
    for one in portions:
        middle, at = at + one.tokens / 2, at + one.tokens
        state: CacheStatus = (
            "read" if middle < read else "written" if middle < held else "not cached"
        )
        if middle >= usage.prompt:
            state = "not yet sent"
        elif state != "not cached" and not alive:
            state = "cold"
        found.append(replace(one, cache=state))
    return tuple(found)


def _shorten_source(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SOURCE_CHARS else f"{line[: MAX_SOURCE_CHARS - 1]}…"
