"""Which layers are on, and their numbers: each can be turned off alone."""

from __future__ import annotations

import msgspec

from travois.kernel.models import Model

SMALLEST = 500


class Layers(msgspec.Struct, frozen=True):
    """How the window is kept in bounds. Tokens, unless said otherwise; shares are of the window."""

    offload: bool = True
    clear: bool = True
    compact: bool = True
    """Whether compaction starts by itself; asking for it always works."""
    draft: bool = True
    """Whether the model may add prose to what rules have gathered."""
    restore: bool = True
    result: int = 6_000
    """A result beyond this is stored, and its head and tail shown."""
    reply: int = 24_000
    """All results of one reply together."""
    shown: int = 2_000
    """How much of a stored result is shown."""
    tail: int = 25_000
    """How much of the newest conversation a compaction keeps word for word."""
    ledger: int = 12_000
    names: int = 4_000
    contents: int = 2_000
    threshold: int = 0
    """Where compaction starts; zero means where the window asks for it."""
    cold: int = 60_000
    """A conversation beyond this is compacted when the cache is gone anyway."""

    def fitted(self, model: Model) -> Layers:
        """The same choices with numbers that suit the model's window."""
        share = model.window / 200_000
        if share >= 1:
            return self
        return msgspec.structs.replace(
            self,
            result=_fit(self.result, share * 2),
            reply=_fit(self.reply, share * 2),
            shown=_fit(self.shown, share * 2),
            tail=_fit(self.tail, share * 2),
            ledger=_fit(self.ledger, share * 2),
            names=_fit(self.names, share * 2),
            contents=_fit(self.contents, share * 2),
        )


def _fit(number: int, share: float) -> int:
    """A number for a smaller window: it shrinks only where it would take too much of it."""
    return max(SMALLEST // 2, min(number, round(number * share)))
