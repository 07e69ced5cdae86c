"""The ranking of the index for a few hundred texts that are at hand, without a file."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from math import log
from operator import mul

from travois.search.candidates import MAX_CANDIDATES
from travois.search.database import RankedHit, SearchCandidate, SearchDocument, SearchQuery
from travois.search.embedder import StaticEmbedder
from travois.search.lexical import score_bm25, split_index_terms
from travois.search.rank import rank_documents


def rank_texts(
    text: str, documents: Sequence[SearchDocument], *, embedder: StaticEmbedder, now: float
) -> list[RankedHit]:
    """Rank documents as the index does; those with most of the words also by their meaning."""
    terms = tuple(dict.fromkeys(split_index_terms(text)))
    words = [split_index_terms(one.text) for one in documents]
    often = Counter(word for some in words for word in set(some))
    rarity = {
        term: log(1 + (len(documents) - often[term] + 0.5) / (often[term] + 0.5))
        for term in terms
        if often[term]
    }
    length = sum(map(len, words)) / (len(words) or 1)
    lexical = [score_bm25(some, rarity, length=length) for some in words]
    best = sorted(range(len(documents)), key=lambda at: -lexical[at])[:MAX_CANDIDATES]
    cosines = _cosines(embedder, text, [documents[at].text_to_embed for at in best])
    near = dict(zip(best, cosines, strict=True))
    query = SearchQuery(text, terms, rarity, now, length, embedder.name)
    return rank_documents(
        query,
        [
            SearchCandidate(one, words[at], lexical[at], near.get(at))
            for at, one in enumerate(documents)
        ],
    )


def _cosines(embedder: StaticEmbedder, text: str, others: Sequence[str]) -> list[float]:
    """Return the cosine of a text with each of the others."""
    size = embedder.size
    values = array("f", embedder.encode([text, *others]))
    query = values[:size]
    return [sum(map(mul, query, values[at : at + size])) for at in range(size, len(values), size)]
