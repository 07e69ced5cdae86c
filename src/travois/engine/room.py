"""How much room a conversation has, and whether its cache still lives."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.layers import Layers
from travois.engine.agent import Agent
from travois.kernel.models import Model
from travois.kernel.tokens import compact_at, head_tokens


def model(agent: Agent) -> Model:
    """The model that answers."""
    epoch = agent.session.view.epoch
    assert epoch is not None
    return epoch.model


def limit(agent: Agent) -> int:
    """The size at which compaction starts."""
    return threshold(model(agent), agent.layers)


def threshold(card: Model, layers: Layers) -> int:
    """The size at which a conversation with this model is compacted."""
    window = min(card.window, layers.window or card.window)
    own = compact_at(replace(card, window=window))
    return min(own, layers.threshold or own)


def fitted(agent: Agent) -> Layers:
    """The layers' numbers, as they suit the room that there is."""
    epoch = agent.session.view.epoch
    return agent.layers.fitted(limit(agent) - (head_tokens(epoch) if epoch else 0))


def cold(agent: Agent) -> bool:
    """Whether the provider has forgotten what was sent, so that a change costs nothing more.

    What a person has asked back counts as warm until it was sent, or it would be cut at once.
    """
    cache = agent.session.cache
    asked = any(cause == "undo" for cause, _ in cache.moved)
    return not asked and 0 < cache.used < agent.clock() - model(agent).lifetime
