"""Which candidates answer best: by words, meaning, speaker and time, and by what stands beside.

An answer often has none of the question's words, but follows a turn that has them, in a session
that is all about them. So each candidate is weighed alone first, in standard deviations of its
query's candidates, and then gets a share of the weight of those around it and of its group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import exp, fsum, sqrt

from travois.search.document import Candidate, Document, Hit, Query
from travois.search.lexical import weigh
from travois.search.times import spoken
from travois.search.words import words

MEANING = 1.2
"""How much nearness in meaning weighs against words."""
SPEAKER = 1.0
TIME = 3.0
FADING = 14 * 86400.0
"""How many seconds around a time still count a little."""
SHARES = {-2: 0.2, -1: 0.2, 1: 0.1}
"""The shares of the weights of the documents before and after, by how far away they stand."""
ANSWER = 0.4
"""The share that comes on top if the one before asks something."""
ASKING = 0.5
"""What speaks against a turn that asks: it seldom tells."""
BEST = 3
"""How many of a group's documents speak for it."""
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
    """The candidates, the best first."""
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
    """The groups, the best first: some good documents say more than one.

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
    """What its place speaks for a document: what stands around it, and whether it asks."""
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
    """What speaks for each candidate by itself."""
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
    """What speaks for candidates that the one said who is asked about, or at that time."""
    span = spoken(query.text, now=query.now)

    def weight(document: Document) -> float:
        near = max(0.0, 1 - span.distance(document.at) / FADING) if span and document.at else 0.0
        return TIME * near + SPEAKER * (len(named) == 1 and document.who in named)

    return [weight(one.document) for one in candidates]


def _named(query: Query, candidates: Sequence[Candidate]) -> frozenset[str]:
    """The speakers whom the query names. Those in small letters are roles, not names."""
    speakers = {one.document.who for one in candidates if one.document.who[:1].isupper()}
    return frozenset(who for who in speakers if set(words(who)) <= set(query.words))


def _company(candidates: Sequence[Candidate], alone: Sequence[float]) -> dict[str, float]:
    """How much speaks for each group: what its best documents say together."""
    weights: dict[str, list[float]] = defaultdict(list)
    for one, weight in zip(candidates, alone, strict=True):
        if one.document.group:
            weights[one.document.group].append(max(weight, 0.0))
    best = [sum(sorted(some)[-BEST:]) for some in weights.values()]
    return dict(zip(weights, _standard(best), strict=True))


def _starts(candidates: Sequence[Candidate]) -> dict[str, float]:
    """When each group began, as far as its candidates tell, the first one first."""
    starts: dict[str, float] = {}
    for document in (one.document for one in candidates):
        if document.group and document.at:
            starts[document.group] = min(document.at, starts.get(document.group, document.at))
    return dict(sorted(starts.items(), key=lambda item: (item[1], item[0])))


def _beside(
    weights: Mapping[str, float], starts: Mapping[str, float], places: Mapping[str, str]
) -> dict[str, float]:
    """What each group hears of the best around it: the farther in time, the less."""
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
    """How many standard deviations each lies above the mean; what is not known lies on it."""
    known = [value for value in values if value is not None]
    mean = fsum(known) / (len(known) or 1)  # the same in whatever order they come
    spread = sqrt(fsum((value - mean) ** 2 for value in known) / (len(known) or 1))
    if spread < TINY:
        return [0.0] * len(values)
    return [0.0 if value is None else (value - mean) / spread for value in values]
