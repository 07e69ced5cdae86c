"""Prices of a request and the cost of a reply in US dollars."""

from __future__ import annotations

from travois.core.models import Price, Usage


def price_for_size(usage: Usage, price: Price) -> Price:
    """Return a model's prices for a request of this size."""
    return price.above if price.above is not None and usage.prompt > price.over else price


def compute_cost(usage: Usage, price: Price) -> float:
    """Compute the cost of one reply in US dollars."""
    more = compute_cost(usage.beside, price) if usage.beside else 0.0
    more += usage.searches * price.search / 1_000
    price = price_for_size(usage, price)
    millionths = (
        usage.input * price.input
        + usage.read * price.read
        + usage.write * price.write
        + usage.write_1h * (price.write_1h or price.write)
        + usage.output * price.output
    )
    return more + millionths / 1_000_000
