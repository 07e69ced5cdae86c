"""Ranking of search candidates by words, meaning, speaker, time and neighbouring passages.

An answer often has none of the question's words, but follows a turn that has them, in a session
that is all about them. So each candidate is weighed alone first, in standard deviations of its
query's candidates, and then gets a share of the weight of those around it and of its group.
"""

from __future__ import annotations

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from math import exp, fsum, sqrt
from typing import TYPE_CHECKING

import msgspec

from travois.lazy_imports import lazy_imports
from travois.search import lexical
from travois.search.database import (
    Embedder,
    RankedHit,
    SearchCandidate,
    SearchDocument,
    SearchQuery,
)
from travois.search.lexical import SearchCollection, score_bm25, split_index_terms
from travois.search.update import decode_document

if TYPE_CHECKING:
    from travois.search.vectors import QueryMeaning

with lazy_imports():
    from travois.search import vectors


# What may answer a query: the best by words, the best by meaning, and their neighbours.


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
    """Return the parsed query and the documents that may answer it."""
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
    query = SearchQuery(text, terms, lexical.rate_rarity(collection, counted), now, length)
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
) -> vectors.QueryMeaning | None:
    """Embed the query, if the collection has vectors of the same embedder."""
    if embedder is None or collection.embedder != embedder.name or not text.strip():
        return None
    row = embedder.encode([text])
    return vectors.QueryMeaning(base, collection.number, row)


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
    """Select the documents just before and after these in their groups."""
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
    """Return the cosine of each document with the query, where it has a vector."""
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


# Which time a text speaks of: "on 7 May 2023", "last March", "two weeks ago", "yesterday".


MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
COUNT_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)
UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
MONTH_PATTERN = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in MONTH_NAMES)})\b\.?"
DAY_PATTERN = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
YEAR_PATTERN = r"(?P<year>(?:19|20)\d\d)\b"


class TimeSpan(msgspec.Struct, frozen=True):
    """A time span, in seconds since 1970."""

    start: float
    end: float

    def distance(self, at: float) -> float:
        """Return how many seconds a time lies outside the span."""
        return max(self.start - at, at - self.end, 0.0)


DateReader = Callable[[re.Match[str], datetime], TimeSpan]


def find_time_span(text: str, *, now: float) -> TimeSpan | None:
    """Find the time span that a text names, relative to `now`."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for pattern, reading in DATE_READERS:
        for found in pattern.finditer(text):
            try:
                return reading(found, today)
            except (ValueError, OverflowError):  # there is no 31 June, nor a year 0
                continue
    return None


def _span_of_days(start: datetime, count: int) -> TimeSpan:
    return TimeSpan(start.timestamp(), (start + timedelta(count)).timestamp())


def _read_date(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read a day, with or without its year."""
    month, day = _month_number(found["month"]), int(found["day"])
    if found["year"]:
        return _span_of_days(datetime(int(found["year"]), month, day, tzinfo=UTC), 1)
    start = datetime(today.year, month, day, tzinfo=UTC)
    return _span_of_days(start if start <= today else start.replace(year=today.year - 1), 1)


def _read_month(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read a month of a year, or else the latest one of that name."""
    month = _month_number(found["month"])
    year = int(found["year"] or today.year - (month > today.month))
    return _span_of_days(datetime(year, month, 1, tzinfo=UTC), 31)


def _read_year(found: re.Match[str], today: datetime) -> TimeSpan:
    return _span_of_days(datetime(int(found["year"]), 1, 1, tzinfo=UTC), 366)


def _read_units_ago(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read units before today: two weeks ago is any day of a week around then."""
    word, unit = found["count"].lower(), UNIT_DAYS[found["unit"].lower()]
    count = (
        COUNT_WORDS.index(word) if word in COUNT_WORDS else 1 if word in ("a", "an") else int(word)
    )
    return _span_of_days(today - timedelta(count * unit + unit // 2), unit)


def _read_last_unit(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read "last week" or "this month" in a query as a generous time span."""
    unit = UNIT_DAYS[found["unit"].lower()]
    return _span_of_days(
        today - timedelta(2 * unit if found["which"].lower() == "last" else unit), 2 * unit
    )


def _read_yesterday(found: re.Match[str], today: datetime) -> TimeSpan:
    return _span_of_days(today - timedelta(found[0].lower() == "yesterday"), 1)


def _month_number(name: str) -> int:
    """Return the number of a month, given as digits or a name."""
    if name.isdecimal():
        return int(name)
    return next(at for at, month in enumerate(MONTH_NAMES, 1) if month.startswith(name[:3].lower()))


DATE_READERS: tuple[tuple[re.Pattern[str], DateReader], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reading)
    for pattern, reading in (
        (r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _read_date),
        (rf"\b{DAY_PATTERN}(?: of)? {MONTH_PATTERN}(?:,? {YEAR_PATTERN})?", _read_date),
        (rf"\b{MONTH_PATTERN} {DAY_PATTERN}(?:,? {YEAR_PATTERN})?", _read_date),
        (rf"\b{MONTH_PATTERN},?(?: of)? {YEAR_PATTERN}", _read_month),
        (rf"\b(?:in|last|since|during|this) {MONTH_PATTERN}(?P<year>)", _read_month),
        (rf"\b{YEAR_PATTERN}", _read_year),
        (
            rf"\b(?P<count>\d{{1,3}}|an?|{'|'.join(COUNT_WORDS)})"
            rf" (?P<unit>{'|'.join(UNIT_DAYS)})s? ago",
            _read_units_ago,
        ),
        (rf"\b(?P<which>last|this) (?P<unit>{'|'.join(UNIT_DAYS)})\b", _read_last_unit),
        (r"\b(?:yesterday|today)\b", _read_yesterday),
    )
)
"""The more exact a reading is, the earlier it stands."""


MEANING_WEIGHT = 1.2
"""How much nearness in meaning weighs against words."""
SPEAKER_WEIGHT = 1.0
TIME_WEIGHT = 3.0
TIME_FADE_SECONDS = 14 * 86400.0
"""The seconds around a time that still count a little."""
NEIGHBOUR_SHARES = {-2: 0.2, -1: 0.2, 1: 0.1}
"""The shares of the weights of the documents before and after, by how far away they stand."""
ANSWER_SHARE = 0.4
"""The share that comes on top if the one before asks something."""
QUESTION_PENALTY = 0.5
"""What speaks against a turn that asks: it seldom tells."""
BEST_PER_GROUP = 3
"""The number of a group's best documents that count for it."""
GROUP_WEIGHT = 0.8
"""The weight of a group's best documents for each document of it."""
NEARBY_GROUP_SHARE = 0.6
"""The share of the weight of a group at nearly the same time."""
GROUP_FADE_SECONDS = 3600.0
"""After how many seconds a third of that share is left."""
MIN_SPREAD = 1e-9

GroupPosition = tuple[str, int]
"""A group and a place in it."""


def rank_documents(query: SearchQuery, candidates: Sequence[SearchCandidate]) -> list[RankedHit]:
    """Rank the candidates, the best first."""
    alone = _score_candidates(query, candidates)
    company = _score_groups(candidates, alone)
    placed = {
        (one.document.group, one.document.order): (one.document, max(weight, 0.0))
        for one, weight in zip(candidates, alone, strict=True)
        if one.document.group
    }
    return _sort_hits(
        RankedHit(
            one.document.id,
            weight
            + GROUP_WEIGHT * company.get(one.document.group, 0.0)
            + _score_position(one.document, placed),
            one.document.group,
        )
        for one, weight in zip(candidates, alone, strict=True)
    )


def rank_groups(
    query: SearchQuery,
    candidates: Sequence[SearchCandidate],
    *,
    places: Mapping[str, str] | None = None,
) -> list[RankedHit]:
    """Rank the groups, the best first: several good documents count more than one.

    Work goes on from one session to the next, so one that began soon before or after a good one
    in the same place has a share of what speaks for it.
    """
    company = _score_groups(candidates, _score_candidates(query, candidates))
    beside = _nearby_group_scores(company, _group_starts(candidates), places or {})
    return _sort_hits(
        RankedHit(group, score + NEARBY_GROUP_SHARE * beside.get(group, 0.0), group)
        for group, score in company.items()
    )


def _score_position(
    document: SearchDocument, placed: Mapping[GroupPosition, tuple[SearchDocument, float]]
) -> float:
    """Score a document by its neighbours, and by whether it asks a question."""
    if not document.group:
        return 0.0
    score = -QUESTION_PENALTY * _is_question(document)
    for way, share in NEIGHBOUR_SHARES.items():
        if near := placed.get((document.group, document.order + way)):
            other, weight = near
            score += (share + ANSWER_SHARE * (way == -1 and _is_question(other))) * weight
    return score


def _is_question(document: SearchDocument) -> bool:
    return document.text.rstrip().endswith("?")


def _sort_hits(hits: Iterable[RankedHit]) -> list[RankedHit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def _score_candidates(query: SearchQuery, candidates: Sequence[SearchCandidate]) -> list[float]:
    """Score each candidate by itself."""
    named = _speakers_in_query(query, candidates)
    said = {word for name in named for word in split_index_terms(name)}
    telling = {word: weight for word, weight in query.rarity.items() if word not in said}
    by_words = _standardize_scores(
        [score_bm25(one.words, telling, length=query.length) for one in candidates]
        if said
        else [one.lexical for one in candidates]
    )
    by_meaning = _standardize_scores([one.cosine for one in candidates])
    by_circumstance = _score_circumstances(query, candidates, named)
    return [
        word + MEANING_WEIGHT * meaning + rest
        for word, meaning, rest in zip(by_words, by_meaning, by_circumstance, strict=True)
    ]


def _score_circumstances(
    query: SearchQuery, candidates: Sequence[SearchCandidate], named: frozenset[str]
) -> list[float]:
    """Score candidates by the speaker and the time that the query names."""
    span = find_time_span(query.text, now=query.now)

    def score_document(document: SearchDocument) -> float:
        near = (
            max(0.0, 1 - span.distance(document.at) / TIME_FADE_SECONDS)
            if span and document.at
            else 0.0
        )
        return TIME_WEIGHT * near + SPEAKER_WEIGHT * (len(named) == 1 and document.who in named)

    return [score_document(one.document) for one in candidates]


def _speakers_in_query(query: SearchQuery, candidates: Sequence[SearchCandidate]) -> frozenset[str]:
    """Return the speakers that a query names; lower-case ones are roles."""
    speakers = {one.document.who for one in candidates if one.document.who[:1].isupper()}
    return frozenset(who for who in speakers if set(split_index_terms(who)) <= set(query.words))


def _score_groups(
    candidates: Sequence[SearchCandidate], alone: Sequence[float]
) -> dict[str, float]:
    """Score each group by its best documents together."""
    weights: dict[str, list[float]] = defaultdict(list)
    for one, weight in zip(candidates, alone, strict=True):
        if one.document.group:
            weights[one.document.group].append(max(weight, 0.0))
    best = [sum(sorted(some)[-BEST_PER_GROUP:]) for some in weights.values()]
    return dict(zip(weights, _standardize_scores(best), strict=True))


def _group_starts(candidates: Sequence[SearchCandidate]) -> dict[str, float]:
    """Return when each group began, as far as its candidates show, the first one first."""
    starts: dict[str, float] = {}
    for document in (one.document for one in candidates):
        if document.group and document.at:
            starts[document.group] = min(document.at, starts.get(document.group, document.at))
    return dict(sorted(starts.items(), key=lambda item: (item[1], item[0])))


def _nearby_group_scores(
    weights: Mapping[str, float], starts: Mapping[str, float], places: Mapping[str, str]
) -> dict[str, float]:
    """Return each group's share of the scores around it: the farther in time, the less."""
    heard = dict.fromkeys(starts, 0.0)
    for order in (list(starts), list(starts)[::-1]):
        last: dict[str, tuple[float, float]] = {}
        for group in order:
            start, place = starts[group], places.get(group, "")
            echo, before = last.get(place, (0.0, start))
            echo *= exp(-abs(start - before) / GROUP_FADE_SECONDS)
            heard[group] = max(heard[group], echo)
            last[place] = max(echo, weights[group]), start
    return heard


def _standardize_scores(values: Sequence[float | None]) -> list[float]:
    """Standardize scores to mean 0 and deviation 1; unknown ones get 0."""
    known = [value for value in values if value is not None]
    mean = fsum(known) / (len(known) or 1)  # the same in whatever order they come
    spread = sqrt(fsum((value - mean) ** 2 for value in known) / (len(known) or 1))
    if spread < MIN_SPREAD:
        return [0.0] * len(values)
    return [0.0 if value is None else (value - mean) / spread for value in values]
