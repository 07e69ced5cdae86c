"""Ranking search candidates by words, meaning, speaker, time and neighbouring passages.

An answer often has none of the question's words, but follows a turn that has them, in a session
that is all about them. So each candidate is weighed alone first, in standard deviations of its
query's candidates, and then gets a share of the weight of those around it and of its group.

How much a neighbour says depends on the conversation. Between two equal speakers the answer to a
question is the next turn; an assistant answers everything, at ten times the length. So those shares
grow with how alike the speakers' turns are in length. The weights are in `ranking.json`;
`python -m bench.fit_recall` judges them and fits others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import exp, fsum, sqrt
from operator import mul
from pathlib import Path

import msgspec

from travois.search.candidates import score_words
from travois.search.database import RankedHit, SearchCandidate, SearchDocument, SearchQuery
from travois.search.lexical import split_index_terms
from travois.search.times import find_recency, find_time_span

WEIGHTS_FILE = Path(__file__).with_name("ranking.json")
TIME_FADE_SECONDS = 14 * 86400.0
"""The seconds around a time that still count a little."""
BEST_PER_GROUP = 8
"""The number of a group's best documents that count for it, each less than the one before."""
GROUP_FADE_SECONDS = 7200.0
"""After how many seconds a third of the share of a group nearby is left."""
MIN_SPEAKER_SHARE = 0.1
"""Who says less than this part of what was found takes no part in the talk."""
MIN_SPREAD = 1e-9
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
FIRST_PERSON = re.compile(r"(?i)\b(?:i|me|my|mine)\b")
SECOND_PERSON = re.compile(r"(?i)\byou(?:rs?)?\b")
ASKING_ROLES, ANSWERING_ROLES = frozenset({"user"}), frozenset({"model", "assistant"})

GroupPosition = tuple[str, int]
"""A group and a place in it."""
PlacedScores = Mapping[GroupPosition, tuple[SearchDocument, float]]


class RankingWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The weight of each sign, in standard deviations of the score by words."""

    meaning: dict[str, float]
    """By the name of the embedder."""
    adjacency: float
    """Of words that stand side by side as in the query."""
    speaker: float
    """Of being said by the person whom the query names."""
    role: float
    """Of being said by the user, for a query about "me", or by the model, for one about "you"."""
    time: float
    recency: float
    """Of being the latest, for a query that asks for that."""
    question: float
    """What a turn loses that only asks."""
    before: float
    """The share of the weight of the turn before, and so on."""
    before_peer: float
    """What comes on top between peers, who say about as much as each other."""
    second_before_peer: float
    after: float
    answer_peer: float
    """What comes on top of that if the turn before asks something."""
    group: float
    next_in_group: float
    """What a group's next best document counts, of the one before."""
    nearby_group: float
    """The share of the weight of a group at nearly the same time."""


@cache
def load_weights() -> RankingWeights:
    """Load the ranking weights that ship with the program."""
    return msgspec.json.decode(WEIGHTS_FILE.read_bytes(), type=RankingWeights)


def rank_documents(
    query: SearchQuery,
    candidates: Sequence[SearchCandidate],
    *,
    weights: RankingWeights | None = None,
) -> list[RankedHit]:
    """Rank the candidate documents of a search, the best first."""
    weights = weights or load_weights()
    alone = _score_candidates(query, candidates, weights)
    company = _score_groups(candidates, alone, weights)
    placed = {
        (one.document.group, one.document.order): (one.document, max(score, 0.0))
        for one, score in zip(candidates, alone, strict=True)
        if one.document.group
    }
    peers = _measure_peers([one.document for one in candidates])
    return _sort_hits(
        RankedHit(
            one.document.id,
            score
            + weights.group * company.get(one.document.group, 0.0)
            + _score_position(one.document, placed, peers=peers, weights=weights),
            one.document.group,
        )
        for one, score in zip(candidates, alone, strict=True)
    )


def rank_groups(
    query: SearchQuery,
    candidates: Sequence[SearchCandidate],
    *,
    places: Mapping[str, str] | None = None,
    weights: RankingWeights | None = None,
) -> list[RankedHit]:
    """Rank the groups, the best first: several good documents count more than one.

    Work goes on from one session to the next, so one that began soon before or after a good one
    in the same place has a share of what speaks for it.
    """
    weights = weights or load_weights()
    company = _score_groups(candidates, _score_candidates(query, candidates, weights), weights)
    beside = _nearby_group_scores(company, _group_starts(candidates), places or {})
    return _sort_hits(
        RankedHit(group, score + weights.nearby_group * beside.get(group, 0.0), group)
        for group, score in company.items()
    )


def _score_position(
    document: SearchDocument, placed: PlacedScores, *, peers: float, weights: RankingWeights
) -> float:
    """Score a document by its neighbours, and by how much of it only asks."""
    if not document.group:
        return 0.0
    score = -weights.question * _question_share(document.text)
    shares = {
        -2: weights.second_before_peer * peers,
        -1: weights.before + weights.before_peer * peers,
        1: weights.after,
    }
    for way, share in shares.items():
        if near := placed.get((document.group, document.order + way)):
            other, weight = near
            asked = way == -1 and other.text.rstrip().endswith("?")
            score += (share + weights.answer_peer * peers * asked) * weight
    return score


def _question_share(text: str) -> float:
    """Return the share of questions in a candidate's text; a turn seldom answers its own."""
    if "?" not in text:
        return 0.0
    sentences = [part for part in SENTENCE_END.split(text.strip()) if part.strip()]
    asked = sum(len(part) for part in sentences if part.rstrip().endswith("?"))
    return asked / (sum(map(len, sentences)) or 1)


def _measure_peers(documents: Sequence[SearchDocument]) -> float:
    """Rate how equal the speakers are in the length of their turns: 1 for peers, 0 for one."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for document in documents:
        lengths[document.who].append(len(document.text))
    least = MIN_SPEAKER_SHARE * len(documents)
    means = [sum(some) / len(some) for who, some in lengths.items() if who and len(some) > least]
    return min(means) / (max(means) or 1) if len(means) > 1 else 0.0


def _sort_hits(hits: Iterable[RankedHit]) -> list[RankedHit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def _score_candidates(
    query: SearchQuery, candidates: Sequence[SearchCandidate], weights: RankingWeights
) -> list[float]:
    """Score each search candidate by itself."""
    named = _speakers_in_query(query, candidates)
    said = frozenset(word for name in named for word in split_index_terms(name))
    by_words = _standardize_scores(
        [
            lexical + weights.adjacency * adjacent
            for lexical, adjacent in score_words(query, candidates, without=said)
        ]
    )
    by_meaning = _standardize_scores([one.cosine for one in candidates])
    by_circumstance = _score_circumstances(query, candidates, named, weights)
    sense = weights.meaning.get(query.embedder, 1.0)
    return [
        word + sense * meaning + rest
        for word, meaning, rest in zip(by_words, by_meaning, by_circumstance, strict=True)
    ]


def _score_circumstances(
    query: SearchQuery,
    candidates: Sequence[SearchCandidate],
    named: frozenset[str],
    weights: RankingWeights,
) -> list[float]:
    """Score candidates by the speaker and the time that the query names."""
    span, recency = find_time_span(query.text, now=query.now), find_recency(query.text)
    times = [one.document.at for one in candidates if one.document.at and one.lexical]
    first, last = min(times, default=0.0), max(times, default=0.0)
    roles = _roles_in_query(query.text, candidates)

    def score_document(document: SearchDocument) -> float:
        score = weights.speaker * (len(named) == 1 and document.who in named)
        score += weights.role * (document.who in roles)
        if document.at and span:
            score += weights.time * max(0.0, 1 - span.distance(document.at) / TIME_FADE_SECONDS)
        if document.at and recency and last > first:
            score += weights.recency * recency * (document.at - first) / (last - first)
        return score

    return [score_document(one.document) for one in candidates]


def _speakers_in_query(query: SearchQuery, candidates: Sequence[SearchCandidate]) -> frozenset[str]:
    """Return the speakers that a search query names; lower-case ones are roles."""
    speakers = {one.document.who for one in candidates if one.document.who[:1].isupper()}
    return frozenset(who for who in speakers if set(split_index_terms(who)) <= set(query.words))


def _roles_in_query(text: str, candidates: Sequence[SearchCandidate]) -> frozenset[str]:
    """Return whose words a query asks for: "what did you say", "where do I live"."""
    if not any(one.document.who in ANSWERING_ROLES for one in candidates):
        return frozenset()
    if SECOND_PERSON.search(text):
        return ANSWERING_ROLES
    return ASKING_ROLES if FIRST_PERSON.search(text) else frozenset()


def _score_groups(
    candidates: Sequence[SearchCandidate], alone: Sequence[float], weights: RankingWeights
) -> dict[str, float]:
    """Score each group of candidates by its best documents together."""
    scores: dict[str, list[float]] = defaultdict(list)
    for one, score in zip(candidates, alone, strict=True):
        if one.document.group:
            scores[one.document.group].append(max(score, 0.0))
    shares = [weights.next_in_group**place for place in range(BEST_PER_GROUP)]
    best = [sum(map(mul, sorted(some, reverse=True), shares)) for some in scores.values()]
    return dict(zip(scores, _standardize_scores(best), strict=True))


def _group_starts(candidates: Sequence[SearchCandidate]) -> dict[str, float]:
    """Return when each group began, by its candidates, the earliest first."""
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
    """Standardize candidate scores to mean 0 and deviation 1; unknown ones get 0."""
    known = [value for value in values if value is not None]
    mean = fsum(known) / (len(known) or 1)  # the same in whatever order they come
    spread = sqrt(fsum((value - mean) ** 2 for value in known) / (len(known) or 1))
    if spread < MIN_SPREAD:
        return [0.0] * len(values)
    return [0.0 if value is None else (value - mean) / spread for value in values]
