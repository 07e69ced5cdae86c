"""Forks: side requests that share the conversation's cache and leave it unchanged."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

from travois.context.window import current_model
from travois.core.content import Text, extract_text
from travois.core.cost import compute_cost
from travois.core.facts import Entry, Finished, Spawned, User
from travois.core.legality import find_send_blocker
from travois.core.models import Usage
from travois.core.view import View
from travois.engine.agent import Agent
from travois.engine.budget import BudgetExhausted, charge_request
from travois.lazy_imports import lazy_imports
from travois.ports.agents import SIDE_REQUEST_PREFIX
from travois.providers.replies import ApiError, Reply
from travois.providers.request import PrefixBreak, Request, limit_reply_tokens

with lazy_imports():
    from travois.context.compaction import shared_summaries


RequestChange = Callable[[Request], Request]
REUSED_OUTCOME = "reused"
"""The outcome of a fork whose answer another session already had."""


async def ask_in_fork(agent: Agent, instruction: str, *, what: str) -> str:
    """Ask the model a side question in a fork; return its answer, or empty if it fails.

    The request is the conversation's own parts and then the instruction, so it reads its cache.
    Tool calls in the reply are not run. A frail model is not asked: it would invent.
    """
    if current_model(agent).is_frail:
        return ""
    view = agent.session.view.copy()
    asked = User((Text(instruction),), origin="note")
    view.add(Entry(agent.session.seq + 1, agent.runtime.clock(), asked))
    reply = await ask_quietly(agent, view, what=what)
    return extract_text(reply.content).strip() if reply else ""


async def ask_quietly(
    agent: Agent, view: View, *, what: str, change: RequestChange = lambda request: request
) -> Reply | None:
    """Send a side request to the model; return None if it fails.

    `change` is what it asks for besides a reply, or in place of one.
    """
    if find_send_blocker(view):
        return None
    try:
        return await send_side_request(agent, view, what=what, change=change)
    except (ApiError, PrefixBreak, BudgetExhausted):
        return None


async def send_side_request(
    agent: Agent, view: View, *, what: str, change: RequestChange = lambda request: request
) -> Reply:
    """Send a side request and record its cost; raises what made it fail."""
    session = agent.session
    id = f"{SIDE_REQUEST_PREFIX}{session.seq}"
    session.append(Spawned(id, "fork", what))
    usage, outcome = Usage(), "stopped"
    try:
        async with _ask_once_per_prefix(agent, view, what) as known:
            if known:
                outcome = REUSED_OUTCOME
                return known
            reply = await _send_paid_request(agent, view, change)
            usage, outcome = reply.usage, "done" if reply.content else "said nothing"
            _share_reply(agent, view, reply, what)
            return reply
    except (ApiError, PrefixBreak, BudgetExhausted) as problem:
        outcome = str(problem)
        raise
    finally:
        session.append(Finished(id, outcome, usage, _foreign_model_cost(agent, view, usage)))


def _ask_once_per_prefix(
    agent: Agent, view: View, what: str
) -> AbstractAsyncContextManager[Reply | None, bool | None]:
    """Share a fork's answer among agents that ask the same; the others wait for the first."""
    if agent.context.open_summaries is None:
        return nullcontext()
    return shared_summaries.ask_summary_once(agent, view, what=what)


def _share_reply(agent: Agent, view: View, reply: Reply, what: str) -> None:
    """Save a side request's reply, so that sessions of one project share the summary."""
    if agent.context.open_summaries is not None:
        shared_summaries.store_shared_summary(agent, view, reply, what=what)


def _foreign_model_cost(agent: Agent, view: View, usage: Usage) -> float | None:
    """Return the cost of a side request to another model than the conversation's."""
    card = view.epoch.model if view.epoch is not None else current_model(agent)
    return None if card == current_model(agent) else compute_cost(usage, card.price)


async def _send_paid_request(agent: Agent, view: View, change: RequestChange) -> Reply:
    """Send a side request within the budget and charge its usage."""
    async with charge_request(agent, view) as payment:
        request = limit_reply_tokens(agent.encoder.fork().build_request(view), payment.output)
        reply = await _read_reply(agent, change(request))
        payment.usage = reply.usage
    return reply


async def _read_reply(agent: Agent, request: Request) -> Reply:
    """Return the reply to a side request; raises `ApiError` if the stream has none."""
    async with agent.model.stream(request) as stream:
        async for event in stream:
            if isinstance(event, Reply):
                return event
    raise ApiError("garbled", "the stream ended without a reply")
