"""Context window management: auto-compaction is triggered here, after cheaper layers were tried."""

from __future__ import annotations

from travois.context.compaction.cut import Trigger
from travois.context.microcompact.clear import clear, clear_instead
from travois.context.session_memory.keep import find_cut, keep_notes
from travois.context.tool_results import last_calls, oversize, preview
from travois.context.window import (
    cold,
    fitted,
    hard_stop,
    idled,
    limit,
    model,
    results_room,
    way_out,
)
from travois.core.content import Call
from travois.core.facts import Failed, Offloaded, Result
from travois.core.tokens import context_tokens, estimate_tokens, fact_tokens
from travois.core.tool_names import canonical_name
from travois.engine.agent import Agent
from travois.engine.overflow import drop_old_media
from travois.ports.tool import AnyTool

EARLY = 0.75
"""The share of the threshold from which on a compaction is prepared."""


async def relieve(agent: Agent) -> str:
    """Make room before the next request, where there is too little or it costs nothing.

    Returns why nothing may be sent; empty if the request can go out.
    """
    if agent.context.layers.offload:
        offload(agent)
    drop_old_media(agent)
    if agent.context.layers.lifetime and cold(agent):
        from travois.context.keep_warm import suit

        suit(agent)
    trigger = wanted(agent)
    if trigger is not None:
        if agent.context.layers.collapse and trigger in ("auto", "cold") and _fold(agent, trigger):
            return ""
        if trigger in ("auto", "overflow") and clear_instead(agent):
            await _show_edited(agent)
            return ""
        from travois.context.compaction.compact import compact

        await compact(agent, trigger=trigger)
        return ""
    if agent.context.layers.clear:
        clear(agent)
    await _show_edited(agent)
    if agent.context.layers.compact and context_tokens(agent.session.view) >= EARLY * limit(agent):
        from travois.context.compaction.compact import prepare

        prepare(agent)
    else:
        keep_notes(agent)
    return _stop(agent)


async def _show_edited(agent: Agent) -> None:
    """Show files again that the last reply changed and whose text is out of sight."""
    if not last_calls(agent.session.view):
        return
    from travois.context.compaction.restore import show_edited_files

    await show_edited_files(agent)


def _fold(agent: Agent, trigger: Trigger) -> bool:
    """Fold old calls in place of a compaction; return whether that is enough."""
    from travois.context.microcompact.folding import collapse

    return collapse(agent, trigger=trigger)


def _stop(agent: Agent) -> str:
    """Return why the window is too full for another request, where only the user may make room."""
    size, most = context_tokens(agent.session.view), hard_stop(model(agent), agent.context.layers)
    if size < most or agent.context.layers.automatic:
        return ""
    what = f"the context window is full: {size:,} of {most:,} tokens in use"
    why = f"{what}; nothing was sent. {way_out(agent)}"
    agent.session.append(Failed("compaction", why))
    return why


def offload(agent: Agent) -> None:
    """Store the results that are too large to be shown in full."""
    view = agent.session.view
    if all(not isinstance(item.fact, Result) for item in view.items[view.seen :]):
        return
    tools = {call.id: _tool(agent, call) for call in last_calls(view)}
    bounded = {id: one.paged for id, one in tools.items() if one and (one.bounded or one.paged)}
    room = results_room(agent)
    for found in list(oversize(view, agent.context.layers, room=room, bounded=bounded)):
        path = agent.world.spill(f"{found.call}-result", found.text.encode(errors="replace"))
        nonce = f"{int(agent.runtime.jitter() * 0xFFFFFF):06x}"
        shown = preview(found.text, path=path, tokens=found.tokens, nonce=nonce)
        agent.session.append(Offloaded(found.call, path, shown))


def _tool(agent: Agent, call: Call) -> AnyTool | None:
    name = canonical_name(call.name)
    return (
        agent.tools.by_name.get(call.name)
        or agent.tools.by_name.get(name)
        or agent.tools.find_mcp_tool(call.name)
    )


def wanted(agent: Agent) -> Trigger | None:
    """Return why to compact the conversation before the next request; None if it is not needed."""
    size, threshold = context_tokens(agent.session.view), limit(agent)
    if agent.session.strikes.is_out:
        return None
    if not agent.context.layers.automatic:
        return None
    if size >= hard_stop(model(agent), agent.context.layers):
        return "overflow"
    if size >= threshold:
        return "auto"
    if agent.context.layers.idle == "cheap":
        return "cold" if cold(agent) and size >= min(agent.context.layers.cold, threshold) else None
    return "cold" if size >= EARLY * threshold and idled(agent) and _prepared(agent) else None


def _prepared(agent: Agent) -> bool:
    """Return whether the model's part of a summary is ready and the rest can stay verbatim."""
    if find_cut(agent) is not None:
        return True
    session, room = agent.session, fitted(agent)
    since = (item.fact for item in session.view.items if item.seq > session.drafted_at)
    short = bool(session.draft) and estimate_tokens(session.draft) <= room.ledger
    return agent.context.layers.draft and short and sum(map(fact_tokens, since)) <= room.tail
