"""Context window management: triggers auto-compaction after cheaper layers were tried."""

from __future__ import annotations

from travois.context.compaction.cut import CompactionTrigger
from travois.context.microcompact.clear import clear_instead_of_compacting, clear_old_results
from travois.context.session_memory.notes import find_notes_cut, update_notes_if_due
from travois.context.tool_results import calls_of_last_reply, find_oversize_results, render_preview
from travois.context.window import (
    cache_is_cold,
    compaction_threshold,
    current_model,
    explain_how_to_make_room,
    hard_stop,
    results_room,
    scaled_layers,
    should_clear_after_pause,
)
from travois.core.content import Call
from travois.core.facts import Failed, Offloaded, Result
from travois.core.tokens import context_tokens, estimate_tokens, fact_tokens
from travois.core.tool_names import canonical_name
from travois.engine.agent import Agent
from travois.engine.overflow import drop_old_media
from travois.lazy_imports import lazy_imports
from travois.ports.tool import AnyTool

with lazy_imports():
    from travois.context import keep_warm
    from travois.context.compaction import compact, restore
    from travois.context.microcompact import clear
    from travois.extensions import custom_layers


PREPARE_SHARE = 0.75
"""The share of the threshold from which on a compaction is prepared."""


async def manage_window(agent: Agent) -> str:
    """Make room in the context window before a request, if it is needed or costs nothing.

    Returns why nothing may be sent; empty if the request can go out.
    """
    # From cheap to costly. Results that were never sent can be shortened without touching the
    # cache.
    if agent.context.layers.offload:
        offload_results(agent)
    drop_old_media(agent)
    if agent.context.layers.lifetime and cache_is_cold(agent):
        keep_warm.adjust_cache_ttl(agent)
    # Each step below moves the cached prefix, so at most one is taken, and only when one is due.
    # Folding comes first: its text is made by rule, without a request to a model.
    trigger = compaction_trigger(agent)
    if trigger is not None:
        if (
            agent.context.layers.collapse
            and trigger in ("auto", "cold")
            and clear.fold_old_calls(agent, trigger=trigger)
        ):
            return ""
        # With a cold cache a compaction costs no more than clearing and frees more.
        if trigger in ("auto", "overflow") and clear_instead_of_compacting(agent):
            await _reshow_edited_files(agent)
            return ""
        await compact.compact_conversation(agent, trigger=trigger)
        return ""
    if agent.context.layers.clear:
        clear_old_results(agent)
    if agent.context.custom:
        clear_by_custom_layers(agent)
    await _reshow_edited_files(agent)
    # Preparing means asking for the summary beside the conversation, from the warm cache, so that
    # the compaction itself waits for nobody.
    if agent.context.layers.compact and context_tokens(
        agent.session.view
    ) >= PREPARE_SHARE * compaction_threshold(agent):
        compact.prepare_compaction(agent)
    else:
        update_notes_if_due(agent)
    return _explain_full_window(agent)


def clear_by_custom_layers(agent: Agent) -> None:
    """Clear what the layers of a program or package propose."""
    layers, view = agent.context.custom, agent.session.view
    for fact in tuple(custom_layers.plan_custom_clearing(layers, view)):
        agent.session.append(fact)


async def _reshow_edited_files(agent: Agent) -> None:
    """Show files again that the last reply edited and whose text has left the context window."""
    if not calls_of_last_reply(agent.session.view):
        return
    await restore.show_edited_files(agent)


def _explain_full_window(agent: Agent) -> str:
    """Return why the window is too full for a request, if only the user can make room."""
    size, most = (
        context_tokens(agent.session.view),
        hard_stop(current_model(agent), agent.context.layers),
    )
    if size < most or agent.context.layers.is_automatic:
        return ""
    what = f"the context window is full: {size:,} of {most:,} tokens in use"
    why = f"{what}; nothing was sent. {explain_how_to_make_room(agent)}"
    agent.session.append(Failed("compaction", why))
    return why


def offload_results(agent: Agent) -> None:
    """Offload tool results that are too large to be shown in full."""
    view = agent.session.view
    if all(not isinstance(item.fact, Result) for item in view.items[view.seen :]):
        return
    tools = {call.id: _find_tool(agent, call) for call in calls_of_last_reply(view)}
    bounded = {id: one.paged for id, one in tools.items() if one and (one.bounded or one.paged)}
    room = results_room(agent)
    for found in list(
        find_oversize_results(view, agent.context.layers, room=room, bounded=bounded)
    ):
        path = agent.world.spill(f"{found.call}-result", found.text.encode(errors="replace"))
        nonce = f"{int(agent.runtime.jitter() * 0xFFFFFF):06x}"
        shown = render_preview(found.text, path=path, tokens=found.tokens, nonce=nonce)
        agent.session.append(Offloaded(found.call, path, shown))


def _find_tool(agent: Agent, call: Call) -> AnyTool | None:
    """Return the tool that a call names, also by an alias or on an MCP server."""
    name = canonical_name(call.name)
    return (
        agent.tools.by_name.get(call.name)
        or agent.tools.by_name.get(name)
        or agent.tools.find_mcp_tool(call.name)
    )


def compaction_trigger(agent: Agent) -> CompactionTrigger | None:
    """Return why auto-compaction is due before the next request; None if it is not."""
    size, threshold = context_tokens(agent.session.view), compaction_threshold(agent)
    # After repeated failures a compaction is left to the user: it would fail again with each
    # request.
    if agent.session.strikes.is_out:
        return None
    if not agent.context.layers.is_automatic:
        return None
    # Above this nothing can be sent at all; above the threshold a request still fits.
    if size >= hard_stop(current_model(agent), agent.context.layers):
        return "overflow"
    if size >= threshold:
        return "auto"
    if agent.context.layers.idle == "cheap":
        return (
            "cold"
            if cache_is_cold(agent) and size >= min(agent.context.layers.cold, threshold)
            else None
        )
    return (
        "cold"
        if size >= PREPARE_SHARE * threshold
        and should_clear_after_pause(agent)
        and _has_prepared_summary(agent)
        else None
    )


def _has_prepared_summary(agent: Agent) -> bool:
    """Return whether a compaction summary is ready and the rest can stay verbatim."""
    if find_notes_cut(agent) is not None:
        return True
    session, room = agent.session, scaled_layers(agent)
    since = (item.fact for item in session.view.items if item.seq > session.drafted_at)
    short = bool(session.draft) and estimate_tokens(session.draft) <= room.ledger
    return agent.context.layers.draft and short and sum(map(fact_tokens, since)) <= room.tail
