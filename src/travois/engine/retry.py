"""Retrying a failed request, or switching to a fallback model until the next turn.

Failures are overload (429, 529), network faults, refused fields and overflow.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from travois.context.switch_model import switch_to_model
from travois.core.errors import UserError
from travois.core.facts import Changed, Epoch, Failed
from travois.core.models import ModelCard, ModelQuirk
from travois.core.view import SEALED_KINDS, View, has_thinking
from travois.engine.agent import Agent, RetryPolicy, SmallModel, retry_delay
from travois.engine.overflow import recover_from_overflow
from travois.ports.world import RequestRetrying, UserWarned
from travois.providers.anthropic import beta_of_field
from travois.providers.replies import ApiError, ApiErrorKind
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
    "thinking": "no-thinking-summaries",
    "display": "no-thinking-summaries",
}
"""Fields that some servers refuse, and what we do without them."""
CHOSEN_MODEL_STATE = "fallback.home"
"""State of the session: the model that was chosen, while another one answers for it."""
FALLBACK_PROBLEMS: frozenset[ApiErrorKind] = frozenset(
    ("overloaded", "server", "rate", "quota", "billing", "timeout", "network", "garbled", "missing")
)
"""Problems that another model may not have."""
MAX_ATTEMPTS_WITH_FALLBACK = 3
"""The attempts with a model while a fallback could answer."""


class RequestTries:
    """The attempts at one reply so far, and the remedies applied."""

    def __init__(self) -> None:
        self.attempt = 1
        self.shrunk = 0
        self.remedies = set[str]()


async def prepare_retry(agent: Agent, problem: ApiError, tries: RequestTries) -> bool:
    """Prepare to retry a failed request: apply a remedy or wait; return whether to resend."""
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
    """Return a changed request head that may make the provider accept a retry; else None."""
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


def current_retry_policy(agent: Agent) -> RetryPolicy:
    """Return the retry policy: few attempts while a fallback model could answer."""
    if not any(True for _ in _remaining_fallbacks(agent)):
        return agent.models.retry
    return replace(
        agent.models.retry, attempts=min(MAX_ATTEMPTS_WITH_FALLBACK, agent.models.retry.attempts)
    )


def use_fallback_model(agent: Agent, problem: ApiError) -> bool:
    """Switch to the next usable fallback model; return whether there was one."""
    epoch, session = agent.session.view.epoch, agent.session
    if epoch is None or problem.kind not in FALLBACK_PROBLEMS:
        return False
    for other in _remaining_fallbacks(agent):
        why = f"fallback: {epoch.model.name} cannot answer: {problem.kind}: {problem.message}"
        if _try_switch(agent, other, why=why):
            if not session.state.get(CHOSEN_MODEL_STATE):
                session.append(Changed(CHOSEN_MODEL_STATE, epoch.model.name))
            told = f"{epoch.model.name} cannot answer ({problem.message})"
            session.emit(UserWarned(f"{told}; using {other.card.name} until the next turn"))
            return True
    return False


def return_to_chosen_model(agent: Agent) -> None:
    """Switch back from a fallback model to the chosen one."""
    home = agent.session.state.get(CHOSEN_MODEL_STATE, "")
    card = _find_last_card(agent, home) if home else None
    if card is None or agent.models.named is None:
        return
    agent.session.append(Changed(CHOSEN_MODEL_STATE, ""))
    try:
        _try_switch(agent, agent.models.named(card), why="the chosen model is tried again")
    except UserError as fault:
        agent.session.emit(UserWarned(f"Cannot return to {home}: {fault.what}"))


def _find_last_card(agent: Agent, name: str) -> ModelCard | None:
    """Return the model card of a fallback as this session last used it."""
    heads = (e.fact for e in reversed(agent.session.history()) if isinstance(e.fact, Epoch))
    return next((head.model for head in heads if head.model.name == name), None)


def _remaining_fallbacks(agent: Agent) -> Iterator[SmallModel]:
    """Yield the fallback models after the current one, in order."""
    if agent.models.named is None or agent.session.view.epoch is None:
        return
    present, others = (
        agent.session.view.epoch.model.name,
        [*map(agent.models.named, agent.models.fallbacks)],
    )
    names = [other.card.name for other in others]
    start = names.index(present) + 1 if present in names else 0
    yield from (other for other in others[start:] if other.card.name != present)


def _try_switch(agent: Agent, other: SmallModel, *, why: str) -> bool:
    """Switch to a fallback model; warn and return False if it cannot take over."""
    epoch = agent.session.view.epoch
    assert epoch is not None
    try:
        card = replace(other.card, effort=other.card.effort or epoch.model.effort)
        switch_to_model(agent, replace(epoch, model=card, why=why, unbind=False))
    except UserError as fault:
        agent.session.emit(
            UserWarned(f"{other.card.name} cannot be the fallback: {fault.why or fault.what}")
        )
        return False
    agent.use_model(other.model)
    return True
