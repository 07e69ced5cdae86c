"""One request to the model: send it, receive the reply, retry, fall back."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.microcompact.clear import check_provider_clearing
from travois.context.window import explain_how_to_make_room
from travois.core.facts import Epoch, Failed, Sent
from travois.core.models import ModelQuirk
from travois.core.tokens import context_tokens
from travois.core.view import SEALED_KINDS, View, has_thinking
from travois.engine.agent import Agent
from travois.engine.budget import charge_request
from travois.engine.fallback import current_retry_policy, use_fallback_model
from travois.engine.overflow import notice_truncation, recover_from_overflow
from travois.engine.retry import retry_delay
from travois.ports.world import RequestRetrying, UserWarned
from travois.providers.anthropic_extras import beta_of_field
from travois.providers.options import is_effort_field, limit_reply_tokens
from travois.providers.replies import ApiError, Reply, build_assistant_fact
from travois.providers.request import PrefixBreak, Request

SHRINKABLE_PROBLEMS = ("overflow", "large", "media", "pairing", "bound", "thinking")
"""The problems that a smaller request may avoid."""
FIELD_QUIRKS: dict[str, ModelQuirk] = {
    "stream_options": "no-stream-options",
    "include_obfuscation": "no-stream-options",
    "include": "no-include",
    "prompt_cache_key": "no-cache-key",
    "max_completion_tokens": "max-tokens",
    "cache_control": "no-cache-markers",
}
"""Fields that some servers refuse, and what we do without them."""


class RequestTries:
    """The attempts and remedies so far for one reply."""

    def __init__(self) -> None:
        self.attempt = 1
        self.shrunk = 0
        self.remedies = set[str]()


async def request_reply(agent: Agent) -> str:
    """Get one reply into the log; return why there is none, or nothing."""
    tries = RequestTries()
    while True:
        try:
            reply = await _send_and_receive(agent)
        except ApiError as problem:
            if await _prepare_retry(agent, problem, tries):
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
    """Describe why no reply came and, for an overflow, the way out."""
    out = explain_how_to_make_room(agent) if problem.kind in ("overflow", "large") else ""
    return f"{problem.kind}: {problem.message}{'. ' if out else ''}{out}"


def _warn_of_cache_miss(agent: Agent) -> None:
    """Warn of an unexpected cache miss, once per cause."""
    misses, view = agent.session.cache.misses, agent.session.view
    last = misses[-1] if misses else None
    if last is None or last.is_expected or last.seq != view.items[view.replied].seq:
        return
    if all(miss.cause != last.cause for miss in misses[:-1]):
        lost = f"{last.tokens:,} tokens not read from the cache (+${last.dollars:.4f})"
        agent.session.emit(UserWarned(f"prompt cache miss: {lost}: {last.cause_text}"))


async def _prepare_retry(agent: Agent, problem: ApiError, tries: RequestTries) -> bool:
    """Apply a remedy or wait; return whether the request should be sent again."""
    tried = f"{problem.kind} {problem.field}"
    # Each remedy once: a provider that refuses the changed request, too, would be asked for ever.
    if tried not in tries.remedies and (remedy := _find_remedy(agent.session.view, problem)):
        tries.remedies.add(tried)
        _record_failure(agent, problem, attempt=tries.attempt, wait=0.0)
        if problem.kind == "field" and is_effort_field(problem.field):
            told = f"{remedy.model.name} does not accept the requested effort"
            agent.session.emit(UserWarned(f"{told}: {problem.message}"))
        agent.session.append(remedy)
        return True
    if problem.kind in SHRINKABLE_PROBLEMS:
        agent.session.append(_build_failed_fact(problem, attempt=tries.attempt, wait=0.0))
        tries.shrunk += 1
        return await recover_from_overflow(agent, problem, tried=tries.shrunk - 1)
    wait = retry_delay(
        problem, tries.attempt, patience=current_retry_policy(agent), chance=agent.runtime.jitter()
    )
    _record_failure(agent, problem, attempt=tries.attempt, wait=wait)
    if wait is None:
        return False
    await agent.runtime.sleep(wait)
    tries.attempt += 1
    return True


async def _send_and_receive(agent: Agent) -> Reply:
    """Send one request and receive its reply, within the budget."""
    async with charge_request(agent, agent.session.view, turns=1) as payment:
        reply = await _receive_reply(agent, _record_request(agent, output=payment.output))
        payment.usage = reply.usage
    return reply


def _record_request(agent: Agent, *, output: int) -> Request:
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
    """Build the next request; a broken prefix starts a new epoch with a warning.

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
    async with agent.model.stream(request) as stream:
        async for event in stream:
            if isinstance(event, Reply):
                return event
            agent.session.emit(event)
    raise ApiError("garbled", "the stream ended without a reply")


def _record_failure(agent: Agent, problem: ApiError, *, attempt: int, wait: float | None) -> None:
    agent.session.append(_build_failed_fact(problem, attempt=attempt, wait=wait))
    if wait is not None:
        agent.session.emit(
            RequestRetrying(
                kind=problem.kind,
                message=problem.message,
                status=problem.status,
                attempt=attempt,
                attempts=current_retry_policy(agent).attempts,
                wait=wait,
            )
        )


def _build_failed_fact(problem: ApiError, *, attempt: int, wait: float | None) -> Failed:
    return Failed(
        kind=problem.kind,
        message=problem.message,
        status=problem.status,
        attempt=attempt,
        wait=-1.0 if wait is None else wait,
        request=problem.request,
    )


def _find_remedy(view: View, problem: ApiError) -> Epoch | None:
    """Return a changed head that may make the provider accept the history."""
    epoch = view.epoch
    assert epoch is not None
    model, field = epoch.model, problem.field.rpartition(".")[2]
    if problem.kind == "field" and model.effort and is_effort_field(field):
        return _change_model(epoch, replace(model, effort=""), problem)
    if problem.kind == "field" and (quirk := FIELD_QUIRKS.get(field)):
        if quirk not in model.quirks:
            return _change_model(epoch, replace(model, quirks=(*model.quirks, quirk)), problem)
    elif problem.kind in ("beta", "field") and beta_of_field(problem.field) in model.betas:
        kept = tuple(beta for beta in model.betas if beta != beta_of_field(problem.field))
        return _change_model(epoch, replace(model, betas=kept), problem)
    elif problem.kind == "output" and 0 < problem.limit < model.output:
        return _change_model(epoch, replace(model, output=problem.limit), problem)
    elif problem.kind in ("bound", "thinking") and has_thinking(view, SEALED_KINDS):
        return replace(epoch, why=problem.message, unbind=True)
    return None


def _change_model(epoch: Epoch, model: object, problem: ApiError) -> Epoch:
    return replace(epoch, model=model, why=problem.message, unbind=False)
