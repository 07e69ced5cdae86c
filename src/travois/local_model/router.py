"""A simple request becomes the call of the example that is nearest, with its own words in it.

No model is asked. A request that no example is like, or that does not name what the call needs,
becomes nothing: to do nothing is better than to do the wrong thing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from travois.local_model.arguments import reader
from travois.local_model.examples import Example, Nearest
from travois.local_model.patterns import COUNTS, FILES, TYPES
from travois.local_model.reading import NAMED, Kind, shape, spans
from travois.local_model.wishes import wished

COUNT = 16
"""How many of the nearest examples are looked at."""
SURE = 0.5
"""How near an example must be."""
BARE = 0.56
"""The same where the request names nothing that the call could have in it."""
LONGEST = 30
"""How many words a simple request has, where what it names counts as one."""
SURELY: tuple[Kind, ...] = (*NAMED, "type", "folder", "known", "count")
"""What nobody names in passing."""
MEANT = {
    **TYPES,
    **{name: file.casefold() for name, file in FILES.items()},
    **{name: str(at) for at, name in enumerate(COUNTS, start=2)},
}
"""How a call says what a request says otherwise."""
DOUBT = 0.15
"""What speaks against a call for each thing that the request names and the call does not, and for
each word that one uses to ask for more than a call."""


class Routed(msgspec.Struct, frozen=True):
    """The call that a request became, or the words that answer it."""

    tool: str
    input: dict[str, Any]
    sure: float
    say: str = ""


def route(text: str, *, near: Nearest, tools: frozenset[str]) -> Routed | None:
    """The call for a request; none where that is not sure."""
    if len(shape(text).split()) > LONGEST:
        return None
    best = max(_fitting(text, near=near, tools=tools), key=lambda one: one.sure, default=None)
    needed = SURE if best and best.input else BARE
    return best if best and best.sure >= needed else None


def _fitting(text: str, *, near: Nearest, tools: frozenset[str]) -> Iterator[Routed]:
    for cosine, example in near.find(text, count=COUNT):
        if not example.tool:
            yield Routed("", {}, cosine - DOUBT * _unlike(text, example), example.say)
        elif (
            example.tool in tools
            and wished(example.tool, text)
            and (call := _call(text, example)) is not None
        ):
            doubts = near.doubts(text) + _ignored(text, call)
            yield Routed(example.tool, call, cosine - DOUBT * doubts)


def _call(text: str, example: Example) -> dict[str, Any] | None:
    """The example's arguments; those that it copied from its text are copied from this one."""
    call: dict[str, Any] = {}
    for name, value in example.input.items():
        read = reader(example.tool, name)
        call[name] = read(text) if read(example.text) == value else value
    return None if None in call.values() else call


def _unlike(text: str, example: Example) -> bool:
    """Whether a request names something, and an example nothing of the kind."""
    kinds = {span.kind for span in spans(text)}
    return bool(kinds) and kinds.isdisjoint(span.kind for span in spans(example.text))


def _ignored(text: str, call: dict[str, Any]) -> int:
    """How many things the request names that are not in the call."""
    said = repr(call).replace("\\", "").casefold()
    named = [span.text.removesuffix("()").casefold() for span in spans(text) if span.kind in SURELY]
    return sum(MEANT.get(name, name) not in said for name in named)
