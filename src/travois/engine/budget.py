"""Budget checks: no request is sent that could cost more than is left.

What a request may come to is known before it leaves: its prompt is counted, and only so long a
reply is asked for as can be paid. What a living cache holds counts at the price of reading it. So
a cap is passed only by what we count too low of what was said since the last reply, or by one
prompt that the provider should have held and did not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from math import inf

import msgspec

from travois.context.window import model
from travois.core.content import Text
from travois.core.facts import EndedWhy, User
from travois.core.models import Model, Usage, cost, rates
from travois.core.spending import Amount, Reached, amount
from travois.core.tokens import context_tokens
from travois.core.view import View
from travois.engine.agent import Agent

LEAST = 2_000
"""A reply that may not be this long is not worth its prompt."""
PAUSE = 0.05
"""The interval at which a request waits for other requests' reservations."""
NEAR = (
    "This run is near {limit}. When it is reached, the run ends, and only what you said by then "
    "counts. Start nothing new: state what you found and what is left to do."
)


class Exhausted(Exception):
    """A limit that lets no request be sent."""

    def __init__(self, reached: Reached) -> None:
        super().__init__(reached.text)
        self.why: EndedWhy = "turns" if reached.what == "turns" else "budget"


class Quote(msgspec.Struct, frozen=True):
    """The most that a request may cost: its prompt, and dollars per token of the reply."""

    prompt: Amount
    rate: float

    def affordable(self, left: Amount) -> float:
        """Return the reply tokens that the rest pays for; negative if not even the prompt."""
        room = left - self.prompt
        if room.turns < 0 or room.dollars < 0:
            return -1
        return min(room.tokens, room.dollars / self.rate if self.rate else inf)

    def total(self, output: int) -> Amount:
        """Return the cost with a reply of this many tokens."""
        return self.prompt + Amount(0, output, output * self.rate)


class Payment(msgspec.Struct):
    """A request that is being paid for: the granted reply length, then the real usage."""

    output: int
    """Nought where the model may say all that it can."""
    usage: Usage | None = None


def check(agent: Agent) -> None:
    """Raise `BudgetExhausted` if a limit is reached."""
    if reached := agent.budget.reached(agent.runtime.clock()):
        raise Exhausted(Reached(reached.what, f"reached {reached.text}"))


def warn(agent: Agent) -> None:
    """Ask the model once per run to finish when a limit is near."""
    limit = "" if agent.budget.warned else agent.budget.near(agent.runtime.clock())
    if limit:
        agent.budget.warned = True
        agent.session.append(User((Text(NEAR.format(limit=limit)),), origin="note"))


@asynccontextmanager
async def paid(agent: Agent, view: View, *, turns: int = 0) -> AsyncGenerator[Payment]:
    """Reserve the cost of one request while it runs, then charge it; raises `BudgetExhausted`."""
    card, purse = _card(agent, view), agent.budget
    asked = quote(agent, view, turns=turns)
    output = await _granted(agent, asked, longest=card.output)
    payment, need = Payment(output if output < card.output else 0), asked.total(output)
    purse.hold(need)
    try:
        yield payment
    finally:
        purse.hold(Amount() - need)
        if payment.usage is not None:
            purse.spend(payment.usage, cost(payment.usage, card.price), turns=turns)


def quote(agent: Agent, view: View, *, turns: int) -> Quote:
    """Estimate the most that the next request may cost if its cache is read."""
    card, cache, tokens = _card(agent, view), agent.session.cache, context_tokens(view)
    price = rates(Usage(input=tokens), card.price)
    alive = cache.left(agent.runtime.clock()) > 0 and not cache.moved and card == model(agent)
    read = min(cache.held, tokens) if alive else 0
    written = (price.write_1h or price.write) if card.cache_ttl == "1h" else price.write
    dollars = read * price.read + (tokens - read) * max(price.input, written)
    return Quote(Amount(turns, tokens, dollars / 1_000_000), price.output / 1_000_000)


def _card(agent: Agent, view: View) -> Model:
    """Return the model card that a view is for."""
    return view.epoch.model if view.epoch is not None else model(agent)


async def _granted(agent: Agent, asked: Quote, *, longest: int) -> int:
    """Return the affordable reply length; wait while other requests hold reservations."""
    while True:
        check(agent)
        output = int(min(asked.affordable(agent.budget.left()), longest))
        if output >= min(LEAST, longest):
            return output
        if not agent.budget.waits():
            raise Exhausted(_short(agent, asked))
        await agent.runtime.sleep(PAUSE)


def _short(agent: Agent, asked: Quote) -> Reached:
    """Describe the limit that leaves too little for one more request."""
    left, need = agent.budget.left(), asked.total(LEAST)
    what = "tokens" if left.tokens < need.tokens else "dollars"
    needed, rest = (amount(what, getattr(of, what)) for of in (need, left))
    return Reached(what, f"{rest} left, and the next request may need {needed}")
