"""Which memories have to do with a text: by the search index where there is one, else by words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import log
from typing import TYPE_CHECKING

from travois.context.memory.likeness import content
from travois.context.memory.memory import Memory
from travois.store.search import rank
from travois.store.search.document import Candidate, Document

if TYPE_CHECKING:
    from travois.store.search.index import Index

NEAR, NEARER = 0.25, 0.38
"""How near in meaning a memory is that shares a word with a text, and one that shares none."""
STATE = "state"


class Finder:
    """Searches memories; what it knows of them can be made again at any time."""

    def __init__(self, index: Index | None, *, collection: str) -> None:
        self._index = index
        self._collection = collection
        self._told: dict[str, Memory] = {}
        """What the index was last told by this process."""
        self._state = ""

    def search(
        self, memories: Sequence[Memory], text: str, *, limit: int, now: float
    ) -> tuple[Memory, ...]:
        """The best first; none that have nothing to do with the text."""
        known = {_id(memory): memory for memory in memories}
        if self._index is None:
            return by_words(memories, text, limit=limit)
        import sqlite3

        try:
            return self._search(self._index, known, text, now=now)[:limit]
        except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
            return by_words(memories, text, limit=limit)

    def _search(
        self, index: Index, known: Mapping[str, Memory], text: str, *, now: float
    ) -> tuple[Memory, ...]:
        self._tell(index, known)
        query, found = index.candidates(self._collection, text, now=now)
        about = content(text)
        kept = [one for one in found if one.document.id in known and _fits(one, about)]
        return tuple(known[hit.id] for hit in rank.rank(query, kept))

    def _tell(self, index: Index, known: Mapping[str, Memory]) -> None:
        """Bring the index up to date: with what changed, or with all if it is not as we left it."""
        fresh = [id for id, memory in known.items() if self._told.get(id) is not memory]
        before, held = self._state, index.marks(self._collection).get(STATE, "")
        if fresh or len(known) != len(self._told):
            self._state, self._told = _state(known), dict(known)
        if held != self._state:
            wanted = fresh if held == before else known
            gone = index.ids(self._collection) - known.keys()
            documents = [_document(known[id], id) for id in wanted]
            index.update(self._collection, documents, gone=gone, marks={STATE: self._state})


def by_words(memories: Sequence[Memory], text: str, *, limit: int) -> tuple[Memory, ...]:
    """Those that share words with a text; the rarer a word, the more it counts."""
    wanted = content(text)
    shared = [wanted & content(f"{one.name} {one.description} {one.body}") for one in memories]
    often = Counter(word for words in shared for word in words)
    scores = [sum(log(1 + len(memories) / often[word]) for word in words) for words in shared]
    best = sorted(range(len(memories)), key=lambda at: (-scores[at], memories[at].name))
    return tuple(memories[at] for at in best[:limit] if scores[at] > 0)


def _fits(one: Candidate, about: frozenset[str]) -> bool:
    """Whether a memory has anything to do with what a text is about."""
    shared = len(about & content(f"{one.document.title} {one.document.text}"))
    if one.cosine is None:
        return shared > 0
    return shared > 1 or one.cosine >= (NEAR if shared else NEARER)


def _id(memory: Memory) -> str:
    return f"{memory.scope}/{'pinned/' if memory.pinned else ''}{memory.name}"


def _document(memory: Memory, id: str) -> Document:
    title = f"{memory.name.replace('-', ' ')} {memory.description}"
    return Document(id, memory.body, at=memory.modified, who=memory.author, title=title)


def _state(known: Mapping[str, Memory]) -> str:
    digest = sha256()
    for id in sorted(known):
        memory = known[id]
        parts = (id, memory.description, memory.body, str(memory.modified), memory.author)
        digest.update("\0".join(parts).encode(errors="replace"))
    return digest.hexdigest()
