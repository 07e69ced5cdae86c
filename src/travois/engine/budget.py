"""Spending: no request leaves that could cost more than is left.

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
"""How long to wait for the requests of others, where they may leave enough for ours."""
NEAR = (
    "This run is near {limit}. When that is reached it ends, and only what was said by then "
    "counts. Begin nothing more: state what you found, and what is left to do."
)


class Exhausted(Exception):
    """A limit lets no request leave."""

    def __init__(self, reached: Reached) -> None:
        super().__init__(reached.text)
        self.why: EndedWhy = "turns" if reached.what == "turns" else "budget"


class Quote(msgspec.Struct, frozen=True):
    """What a request will come to: its prompt, and dollars for each token of the reply."""

    prompt: Amount
    rate: float

    def affordable(self, left: Amount) -> float:
        """How many tokens of a reply can be paid of what is left; below nought if no prompt can."""
        room = left - self.prompt
        if room.turns < 0 or room.dollars < 0:
            return -1
        return min(room.tokens, room.dollars / self.rate if self.rate else inf)

    def total(self, output: int) -> Amount:
        """What it comes to with a reply of so many tokens."""
        return self.prompt + Amount(0, output, output * self.rate)


class Payment(msgspec.Struct):
    """A request under way: how long a reply was paid for, and what it then was."""

    output: int
    """Nought where the model may say all that it can."""
    usage: Usage | None = None


def check(agent: Agent) -> None:
    """Raise `Exhausted` if a limit is reached."""
    if reached := agent.budget.reached(agent.runtime.clock()):
        raise Exhausted(Reached(reached.what, f"reached {reached.text}"))


def warn(agent: Agent) -> None:
    """Ask the model, once in a run, to come to its end while it still can."""
    limit = "" if agent.budget.warned else agent.budget.near(agent.runtime.clock())
    if limit:
        agent.budget.warned = True
        agent.session.append(User((Text(NEAR.format(limit=limit)),), origin="note"))


@asynccontextmanager
async def paid(agent: Agent, view: View, *, turns: int = 0) -> AsyncGenerator[Payment]:
    """Hold what one request may come to while it is under way; raises `Exhausted`."""
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
    """What the next request of this view may come to at most, if its cache is read."""
    card, cache, tokens = _card(agent, view), agent.session.cache, context_tokens(view)
    price = rates(Usage(input=tokens), card.price)
    alive = cache.left(agent.runtime.clock()) > 0 and not cache.moved and card == model(agent)
    read = min(cache.held, tokens) if alive else 0
    written = (price.write_1h or price.write) if card.cache_ttl == "1h" else price.write
    dollars = read * price.read + (tokens - read) * max(price.input, written)
    return Quote(Amount(turns, tokens, dollars / 1_000_000), price.output / 1_000_000)


def _card(agent: Agent, view: View) -> Model:
    """The model that a view is for."""
    return view.epoch.model if view.epoch is not None else model(agent)


async def _granted(agent: Agent, asked: Quote, *, longest: int) -> int:
    """How long the reply may be; waits while others hold what they may not need."""
    while True:
        check(agent)
        output = int(min(asked.affordable(agent.budget.left()), longest))
        if output >= min(LEAST, longest):
            return output
        if not agent.budget.waits():
            raise Exhausted(_short(agent, asked))
        await agent.runtime.sleep(PAUSE)


def _short(agent: Agent, asked: Quote) -> Reached:
    """The limit that leaves something, but not enough for one more request."""
    left, need = agent.budget.left(), asked.total(LEAST)
    what = "tokens" if left.tokens < need.tokens else "dollars"
    needed, rest = (amount(what, getattr(of, what)) for of in (need, left))
    return Reached(what, f"{rest} are left, and one more request may need {needed}")
