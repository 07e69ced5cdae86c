"""Compaction receipts (what each one freed and cost), and the context window block by block."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.context.compaction.cut import is_summary
from travois.core.cache_audit import CompactionStrikes, PromptCache, SessionSpending
from travois.core.content import AnyBlock, Text, extract_calls, extract_text
from travois.core.facts import (
    Assistant,
    Cleared,
    Compacted,
    Entry,
    Epoch,
    Finished,
    Offloaded,
    Restored,
    Result,
    Spawned,
)
from travois.core.models import Usage
from travois.core.tokens import (
    TOKENS_PER_RESULT,
    block_tokens,
    compact_threshold,
    estimate_tokens,
    fact_tokens,
    token_ratio,
)
from travois.core.view import View, ViewItem, keep_live_entries, project_view
from travois.memory.recall_text import INDEX_CHANGED_TAG, INDEX_TAG, RECALLED_TAG
from travois.prompt import environment, instruction_text

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


# What is in the window: every block with its source, its size, its cache, and why it is there.


PortionKind = Literal["tools", "system", "instructions", "memory", "summary", "messages", "results"]
CacheStatus = Literal["read", "written", "not cached", "not yet sent", "cold"]
PORTION_KINDS: tuple[PortionKind, ...] = (
    "system",
    "tools",
    "instructions",
    "memory",
    "summary",
    "messages",
    "results",
)
MAX_SOURCE_CHARS = 60
MEMORY_MARKS = (RECALLED_TAG, INDEX_TAG, INDEX_CHANGED_TAG)
EMPTY_MAPPING: Mapping[str, str] = {}


class WindowPortion(msgspec.Struct, frozen=True):
    """One block of the next request."""

    kind: PortionKind
    source: str
    tokens: int
    why: str
    entry: int = 0
    """The entry that brought it."""
    cache: CacheStatus = "not yet sent"


class WindowBreakdown(msgspec.Struct, frozen=True):
    """The whole window. Sizes are estimates, scaled to agree with the provider's count."""

    portions: tuple[WindowPortion, ...]
    measured: int
    """The provider's own count for all up to its last reply; zero if there is none that holds."""
    scale: float
    """The factor by which the estimates were scaled to agree with it."""

    @property
    def total_tokens(self) -> int:
        """The tokens of all portions."""
        return sum(portion.tokens for portion in self.portions)

    @property
    def tokens_by_kind(self) -> dict[PortionKind, int]:
        """The tokens of each kind."""
        return {
            kind: sum(one.tokens for one in self.portions if one.kind == kind)
            for kind in PORTION_KINDS
        }


def break_down_window(
    view: View, entries: Iterable[Entry], *, cache: PromptCache, now: float
) -> WindowBreakdown:
    """Break down the context window that the next request would send."""
    first, body = (
        list(list_head_portions(view.epoch)) if view.epoch else [],
        list(_list_body_portions(view, entries)),
    )
    last = view.items[view.counted] if view.counted >= 0 else None
    usage = last.fact.usage if last and isinstance(last.fact, Assistant) else Usage()
    told = sum(index <= view.counted for index, _ in body) if usage.context else 0
    known = [*first, *(one for _, one in body[:told])] if told else []
    later = [one for _, one in body[told:]] if told else [*first, *(one for _, one in body)]
    guessed = sum(one.tokens for one in known)
    scale = usage.context / guessed if guessed else token_ratio(view)
    sizes = (*_scale_portions(known, scale), *_scale_portions(later, token_ratio(view)))
    sized = tuple(replace(o, tokens=n) for o, n in zip((*known, *later), sizes, strict=True))
    alive = cache.seconds_left(now) > 0
    return WindowBreakdown(
        _assign_cache_state(sized, usage if told else Usage(), alive=alive), usage.context, scale
    )


def list_head_portions(epoch: Epoch) -> Iterator[WindowPortion]:
    """Yield the window's tools and system prompt, in the order in which they are cached."""
    for tool in epoch.tools:
        size = estimate_tokens(tool.name + tool.description + tool.schema)
        yield WindowPortion("tools", tool.name, size, "tool definition")
    yield WindowPortion(
        "system",
        "system prompt",
        estimate_tokens(epoch.system),
        f"fixed prompt prefix ({epoch.why})",
    )


def _list_body_portions(
    view: View, entries: Iterable[Entry]
) -> Iterator[tuple[int, WindowPortion]]:
    """Yield the context window's blocks of each message, with the message's index."""
    shaped = {key: why for entry in entries for key, why in _explain_shape(entry)}
    shaped |= dict.fromkeys(view.cleared, "cleared by the provider")
    asked = {
        call.id: f"{call.name} {' '.join(call.args.split())[:MAX_SOURCE_CHARS]}"
        for item in view.items
        if isinstance(item.fact, Assistant)
        for call in extract_calls(item.fact.content)
    }
    for index, item in enumerate(view.items):
        for one in list_item_portions(item, cleared=view.cleared, shaped=shaped, asked=asked):
            yield index, one


def list_item_portions(
    item: ViewItem,
    *,
    cleared: Collection[str] = (),
    shaped: Mapping[str, str] = EMPTY_MAPPING,
    asked: Mapping[str, str] = EMPTY_MAPPING,
) -> Iterator[WindowPortion]:
    """Yield one message's blocks with estimated sizes; `shaped` and `asked` describe calls."""
    fact = item.fact
    if isinstance(fact, Result):
        size = fact_tokens(fact)
        size = min(size, 2 * TOKENS_PER_RESULT) if fact.call in cleared else size
        why = shaped.get(fact.call, "tool result")
        yield WindowPortion("results", asked.get(fact.call, fact.call), size, why, item.seq)
    elif isinstance(fact, Assistant):
        said = extract_text(fact.content) or ", ".join(
            call.name for call in extract_calls(fact.content)
        )
        source = f"reply: {_shorten_source(said)}"
        yield WindowPortion("messages", source, fact_tokens(fact), "model reply", item.seq)
    else:
        yield from (_classify_user_block(block, item, shaped) for block in fact.content)


def _classify_user_block(
    block: AnyBlock, item: ViewItem, shaped: Mapping[str, str]
) -> WindowPortion:
    """Classify a context window block from the user or from Travois."""
    text, size = extract_text((block,)), block_tokens(block)
    human = getattr(item.fact, "origin", "") == "human"
    if human:
        return WindowPortion(
            "messages", f"you: {_shorten_source(text)}", size, "your message", item.seq
        )
    if text.startswith(instruction_text.INSTRUCTIONS_TAG):
        return WindowPortion(
            "instructions", "instruction files", size, "project instructions", item.seq
        )
    if text.startswith(MEMORY_MARKS):
        return WindowPortion(
            "memory", "memories", size, "remembered from earlier sessions", item.seq
        )
    if text.startswith(environment.ENVIRONMENT_OPENING):
        return WindowPortion(
            "messages", "environment", size, "date, folder and git state", item.seq
        )
    if isinstance(block, Text) and is_summary(item):
        why = shaped.get(str(item.seq), "replaces an earlier part")
        files = text.startswith("<files>")
        return WindowPortion(
            "summary", "files shown again" if files else "summary", size, why, item.seq
        )
    return WindowPortion(
        "messages", f"note: {_shorten_source(text)}", size, "added by Travois", item.seq
    )


def _explain_shape(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield why a window block is shown as it is: cleared, offloaded or restored."""
    match entry.fact:
        case Offloaded() as fact:
            yield fact.call, f"shortened; full text in {fact.blob}"
        case Cleared() as fact:
            yield from ((call, "cleared; full text on disk") for call in fact.calls)
        case Compacted() as fact:
            yield str(fact.last), f"replaces entries {fact.first} to {fact.last} ({fact.trigger})"
        case _:
            return


def _scale_portions(portions: list[WindowPortion], scale: float) -> Iterator[int]:
    return scale_sizes((one.tokens for one in portions), scale)


def scale_sizes(sizes: Iterable[int], scale: float) -> Iterator[int]:
    """Scale window block sizes by a factor, rounding the sum only once."""
    exact, told = 0.0, 0
    for size in sizes:
        exact += size * scale
        yield round(exact) - told
        told = round(exact)


def _assign_cache_state(
    portions: tuple[WindowPortion, ...], usage: Usage, *, alive: bool
) -> tuple[WindowPortion, ...]:
    """Mark which window blocks the last reply read from the prompt cache or wrote to it."""
    found: list[WindowPortion] = []
    read, held = usage.read, usage.read + usage.write + usage.write_1h
    at = 0
    for one in portions:
        middle, at = at + one.tokens / 2, at + one.tokens
        state: CacheStatus = (
            "read" if middle < read else "written" if middle < held else "not cached"
        )
        if middle >= usage.prompt:
            state = "not yet sent"
        elif state != "not cached" and not alive:
            state = "cold"
        found.append(replace(one, cache=state))
    return tuple(found)


def _shorten_source(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_SOURCE_CHARS else f"{line[: MAX_SOURCE_CHARS - 1]}…"
