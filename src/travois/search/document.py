"""What can be searched, what a search finds, and what a ranking may know of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class Document(msgspec.Struct, frozen=True, array_like=True):
    """A passage that can be found. Long texts are several documents of one group."""

    id: str
    text: str
    group: str = ""
    """The session or topic that it belongs to."""
    order: int = 0
    """Its place in the group: neighbours differ by one."""
    at: float = 0.0
    who: str = ""
    title: str = ""
    """Its headline, which weighs more than the text."""

    @property
    def spoken(self) -> str:
        """What its meaning is taken from."""
        text = f"{self.who}: {self.text}" if self.who else self.text
        return f"{self.title}\n{text}" if self.title else text


class Hit(msgspec.Struct, frozen=True):
    """A document or group that was found; a higher score is better."""

    id: str
    score: float
    group: str = ""


class Query(msgspec.Struct, frozen=True):
    """What is looked for."""

    text: str
    words: tuple[str, ...]
    """Its words as they are indexed, each once."""
    rarity: Mapping[str, float]
    """The weight of each of its words: the rarer, the heavier. Absent: in no document."""
    now: float
    length: float
    """How many words a document of the collection has on average."""


class Candidate(msgspec.Struct, frozen=True):
    """A document that may be an answer, and what speaks for it."""

    document: Document
    words: tuple[str, ...]
    """Its words as they are indexed, in order; those of the title come first, and twice."""
    lexical: float
    """BM25 of the query's words."""
    cosine: float | None
    """Nearness in meaning, from -1 to 1; none where that is not known."""


class Embedder(Protocol):
    """Turns texts into vectors whose angles tell how near their meanings are."""

    name: str
    """Vectors of different names cannot be compared."""
    size: int

    def encode(self, texts: Sequence[str]) -> bytes:
        """One row of float32 of unit length for each text."""
        ...
