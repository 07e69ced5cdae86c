"""Which of the candidates answer best."""

from __future__ import annotations

from collections.abc import Sequence

from travois.store.search.document import Candidate, Hit, Query


def rank(query: Query, candidates: Sequence[Candidate]) -> list[Hit]:
    """The candidates with something to say, the best first."""
    most = max((candidate.lexical for candidate in candidates), default=0.0) or 1.0
    hits = [
        Hit(
            candidate.document.id,
            candidate.lexical / most + (candidate.cosine or 0.0),
            candidate.document.group,
        )
        for candidate in candidates
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def groups(query: Query, candidates: Sequence[Candidate]) -> list[Hit]:
    """The groups with something to say, the best first, each as good as its best member."""
    best: dict[str, Hit] = {}
    for hit in rank(query, candidates):
        best.setdefault(hit.group, Hit(hit.group, hit.score, hit.group))
    return list(best.values())
