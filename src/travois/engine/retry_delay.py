"""The delay before a failed request is sent again."""

from __future__ import annotations

from travois.engine.agent import RetryPolicy
from travois.providers.replies import ApiError


def retry_delay(
    problem: ApiError, attempt: int, *, patience: RetryPolicy, chance: float
) -> float | None:
    """Return the seconds to wait before the next attempt; None if there should be none.

    What the server asks for is honoured up to the longest wait; else the pause doubles, with
    jitter so that many agents do not come back at once.
    """
    if not problem.retry or attempt >= patience.attempts:
        return None
    if problem.wait is not None:
        asked = problem.wait if problem.wait > 0 else 0.0  # so that "not a number" is nought
        return min(asked, patience.longest) + chance * 0.1
    grown = min(patience.first * 2.0 ** min(attempt - 1, 30), patience.longest)
    return grown * (1 - 0.25 * chance)
