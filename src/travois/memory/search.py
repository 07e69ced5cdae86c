"""Which memories have to do with a text: by the search index where there is one, else by words."""

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
from travois.search.database import Candidate, Document

if TYPE_CHECKING:
    from travois.search.index import Index

NEAR, NEARER = 0.16, 0.34
"""How near in meaning a memory is that shares words with a text, and one that shares none."""
SHARE, SEVERAL = 0.2, 1.6
"""What part of a text's rare words a memory shares, or else how many of the rarest."""
PART = 0.5
"""How much of what speaks for the best one must speak for another."""
STATE = " state"
"""A collection beside, with one mark: what the folders were like when all was told."""


class Finder:
    """Searches memories; what it knows of them can be made again at any time."""

    def __init__(self, archive: Archive, index: Index | None) -> None:
        self._archive = archive
        self._index = index
        keys = (folder.key for folder in archive.folders.values())
        self._collection = f"memories {' '.join(keys)}"
        self._scans: list[Mapping[str, Stamp]] = []
        self._state = ""

    def search(self, text: str, *, limit: int) -> tuple[Memory, ...]:
        """The best first; none that have nothing to do with the text."""
        import sqlite3

        if self._index is not None:
            try:
                return self._search(self._index, text, limit=limit)
            except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
                pass
        return by_words(self._archive.read(), text, limit=limit)

    def waiting(self) -> int:
        """How many the index does not find by meaning yet; none where it never will."""
        return self._asked(lambda index: index.waiting(self._collection) if index.embeds else 0)

    def fill(self, limit: int) -> int:
        """Let some more be found by meaning; returns how many."""
        return self._asked(lambda index: index.embed(self._collection, limit=limit))

    def _asked(self, ask: Callable[[Index], int]) -> int:
        """What the index says; nothing if it cannot, since search does without it too."""
        import sqlite3

        try:
            return ask(self._index) if self._index is not None else 0
        except (sqlite3.Error, OSError, ImportError, RuntimeError, ValueError):
            return 0

    def _search(self, index: Index, text: str, *, limit: int) -> tuple[Memory, ...]:
        self._archive.past.settle()
        folders = list(self._archive.folders.values())
        scans = [folder.scan(how="lately") for folder in folders]
        if list(map(id, scans)) != list(map(id, self._scans)):
            self._scans, self._state = scans, _state(scans)
        if index.marks(self._collection + STATE).get(STATE) != self._state:
            self._tell(index)
            index.update(self._collection + STATE, (), marks={STATE: self._state})
        query, found = index.candidates(self._collection, text, now=self._archive.past.clock())
        about = frozenset(query.words) - FILLER
        fit = _fitting(found, about, total=sum(map(len, self._scans)))
        memories = (self._memory(hit.id) for hit in rank.rank(query, found) if hit.id in fit)
        return tuple(islice(filter(None, memories), limit))

    def _tell(self, index: Index) -> None:
        """Bring the index up to what lies in the folders: only what changed is read."""
        files = {
            f"{number}/{file}": str(stamp)
            for number, scan in enumerate(self._scans)
            for file, stamp in scan.items()
        }
        held = index.marks(self._collection)
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
    """Those that share words with a text; the rarer a word, the more it counts."""
    about = content(text)
    shared = [about & content(f"{one.name} {one.description} {one.body}") for one in memories]
    scores = _shares(shared, about, total=len(memories))
    least = PART * max(scores, default=0.0)
    best = sorted(range(len(memories)), key=lambda at: (-scores[at], memories[at].name))
    return tuple(memories[at] for at in best[:limit] if scores[at] and scores[at] >= least)


def _fitting(found: Sequence[Candidate], about: frozenset[str], *, total: int) -> frozenset[str]:
    """The ids of those that have anything to do with what a text is about."""
    shares = _shares([about.intersection(one.words) for one in found], about, total=total)
    near = PART * max((one.cosine or 0.0 for one in found), default=0.0)
    most = PART * max(shares, default=0.0)

    def fits(one: Candidate, share: float) -> bool:
        if one.cosine is None:
            return share > 0 and share >= most
        return one.cosine >= max(near, NEAR if share else NEARER)

    return frozenset(
        one.document.id for one, share in zip(found, shares, strict=True) if fits(one, share)
    )


def _shares(shared: Sequence[frozenset[str]], about: frozenset[str], *, total: int) -> list[float]:
    """What part of a text's words each shares, by their rarity; nothing where it is too little."""
    often = Counter(word for words in shared for word in words)
    rarity = {word: log(1 + total / (often[word] or 1)) for word in about}
    whole, several = sum(rarity.values()), SEVERAL * log(1 + total)
    weights = [sum(rarity[word] for word in words) for words in shared]
    return [
        weight / whole if whole and (weight >= min(SHARE * whole, several)) else 0.0
        for weight in weights
    ]


def _document(memory: Memory, id: str) -> Document:
    title = f"{memory.name.replace('-', ' ')} {memory.description}"
    return Document(id, memory.body, at=memory.modified, title=title)


def _state(scans: Sequence[Mapping[str, Stamp]]) -> str:
    return sha256(repr([list(scan.items()) for scan in scans]).encode()).hexdigest()
