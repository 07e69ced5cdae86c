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

from travois.search import lexical
from travois.search.database import Candidate, Document, Embedder, Hit, Query
from travois.search.lexical import Collection, weigh, words
from travois.search.update import unpack

if TYPE_CHECKING:
    from travois.search.vectors import Sense


# What may answer a query: the best by words, the best by meaning, and their neighbours.


WIDTH = 128
"""The most candidates by words, and as many by meaning."""
WIDE = 256
"""How many, where groups are looked for: those beside a good one have few of the words."""
AROUND = 40
"""The number of best candidates of each kind whose neighbours are added."""
LONGEST = 8000
"""The most characters of a query that count, half from its start and half from its end."""

Found = tuple[Query, list[Candidate]]
Row = tuple[Document, str, bytes | None]
"""A document, its words, and its vector."""
Rows = dict[int, Row]
SELECT_BESIDE = """\
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
    within: str = lexical.EVERYWHERE,
) -> Found:
    """Return the parsed query and the documents that may answer it."""
    text = text if len(text) <= LONGEST else text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]
    terms = tuple(dict.fromkeys(words(text)))[: lexical.TERMS]
    collection = lexical.find(base, name)
    if collection is None or not collection.documents:
        return Query(text, terms, {}, now, 0.0), []
    counted = lexical.counts(base, collection, terms)
    length = collection.words / collection.documents
    query = Query(text, terms, lexical.rarity(collection, counted), now, length)
    by_words = lexical.nearest(base, collection, counted, limit=width, within=within)
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
    """Embed the query, if the collection has vectors of the same embedder."""
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
    """Select the documents just before and after these in their groups."""
    grouped = [(one.group, one.order) for one in documents if one.group]
    beside = {(group, order + way) for group, order in grouped for way in (-1, 1)}
    pairs = sorted(beside.difference(grouped))
    if not pairs:
        return {}
    values = ",".join(["(?, ?)"] * len(pairs))
    query = f"with beside (band, place) as (values {values}) {SELECT_BESIDE}"
    return _read(base.execute(query, (*chain.from_iterable(pairs), collection.number)))


def _read(found: Iterable[tuple[int, bytes, str, bytes | None]]) -> Rows:
    return {number: (unpack(body), text, codes) for number, body, text, codes in found}


def _cosines(sense: Sense | None, rows: Sequence[Row]) -> list[float | None]:
    """Return the cosine of each document with the query, where it has a vector."""
    known = [codes for _, _, codes in rows if codes is not None]
    if sense is None or not known:
        return [None] * len(rows)
    cosines = iter(sense.of(known))
    return [None if codes is None else next(cosines) for _, _, codes in rows]


def _weighed(query: Query, document: Document, text: str, *, cosine: float | None) -> Candidate:
    words = tuple(text.split())
    there = {word: weight for word, weight in query.rarity.items() if word in text}
    return Candidate(document, words, lexical.weigh(words, there, length=query.length), cosine)


# Which time a text speaks of: "on 7 May 2023", "last March", "two weeks ago", "yesterday".


MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
MONTH = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in MONTHS)})\b\.?"
DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
YEAR = r"(?P<year>(?:19|20)\d\d)\b"


class Span(msgspec.Struct, frozen=True):
    """A time span, in seconds since 1970."""

    start: float
    end: float

    def distance(self, at: float) -> float:
        """Return how many seconds a time lies outside the span."""
        return max(self.start - at, at - self.end, 0.0)


Reading = Callable[[re.Match[str], datetime], Span]


def spoken(text: str, *, now: float) -> Span | None:
    """Find the time span that a text names, relative to `now`."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for pattern, reading in READINGS:
        for found in pattern.finditer(text):
            try:
                return reading(found, today)
            except (ValueError, OverflowError):  # there is no 31 June, nor a year 0
                continue
    return None


def _days(start: datetime, count: int) -> Span:
    return Span(start.timestamp(), (start + timedelta(count)).timestamp())


def _date(found: re.Match[str], today: datetime) -> Span:
    """Read a day, with or without its year."""
    month, day = _month(found["month"]), int(found["day"])
    if found["year"]:
        return _days(datetime(int(found["year"]), month, day, tzinfo=UTC), 1)
    start = datetime(today.year, month, day, tzinfo=UTC)
    return _days(start if start <= today else start.replace(year=today.year - 1), 1)


def _whole_month(found: re.Match[str], today: datetime) -> Span:
    """Read a month of a year, or else the latest one of that name."""
    month = _month(found["month"])
    year = int(found["year"] or today.year - (month > today.month))
    return _days(datetime(year, month, 1, tzinfo=UTC), 31)


def _year(found: re.Match[str], today: datetime) -> Span:
    return _days(datetime(int(found["year"]), 1, 1, tzinfo=UTC), 366)


def _ago(found: re.Match[str], today: datetime) -> Span:
    """Read units before today: two weeks ago is any day of a week around then."""
    word, unit = found["count"].lower(), UNITS[found["unit"].lower()]
    count = COUNTED.index(word) if word in COUNTED else 1 if word in ("a", "an") else int(word)
    return _days(today - timedelta(count * unit + unit // 2), unit)


def _last(found: re.Match[str], today: datetime) -> Span:
    unit = UNITS[found["unit"].lower()]
    return _days(
        today - timedelta(2 * unit if found["which"].lower() == "last" else unit), 2 * unit
    )


def _near(found: re.Match[str], today: datetime) -> Span:
    return _days(today - timedelta(found[0].lower() == "yesterday"), 1)


def _month(name: str) -> int:
    if name.isdecimal():
        return int(name)
    return next(at for at, month in enumerate(MONTHS, 1) if month.startswith(name[:3].lower()))


READINGS: tuple[tuple[re.Pattern[str], Reading], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reading)
    for pattern, reading in (
        (r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _date),
        (rf"\b{DAY}(?: of)? {MONTH}(?:,? {YEAR})?", _date),
        (rf"\b{MONTH} {DAY}(?:,? {YEAR})?", _date),
        (rf"\b{MONTH},?(?: of)? {YEAR}", _whole_month),
        (rf"\b(?:in|last|since|during|this) {MONTH}(?P<year>)", _whole_month),
        (rf"\b{YEAR}", _year),
        (
            rf"\b(?P<count>\d{{1,3}}|an?|{'|'.join(COUNTED)}) (?P<unit>{'|'.join(UNITS)})s? ago",
            _ago,
        ),
        (rf"\b(?P<which>last|this) (?P<unit>{'|'.join(UNITS)})\b", _last),
        (r"\b(?:yesterday|today)\b", _near),
    )
)
"""The more exact a reading is, the earlier it stands."""


MEANING = 1.2
"""How much nearness in meaning weighs against words."""
SPEAKER = 1.0
TIME = 3.0
FADING = 14 * 86400.0
"""The seconds around a time that still count a little."""
SHARES = {-2: 0.2, -1: 0.2, 1: 0.1}
"""The shares of the weights of the documents before and after, by how far away they stand."""
ANSWER = 0.4
"""The share that comes on top if the one before asks something."""
ASKING = 0.5
"""What speaks against a turn that asks: it seldom tells."""
BEST = 3
"""The number of a group's best documents that count for it."""
COMPANY = 0.8
"""The weight of a group's best documents for each document of it."""
BESIDE = 0.6
"""The share of the weight of a group at nearly the same time."""
APART = 3600.0
"""After how many seconds a third of that share is left."""
TINY = 1e-9

Place = tuple[str, int]
"""A group and a place in it."""


def rank(query: Query, candidates: Sequence[Candidate]) -> list[Hit]:
    """Rank the candidates, the best first."""
    alone = _alone(query, candidates)
    company = _company(candidates, alone)
    placed = {
        (one.document.group, one.document.order): (one.document, max(weight, 0.0))
        for one, weight in zip(candidates, alone, strict=True)
        if one.document.group
    }
    return _sorted(
        Hit(
            one.document.id,
            weight + COMPANY * company.get(one.document.group, 0.0) + _placed(one.document, placed),
            one.document.group,
        )
        for one, weight in zip(candidates, alone, strict=True)
    )


def groups(
    query: Query, candidates: Sequence[Candidate], *, places: Mapping[str, str] | None = None
) -> list[Hit]:
    """Rank the groups, the best first: several good documents count more than one.

    Work goes on from one session to the next, so one that began soon before or after a good one
    in the same place has a share of what speaks for it.
    """
    company = _company(candidates, _alone(query, candidates))
    beside = _beside(company, _starts(candidates), places or {})
    return _sorted(
        Hit(group, score + BESIDE * beside.get(group, 0.0), group)
        for group, score in company.items()
    )


def _placed(document: Document, placed: Mapping[Place, tuple[Document, float]]) -> float:
    """Score a document by its neighbours, and by whether it asks a question."""
    if not document.group:
        return 0.0
    score = -ASKING * _asks(document)
    for way, share in SHARES.items():
        if near := placed.get((document.group, document.order + way)):
            other, weight = near
            score += (share + ANSWER * (way == -1 and _asks(other))) * weight
    return score


def _asks(document: Document) -> bool:
    return document.text.rstrip().endswith("?")


def _sorted(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def _alone(query: Query, candidates: Sequence[Candidate]) -> list[float]:
    """Score each candidate by itself."""
    named = _named(query, candidates)
    said = {word for name in named for word in words(name)}
    telling = {word: weight for word, weight in query.rarity.items() if word not in said}
    by_words = _standard(
        [weigh(one.words, telling, length=query.length) for one in candidates]
        if said
        else [one.lexical for one in candidates]
    )
    by_meaning = _standard([one.cosine for one in candidates])
    by_circumstance = _circumstance(query, candidates, named)
    return [
        word + MEANING * meaning + rest
        for word, meaning, rest in zip(by_words, by_meaning, by_circumstance, strict=True)
    ]


def _circumstance(
    query: Query, candidates: Sequence[Candidate], named: frozenset[str]
) -> list[float]:
    """Score candidates by the speaker and the time that the query names."""
    span = spoken(query.text, now=query.now)

    def weight(document: Document) -> float:
        near = max(0.0, 1 - span.distance(document.at) / FADING) if span and document.at else 0.0
        return TIME * near + SPEAKER * (len(named) == 1 and document.who in named)

    return [weight(one.document) for one in candidates]


def _named(query: Query, candidates: Sequence[Candidate]) -> frozenset[str]:
    """Return the speakers that the query names; those in small letters are roles."""
    speakers = {one.document.who for one in candidates if one.document.who[:1].isupper()}
    return frozenset(who for who in speakers if set(words(who)) <= set(query.words))


def _company(candidates: Sequence[Candidate], alone: Sequence[float]) -> dict[str, float]:
    """Score each group by its best documents together."""
    weights: dict[str, list[float]] = defaultdict(list)
    for one, weight in zip(candidates, alone, strict=True):
        if one.document.group:
            weights[one.document.group].append(max(weight, 0.0))
    best = [sum(sorted(some)[-BEST:]) for some in weights.values()]
    return dict(zip(weights, _standard(best), strict=True))


def _starts(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return when each group began, as far as its candidates show, the first one first."""
    starts: dict[str, float] = {}
    for document in (one.document for one in candidates):
        if document.group and document.at:
            starts[document.group] = min(document.at, starts.get(document.group, document.at))
    return dict(sorted(starts.items(), key=lambda item: (item[1], item[0])))


def _beside(
    weights: Mapping[str, float], starts: Mapping[str, float], places: Mapping[str, str]
) -> dict[str, float]:
    """Return each group's share of the scores around it: the farther in time, the less."""
    heard = dict.fromkeys(starts, 0.0)
    for order in (list(starts), list(starts)[::-1]):
        last: dict[str, tuple[float, float]] = {}
        for group in order:
            start, place = starts[group], places.get(group, "")
            echo, before = last.get(place, (0.0, start))
            echo *= exp(-abs(start - before) / APART)
            heard[group] = max(heard[group], echo)
            last[place] = max(echo, weights[group]), start
    return heard


def _standard(values: Sequence[float | None]) -> list[float]:
    """Standardize scores to mean 0 and deviation 1; unknown ones get 0."""
    known = [value for value in values if value is not None]
    mean = fsum(known) / (len(known) or 1)  # the same in whatever order they come
    spread = sqrt(fsum((value - mean) ** 2 for value in known) / (len(known) or 1))
    if spread < TINY:
        return [0.0] * len(values)
    return [0.0 if value is None else (value - mean) / spread for value in values]
