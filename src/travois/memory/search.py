"""Searching for relevant memories: by the search index if there is one, else by shared words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from math import log
from typing import TYPE_CHECKING

from travois.lazy_imports import lazy_imports
from travois.memory.folder import FileStamp
from travois.memory.history import MemoryArchive
from travois.memory.memory import Memory
from travois.memory.similarity import FILLER_WORDS, content_words
from travois.search import rank
from travois.search.database import SearchCandidate, SearchDocument
from travois.search.embedder import StaticEmbedder

if TYPE_CHECKING:
    from travois.search.index import SearchIndex

with lazy_imports():
    import sqlite3


MIN_COSINE_WITH_WORDS = 0.16
"""Least cosine of a memory that shares words with the query."""
MIN_COSINE_ALONE = 0.34
"""Least cosine of a memory that shares no words with the query."""
MIN_STATIC_COSINE_ALONE = 0.5
"""The same where the vectors are those of the static table, which says less."""
MIN_SAME_WORDS = 0.6
"""Least part of their words that two memories share if one replaces the other."""
MIN_WORD_SHARE = 0.2
"""Least part of the query's words, weighted by rarity, that a memory must share."""
MIN_RARE_WORDS = 1.6
"""Or else: the number of words of the greatest rarity that it must share."""
MIN_SHARE_OF_BEST = 0.5
"""Least share of the best result's score that another result must have."""
STATE_SUFFIX = " state"
"""A collection beside, with one mark: what the folders were like when all was told."""


class MemorySearch:
    """A search over memories, with an index that can be rebuilt at any time."""

    def __init__(self, archive: MemoryArchive, index: SearchIndex | None) -> None:
        self._archive = archive
        self._index = index
        keys = (folder.key for folder in archive.folders.values())
        self._collection = f"memories {' '.join(keys)}"
        self._scans: list[Mapping[str, FileStamp]] = []
        self._state = ""

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Return relevant memories, best first; an empty result if none is relevant."""
        if self._index is not None:
            try:
                return self._search_index(self._index, text, limit=limit)
            except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
                pass
        return search_by_words(self._archive.read_all(), text, limit=limit)

    def count_unembedded(self) -> int:
        """Return how many memories have no embedding yet; 0 where none are computed."""
        return self._query_index(
            lambda index: index.count_waiting(self._collection) if index.has_embedder else 0
        )

    def embed_more(self, limit: int) -> int:
        """Embed up to `limit` more memories; return how many were embedded."""
        return self._query_index(lambda index: index.embed(self._collection, limit=limit))

    def _query_index(self, ask: Callable[[SearchIndex], int]) -> int:
        """Query the index; return 0 if it fails, because search works without it."""
        try:
            return ask(self._index) if self._index is not None else 0
        except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
            return 0

    def _search_index(self, index: SearchIndex, text: str, *, limit: int) -> tuple[Memory, ...]:
        """Search the index, after updating it if a folder changed."""
        self._archive.past.recover()
        folders = list(self._archive.folders.values())
        scans = [folder.scan(how="lately") for folder in folders]
        if list(map(id, scans)) != list(map(id, self._scans)):
            self._scans, self._state = scans, _hash_scans(scans)
        if index.read_marks(self._collection + STATE_SUFFIX).get(STATE_SUFFIX) != self._state:
            self._update_index(index)
            index.update(self._collection + STATE_SUFFIX, (), marks={STATE_SUFFIX: self._state})
        query, found = index.find_candidates(self._collection, text, now=self._archive.past.clock())
        about = frozenset(query.words) - FILLER_WORDS
        is_static = query.embedder == StaticEmbedder.name
        fit = _select_relevant(found, about, total=sum(map(len, self._scans)), is_static=is_static)
        known = {one.document.id: one for one in found}
        ranked = (known[hit.id] for hit in rank.rank_documents(query, found) if hit.id in fit)
        memories = (self._load_memory(one.document.id) for one in put_newer_first(ranked, about))
        return tuple(islice(filter(None, memories), limit))

    def _update_index(self, index: SearchIndex) -> None:
        """Update the index from the folders; only changed files are read."""
        files = {
            f"{number}/{file}": str(stamp)
            for number, scan in enumerate(self._scans)
            for file, stamp in scan.items()
        }
        held = index.read_marks(self._collection)
        gone = [id for id in held if id not in files]
        changed = {id: stamp for id, stamp in files.items() if held.get(id) != stamp}
        memories = ((id, self._load_memory(id)) for id in changed)
        documents = [_build_document(memory, id) for id, memory in memories if memory is not None]
        marks = changed | dict.fromkeys(gone, "")
        index.update(self._collection, documents, gone=gone, marks=marks)

    def _load_memory(self, id: str) -> Memory | None:
        number, _, file = id.partition("/")
        return list(self._archive.folders.values())[int(number)].read_current(file)


def search_by_words(memories: Sequence[Memory], text: str, *, limit: int) -> tuple[Memory, ...]:
    """Return the memories that share words with a text; rare words weigh more."""
    about = content_words(text)
    shared = [about & content_words(f"{one.name} {one.description} {one.body}") for one in memories]
    scores = _score_shared_words(shared, about, total=len(memories))
    least = MIN_SHARE_OF_BEST * max(scores, default=0.0)
    best = sorted(range(len(memories)), key=lambda at: (-scores[at], memories[at].name))
    return tuple(memories[at] for at in best[:limit] if scores[at] and scores[at] >= least)


def put_newer_first(
    ranked: Iterable[SearchCandidate], about: frozenset[str]
) -> list[SearchCandidate]:
    """Put each found memory before older, similar ones that it may have replaced."""
    ordered: list[SearchCandidate] = []
    for one in ranked:
        places = (at for at, other in enumerate(ordered) if _may_replace(one, other, about))
        ordered.insert(next(places, len(ordered)), one)
    return ordered


def _may_replace(newer: SearchCandidate, older: SearchCandidate, about: frozenset[str]) -> bool:
    """Return whether a memory is newer, nearly the same, and has as much of the query."""
    words, others = frozenset(newer.words), frozenset(older.words)
    return (
        newer.document.at > older.document.at
        and len(words & others) >= MIN_SAME_WORDS * max(len(words), len(others), 1)
        and others & about <= words
    )


def _select_relevant(
    found: Sequence[SearchCandidate], about: frozenset[str], *, total: int, is_static: bool
) -> frozenset[str]:
    """Return the IDs of the candidate memories that are relevant to a text."""
    shares = _score_shared_words(
        [about.intersection(one.words) for one in found], about, total=total
    )
    near = MIN_SHARE_OF_BEST * max((one.cosine or 0.0 for one in found), default=0.0)
    most = MIN_SHARE_OF_BEST * max(shares, default=0.0)

    def is_relevant(one: SearchCandidate, share: float) -> bool:
        if one.cosine is None or is_static:
            alike = one.cosine is not None and one.cosine >= MIN_STATIC_COSINE_ALONE
            return alike or (share > 0 and share >= most)
        return one.cosine >= max(near, MIN_COSINE_WITH_WORDS if share else MIN_COSINE_ALONE)

    return frozenset(
        one.document.id for one, share in zip(found, shares, strict=True) if is_relevant(one, share)
    )


def _score_shared_words(
    shared: Sequence[frozenset[str]], about: frozenset[str], *, total: int
) -> list[float]:
    """Score memories by the rarity of the words they share with a text; 0 for too few."""
    often = Counter(word for words in shared for word in words)
    rarity = {word: log(1 + total / (often[word] or 1)) for word in about}
    whole, several = sum(rarity.values()), MIN_RARE_WORDS * log(1 + total)
    weights = [sum(rarity[word] for word in words) for words in shared]
    return [
        weight / whole if whole and (weight >= min(MIN_WORD_SHARE * whole, several)) else 0.0
        for weight in weights
    ]


def _build_document(memory: Memory, id: str) -> SearchDocument:
    title = f"{memory.name.replace('-', ' ')} {memory.description}"
    said = memory.evidence[-1] if memory.evidence else None
    group, order = (said.session, said.seq) if said else ("", 0)
    return SearchDocument(id, memory.body, group, order, memory.modified, title=title)


def _hash_scans(scans: Sequence[Mapping[str, FileStamp]]) -> str:
    return sha256(repr([list(scan.items()) for scan in scans]).encode()).hexdigest()
