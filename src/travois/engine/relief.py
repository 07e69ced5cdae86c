"""Keeping the window in bounds: before each request, the cheapest layer that helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from travois.context.offload import oversize, preview
from travois.engine.agent import Agent
from travois.engine.clearing import clear
from travois.engine.recover import lighten
from travois.engine.room import cold, fitted, limit, model
from travois.kernel.facts import Offloaded
from travois.kernel.tokens import context_tokens, stop_at

if TYPE_CHECKING:
    from travois.context.compact import Trigger

EARLY = 0.75
"""The share of the threshold from which on a compaction is prepared."""


async def relieve(agent: Agent) -> None:
    """Make room before the next request, where there is too little or it costs nothing."""
    if agent.layers.offload:
        offload(agent)
    lighten(agent)
    if agent.layers.lifetime and cold(agent):
        from travois.engine.warmth import suit

        suit(agent)
    trigger = wanted(agent)
    if trigger is not None:
        from travois.engine.compaction import compact

        await compact(agent, trigger=trigger)
        return
    if agent.layers.clear:
        clear(agent)
    early = context_tokens(agent.session.view) >= EARLY * limit(agent)
    if agent.layers.compact and (agent.layers.notes or early):
        from travois.engine.compaction import prepare

        prepare(agent)


def offload(agent: Agent) -> None:
    """Store the results that are too large to be shown whole."""
    view, layers = agent.session.view, fitted(agent)
    for found in list(oversize(view, layers)):
        path = agent.world.spill(f"{found.call}-result", found.text.encode(errors="replace"))
        nonce = f"{int(agent.chance() * 0xFFFFFF):06x}"
        shown = preview(found.text, path=path, tokens=layers.shown, nonce=nonce)
        agent.session.append(Offloaded(found.call, path, shown))


def wanted(agent: Agent) -> Trigger | None:
    """Why the conversation should be compacted before the next request; none if it should not."""
    size, threshold = context_tokens(agent.session.view), limit(agent)
    if agent.session.strikes.out or not agent.layers.shorten:
        return None
    if size >= stop_at(model(agent)):
        return "overflow"
    if not agent.layers.compact:
        return None
    if size >= threshold:
        return "auto"
    if cold(agent) and size >= min(agent.layers.cold, threshold):
        return "cold"
    return None
