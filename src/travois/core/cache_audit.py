"""Cost, prompt-cache misses and compaction failures of a session, as folds over the log."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.facts import (
    IMPORTED,
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Entry,
    Epoch,
    Failed,
    Finished,
    Opened,
    Restored,
    Rewound,
    Sent,
    Spawned,
    User,
)
from travois.core.models import Price, Usage, cost, rates

USELESS = 2
"""So many compactions in a row that freed little stop them from starting by themselves."""
FAILURES = 3
LEAST = 8_000
SHARE = 0.1
FALL = 0.05
"""A reply that leaves more than this share of the readable cache unread is a miss,"""
FALLEN = 2_000
"""if it also leaves more than this number of tokens unread."""
BROKEN = "prefix break: "
"""The prefix of an epoch's reason when a request did not begin with the last one."""

Cause = Literal[
    "tools",
    "system",
    "model",
    "request",  # another part of the head, such as a beta or thinking that was let go
    "message",  # a request did not begin with the one before it
    "compaction",
    "clearing",
    "rewind",
    "undo",
    "expiry",
    "provider",  # nothing of ours changed
]
EXPECTED: tuple[Cause, ...] = (
    "compaction",
    "clearing",
    "rewind",
    "undo",
    "expiry",
    "model",
    "system",
)


class Strikes(msgspec.Struct, frozen=True):
    """The compactions since the last user message that failed or freed too little."""

    useless: int = 0
    failures: int = 0
    pending: int = 0
    """The size before a compaction whose outcome no reply has told yet."""

    @property
    def out(self) -> bool:
        """True if automatic compaction pauses until the user speaks again."""
        return self.useless >= USELESS or self.failures >= FAILURES

    def after(self, fact: AnyFact) -> Strikes:
        """Return the count after one more fact."""
        if isinstance(fact, Assistant) and not self.pending:
            return self
        match fact:
            case User(origin="human"):
                return Strikes(pending=self.pending)
            case Compacted():
                return replace(self, pending=fact.before, failures=0)
            case Failed(kind="compaction"):
                return replace(self, failures=self.failures + 1)
            case Assistant():
                freed = self.pending - fact.usage.prompt
                little = fact.usage.prompt > 0 and freed < min(LEAST, self.pending * SHARE)
                return replace(self, pending=0, useless=self.useless + 1 if little else 0)
            case _:
                return self


class Spent(msgspec.Struct, frozen=True):
    """The cost of a session. A rewind keeps it; a fork starts at zero."""

    usage: Usage = Usage()
    dollars: float = 0.0
    prices: tuple[tuple[int, Price], ...] = ((0, Price()),)
    """Prices with the entry from which each applies."""

    @property
    def price(self) -> Price:
        """The price that holds."""
        return self.prices[-1][1]

    def after(self, entry: Entry) -> Spent:
        """Return the sum after one more entry."""
        match entry.fact:
            case Assistant() | Finished() as fact:
                more = cost(fact.usage, self.price)
                if isinstance(fact, Finished) and fact.dollars is not None:
                    more = fact.dollars
                return Spent(self.usage + fact.usage, self.dollars + more, self.prices)
            case Opened():
                return Spent(prices=self.prices)
            case Epoch() as fact:
                return replace(self, prices=(*self.prices, (entry.seq, fact.model.price)))
            case Rewound(to=to):
                old = next(price for seq, price in reversed(self.prices) if seq <= to)
                return replace(self, prices=(*self.prices, (entry.seq, old)))
            case _:
                return self


class Miss(msgspec.Struct, frozen=True):
    """A reply that read less from the provider's cache than it could have."""

    seq: int
    cause: Cause
    detail: str
    tokens: int
    """The tokens that had to be sent again at the full price."""
    dollars: float
    """The extra cost compared with a cache read."""

    @property
    def expected(self) -> bool:
        """True if a decision of ours or a pause explains the miss."""
        return self.cause in EXPECTED

    @property
    def why(self) -> str:
        """The cause in words."""
        return f"{self.cause} ({self.detail})" if self.detail else self.cause


class Cache(msgspec.Struct, frozen=True):
    """The provider's prompt cache of a conversation, and the replies that missed it."""

    held: int = 0
    """The number of tokens the next request could read."""
    used: float = 0.0
    """When it was last used: its life begins again then."""
    pause: float = 0.0
    """The longest time without a request since the last reply."""
    moved: tuple[tuple[Cause, str], ...] = ()
    """The changes to the request's prefix since the last reply."""
    epoch: Epoch | None = None
    misses: tuple[Miss, ...] = ()

    def left(self, now: float) -> float:
        """Return the seconds until the cache expires; zero if it holds nothing."""
        if not self.held or self.epoch is None:
            return 0.0
        return max(0.0, self.used + self.epoch.model.lifetime - now)

    def after(self, entry: Entry) -> Cache:
        """Return the state after one more entry."""
        match entry.fact:
            case Assistant() as fact if fact.detail == IMPORTED:
                return replace(self, used=entry.at)
            case Assistant() as fact:
                return self._replied(fact, entry.seq)
            case Sent() | Spawned(kind="fork"):
                pause = max(self.pause, entry.at - self.used if self.used else 0.0)
                return replace(self, used=entry.at, pause=pause)
            case Opened():
                return replace(self, misses=())
            case Epoch() as fact:
                moved = (*self.moved, *_changed(self.epoch, fact))
                return replace(self, epoch=fact, moved=moved)
            case Compacted() | Cleared() | Rewound() | Restored() as fact:
                return replace(self, moved=(*self.moved, (_edited(fact), "")))
            case _:
                return self

    def _replied(self, reply: Assistant, seq: int) -> Cache:
        usage, prompt = reply.usage, reply.usage.prompt
        if not prompt or usage.estimated:
            return self
        held = usage.read + usage.write + usage.write_1h
        fresh = Cache(held, self.used, epoch=self.epoch, misses=self.misses)
        if not is_miss(min(self.held, prompt), usage.read):
            return fresh
        return replace(fresh, misses=(*self.misses, self.missed(usage, seq)))

    def missed(self, usage: Usage, seq: int) -> Miss:
        """Return the cache miss of a reply, with its cause and its cost."""
        lost = min(self.held, usage.prompt) - usage.read
        cause, detail = self._cause()
        price = rates(usage, self.epoch.model.price if self.epoch else Price())
        held = usage.read + usage.write + usage.write_1h
        paid = (price.write if usage.write else price.write_1h) if held else price.input
        more = max(0.0, lost * (paid - price.read) / 1_000_000)
        return Miss(seq, cause, detail, lost, more)

    def _cause(self) -> tuple[Cause, str]:
        """Return the cause: expiry, else the first change of the prefix, else the provider."""
        lifetime = self.epoch.model.lifetime if self.epoch else 0.0
        if self.pause > lifetime:
            return "expiry", f"idle for {clock(self.pause)}, and the cache lives {clock(lifetime)}"
        return self.moved[0] if self.moved else ("provider", "nothing changed on our side")


def is_miss(readable: int, read: int) -> bool:
    """Return whether a reply read clearly less from the cache than it could have."""
    lost = readable - read
    return lost > FALLEN and lost > FALL * readable


def clock(seconds: float) -> str:
    """Format a duration as minutes and seconds, or as hours."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _edited(fact: Compacted | Cleared | Rewound | Restored) -> Cause:
    match fact:
        case Compacted():
            return "compaction"
        case Cleared():
            return "clearing"
        case Rewound():
            return "rewind"
        case Restored():
            return "undo"


def _changed(old: Epoch | None, new: Epoch) -> tuple[tuple[Cause, str], ...]:
    """Return the differences between two heads that matter to the cache."""
    if old is None:
        return ()
    if new.why.startswith(BROKEN):
        return (("message", new.why.removeprefix(BROKEN)),)
    if old.model.name != new.model.name:
        return (("model", f"{old.model.name} became {new.model.name}"),)
    if old.model.effort != new.model.effort:
        return (("model", f"effort is now {new.model.effort or 'automatic'}"),)
    if old.tools != new.tools:
        differ = sorted({tool.name for tool in {*old.tools} ^ {*new.tools}})
        return (("tools", ", ".join(differ) or "their order"),)
    if old.system != new.system:
        return (("system", new.why),)
    said = replace(old.model, window=0, price=Price()) != replace(
        new.model, window=0, price=Price()
    )
    return (("request", new.why),) if said or new.unbind else ()
