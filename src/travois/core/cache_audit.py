"""Cost, prompt-cache misses and compaction failures of a session, as folds over the log."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.cost import compute_cost, price_for_size
from travois.core.facts import (
    IMPORTED_DETAIL,
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
from travois.core.models import Price, Usage

MAX_USELESS_COMPACTIONS = 2
"""So many compactions in a row that freed little stop them from starting by themselves."""
MAX_FAILED_COMPACTIONS = 3
MIN_FREED_TOKENS = 8_000
MIN_FREED_SHARE = 0.1
MISS_SHARE = 0.05
"""A reply that leaves more than this share of the readable cache unread is a miss,"""
MISS_TOKENS = 2_000
"""if it also leaves more than this number of tokens unread."""
PREFIX_BREAK = "prefix break: "
"""The prefix of an epoch's reason when a request did not begin with the last one."""

MissCause = Literal[
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
EXPECTED_CAUSES: tuple[MissCause, ...] = (
    "compaction",
    "clearing",
    "rewind",
    "undo",
    "expiry",
    "model",
    "system",
)


class CompactionStrikes(msgspec.Struct, frozen=True):
    """The compactions since the last user message that failed or freed too little."""

    useless: int = 0
    failures: int = 0
    pending: int = 0
    """The size before a compaction whose outcome no reply has told yet."""

    @property
    def is_out(self) -> bool:
        """True if automatic compaction pauses until the user speaks again."""
        return self.useless >= MAX_USELESS_COMPACTIONS or self.failures >= MAX_FAILED_COMPACTIONS

    def after_fact(self, fact: AnyFact) -> CompactionStrikes:
        """Return the count after one more fact."""
        if isinstance(fact, Assistant) and not self.pending:
            return self
        match fact:
            case User(origin="human"):
                return CompactionStrikes(pending=self.pending)
            case Compacted():
                return replace(self, pending=fact.before, failures=0)
            case Failed(kind="compaction"):
                return replace(self, failures=self.failures + 1)
            case Assistant():
                freed = self.pending - fact.usage.prompt
                little = fact.usage.prompt > 0 and freed < min(
                    MIN_FREED_TOKENS, self.pending * MIN_FREED_SHARE
                )
                return replace(self, pending=0, useless=self.useless + 1 if little else 0)
            case _:
                return self


class SessionSpending(msgspec.Struct, frozen=True):
    """The cost of a session. A rewind does not reduce it; a fork starts at zero."""

    usage: Usage = Usage()
    dollars: float = 0.0
    prices: tuple[tuple[int, Price], ...] = ((0, Price()),)
    """Prices with the entry from which each applies."""

    @property
    def current_price(self) -> Price:
        """The current model's price."""
        return self.prices[-1][1]

    def after_entry(self, entry: Entry) -> SessionSpending:
        """Return the sum after one more entry."""
        match entry.fact:
            case Assistant() | Finished() as fact:
                more = compute_cost(fact.usage, self.current_price)
                if isinstance(fact, Finished) and fact.dollars is not None:
                    more = fact.dollars
                return SessionSpending(self.usage + fact.usage, self.dollars + more, self.prices)
            case Opened():
                return SessionSpending(prices=self.prices)
            case Epoch() as fact:
                return replace(self, prices=(*self.prices, (entry.seq, fact.model.price)))
            case Rewound(to=to):
                old = next(price for seq, price in reversed(self.prices) if seq <= to)
                return replace(self, prices=(*self.prices, (entry.seq, old)))
            case _:
                return self


class CacheMiss(msgspec.Struct, frozen=True):
    """A reply that read less from the provider's cache than it could have."""

    seq: int
    cause: MissCause
    detail: str
    tokens: int
    """The tokens that had to be sent again at the full price."""
    dollars: float
    """The extra cost compared with a cache read."""

    @property
    def is_expected(self) -> bool:
        """True if a decision of ours or a pause explains the miss."""
        return self.cause in EXPECTED_CAUSES

    @property
    def cause_text(self) -> str:
        """The cause in words."""
        return f"{self.cause} ({self.detail})" if self.detail else self.cause


class PromptCache(msgspec.Struct, frozen=True):
    """The provider's prompt cache of a conversation, and the replies that missed it."""

    held: int = 0
    """The number of tokens the next request could read."""
    used: float = 0.0
    """When it was last used: its life begins again then."""
    pause: float = 0.0
    """The longest time without a request since the last reply."""
    moved: tuple[tuple[MissCause, str], ...] = ()
    """The changes to the request's prefix since the last reply."""
    epoch: Epoch | None = None
    misses: tuple[CacheMiss, ...] = ()

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the cache expires; zero if it holds nothing."""
        if not self.held or self.epoch is None:
            return 0.0
        return max(0.0, self.used + self.epoch.model.cache_seconds - now)

    def after_entry(self, entry: Entry) -> PromptCache:
        """Return the state after one more entry."""
        match entry.fact:
            case Assistant() as fact if fact.detail == IMPORTED_DETAIL:
                return replace(self, used=entry.at)
            case Assistant() as fact:
                return self._after_reply(fact, entry.seq)
            case Sent() | Spawned(kind="fork"):
                pause = max(self.pause, entry.at - self.used if self.used else 0.0)
                return replace(self, used=entry.at, pause=pause)
            case Opened():
                return replace(self, misses=())
            case Epoch() as fact:
                moved = (*self.moved, *_compare_heads(self.epoch, fact))
                return replace(self, epoch=fact, moved=moved)
            case Compacted() | Cleared() | Rewound() | Restored() as fact:
                return replace(self, moved=(*self.moved, (_edit_cause(fact), "")))
            case _:
                return self

    def _after_reply(self, reply: Assistant, seq: int) -> PromptCache:
        usage, prompt = reply.usage, reply.usage.prompt
        if not prompt or usage.estimated:
            return self
        held = usage.read + usage.write + usage.write_1h
        fresh = PromptCache(held, self.used, epoch=self.epoch, misses=self.misses)
        if not is_cache_miss(min(self.held, prompt), usage.read):
            return fresh
        return replace(fresh, misses=(*self.misses, self.build_miss(usage, seq)))

    def build_miss(self, usage: Usage, seq: int) -> CacheMiss:
        """Return the cache miss of a reply, with its cause and its cost."""
        lost = min(self.held, usage.prompt) - usage.read
        cause, detail = self._find_cause()
        price = price_for_size(usage, self.epoch.model.price if self.epoch else Price())
        held = usage.read + usage.write + usage.write_1h
        paid = (price.write if usage.write else price.write_1h) if held else price.input
        more = max(0.0, lost * (paid - price.read) / 1_000_000)
        return CacheMiss(seq, cause, detail, lost, more)

    def _find_cause(self) -> tuple[MissCause, str]:
        """Return the cause: expiry, else the first change of the prefix, else the provider."""
        lifetime = self.epoch.model.cache_seconds if self.epoch else 0.0
        if self.pause > lifetime:
            idle, lives = format_duration(self.pause), format_duration(lifetime)
            return "expiry", f"idle for {idle}, and the cache lives {lives}"
        return self.moved[0] if self.moved else ("provider", "nothing changed on our side")


def is_cache_miss(readable: int, read: int) -> bool:
    """Return whether a reply read clearly less from the prompt cache than it could have."""
    lost = readable - read
    return lost > MISS_TOKENS and lost > MISS_SHARE * readable


def format_duration(seconds: float) -> str:
    """Format a prompt cache's duration as minutes and seconds, or as hours."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _edit_cause(fact: Compacted | Cleared | Rewound | Restored) -> MissCause:
    """Return the cause of a prompt cache miss after the history was edited."""
    match fact:
        case Compacted():
            return "compaction"
        case Cleared():
            return "clearing"
        case Rewound():
            return "rewind"
        case Restored():
            return "undo"


def _compare_heads(old: Epoch | None, new: Epoch) -> tuple[tuple[MissCause, str], ...]:
    """Return the differences between two request heads that cause a prompt cache miss."""
    if old is None:
        return ()
    if new.why.startswith(PREFIX_BREAK):
        return (("message", new.why.removeprefix(PREFIX_BREAK)),)
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
