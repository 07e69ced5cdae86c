"""One request to the model: sending it, receiving the reply, and retrying or falling back."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.microcompact.clear import check_provider_clearing
from travois.context.window import explain_how_to_make_room
from travois.core.facts import Sent
from travois.core.tokens import context_tokens
from travois.engine.agent import Agent
from travois.engine.budget import charge_request
from travois.engine.overflow import notice_truncation
from travois.engine.retry import RequestTries, prepare_retry, use_fallback_model
from travois.ports.world import UserWarned
from travois.providers.replies import ApiError, Reply, build_assistant_fact
from travois.providers.request import PrefixBreak, Request, limit_reply_tokens


async def request_reply(agent: Agent) -> str:
    """Request one model reply and log it; return why there is none, else empty."""
    tries = RequestTries()
    while True:
        try:
            reply = await _send_and_receive(agent)
        except ApiError as problem:
            if await prepare_retry(agent, problem, tries):
                continue
            if not use_fallback_model(agent, problem):
                return _describe_failure(agent, problem)
            tries = RequestTries()
        else:
            check_provider_clearing(agent, reply)
            agent.session.append(build_assistant_fact(agent.session.view, reply))
            notice_truncation(agent)
            _warn_of_cache_miss(agent)
            return ""


def _describe_failure(agent: Agent, problem: ApiError) -> str:
    """Describe why a model request got no reply and, for an overflow, the way out."""
    out = explain_how_to_make_room(agent) if problem.kind in ("overflow", "large") else ""
    return f"{problem.kind}: {problem.message}{'. ' if out else ''}{out}"


def _warn_of_cache_miss(agent: Agent) -> None:
    """Warn of an unexpected prompt cache miss, once per cause."""
    misses, view = agent.session.cache.misses, agent.session.view
    last = misses[-1] if misses else None
    if last is None or last.is_expected or last.seq != view.items[view.replied].seq:
        return
    if all(miss.cause != last.cause for miss in misses[:-1]):
        lost = f"{last.tokens:,} tokens not read from the cache (+${last.dollars:.4f})"
        agent.session.emit(UserWarned(f"prompt cache miss: {lost}: {last.cause_text}"))


async def _send_and_receive(agent: Agent) -> Reply:
    """Send one request and receive its reply, within the budget."""
    async with charge_request(agent, agent.session.view, turns=1) as payment:
        request = _record_request(agent, output=payment.output)
        with agent.runtime.while_waiting():
            reply = await _receive_reply(agent, request)
        payment.usage = reply.usage
    return reply


def _record_request(agent: Agent, *, output: int) -> Request:
    """Build the next request and log its digest, size and tokens."""
    request, view = limit_reply_tokens(_build_request(agent), output), agent.session.view
    agent.session.append(
        Sent(
            pieces=request.pieces,
            chain=request.chain,
            digest=request.digest,
            size=len(request.body),
            tokens=context_tokens(view),
            output=output,
        )
    )
    return request


def _build_request(agent: Agent) -> Request:
    """Build the next model request; a broken prefix starts a new epoch with a warning.

    Either way the user hears of it and the session goes on: a new epoch owns up to the break.
    """
    view = agent.session.view
    try:
        return agent.encoder.build_request(view)
    except PrefixBreak as broken:
        assert view.epoch is not None
        agent.session.emit(UserWarned(f"the prompt cache is lost: {broken}"))
        agent.session.append(replace(view.epoch, why=f"prefix break: {broken}", unbind=True))
        return agent.encoder.build_request(view)


async def _receive_reply(agent: Agent, request: Request) -> Reply:
    """Stream the reply to a request to the front end; raises `ApiError` if none comes."""
    async with agent.model.stream(request) as stream:
        async for event in stream:
            if isinstance(event, Reply):
                return event
            agent.session.emit(event)
    raise ApiError("garbled", "the stream ended without a reply")
