"""Retries of a failed request: overload (429, 529), network faults, refused fields, overflow."""

from __future__ import annotations

from msgspec.structs import replace

from travois.core.facts import Epoch, Failed
from travois.core.models import ModelQuirk
from travois.core.view import SEALED_KINDS, View, has_thinking
from travois.engine.agent import Agent, retry_delay
from travois.engine.fallback import current_retry_policy
from travois.engine.overflow import recover_from_overflow
from travois.ports.world import RequestRetrying, UserWarned
from travois.providers.anthropic import beta_of_field
from travois.providers.replies import ApiError
from travois.providers.request import is_effort_field

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


async def prepare_retry(agent: Agent, problem: ApiError, tries: RequestTries) -> bool:
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


def _record_failure(agent: Agent, problem: ApiError, *, attempt: int, wait: float | None) -> None:
    """Log a failed request, and announce the retry if there will be one."""
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
    """Build the log entry of a failed request."""
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
