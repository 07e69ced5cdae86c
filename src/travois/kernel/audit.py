"""What the log tells of how a session was run: folds that survive a resume for free."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from travois.kernel.facts import AnyFact, Assistant, Compacted, Failed, User

USELESS = 2
"""So many compactions in a row that freed little stop them from starting by themselves."""
FAILURES = 3
LEAST = 8_000
SHARE = 0.1


class Strikes(msgspec.Struct, frozen=True):
    """How well compaction has done since a person last spoke, judged by what came of it."""

    useless: int = 0
    failures: int = 0
    pending: int = 0
    """The size before a compaction whose outcome no reply has told yet."""

    @property
    def out(self) -> bool:
        """Whether compaction may not start by itself until a person speaks."""
        return self.useless >= USELESS or self.failures >= FAILURES

    def after(self, fact: AnyFact) -> Strikes:
        """The count after one more fact."""
        match fact:
            case User(origin="human"):
                return Strikes(pending=self.pending)
            case Compacted():
                return replace(self, pending=fact.before, failures=0)
            case Failed(kind="compaction"):
                return replace(self, failures=self.failures + 1)
            case Assistant() if self.pending:
                freed = self.pending - fact.usage.prompt
                little = fact.usage.prompt > 0 and freed < min(LEAST, self.pending * SHARE)
                return replace(self, pending=0, useless=self.useless + 1 if little else 0)
            case _:
                return self
