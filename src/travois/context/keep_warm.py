"""Keeping the provider's prompt cache alive through pauses, and setting its lifetime."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.cache_lifetime import choose, steps
from travois.context.window import limit, model
from travois.core.facts import Sent
from travois.core.view import View, project_view
from travois.engine.agent import Agent
from travois.engine.fork import ask_quietly
from travois.ports.world import UserWarned
from travois.providers.anthropic_extras import warming

MARGIN = 30.0
"""The time before expiry, in seconds, at which the cache is renewed."""


async def keep_warm(agent: Agent) -> None:
    """Renew the cache just before it expires, a few times at most, until cancelled by a prompt."""
    left = agent.context.layers.keep_warm
    while left > 0:
        used = agent.session.cache.used
        await agent.runtime.sleep(
            max(0.0, used + model(agent).cache_seconds - MARGIN - agent.runtime.clock())
        )
        if agent.session.cache.used > used:
            continue
        left -= 1
        if not await warm(agent):
            return


async def warm(agent: Agent) -> bool:
    """Send the last request again without asking for a reply; return whether that worked."""
    view, card = _last(agent), model(agent)
    if view is None or card.protocol != "anthropic" or '"type":"enabled"' in card.params:
        return False
    return await ask_quietly(agent, view, what="cache kept", change=warming) is not None


def _last(agent: Agent) -> View | None:
    """Return the conversation as it was last sent; None if it has changed or left the cache."""
    session = agent.session
    if session.view.sent_moves != session.view.moves or not session.cache.seconds_left(
        agent.runtime.clock()
    ):
        return None
    if session.is_long:  # not all that was sent can be looked up, but it still stands
        view = session.view.copy()
        view.items, view.open, view.queued = view.items[: view.seen], {}, []
        return view
    entries = session.history()
    sent = [index for index, entry in enumerate(entries) if isinstance(entry.fact, Sent)]
    return project_view(entries[: sent[-1]]) if sent else None


def suit(agent: Agent) -> None:
    """Choose the lifetime of the next cache once the old one is gone anyway, and say so."""
    epoch = agent.session.view.epoch
    assert epoch is not None
    card, taken = epoch.model, steps(agent.session.history())
    most = agent.context.layers.cold if agent.context.layers.idle == "cheap" else limit(agent) // 2
    found = choose(taken, card.price, life=card.cache_ttl, most=most)
    if found is None or "no-cache-markers" in card.quirks:
        return
    why = f"prompt cache lifetime set to {found.life} after {found.pauses} pauses of 5–60 minutes"
    saved = f"it would have saved ${found.saved:.2f} so far"
    agent.session.emit(UserWarned(f"{why[0].upper()}{why[1:]}: {saved}"))
    longer = replace(card, cache_ttl=found.life)
    agent.session.append(replace(epoch, model=longer, why=why, unbind=False))
