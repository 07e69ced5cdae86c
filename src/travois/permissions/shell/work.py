"""A bound on the work that judging one command line may take."""

from __future__ import annotations

WORK_LIMIT = 12_000
"""Units of work for one command line: about 25 ms on a small machine."""
STEP_UNITS = 25
"""What it takes to study one program with its words, besides the words themselves."""
ACCESS_UNITS = 8
"""What it takes to follow one path that a program touches, and to judge it."""
REDIRECT_UNITS = 40
"""What it takes to follow one redirection, and to judge the file that it opens."""
MAX_DEPTH = 60
"""How deep commands may be nested, in text or by programs that run others."""
MAX_PARSED_CHARS = 16_000
"""Longer texts are not parsed; the bodies of here-documents do not count."""

MAX_HEREDOCS = 60
"""The parser takes quadratic time for here-documents: texts with more of them are not parsed."""


class TooComplex(Exception):
    """Judging the text would take more work than is allowed. Whoever runs it is asked."""


class Work:
    """Counts units of work: no clock, so that a verdict never depends on the machine."""

    def __init__(self, limit: int = WORK_LIMIT) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, units: int = 1) -> None:
        """Count work before it is done; raises `TooComplex` once the limit is passed."""
        self.spent += units
        if self.spent > self.limit:
            raise TooComplex("it is too complex to judge")
