"""When to try again, and how long to wait first."""

from __future__ import annotations

from travois.engine.agent import Patience
from travois.wire.replies import Problem


def pause(problem: Problem, attempt: int, *, patience: Patience, chance: float) -> float | None:
    """Seconds to wait before the next attempt; None when trying again is pointless.

    What the server asks for is honoured up to the longest wait; else the pause doubles, with
    jitter so that many agents do not come back at once.
    """
    if not problem.retry or attempt >= patience.attempts:
        return None
    if problem.wait is not None:
        return min(max(problem.wait, 0.0), patience.longest) + chance * 0.1
    grown = min(patience.first * 2 ** (attempt - 1), patience.longest)
    return grown * (0.75 + 0.5 * chance)
