"""What may answer a query: the best by words, the best by meaning, and their neighbours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from travois.store.search import lexicon
from travois.store.search.document import Candidate, Document, Embedder, Query
from travois.store.search.lexicon import Collection
from travois.store.search.words import words
from travois.store.search.writing import unpack

if TYPE_CHECKING:
    from travois.store.search.vectors import Sense

WIDTH = 200
"""How many candidates come from the words, and how many from the meaning."""
AROUND = 50
"""How many of each bring their neighbours with them."""
LONGEST = 8000
"""How many characters of a query count: half of them from its start, half from its end."""

Found = tuple[Query, list[Candidate]]
Rows = dict[int, tuple[Document, str]]


def candidates(
    base: sqlite3.Connection,
    name: str,
    text: str,
    *,
    embedder: Embedder | None,
    now: float,
    within: str = lexicon.EVERYWHERE,
) -> Found:
    """The query as it is understood, and the documents that may answer it."""
    text = text if len(text) <= LONGEST else text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]
    terms = tuple(dict.fromkeys(words(text)))[: lexicon.TERMS]
    collection = lexicon.find(base, name)
    if collection is None or not collection.documents:
        return Query(text, terms, {}, now, 0.0), []
    counted = lexicon.counts(base, collection, terms)
    length = collection.words / collection.documents
    query = Query(text, terms, lexicon.rarity(collection, counted), now, length)
    by_words = lexicon.nearest(base, collection, counted, limit=WIDTH, within=within)
    sense = _sense(base, collection, text, embedder=embedder)
    cosines = sense.near() if sense else {}
    by_meaning = nlargest(WIDTH, cosines, key=lambda number: (cosines[number], -number))
    rows = _rows(base, dict.fromkeys((*by_words, *by_meaning)))
    best = dict.fromkeys((*by_words[:AROUND], *by_meaning[:AROUND]))
    rows |= _neighbours(base, collection, [rows[number][0] for number in best if number in rows])
    if sense:
        cosines |= sense.of([number for number in rows if number not in cosines])
    return query, [_weighed(query, *rows[n], cosine=cosines.get(n)) for n in sorted(rows)]


def _sense(
    base: sqlite3.Connection, collection: Collection, text: str, *, embedder: Embedder | None
) -> Sense | None:
    """The meaning of a query, if there is any to compare it with."""
    if embedder is None or collection.embedder != embedder.name or not text.strip():
        return None
    row = embedder.encode([text])
    from travois.store.search.vectors import Sense

    return Sense(base, collection.number, row)


def _rows(base: sqlite3.Connection, numbers: Iterable[int]) -> Rows:
    wanted = list(numbers)
    places = ",".join("?" * len(wanted))
    found = base.execute(
        f"select number, body, words from document where number in ({places})",  # noqa: S608
        wanted,
    )
    return {number: (unpack(body), text) for number, body, text in found}


def _neighbours(
    base: sqlite3.Connection, collection: Collection, documents: Sequence[Document]
) -> Rows:
    """The documents just before and after these in their groups."""
    found: Rows = {}
    for document in documents:
        if document.group:
            rows = base.execute(
                "select number, body, words from document"
                " where collection = ? and band = ? and place in (?, ?)",
                (collection.number, document.group, document.order - 1, document.order + 1),
            )
            found |= {number: (unpack(body), text) for number, body, text in rows}
    return found


def _weighed(query: Query, document: Document, text: str, *, cosine: float | None) -> Candidate:
    found = tuple(text.split(" ")) if text else ()
    score = lexicon.weigh(found, query.rarity, length=query.length)
    return Candidate(document, found, score, cosine)
