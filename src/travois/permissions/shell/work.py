"""A bound on the work that judging one command line may take."""

from __future__ import annotations

MAX_WORK_UNITS = 12_000
"""Units of work for one command line: about 25 ms on a small machine."""
STEP_UNITS = 25
"""The cost of analyzing one program call, besides its words."""
ACCESS_UNITS = 8
"""The cost of resolving and checking one path that a program accesses."""
REDIRECT_UNITS = 40
"""The cost of following one redirection and checking its file."""
MAX_NESTING_DEPTH = 60
"""The maximum nesting of commands, in text or by programs that run others."""
MAX_PARSED_CHARS = 16_000
"""Longer texts are not parsed; the bodies of here-documents do not count."""

MAX_HEREDOCS = 60
"""The parser takes quadratic time for here-documents: texts with more of them are not parsed."""


class CommandTooComplex(Exception):
    """Analyzing the text would take more work than is allowed; the command then asks."""


class WorkBudget:
    """A counter of work units: no clock, so that a decision never depends on the machine."""

    def __init__(self, limit: int = MAX_WORK_UNITS) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, units: int = 1) -> None:
        """Count work before it is done; raises `CommandTooComplex` once the limit is passed."""
        self.spent += units
        if self.spent > self.limit:
            raise CommandTooComplex("it is too complex to analyze")
