"""The context window: compaction threshold, free tokens, and state of the prompt cache."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.layers import ContextLayers
from travois.context.tool_results import (
    ResultRoom,
    WindowLimits,
    calls_of_last_reply,
    compute_results_room,
    share_results_room,
)
from travois.core.content import Call
from travois.core.models import ModelCard
from travois.core.tokens import (
    compact_threshold,
    context_tokens,
    effective_window,
    head_tokens,
    stop_threshold,
)
from travois.engine.agent import Agent


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
