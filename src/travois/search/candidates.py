"""Search candidates: the best documents by words and by meaning, and their neighbours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias

from travois.search import lexical, plain_vectors
from travois.search.database import Embedder, SearchCandidate, SearchDocument, SearchQuery
from travois.search.lexical import SearchCollection, score_bm25, split_index_terms
from travois.search.update import choose_vectors, decode_document

if TYPE_CHECKING:
    from travois.search.vectors import QueryMeaning as MatrixMeaning

QueryMeaning: TypeAlias = "plain_vectors.QueryMeaning | MatrixMeaning"

MAX_CANDIDATES = 128
"""The most candidates by words, and as many by meaning."""
MAX_GROUP_CANDIDATES = 256
"""How many, where groups are looked for: those beside a good one have few of the words."""
NEIGHBOUR_SOURCES = 40
"""The number of best candidates of each kind whose neighbours are added."""
MAX_QUERY_CHARS = 8000
"""The most characters of a query that count, half from its start and half from its end."""

CandidateSet = tuple[SearchQuery, list[SearchCandidate]]
DocumentRow = tuple[SearchDocument, str, bytes | None]
"""A document, its words, and its vector."""
RowsByNumber = dict[int, DocumentRow]
SELECT_NEIGHBOURS = """\
select number, body, words, codes from beside cross join document using (band, place)
where collection = ?"""
"""The cross join makes it look for each of the few places, and not through the collection."""


def gather_candidates(
    base: sqlite3.Connection,
    name: str,
    text: str,
    *,
    embedder: Embedder | None,
    now: float,
    width: int = MAX_CANDIDATES,
    within: str = lexical.ALL_GROUPS,
) -> CandidateSet:
    """Return the parsed search query and the candidate documents for it."""
    text = (
        text
        if len(text) <= MAX_QUERY_CHARS
        else text[: MAX_QUERY_CHARS // 2] + "\n" + text[-MAX_QUERY_CHARS // 2 :]
    )
    terms = tuple(dict.fromkeys(split_index_terms(text)))[: lexical.MAX_QUERY_TERMS]
    collection = lexical.find_collection(base, name)
    if collection is None or not collection.documents:
        return SearchQuery(text, terms, {}, now, 0.0), []
    counted = lexical.count_documents_with(base, collection, terms)
    length = collection.words / collection.documents
    query = SearchQuery(
        *(text, terms, lexical.rate_rarity(collection, counted), now, length, collection.embedder)
    )
    by_words = lexical.find_best_matches(base, collection, counted, limit=width, within=within)
    sense = _query_meaning(base, collection, text, embedder=embedder)
    by_meaning = sense.find_nearest(limit=width) if sense else []
    rows = _select_rows(base, dict.fromkeys((*by_words, *by_meaning)))
    best = dict.fromkeys((*by_words[:NEIGHBOUR_SOURCES], *by_meaning[:NEIGHBOUR_SOURCES]))
    rows |= _select_neighbours(
        base, collection, [rows[number][0] for number in best if number in rows]
    )
    found = sorted(rows.values(), key=lambda row: row[0].id)  # not by history: sums would differ
    return query, [
        _build_candidate(query, document, text, cosine=cosine)
        for (document, text, _), cosine in zip(found, _row_cosines(sense, found), strict=True)
    ]


def _query_meaning(
    base: sqlite3.Connection, collection: SearchCollection, text: str, *, embedder: Embedder | None
) -> QueryMeaning | None:
    """Embed the search query, if the collection has vectors of the same embedder."""
    if embedder is None or collection.embedder != embedder.name or not text.strip():
        return None
    row = embedder.encode([text])
    return choose_vectors(embedder).QueryMeaning(base, collection.number, row)


def _select_rows(base: sqlite3.Connection, numbers: Iterable[int]) -> RowsByNumber:
    """Select the documents with these numbers from the search index."""
    wanted = list(numbers)
    places = ",".join("?" * len(wanted))
    return _decode_rows(
        base.execute(
            f"select number, body, words, codes from document where number in ({places})",  # noqa: S608
            wanted,
        )
    )


def _select_neighbours(
    base: sqlite3.Connection, collection: SearchCollection, documents: Sequence[SearchDocument]
) -> RowsByNumber:
    """Select the documents just before and after search candidates in their groups."""
    grouped = [(one.group, one.order) for one in documents if one.group]
    beside = {(group, order + way) for group, order in grouped for way in (-1, 1)}
    pairs = sorted(beside.difference(grouped))
    if not pairs:
        return {}
    values = ",".join(["(?, ?)"] * len(pairs))
    query = f"with beside (band, place) as (values {values}) {SELECT_NEIGHBOURS}"
    return _decode_rows(base.execute(query, (*chain.from_iterable(pairs), collection.number)))


def _decode_rows(found: Iterable[tuple[int, bytes, str, bytes | None]]) -> RowsByNumber:
    return {number: (decode_document(body), text, codes) for number, body, text, codes in found}


def _row_cosines(sense: QueryMeaning | None, rows: Sequence[DocumentRow]) -> list[float | None]:
    """Return each search candidate's cosine with the query, where it has a vector."""
    known = [codes for _, _, codes in rows if codes is not None]
    if sense is None or not known:
        return [None] * len(rows)
    cosines = iter(sense.cosines_of(known))
    return [None if codes is None else next(cosines) for _, _, codes in rows]


def _build_candidate(
    query: SearchQuery, document: SearchDocument, text: str, *, cosine: float | None
) -> SearchCandidate:
    """Build a search candidate with its BM25 score and its cosine."""
    words = tuple(text.split())
    there = {word: weight for word, weight in query.rarity.items() if word in text}
    return SearchCandidate(
        document, words, lexical.score_bm25(words, there, length=query.length), cosine
    )


def score_words(
    query: SearchQuery, candidates: Sequence[SearchCandidate], *, without: frozenset[str]
) -> list[tuple[float, float]]:
    """Score search candidates by the query's words, and by those next to each other in both."""
    rarity = {word: weight for word, weight in query.rarity.items() if word not in without}
    pairs = {
        (one, other): min(rarity[one], rarity[other])
        for one, other in pairwise(query.words)
        if one in rarity and other in rarity
    }

    def score_candidate(candidate: SearchCandidate) -> tuple[float, float]:
        if not candidate.lexical:
            return 0.0, 0.0
        words = candidate.words
        by_words = score_bm25(words, rarity, length=query.length) if without else candidate.lexical
        there = pairs.keys() & set(pairwise(words)) if pairs else ()
        return by_words, sum(pairs[pair] for pair in sorted(there))

    return [score_candidate(one) for one in candidates]
