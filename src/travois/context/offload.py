"""L1: a result that is too large for the window is stored, and its two ends are shown.

Model sees: head and tail of the result, its size, and where to read the rest.
Tokens: at most `Layers.shown` for each stored result.
Cache: never moves the prefix; only results that were not sent yet are stored.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from travois.context.layers import Layers
from travois.kernel.blocks import Text, words
from travois.kernel.facts import Result
from travois.kernel.tokens import estimate, fact_tokens
from travois.kernel.view import View

HEAD = 2 / 3
"""The share of what is shown that is the beginning."""
CHARS = 3
"""Characters for one token, when text is cut."""


class Oversize(msgspec.Struct, frozen=True):
    """A result to be stored: its call and its whole text."""

    call: str
    text: str


def oversize(view: View, layers: Layers) -> Iterator[Oversize]:
    """The unseen results that go over their own limit, or, largest first, over that of all."""
    unseen = [item.fact for item in view.items[view.seen :] if isinstance(item.fact, Result)]
    whole = [result for result in unseen if all(isinstance(b, Text) for b in result.content)]
    sizes = {result.call: fact_tokens(result) for result in whole}
    total = sum(sizes.values())
    for result in sorted(whole, key=lambda result: -sizes[result.call]):
        size = sizes[result.call]
        if size <= layers.shown or (size <= layers.result and total <= layers.reply):
            continue
        total -= size - layers.shown
        yield Oversize(result.call, words(result.content))


def preview(text: str, *, path: str, tokens: int, nonce: str) -> str:
    """The two ends of a text with what is missing between them.

    The nonce was not known to whoever wrote the text, so the text cannot speak for us.
    """
    room = tokens * CHARS
    head, tail = text[: int(room * HEAD)], text[-int(room * (1 - HEAD)) :]
    missing = len(text) - len(head) - len(tail)
    lines = text.count("\n") + 1
    return (
        f"{head}\n[stored {nonce}: {missing:,} characters are left out here. All {lines:,} lines "
        f"(about {estimate(text):,} tokens) are in {path}; read it with offset and limit.]\n{tail}"
    )
