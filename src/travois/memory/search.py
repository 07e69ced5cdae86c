"""Search for relevant memories: by the search index where there is one, else by shared words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from math import log
from typing import TYPE_CHECKING

from travois.memory.folder import Stamp
from travois.memory.history import Archive
from travois.memory.memory import Memory
from travois.memory.similarity import FILLER, content
from travois.search import rank
from travois.search.database import SearchCandidate, SearchDocument

if TYPE_CHECKING:
    from travois.search.index import SearchIndex

NEAR = 0.16
"""Least cosine of a memory that shares words with the query."""
NEARER = 0.34
"""Least cosine of a memory that shares no words with the query."""
SHARE = 0.2
"""Least part of the query's words, weighted by rarity, that a memory must share."""
SEVERAL = 1.6
"""Or else: the number of words of the greatest rarity that it must share."""
PART = 0.5
"""Least share of the best result's score that another result must have."""
STATE = " state"
"""A collection beside, with one mark: what the folders were like when all was told."""


class Finder:
    """A search over memories, with an index that can be rebuilt at any time."""

    def __init__(self, archive: Archive, index: SearchIndex | None) -> None:
        self._archive = archive
        self._index = index
        keys = (folder.key for folder in archive.folders.values())
        self._collection = f"memories {' '.join(keys)}"
        self._scans: list[Mapping[str, Stamp]] = []
        self._state = ""

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Return relevant memories, best first; an empty result if none is relevant."""
        import sqlite3

        if self._index is not None:
            try:
                return self._search(self._index, text, limit=limit)
            except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
                pass
        return by_words(self._archive.read(), text, limit=limit)

    def waiting(self) -> int:
        """Return how many memories have no embedding yet; 0 where none are computed."""
        return self._asked(
            lambda index: index.count_waiting(self._collection) if index.has_embedder else 0
        )

    def fill(self, limit: int) -> int:
        """Embed up to `limit` more memories; return how many were embedded."""
        return self._asked(lambda index: index.embed(self._collection, limit=limit))

    def _asked(self, ask: Callable[[SearchIndex], int]) -> int:
        """Query the index; return 0 if it fails, because search works without it."""
        import sqlite3

        try:
            return ask(self._index) if self._index is not None else 0
        except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
            return 0

    def _search(self, index: SearchIndex, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Search the index, after updating it if a folder changed."""
        self._archive.past.settle()
        folders = list(self._archive.folders.values())
        scans = [folder.scan(how="lately") for folder in folders]
        if list(map(id, scans)) != list(map(id, self._scans)):
            self._scans, self._state = scans, _state(scans)
        if index.read_marks(self._collection + STATE).get(STATE) != self._state:
            self._tell(index)
            index.update(self._collection + STATE, (), marks={STATE: self._state})
        query, found = index.find_candidates(self._collection, text, now=self._archive.past.clock())
        about = frozenset(query.words) - FILLER
        fit = _fitting(found, about, total=sum(map(len, self._scans)))
        memories = (
            self._memory(hit.id) for hit in rank.rank_documents(query, found) if hit.id in fit
        )
        return tuple(islice(filter(None, memories), limit))

    def _tell(self, index: SearchIndex) -> None:
        """Update the index from the folders; only changed files are read."""
        files = {
            f"{number}/{file}": str(stamp)
            for number, scan in enumerate(self._scans)
            for file, stamp in scan.items()
        }
        held = index.read_marks(self._collection)
        gone = [id for id in held if id not in files]
        changed = {id: stamp for id, stamp in files.items() if held.get(id) != stamp}
        memories = ((id, self._memory(id)) for id in changed)
        documents = [_document(memory, id) for id, memory in memories if memory is not None]
        marks = changed | dict.fromkeys(gone, "")
        index.update(self._collection, documents, gone=gone, marks=marks)

    def _memory(self, id: str) -> Memory | None:
        number, _, file = id.partition("/")
        return list(self._archive.folders.values())[int(number)].fresh(file)


def by_words(memories: Sequence[Memory], text: str, *, limit: int) -> tuple[Memory, ...]:
    """Return the memories that share words with a text; rare words weigh more."""
    about = content(text)
    shared = [about & content(f"{one.name} {one.description} {one.body}") for one in memories]
    scores = _shares(shared, about, total=len(memories))
    least = PART * max(scores, default=0.0)
    best = sorted(range(len(memories)), key=lambda at: (-scores[at], memories[at].name))
    return tuple(memories[at] for at in best[:limit] if scores[at] and scores[at] >= least)


def _fitting(
    found: Sequence[SearchCandidate], about: frozenset[str], *, total: int
) -> frozenset[str]:
    """Return the ids of the candidates that are relevant to a text."""
    shares = _shares([about.intersection(one.words) for one in found], about, total=total)
    near = PART * max((one.cosine or 0.0 for one in found), default=0.0)
    most = PART * max(shares, default=0.0)

    def fits(one: SearchCandidate, share: float) -> bool:
        if one.cosine is None:
            return share > 0 and share >= most
        return one.cosine >= max(near, NEAR if share else NEARER)

    return frozenset(
        one.document.id for one, share in zip(found, shares, strict=True) if fits(one, share)
    )


def _shares(shared: Sequence[frozenset[str]], about: frozenset[str], *, total: int) -> list[float]:
    """Score the words that each shares with a text by rarity; 0 where they are too few."""
    often = Counter(word for words in shared for word in words)
    rarity = {word: log(1 + total / (often[word] or 1)) for word in about}
    whole, several = sum(rarity.values()), SEVERAL * log(1 + total)
    weights = [sum(rarity[word] for word in words) for words in shared]
    return [
        weight / whole if whole and (weight >= min(SHARE * whole, several)) else 0.0
        for weight in weights
    ]


def _document(memory: Memory, id: str) -> SearchDocument:
    title = f"{memory.name.replace('-', ' ')} {memory.description}"
    return SearchDocument(id, memory.body, at=memory.modified, title=title)


def _state(scans: Sequence[Mapping[str, Stamp]]) -> str:
    return sha256(repr([list(scan.items()) for scan in scans]).encode()).hexdigest()
