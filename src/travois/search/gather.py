"""What may answer a query: the best by words, the best by meaning, and their neighbours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from travois.search import lexical as lexicon
from travois.search.document import Candidate, Document, Embedder, Query
from travois.search.lexical import Collection
from travois.search.update import unpack
from travois.search.words import words

if TYPE_CHECKING:
    from travois.search.vectors import Sense

WIDTH = 128
"""How many candidates come from the words, and how many from the meaning."""
WIDE = 256
"""How many, where groups are looked for: those beside a good one have few of the words."""
AROUND = 40
"""How many of each bring their neighbours with them."""
LONGEST = 8000
"""How many characters of a query count: half of them from its start, half from its end."""

Found = tuple[Query, list[Candidate]]
Row = tuple[Document, str, bytes | None]
"""A document, its words, and its vector."""
Rows = dict[int, Row]
BESIDE = """\
select number, body, words, codes from beside cross join document using (band, place)
where collection = ?"""
"""The cross join makes it look for each of the few places, and not through the collection."""


def candidates(
    base: sqlite3.Connection,
    name: str,
    text: str,
    *,
    embedder: Embedder | None,
    now: float,
    width: int = WIDTH,
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
    by_words = lexicon.nearest(base, collection, counted, limit=width, within=within)
    sense = _sense(base, collection, text, embedder=embedder)
    by_meaning = sense.near(limit=width) if sense else []
    rows = _rows(base, dict.fromkeys((*by_words, *by_meaning)))
    best = dict.fromkeys((*by_words[:AROUND], *by_meaning[:AROUND]))
    rows |= _neighbours(base, collection, [rows[number][0] for number in best if number in rows])
    found = sorted(rows.values(), key=lambda row: row[0].id)  # not by history: sums would differ
    return query, [
        _weighed(query, document, text, cosine=cosine)
        for (document, text, _), cosine in zip(found, _cosines(sense, found), strict=True)
    ]


def _sense(
    base: sqlite3.Connection, collection: Collection, text: str, *, embedder: Embedder | None
) -> Sense | None:
    """The meaning of a query, if there is any to compare it with."""
    if embedder is None or collection.embedder != embedder.name or not text.strip():
        return None
    row = embedder.encode([text])
    from travois.search.vectors import Sense

    return Sense(base, collection.number, row)


def _rows(base: sqlite3.Connection, numbers: Iterable[int]) -> Rows:
    wanted = list(numbers)
    places = ",".join("?" * len(wanted))
    return _read(
        base.execute(
            f"select number, body, words, codes from document where number in ({places})",  # noqa: S608
            wanted,
        )
    )


def _neighbours(
    base: sqlite3.Connection, collection: Collection, documents: Sequence[Document]
) -> Rows:
    """The documents just before and after these in their groups."""
    grouped = [(one.group, one.order) for one in documents if one.group]
    beside = {(group, order + way) for group, order in grouped for way in (-1, 1)}
    pairs = sorted(beside.difference(grouped))
    if not pairs:
        return {}
    values = ",".join(["(?, ?)"] * len(pairs))
    query = f"with beside (band, place) as (values {values}) {BESIDE}"
    return _read(base.execute(query, (*chain.from_iterable(pairs), collection.number)))


def _read(found: Iterable[tuple[int, bytes, str, bytes | None]]) -> Rows:
    return {number: (unpack(body), text, codes) for number, body, text, codes in found}


def _cosines(sense: Sense | None, rows: Sequence[Row]) -> list[float | None]:
    """How near each document is in meaning, as far as that is known."""
    known = [codes for _, _, codes in rows if codes is not None]
    if sense is None or not known:
        return [None] * len(rows)
    cosines = iter(sense.of(known))
    return [None if codes is None else next(cosines) for _, _, codes in rows]


def _weighed(query: Query, document: Document, text: str, *, cosine: float | None) -> Candidate:
    words = tuple(text.split())
    there = {word: weight for word, weight in query.rarity.items() if word in text}
    return Candidate(document, words, lexicon.weigh(words, there, length=query.length), cosine)
