"""Which files past commits changed together, and how lately: signs for code search.

A change is most often near the last ones, and in files that changed with those it names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp

Commits = Sequence[Sequence[str]]
"""The paths that each commit changed, the oldest first."""
Scores = dict[str, float]

RECENT_COMMITS = 20.0
"""After so many commits, a change counts about a third."""
MIN_RECENCY = 1e-3
CO_CHANGE_SOURCES = 10
"""The number of best files whose companions are looked for."""


def score_recent_changes(commits: Commits) -> Scores:
    """Score files for code search by how often and how lately they changed."""
    scores: Scores = defaultdict(float)
    for age, paths in enumerate(reversed(commits)):
        weight = exp(-age / RECENT_COMMITS)
        if weight < MIN_RECENCY:
            break
        for path in paths:
            scores[path] += weight / len(paths) ** 0.3
    return scores


def score_co_changes(commits: Commits, scores: Mapping[str, float]) -> Scores:
    """Score files for code search by how often they changed together with the best ones."""
    best = sorted(scores, key=lambda path: (-scores[path], path))[:CO_CHANGE_SOURCES]
    changed: Scores = dict.fromkeys(best, 1.0)  # few changes say little about what goes together
    together: dict[str, Scores] = {path: defaultdict(float) for path in best}
    for paths in commits:
        weight = 1 / len(paths) ** 0.5
        for path in changed.keys() & paths:
            changed[path] += weight
            for other in paths:
                together[path][other] += weight
    found: Scores = defaultdict(float)
    for path in best:
        for other, weight in together[path].items():
            if other != path:
                found[other] += scores[path] * weight / changed[path]
    return found
