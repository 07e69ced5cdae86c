"""The error that users can fix: what happened, why, and what to do."""

from __future__ import annotations


class UserError(Exception):
    """A user's problem, shown without a traceback; `code` is the exit code."""

    def __init__(self, what: str, *, why: str = "", fix: str = "", code: int = 2) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix
        self.code = code

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        fix = f"\n  {self.fix}" if self.fix else ""
        return f"{self.what}{why}{fix}"
