"""A simple request becomes the call of the example that is nearest, with its own words in it.

No model is asked. A request that no example is like, or that does not name what the call needs,
becomes nothing: to do nothing is better than to do the wrong thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.host.local import arguments
from travois.host.local.examples import Example, Nearest

COUNT = 16
"""How many of the nearest examples are looked at."""
SURE = 0.6
"""How near an example must be."""


class Routed(msgspec.Struct, frozen=True):
    """The call that a request became, or the words that answer it."""

    tool: str
    input: dict[str, Any]
    sure: float
    say: str = ""


def route(text: str, *, near: Nearest, tools: frozenset[str]) -> Routed | None:
    """The call for a request; none where that is not sure."""
    best = max(_fitting(text, near=near, tools=tools), key=lambda one: one.sure, default=None)
    return best if best and best.sure >= SURE else None


def _fitting(text: str, *, near: Nearest, tools: frozenset[str]) -> Iterator[Routed]:
    for cosine, example in near.find(text, count=COUNT):
        if not example.tool:
            yield Routed("", {}, cosine, example.say)
        elif example.tool in tools and (call := _call(text, example)) is not None:
            yield Routed(example.tool, call, cosine)


def _call(text: str, example: Example) -> dict[str, Any] | None:
    """The example's arguments with those of the request in their place."""
    found = arguments.fill(text, example.tool, example.input)
    return None if found is None else {**example.input, **found}
