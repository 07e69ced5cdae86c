"""Which memories have to do with a text: by the search index where there is one, else by words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

from travois.context.memory.likeness import content
from travois.context.memory.memory import Memory

if TYPE_CHECKING:
    from travois.store.search.index import Index


class Finder:
    """Searches memories; what it knows of them can be made again at any time."""

    def __init__(self, index: Index | None) -> None:
        self._index = index

    def search(
        self, memories: Sequence[Memory], text: str, *, limit: int, now: float
    ) -> tuple[Memory, ...]:
        """The best first; none that share nothing with the text."""
        return by_words(memories, text, limit=limit)


def by_words(memories: Sequence[Memory], text: str, *, limit: int) -> tuple[Memory, ...]:
    """Those that share words with a text; the rarer a word, the more it counts."""
    wanted = content(text)
    shared = [wanted & content(f"{one.name} {one.description} {one.body}") for one in memories]
    often = Counter(word for words in shared for word in words)
    scores = [sum(log(1 + len(memories) / often[word]) for word in words) for words in shared]
    best = sorted(range(len(memories)), key=lambda at: (-scores[at], memories[at].name))
    return tuple(memories[at] for at in best[:limit] if scores[at] > 0)
