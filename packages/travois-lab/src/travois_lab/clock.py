"""The time that the simulated providers live in."""

from __future__ import annotations

import time


class Clock:
    """Seconds since the lab began: standing still until told to move, or flowing with the day."""

    def __init__(self, *, flows: bool = False) -> None:
        self._start = time.monotonic() if flows else None
        self._moved = 0.0

    def now(self) -> float:
        """The time."""
        flowed = 0.0 if self._start is None else time.monotonic() - self._start
        return flowed + self._moved

    def advance(self, seconds: float) -> float:
        """Let time pass; returns the time that it is then."""
        assert seconds >= 0, "time does not run backwards"
        self._moved += seconds
        return self.now()
