"""Keeping the provider's prompt cache warm through pauses, and setting its lifetime."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.cache_lifetime import choose_cache_ttl, list_request_intervals
from travois.context.window import compaction_threshold, current_model
from travois.core.facts import Sent
from travois.core.view import View, project_view
from travois.engine.agent import Agent
from travois.engine.fork import ask_quietly
from travois.ports.world import UserWarned
from travois.providers.anthropic import to_cache_warming_request

RENEW_MARGIN_SECONDS = 30.0
"""The time before expiry, in seconds, at which the cache is renewed."""


async def keep_cache_warm(agent: Agent) -> None:
    """Renew the prompt cache just before it expires, a few times at most, until a prompt comes."""
    left = agent.context.layers.keep_warm
    while left > 0:
        used = agent.session.cache.used
        await agent.runtime.sleep(
            max(
                0.0,
                used
                + current_model(agent).cache_seconds
                - RENEW_MARGIN_SECONDS
                - agent.runtime.clock(),
            )
        )
        if agent.session.cache.used > used:
            continue
        left -= 1
        if not await renew_cache(agent):
            return


async def renew_cache(agent: Agent) -> bool:
    """Renew the prompt cache by resending the last request without a reply; True if it worked."""
    view, card = _last_sent_view(agent), current_model(agent)
    if view is None or card.protocol != "anthropic" or '"type":"enabled"' in card.params:
        return False
    return (
        await ask_quietly(agent, view, what="cache kept", change=to_cache_warming_request)
        is not None
    )


def _last_sent_view(agent: Agent) -> View | None:
    """Return the conversation as last sent, to renew its cache; None if changed or expired."""
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


def adjust_cache_ttl(agent: Agent) -> None:
    """Choose the next prompt cache's lifetime once the old one has expired, and log it."""
    epoch = agent.session.view.epoch
    assert epoch is not None
    card, taken = epoch.model, list_request_intervals(agent.session.history())
    most = (
        agent.context.layers.cold
        if agent.context.layers.idle == "cheap"
        else compaction_threshold(agent) // 2
    )
    found = choose_cache_ttl(taken, card.price, life=card.cache_ttl, most=most)
    if found is None or "no-cache-markers" in card.quirks:
        return
    why = f"prompt cache lifetime set to {found.life} after {found.pauses} pauses of 5–60 minutes"
    saved = f"it would have saved ${found.saved:.2f} so far"
    agent.session.emit(UserWarned(f"{why[0].upper()}{why[1:]}: {saved}"))
    longer = replace(card, cache_ttl=found.life)
    agent.session.append(replace(epoch, model=longer, why=why, unbind=False))
