"""Fallback models: another model answers while the chosen one fails, until the next turn."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from travois.context.switch_model import switch_to_model
from travois.core.errors import UserError
from travois.core.facts import Changed, Epoch
from travois.core.models import ModelCard
from travois.engine.agent import Agent, RetryPolicy, SmallModel
from travois.ports.world import UserWarned
from travois.providers.replies import ApiError, ApiErrorKind

CHOSEN_MODEL_STATE = "fallback.home"
"""State of the session: the model that was chosen, while another one answers for it."""
FALLBACK_PROBLEMS: frozenset[ApiErrorKind] = frozenset(
    ("overloaded", "server", "rate", "quota", "billing", "timeout", "network", "garbled", "missing")
)
"""Problems that another model may not have."""
MAX_ATTEMPTS_WITH_FALLBACK = 3
"""The attempts with a model while a fallback could answer."""


def current_retry_policy(agent: Agent) -> RetryPolicy:
    """Return the retry policy: few attempts while a fallback could answer."""
    if not any(True for _ in _remaining_fallbacks(agent)):
        return agent.models.retry
    return replace(
        agent.models.retry, attempts=min(MAX_ATTEMPTS_WITH_FALLBACK, agent.models.retry.attempts)
    )


def use_fallback_model(agent: Agent, problem: ApiError) -> bool:
    """Switch to the next fallback model that can take over; return whether one did."""
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
    """Switch back to the chosen model."""
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
    """Return the card of that name as this session last used it."""
    heads = (e.fact for e in reversed(agent.session.history()) if isinstance(e.fact, Epoch))
    return next((head.model for head in heads if head.model.name == name), None)


def _remaining_fallbacks(agent: Agent) -> Iterator[SmallModel]:
    """Yield the fallbacks after the current model, in order."""
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
