"""Choosing the prompt cache lifetime (5 minutes or 1 hour) from the pauses in a session.

Model sees: nothing of this.
Tokens: none; a longer lifetime costs more to write and saves rewriting after a pause.
Cache: moves nothing; the choice is made when the cache is gone anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from travois.core.facts import Assistant, Entry, Sent
from travois.core.models import Price

CacheTtl = Literal["5m", "1h"]
SHORT_TTL_SECONDS = 300.0
LONG_TTL_SECONDS = 3_600.0
MIN_PAUSES = 2
"""The fewest pauses between the two lifetimes that show a habit."""
MAX_COST_RATIO: dict[CacheTtl, float] = {"1h": 1.05, "5m": 0.9}
"""The cost ratio at which to change; a longer lifetime may cost a little more, as it keeps more."""


class RequestInterval(msgspec.Struct, frozen=True):
    """A request: the time since the one before it, and the prompt tokens of both."""

    pause: float
    before: int
    prompt: int


class TtlChoice(msgspec.Struct, frozen=True):
    """The cache lifetime that would have been cheaper, how many pauses show it, and the savings."""

    life: CacheTtl
    pauses: int
    saved: float


def list_request_intervals(entries: Iterable[Entry]) -> Iterator[RequestInterval]:
    """List the answered requests in order, to choose the prompt cache lifetime."""
    sent = last = 0.0
    before = 0
    for entry in entries:
        if isinstance(entry.fact, Sent):
            sent = entry.at
        elif isinstance(entry.fact, Assistant) and entry.fact.usage.prompt and sent:
            if last:
                yield RequestInterval(sent - last, before, entry.fact.usage.prompt)
            last, before = sent, entry.fact.usage.prompt


def choose_cache_ttl(
    taken: Iterable[RequestInterval], price: Price, *, life: CacheTtl, most: int
) -> TtlChoice | None:
    """Return the other prompt cache lifetime if it would have been enough cheaper.

    `most` is the largest prompt that is written again after a pause. Returns None while there are
    too few pauses to judge by, or if the longer lifetime has no price.
    """
    seen = list(taken)
    pauses = sum(SHORT_TTL_SECONDS < step.pause <= LONG_TTL_SECONDS for step in seen)
    if not price.write_1h or (life == "5m" and pauses < MIN_PAUSES):
        return None
    costs: dict[CacheTtl, float] = {
        "5m": sum(
            _price_interval(step, SHORT_TTL_SECONDS, price.write, price.read, most) for step in seen
        ),
        "1h": sum(
            _price_interval(step, LONG_TTL_SECONDS, price.write_1h, price.read, most)
            for step in seen
        ),
    }
    other: CacheTtl = "1h" if life == "5m" else "5m"
    if costs[other] > MAX_COST_RATIO[other] * costs[life]:
        return None
    return TtlChoice(other, pauses, (costs[life] - costs[other]) / 1_000_000)


def _price_interval(
    step: RequestInterval, life: float, write: float, read: float, most: int
) -> float:
    """Price one request after a pause, for a given lifetime of the prompt cache."""
    if step.pause > life:
        return write * min(step.prompt, most)
    return read * min(step.before, step.prompt) + write * max(0, step.prompt - step.before)
