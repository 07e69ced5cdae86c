"""A log as a list of requests, folded entry by entry.

Between two facts that change the prefix, each request begins with the one before it. So all
requests of such a stretch share one list of items, and a request is a length of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.context.window import (
    list_head_portions,
    list_item_portions,
    scale_sizes,
)
from travois.core.cache_audit import MissCause, PromptCache, SessionSpending
from travois.core.facts import (
    Assistant,
    Compacted,
    Entry,
    Failed,
    Opened,
    Restored,
    Rewound,
    Sent,
    User,
)
from travois.core.models import Usage
from travois.core.view import View, ViewItem, project_view
from travois.sessions import blobs, log_line
from travois.sessions.log_file import LOG_FILE_NAME, DamagedPlace, read_history, read_opening

REQUEST_LAYERS = (
    "system",
    "tools",
    "instructions",
    "memory",
    "summary",
    "user",
    "assistant",
    "results",
    "notes",
)
"""Layers of a request, in plotting order."""
HEAD_LAYERS = REQUEST_LAYERS[:2]
"""Those that are the same bytes in each request."""


class RequestStep(msgspec.Struct, frozen=True):
    """A request and its reply."""

    index: int
    entry: int
    at: float
    turn: int
    model: str
    size: int
    """In bytes."""
    tokens: int
    """The size of the request: as counted by the provider, else as estimated."""
    sizes: tuple[int, ...]
    """Tokens by layer."""
    items: int
    common: int
    """Items shared with the beginning of the previous request."""
    moved: tuple[tuple[MissCause, str], ...] = ()
    """Causes that changed the prefix since the last reply."""
    reply: int = 0
    """The entry of the reply; 0 if it failed or is pending."""
    seconds: float = 0.0
    usage: Usage = Usage()
    dollars: float = 0.0
    total: float = 0.0
    """The session's cost up to here."""
    stop: str = ""
    failed: str = ""


class PrefixStretch(msgspec.Struct):
    """Consecutive requests that each begin with the previous one."""

    base: View
    """The view that all of them share, without items."""
    sizes: Counter[str]
    items: list[ViewItem] = []


class RequestOrigin(msgspec.Struct, frozen=True):
    """The data from which a request can be rebuilt."""

    stretch: PrefixStretch
    sent: Sent
    anchor: int
    branch: int


class CompactionCut(msgspec.Struct, frozen=True):
    """Items that a compaction removed, and the number that stayed."""

    dropped: tuple[ViewItem, ...]
    kept: int


class SessionStory:
    """The requests of a session so far."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self.steps: list[RequestStep] = []
        self.cuts: dict[int, CompactionCut] = {}
        self.own = 0
        """The number of entries inherited from the parent session."""
        self._turns = 0
        self._view = View()
        self._spent = SessionSpending()
        self._cache = PromptCache()
        self._stretch: PrefixStretch | None = None
        self._asked: list[RequestOrigin] = []
        self._heads: dict[tuple[int, ...], tuple[int, ...]] = {}
        """The measured sizes of system prompts and tool lists, by their estimates."""
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        before = self._spent.dollars
        self._spent, self._cache = self._spent.after_entry(entry), self._cache.after_entry(entry)
        match entry.fact:
            case Opened():
                self.own, self.steps, self._asked = len(self.entries), [], []
            case User(origin="human"):
                self._turns += 1
            case Sent() as fact:
                self._add_request(fact, entry)
            case Assistant() as fact if self.steps and not self.steps[-1].reply:
                self._add_reply(fact, entry, dollars=self._spent.dollars - before)
            case Failed() as fact if self.steps and not self.steps[-1].reply:
                self.steps[-1] = replace(self.steps[-1], failed=f"{fact.kind}: {fact.message}")
            case Compacted() as fact:
                self._add_compaction(fact, entry.seq)
            case _:
                pass
        self.entries.append(entry)
        # These two reach back into the log, so the view cannot be folded forward over them.
        if isinstance(entry.fact, Rewound | Restored):
            self._view, self._stretch = project_view(self.entries), None
        else:
            self._view.add(entry)

    def view_at(self, index: int) -> View:
        """Return the view of a request."""
        asked = self._asked[index]
        items = asked.stretch.items[: self.steps[index].items]
        return replace(asked.stretch.base, items=items, anchor=asked.anchor, branch=asked.branch)

    def request_fact(self, index: int) -> Sent:
        """Return the logged fact of a request."""
        return self._asked[index].sent

    def _add_request(self, sent: Sent, entry: Entry) -> None:
        view, moved = self._view, self._has_prefix_moved()
        stretch = self._stretch = self._new_stretch() if moved else self._stretch
        assert stretch is not None
        for item in view.items[len(stretch.items) :]:
            stretch.items.append(item)
            for one in list_item_portions(item, cleared=view.cleared):
                stretch.sizes[layer_of_item(item, one.kind)] += one.tokens
        sizes = self._scale_sizes((stretch.sizes[name] for name in REQUEST_LAYERS), sent.tokens)
        common = self.steps[-1].items if self.steps else 0
        if moved and self.steps:
            common = _common_length(self.view_at(-1).items, view.items)
        step = RequestStep(
            index=len(self.steps),
            entry=entry.seq,
            at=entry.at,
            turn=self._turns,
            model=view.epoch.model.name if view.epoch else "",
            size=sent.size,
            tokens=sum(sizes),
            sizes=sizes,
            items=len(view.items),
            common=common,
            moved=self._cache.moved,
            total=self._spent.dollars,
        )
        self.steps.append(step)
        self._asked.append(RequestOrigin(stretch, sent, view.anchor, view.branch))

    def _has_prefix_moved(self) -> bool:
        view, last = self._view, self._stretch
        return last is None or (last.base.moves, last.base.cleared) != (view.moves, view.cleared)

    def _new_stretch(self) -> PrefixStretch:
        view = self._view
        sizes: Counter[str] = Counter()
        for one in list_head_portions(view.epoch) if view.epoch else ():
            sizes[one.kind] += one.tokens
        return PrefixStretch(View(epoch=view.epoch, moves=view.moves, cleared=view.cleared), sizes)

    def _add_reply(self, reply: Assistant, entry: Entry, *, dollars: float) -> None:
        step = self.steps[-1]
        sizes = self._scale_sizes(step.sizes, 0 if reply.usage.estimated else reply.usage.prompt)
        if not reply.usage.estimated:
            self._heads.setdefault(self._head_key(), sizes[: len(HEAD_LAYERS)])
        self.steps[-1] = replace(
            step,
            reply=entry.seq,
            seconds=entry.at - step.at,
            usage=reply.usage,
            tokens=sum(sizes),
            sizes=sizes,
            dollars=dollars,
            total=self._spent.dollars,
            stop=reply.stop,
            failed="",
        )

    def _head_key(self) -> tuple[int, ...]:
        """Return what tells one system prompt and tool list from another: their estimates."""
        assert self._stretch is not None
        return tuple(self._stretch.sizes[name] for name in HEAD_LAYERS)

    def _scale_sizes(self, sizes: Iterable[int], total: int) -> tuple[int, ...]:
        """Scale the sizes to sum to the total, if it is known.

        System prompt and tools keep the size measured with their first request, of which they are
        nearly all: else they would seem to shrink or grow with the messages after them.
        """
        guessed, head = tuple(sizes), self._heads.get(self._head_key(), ())
        if not head or total <= sum(head):
            return _scale_to_total(guessed, total)
        return (*head, *_scale_to_total(guessed[len(head) :], total - sum(head)))

    def _add_compaction(self, fact: Compacted, seq: int) -> None:
        items = self._view.items
        where = {item.seq: index for index, item in enumerate(items)}
        if fact.first in where and fact.last in where:
            gone = tuple(items[where[fact.first] : where[fact.last] + 1])
            self.cuts[seq] = CompactionCut(gone, len(items) - len(gone))


def find_step_of_entry(story: SessionStory, seq: int, *, replied: bool = False) -> int:
    """Return the first request that includes an entry; for a reply, its own request."""
    after = bisect_right(story.steps, seq, key=lambda step: step.entry) - replied
    return max(0, min(after, len(story.steps) - 1))


def layer_of_item(item: ViewItem, kind: str) -> str:
    """Return the inspector's layer of a block; messages are split by speaker."""
    fact = item.fact
    if kind != "messages":
        return kind
    if isinstance(fact, Assistant):
        return "assistant"
    if isinstance(fact, User) and fact.origin != "human":
        return "notes"
    return "user"


def _common_length(old: list[ViewItem], new: list[ViewItem]) -> int:
    """Count the items that two requests have in common at the start."""
    pairs = enumerate(zip(old, new, strict=False))
    differ = (n for n, (a, b) in pairs if a.seq != b.seq or a.fact is not b.fact)
    return next(differ, min(len(old), len(new)))


def _scale_to_total(sizes: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Scale the sizes to sum to the total, if it is known; what is there does not vanish."""
    whole = sum(sizes)
    if not total or not whole:
        return sizes
    scaled = [*scale_sizes(sizes, total / whole)]
    for at, size in enumerate(sizes):
        if size and not scaled[at]:
            scaled[at] += 1
            scaled[scaled.index(max(scaled))] -= 1
    return tuple(scaled)


# Reading a log while it grows; each line is read once.


class LogReader:
    """A log that is read incrementally; a fork starts with its parent's entries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.story = SessionStory()
        self.skipped: list[DamagedPlace] = []
        self._offset = 0
        self._lines = 0
        self._last = 0
        first = read_opening(folder)
        if first and isinstance(first.fact, Opened) and first.fact.parent:
            for entry in read_history(folder, self.skipped):
                if entry.seq > first.fact.at:
                    break
                self.story.add(entry)
        self.update()

    @property
    def size_on_disk(self) -> int:
        """The size of the log in bytes."""
        return (self.folder / LOG_FILE_NAME).stat().st_size

    def update(self) -> None:
        """Read new lines; an incomplete last line waits."""
        try:
            with (self.folder / LOG_FILE_NAME).open("rb") as file:
                file.seek(self._offset)
                for text in takewhile(_is_whole_line, file):
                    self._add_line(text)
        except OSError as error:
            raise blobs.make_storage_error(
                "The session cannot be read", error, path=self.folder
            ) from error

    def _add_line(self, text: bytes) -> None:
        found, reason = log_line.split_records(text)
        self._lines += 1
        if reason:
            name = str(self.folder / LOG_FILE_NAME)
            self.skipped.append(DamagedPlace(name, self._lines, self._offset, reason))
        self._offset += len(text)
        for record in found:
            entry = _decode_record(record)
            if entry and entry.seq > self._last:
                self._last = entry.seq
                self.story.add(entry)


def _is_whole_line(text: bytes) -> bool:
    return text.endswith(b"\n")


def _decode_record(record: bytes) -> Entry | None:
    """Decode a log record for the inspector; None for a fact of a later version."""
    try:
        return log_line.decode_record(record)
    except log_line.UnknownFactError:
        return None
