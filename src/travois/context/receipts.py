"""One record for each compaction: what it was for, what it did, what it cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.cache_audit import Cache, Spent, Strikes
from travois.core.content import words
from travois.core.facts import Assistant, Compacted, Entry, Epoch, Finished, Restored, Spawned
from travois.core.tokens import compact_at
from travois.core.view import living, project
from travois.prompt import instruction_text as instructions

State = Literal["stands", "undone", "taken in by a later one", "taken back"]
FILES = re.compile(r'^<file path="([^"]*)"', re.MULTILINE)


class Span(msgspec.Struct, frozen=True):
    """A part of the conversation that gave way, and where it can be read."""

    title: str
    file: str


class Receipt(msgspec.Struct, frozen=True):
    """One compaction."""

    number: int
    entry: int
    at: float
    trigger: str
    by: str
    before: int
    planned: int
    """What it was meant to come to."""
    measured: int
    """What the next request came to, as the provider counted; zero until there is one."""
    spans: tuple[Span, ...]
    restored: tuple[str, ...]
    """What was told or shown again."""
    dollars: float
    """What the model's part of the summary cost."""
    rewritten: float
    """What it cost more to send the rest again than to read it from the cache."""
    seconds: float
    threshold: int
    set_by: str
    """Who said where compaction starts."""
    useless: int = 0
    """How many in a row have freed little, up to this one."""
    breaker: bool = False
    """Whether that stopped compaction from starting by itself."""
    state: State = "stands"


def receipts(entries: Sequence[Entry]) -> list[Receipt]:
    """Those of a whole session, in order."""
    book = _Book()
    for entry in entries:
        book.take(entry)
    view = project(entries)
    undone = {entry.fact.compaction for entry in entries if isinstance(entry.fact, Restored)}
    kept = living([entry for entry in entries if not isinstance(entry.fact, Restored)])
    alive = {entry.seq for entry in kept}
    return [replace(one, state=_state(one, view.summaries, undone, alive)) for one in book.found]


class _Book:
    """The receipts so far, and what the next one will need."""

    def __init__(self) -> None:
        self.found: list[Receipt] = []
        self._spent = Spent()
        self._cache = Cache()
        self._strikes = Strikes()
        self._epoch: Epoch | None = None
        self._forks: set[str] = set()
        self._dollars = 0.0

    def take(self, entry: Entry) -> None:
        """Take one more entry into account."""
        before, misses = self._spent.dollars, len(self._cache.misses)
        self._spent = self._spent.after(entry)
        self._cache, self._strikes = self._cache.after(entry), self._strikes.after(entry.fact)
        match entry.fact:
            case Epoch() as fact:
                self._epoch = fact
            case Spawned(kind="fork", what="draft" | "summary", id=id):
                self._forks.add(id)
            case Finished(id=id) if id in self._forks:
                self._dollars += self._spent.dollars - before
            case Compacted() as fact if fact.by != "dropped":
                self.found.append(self._receipt(fact, entry))
                self._dollars = 0.0
            case Assistant() as fact if self.found and not self.found[-1].measured:
                more = sum(miss.dollars for miss in self._cache.misses[misses:])
                self._close(fact.usage.prompt, more)
            case _:
                pass

    def _receipt(self, fact: Compacted, entry: Entry) -> Receipt:
        own = compact_at(self._epoch.model) if self._epoch else 0
        chosen = 0 < fact.limit < own
        return Receipt(
            number=len(self.found) + 1,
            entry=entry.seq,
            at=entry.at,
            trigger=fact.trigger,
            by=fact.by,
            before=fact.before,
            planned=fact.after,
            measured=0,
            spans=tuple(Span(*pair) for pair in zip(fact.titles, fact.files, strict=False)),
            restored=_restored(fact),
            dollars=self._dollars,
            rewritten=0.0,
            seconds=fact.seconds,
            threshold=fact.limit or own,
            set_by="settings" if chosen else "the model's window",
        )

    def _close(self, measured: int, rewritten: float) -> None:
        self.found[-1] = replace(
            self.found[-1],
            measured=measured,
            rewritten=rewritten,
            useless=self._strikes.useless,
            breaker=self._strikes.out,
        )


def _restored(fact: Compacted) -> tuple[str, ...]:
    texts = (words((block,)) for block in fact.summary)
    told = (text for text in texts if text.startswith((instructions.TAG, "<files>")))
    return tuple(dict.fromkeys(path for text in told for path in FILES.findall(text)))


def _state(one: Receipt, shown: dict[int, int], undone: set[int], alive: set[int]) -> State:
    if one.entry not in alive:
        return "taken back"
    if one.entry in shown:
        return "stands"
    return "undone" if one.entry in undone else "taken in by a later one"
