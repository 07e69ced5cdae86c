"""Budget checks: no request is sent that could cost more than is left.

The most that a request may cost is known before it is sent: its prompt is counted, and the reply is
limited to what is left. Cached parts of the prompt count at the price of reading them. So a limit
is exceeded only where new messages are estimated too low, or where the provider loses a cache.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import inf

import msgspec

from travois.context.window import current_model
from travois.core.content import Text
from travois.core.cost import compute_cost, price_for_size
from travois.core.facts import EndReason, User
from travois.core.models import ModelCard, Usage
from travois.core.spending import Amount, ReachedLimit, format_amount
from travois.core.tokens import context_tokens
from travois.core.view import View
from travois.engine.agent import Agent

MIN_REPLY_TOKENS = 2_000
"""A reply that may not be this long is not worth its prompt."""
BUDGET_POLL_SECONDS = 0.05
"""The interval at which a request waits for other requests' reservations."""
NEAR_LIMIT_NOTE = (
    "This run is near {limit}. When it is reached, the run ends, and only what you said by then "
    "counts. Start nothing new: state what you found and what is left to do."
)


class BudgetExhausted(Exception):
    """A budget limit that allows no further request."""

    def __init__(self, reached: ReachedLimit) -> None:
        super().__init__(reached.text)
        self.why: EndReason = "turns" if reached.what == "turns" else "budget"
        self.limit = reached.what


class CostEstimate(msgspec.Struct, frozen=True):
    """The most that a request may cost: its prompt, and dollars per token of the reply."""

    prompt: Amount
    rate: float

    def affordable_tokens(self, left: Amount) -> float:
        """Return the reply tokens that the rest pays for; negative if not even the prompt."""
        room = left - self.prompt
        if room.turns < 0 or room.dollars < 0:
            return -1
        return min(room.tokens, room.dollars / self.rate if self.rate else inf)

    def total(self, output: int) -> Amount:
        """Return the cost with a reply of this many tokens."""
        return self.prompt + Amount(0, output, output * self.rate)


class Charge(msgspec.Struct):
    """A request that is being paid for: the granted reply length, then the real usage."""

    output: int
    """Nought where the model may say all that it can."""
    usage: Usage | None = None


def check_budget(agent: Agent) -> None:
    """Raise `BudgetExhausted` if a budget limit is reached."""
    if reached := agent.budget.reached_limit(agent.runtime.clock()):
        raise BudgetExhausted(ReachedLimit(reached.what, f"reached {reached.text}"))


def warn_near_limit(agent: Agent) -> None:
    """Ask the model once per run to finish when a budget limit is near."""
    limit = "" if agent.budget.warned else agent.budget.near_limit_text(agent.runtime.clock())
    if limit:
        agent.budget.warned = True
        agent.session.append(User((Text(NEAR_LIMIT_NOTE.format(limit=limit)),), origin="note"))


@asynccontextmanager
async def charge_request(agent: Agent, view: View, *, turns: int = 0) -> AsyncGenerator[Charge]:
    """Reserve a request's cost in the budget, then charge its usage; raises `BudgetExhausted`."""
    card, budget = _view_card(agent, view), agent.budget
    asked = estimate_cost(agent, view, turns=turns)
    output = await _wait_for_budget(agent, asked, longest=card.output)
    payment, need = Charge(output if output < card.output else 0), asked.total(output)
    budget.reserve(need)
    try:
        yield payment
    finally:
        budget.reserve(Amount() - need)
        if payment.usage is not None:
            budget.spend(payment.usage, compute_cost(payment.usage, card.price), turns=turns)


def estimate_cost(agent: Agent, view: View, *, turns: int) -> CostEstimate:
    """Estimate the next request's maximum cost for the budget, if its cache is read."""
    card, cache, tokens = _view_card(agent, view), agent.session.cache, context_tokens(view)
    price = price_for_size(Usage(input=tokens), card.price)
    alive = (
        cache.seconds_left(agent.runtime.clock()) > 0
        and not cache.moved
        and card == current_model(agent)
    )
    read = min(cache.held, tokens) if alive else 0
    written = (price.write_1h or price.write) if card.cache_ttl == "1h" else price.write
    dollars = read * price.read + (tokens - read) * max(price.input, written)
    return CostEstimate(Amount(turns, tokens, dollars / 1_000_000), price.output / 1_000_000)


def _view_card(agent: Agent, view: View) -> ModelCard:
    """Return the model card whose prices the budget uses for a request."""
    return view.epoch.model if view.epoch is not None else current_model(agent)


async def _wait_for_budget(agent: Agent, cost: CostEstimate, *, longest: int) -> int:
    """Return the reply length that the budget affords; wait while requests hold parts of it."""
    while True:
        check_budget(agent)
        output = int(min(cost.affordable_tokens(agent.budget.remaining()), longest))
        if output >= min(MIN_REPLY_TOKENS, longest):
            return output
        if not agent.budget.has_reservations():
            raise BudgetExhausted(_describe_shortfall(agent, cost))
        await agent.runtime.sleep(BUDGET_POLL_SECONDS)


def _describe_shortfall(agent: Agent, cost: CostEstimate) -> ReachedLimit:
    """Describe the budget limit that leaves too little for one more request."""
    left, need = agent.budget.remaining(), cost.total(MIN_REPLY_TOKENS)
    what = "tokens" if left.tokens < need.tokens else "dollars"
    needed, rest = (format_amount(what, getattr(of, what)) for of in (need, left))
    return ReachedLimit(what, f"{rest} left, and the next request may need {needed}")
