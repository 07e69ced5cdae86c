"""One request to the model: send it, receive the reply, retry, fall back."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.microcompact.clear import check
from travois.context.window import way_out
from travois.core.facts import Epoch, Failed, Sent
from travois.core.models import Quirk
from travois.core.tokens import context_tokens
from travois.core.view import SEALED, View, thinks
from travois.engine.agent import Agent
from travois.engine.budget import paid
from travois.engine.fallback import fall_back, patience
from travois.engine.overflow import notice_truncation, recover
from travois.engine.retry import pause
from travois.ports.world import Retrying, Warned
from travois.providers.anthropic_extras import beta_of
from travois.providers.options import rationed, refused
from travois.providers.replies import Problem, Reply, as_fact
from travois.providers.request import PrefixBreak, Request

MENDED = ("overflow", "large", "media", "pairing", "bound", "thinking")
"""The problems that a smaller request may avoid."""
LATCHES: dict[str, Quirk] = {
    "stream_options": "no-stream-options",
    "include_obfuscation": "no-stream-options",
    "include": "no-include",
    "prompt_cache_key": "no-cache-key",
    "max_completion_tokens": "max-tokens",
    "cache_control": "no-cache-markers",
}
"""Fields that some servers refuse, and what we do without them."""


class Tries:
    """The attempts and remedies so far for one reply."""

    def __init__(self) -> None:
        self.attempt = 1
        self.shrunk = 0
        self.remedies = set[str]()


async def ask(agent: Agent) -> str:
    """Get one reply into the log; return why there is none, or nothing."""
    tries = Tries()
    while True:
        try:
            reply = await _exchange(agent)
        except Problem as problem:
            if await _again(agent, problem, tries):
                continue
            if not fall_back(agent, problem):
                return _told(agent, problem)
            tries = Tries()
        else:
            check(agent, reply)
            agent.session.append(as_fact(agent.session.view, reply))
            notice_truncation(agent)
            _tell_miss(agent)
            return ""


def _told(agent: Agent, problem: Problem) -> str:
    """Describe why no reply came and, for an overflow, the way out."""
    out = way_out(agent) if problem.kind in ("overflow", "large") else ""
    return f"{problem.kind}: {problem.message}{'. ' if out else ''}{out}"


def _tell_miss(agent: Agent) -> None:
    """Warn of an unexpected cache miss, once per cause."""
    misses, view = agent.session.cache.misses, agent.session.view
    last = misses[-1] if misses else None
    if last is None or last.expected or last.seq != view.items[view.replied].seq:
        return
    if all(miss.cause != last.cause for miss in misses[:-1]):
        lost = f"{last.tokens:,} tokens not read from the cache (+${last.dollars:.4f})"
        agent.session.emit(Warned(f"prompt cache miss: {lost}: {last.why}"))


async def _again(agent: Agent, problem: Problem, tries: Tries) -> bool:
    """Apply a remedy or wait; return whether the request should be sent again."""
    tried = f"{problem.kind} {problem.field}"
    # Each remedy once: a provider that refuses the changed request, too, would be asked for ever.
    if tried not in tries.remedies and (remedy := _remedy(agent.session.view, problem)):
        tries.remedies.add(tried)
        _fail(agent, problem, attempt=tries.attempt, wait=0.0)
        if problem.kind == "field" and refused(problem.field):
            told = f"{remedy.model.name} does not accept the requested effort"
            agent.session.emit(Warned(f"{told}: {problem.message}"))
        agent.session.append(remedy)
        return True
    if problem.kind in MENDED:
        agent.session.append(_failed(problem, attempt=tries.attempt, wait=0.0))
        tries.shrunk += 1
        return await recover(agent, problem, tried=tries.shrunk - 1)
    wait = pause(problem, tries.attempt, patience=patience(agent), chance=agent.runtime.jitter())
    _fail(agent, problem, attempt=tries.attempt, wait=wait)
    if wait is None:
        return False
    await agent.runtime.sleep(wait)
    tries.attempt += 1
    return True


async def _exchange(agent: Agent) -> Reply:
    """Send one request and receive its reply, within the budget."""
    async with paid(agent, agent.session.view, turns=1) as payment:
        reply = await _receive(agent, _send(agent, output=payment.output))
        payment.usage = reply.usage
    return reply


def _send(agent: Agent, *, output: int) -> Request:
    request, view = rationed(_request(agent), output), agent.session.view
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


def _request(agent: Agent) -> Request:
    """Build the next request; a broken prefix starts a new epoch with a warning.

    Either way the user hears of it and the session goes on: a new epoch owns up to the break.
    """
    view = agent.session.view
    try:
        return agent.encoder.request(view)
    except PrefixBreak as broken:
        assert view.epoch is not None
        agent.session.emit(Warned(f"the prompt cache is lost: {broken}"))
        agent.session.append(replace(view.epoch, why=f"prefix break: {broken}", unbind=True))
        return agent.encoder.request(view)


async def _receive(agent: Agent, request: Request) -> Reply:
    async with agent.model.stream(request) as stream:
        async for event in stream:
            if isinstance(event, Reply):
                return event
            agent.session.emit(event)
    raise Problem("garbled", "the stream ended without a reply")


def _fail(agent: Agent, problem: Problem, *, attempt: int, wait: float | None) -> None:
    agent.session.append(_failed(problem, attempt=attempt, wait=wait))
    if wait is not None:
        agent.session.emit(
            Retrying(
                kind=problem.kind,
                message=problem.message,
                status=problem.status,
                attempt=attempt,
                attempts=patience(agent).attempts,
                wait=wait,
            )
        )


def _failed(problem: Problem, *, attempt: int, wait: float | None) -> Failed:
    return Failed(
        kind=problem.kind,
        message=problem.message,
        status=problem.status,
        attempt=attempt,
        wait=-1.0 if wait is None else wait,
        request=problem.request,
    )


def _remedy(view: View, problem: Problem) -> Epoch | None:
    """Return a changed head that may make the provider accept the history."""
    epoch = view.epoch
    assert epoch is not None
    model, field = epoch.model, problem.field.rpartition(".")[2]
    if problem.kind == "field" and model.effort and refused(field):
        return _changed(epoch, replace(model, effort=""), problem)
    if problem.kind == "field" and (quirk := LATCHES.get(field)):
        if quirk not in model.quirks:
            return _changed(epoch, replace(model, quirks=(*model.quirks, quirk)), problem)
    elif problem.kind in ("beta", "field") and beta_of(problem.field) in model.betas:
        kept = tuple(beta for beta in model.betas if beta != beta_of(problem.field))
        return _changed(epoch, replace(model, betas=kept), problem)
    elif problem.kind == "output" and 0 < problem.limit < model.output:
        return _changed(epoch, replace(model, output=problem.limit), problem)
    elif problem.kind in ("bound", "thinking") and thinks(view, SEALED):
        return replace(epoch, why=problem.message, unbind=True)
    return None


def _changed(epoch: Epoch, model: object, problem: Problem) -> Epoch:
    return replace(epoch, model=model, why=problem.message, unbind=False)
