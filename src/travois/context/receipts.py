"""Compaction receipts: what each one freed and cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.core.cache_audit import CompactionStrikes, PromptCache, SessionSpending
from travois.core.content import extract_text
from travois.core.facts import (
    Assistant,
    Compacted,
    Entry,
    Epoch,
    Finished,
    Restored,
    Spawned,
)
from travois.core.tokens import (
    compact_threshold,
)
from travois.core.view import keep_live_entries, project_view
from travois.prompt import instruction_text

ReceiptState = Literal["stands", "undone", "replaced by a later one", "rewound"]
FILE_TAG = re.compile(r'^<file path="([^"]*)"', re.MULTILINE)


class ReceiptSpan(msgspec.Struct, frozen=True):
    """A replaced part of the conversation, and the file that holds it."""

    title: str
    file: str


class CompactionReceipt(msgspec.Struct, frozen=True):
    """The record of one compaction."""

    number: int
    entry: int
    at: float
    trigger: str
    by: str
    before: int
    planned: int
    """The size that it aimed for."""
    measured: int
    """The size of the next request as the provider counted it; 0 until there is one."""
    spans: tuple[ReceiptSpan, ...]
    restored: tuple[str, ...]
    """The files and instructions that were shown again."""
    dollars: float
    """The cost of the model's part of the summary."""
    rewritten: float
    """The extra cost of sending the rest again instead of reading it from the cache."""
    seconds: float
    threshold: int
    set_by: str
    """The source of the threshold."""
    useless: int = 0
    """The number of compactions in a row that freed little, up to this one."""
    breaker: bool = False
    """True if that stopped automatic compaction."""
    state: ReceiptState = "stands"


def list_compaction_receipts(entries: Sequence[Entry]) -> list[CompactionReceipt]:
    """List a receipt for each compaction of a whole session, in order."""
    book = _ReceiptBuilder()
    for entry in entries:
        book.add(entry)
    view = project_view(entries)
    undone = {entry.fact.compaction for entry in entries if isinstance(entry.fact, Restored)}
    kept = keep_live_entries([entry for entry in entries if not isinstance(entry.fact, Restored)])
    alive = {entry.seq for entry in kept}
    return [
        replace(one, state=_receipt_state(one, view.summaries, undone, alive)) for one in book.found
    ]


class _ReceiptBuilder:
    """The receipts so far, and the state that the next one needs."""

    def __init__(self) -> None:
        self.found: list[CompactionReceipt] = []
        self._spent = SessionSpending()
        self._cache = PromptCache()
        self._strikes = CompactionStrikes()
        self._epoch: Epoch | None = None
        self._forks: set[str] = set()
        self._dollars = 0.0

    def add(self, entry: Entry) -> None:
        """Add one more entry."""
        before, misses = self._spent.dollars, len(self._cache.misses)
        self._spent = self._spent.after_entry(entry)
        self._cache, self._strikes = (
            self._cache.after_entry(entry),
            self._strikes.after_fact(entry.fact),
        )
        match entry.fact:
            case Epoch() as fact:
                self._epoch = fact
            case Spawned(kind="fork", what="draft" | "summary", id=id):
                self._forks.add(id)
            case Finished(id=id) if id in self._forks:
                self._dollars += self._spent.dollars - before
            case Compacted() as fact if fact.by != "dropped":
                self.found.append(self._make_receipt(fact, entry))
                self._dollars = 0.0
            case Assistant() as fact if self.found and not self.found[-1].measured:
                more = sum(miss.dollars for miss in self._cache.misses[misses:])
                self._record_next_request(fact.usage.prompt, more)
            case _:
                pass

    def _make_receipt(self, fact: Compacted, entry: Entry) -> CompactionReceipt:
        own = compact_threshold(self._epoch.model) if self._epoch else 0
        chosen = 0 < fact.limit < own
        return CompactionReceipt(
            number=len(self.found) + 1,
            entry=entry.seq,
            at=entry.at,
            trigger=fact.trigger,
            by=fact.by,
            before=fact.before,
            planned=fact.after,
            measured=0,
            spans=tuple(ReceiptSpan(*pair) for pair in zip(fact.titles, fact.files, strict=False)),
            restored=_list_restored_paths(fact),
            dollars=self._dollars,
            rewritten=0.0,
            seconds=fact.seconds,
            threshold=fact.limit or own,
            set_by="settings" if chosen else "the model's window",
        )

    def _record_next_request(self, measured: int, rewritten: float) -> None:
        self.found[-1] = replace(
            self.found[-1],
            measured=measured,
            rewritten=rewritten,
            useless=self._strikes.useless,
            breaker=self._strikes.is_out,
        )


def _list_restored_paths(fact: Compacted) -> tuple[str, ...]:
    """List the files that a compaction's receipt names as shown again."""
    texts = (extract_text((block,)) for block in fact.summary)
    told = (
        text for text in texts if text.startswith((instruction_text.INSTRUCTIONS_TAG, "<files>"))
    )
    return tuple(dict.fromkeys(path for text in told for path in FILE_TAG.findall(text)))


def _receipt_state(
    receipt: CompactionReceipt, shown: dict[int, int], undone: set[int], alive: set[int]
) -> ReceiptState:
    """Return a compaction's state: in effect, rewound, undone or replaced."""
    if receipt.entry not in alive:
        return "rewound"
    if receipt.entry in shown:
        return "stands"
    return "undone" if receipt.entry in undone else "replaced by a later one"
