"""The room of a conversation: compaction threshold, free tokens, and state of the prompt cache."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.layers import Layers
from travois.context.tool_results import Room, Window, last_calls, message_room, share_room
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


def model(agent: Agent) -> ModelCard:
    """Return the model that answers."""
    epoch = agent.session.view.epoch
    assert epoch is not None
    return epoch.model


def limit(agent: Agent) -> int:
    """Return the size at which compaction starts."""
    return threshold(model(agent), agent.context.layers)


def threshold(card: ModelCard, layers: Layers) -> int:
    """Return the size at which a conversation with this model is compacted."""
    used = _used(card, layers)
    own = compact_threshold(used)
    share = round(effective_window(used) * layers.percent / 100)
    return min(own, layers.threshold or own, share or own)


def hard_stop(card: ModelCard, layers: Layers) -> int:
    """Return the size beyond which nothing is sent to this model."""
    own = stop_threshold(card)
    return min(own, layers.hard_limit or own)


def way_out(agent: Agent) -> str:
    """Say what to do about a full window when compaction may not start by itself."""
    layers, smaller = agent.context.layers, "go back with /rewind, or start a new session"
    if layers.automatic:
        return ""
    larger = "switch to a model with a larger window (/model)"
    by = f" ({layers.off_by})" if layers.off_by else ""
    if layers.shorten:
        ask = "Compact with /compact or `travois compact`"
        return f"Automatic compaction is off{by}. {ask}, {larger}, {smaller}."
    return f"Compaction is off{by}. Turn it back on, {larger}, {smaller}."


def _used(card: ModelCard, layers: Layers) -> ModelCard:
    """Return the model with its window limited to the part that may be used."""
    return replace(card, window=min(card.window, layers.window or card.window))


def fitted(agent: Agent) -> Layers:
    """Return the layers' limits, scaled to the room that there is."""
    return agent.context.layers.fitted(beside_head(agent))


def beside_head(agent: Agent) -> int:
    """Return how many tokens there are between the head and where compaction starts."""
    epoch = agent.session.view.epoch
    return limit(agent) - (head_tokens(epoch) if epoch else 0)


def results_room(agent: Agent) -> int:
    """Return how many tokens all results of the last reply may take together."""
    card = _used(model(agent), agent.context.layers)
    kept = effective_window(card) - compact_threshold(card)
    grows = agent.context.layers.automatic and not agent.session.strikes.is_out
    window = Window(limit(agent) + kept, beside_head(agent), grows=grows)
    return message_room(agent.session.view, agent.context.layers, window=window)


def call_room(agent: Agent, call: Call) -> Room:
    """Return the room for the result of a call; a call that no reply asked for has all of it."""
    asked = last_calls(agent.session.view)
    among = asked if any(one.id == call.id for one in asked) else (call,)
    # A stand-in is asked for under one name and runs under another: the latter has the cap.
    named = [call if one.id == call.id else one for one in among]
    return share_room(named, agent.context.layers, room=results_room(agent))[call.id]


def cold(agent: Agent) -> bool:
    """Return whether the provider's cache has expired, so that a change costs nothing more.

    A restored part counts as warm until it was sent, or it would be cut again at once.
    """
    cache = agent.session.cache
    asked = any(cause == "undo" for cause, _ in cache.moved)
    return not asked and 0 < cache.used < agent.runtime.clock() - model(agent).cache_seconds


def idled(agent: Agent) -> bool:
    """Return whether a pause is a reason to make room before the next request.

    Time alone is no pressure: it is a reason only between turns, once the cache is gone, and after
    an hour or in a window that is half full. `cheap` costs least.
    """
    layers = agent.context.layers
    if layers.idle == "off" or not cold(agent):
        return False
    if layers.idle == "cheap":
        return True
    return not in_turn(agent) and (paused(agent) >= layers.idle_seconds or half_full(agent))


def paused(agent: Agent) -> float:
    """Return how many seconds ago the last request was sent."""
    return agent.runtime.clock() - agent.session.cache.used


def half_full(agent: Agent) -> bool:
    """Return whether more than half of the compaction threshold is in use."""
    return context_tokens(agent.session.view) > limit(agent) / 2


def in_turn(agent: Agent) -> bool:
    """Return whether the model has replied since the turn began."""
    view = agent.session.view
    return view.replied >= 0 and view.items[view.replied].seq > agent.turn.began
