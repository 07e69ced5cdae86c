"""The view: the conversation as the model sees it, derived from the log.

A view grows by `add`, one entry at a time, and always equals `project_view` of the same entries. It
is total: whatever lines a damaged log has lost, the rest gives a history that a provider accepts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.core.content import Call, Opaque, Text, extract_calls, shorten_arguments
from travois.core.facts import (
    AnyFact,
    Assistant,
    Cleared,
    Compacted,
    Entry,
    Epoch,
    Offloaded,
    Opened,
    Restored,
    Result,
    Rewound,
    Sent,
    User,
)

CLEARED_RESULT = "[This result was cleared."
"""The beginning of the text that replaces a cleared result."""
LOST_RESULT = "The result of this call was lost when the session log was damaged."
THINKING_KINDS = ("thinking", "redacted_thinking")
"""Blocks that a provider binds to everything before them."""
SEALED_KINDS = (*THINKING_KINDS, "sealed")
"""All blocks that only their maker can read, and may refuse to hear again."""
CHARS_PER_WINDOW_TOKEN = 8
"""Characters for each token of a window: no vocabulary needs so many on the average."""
MIN_KEPT_CHARS = 1_000_000
"""The characters that are always kept, whatever the window."""
LOST_START = "(The beginning of this conversation was lost when the session log was damaged.)"


class OmittedSpan(Exception):
    """A compaction begins or ends among items that a view has omitted."""


class ViewItem(msgspec.Struct, frozen=True, gc=False):
    """One message as shown, under the number of the entry that brought it."""

    seq: int
    fact: User | Assistant | Result


class View(msgspec.Struct):
    """The conversation as the model sees it. Only `add` changes it."""

    epoch: Epoch | None = None
    items: list[ViewItem] = []
    open: dict[str, ViewItem | None] = {}
    """Calls of the last reply that still lack a shown result, in the order asked."""
    queued: list[ViewItem] = []
    """Messages that arrived while calls were open: shown after their results."""
    ids: set[str] = set()
    """Every call id ever used, so that none is used twice."""
    moves: int = 0
    """The number of facts that moved the prefix: an encoder that saw fewer starts over."""
    moved: int = 0
    """The last entry that did: all requests after it only grew."""
    seen: int = 0
    """The number of items that the model was sent."""
    sent: Sent | None = None
    sent_moves: int = 0
    """`moves` when the last request left: if it still stands, the prefix must too."""
    anchor: int = 0
    """The number of pieces of the last answered request: the provider's cache ends there."""
    branch: int = 0
    """The entry with which a fork goes its own way: its siblings share all before it."""
    replied: int = -1
    """The index of the last reply."""
    counted: int = -1
    """The index of the last reply whose token count still applies."""
    since: int = 0
    """The number of the entry with which the present model began: it counts in its own way."""
    cleared: tuple[str, ...] = ()
    """Calls whose results the provider clears for us."""
    cleared_inputs: tuple[str, ...] = ()
    """The calls among them whose arguments it clears, too."""
    summaries: dict[int, int] = {}
    """The compactions whose summary is shown, by entry; and under which number it is."""
    omitted: int = 0
    """The number of items left out after the first, since no window could hold them.

    Nothing can be sent before a compaction covers them.
    """
    omitted_chars: int = 0

    def add(self, entry: Entry) -> None:
        """Apply one more entry.

        `Rewound` and `Restored` change what came before them, which only `project_view` can honour.
        """
        moves = self.moves
        self._apply(entry)
        if self.moves != moves:
            self.moved = entry.seq

    def copy(self) -> View:
        """Return an independent copy."""
        return msgspec.structs.replace(
            self,
            items=list(self.items),
            open=dict(self.open),
            queued=list(self.queued),
            ids=set(self.ids),
            summaries=dict(self.summaries),
        )

    def _apply(self, entry: Entry) -> None:
        match entry.fact:
            case User() as fact:
                self._add_message(ViewItem(entry.seq, fact))
            case Assistant() as fact:
                self._add_reply(ViewItem(entry.seq, fact))
            case Result() as fact:
                self._add_result(ViewItem(entry.seq, fact))
            case Sent() as fact:
                self.sent, self.sent_moves, self.seen = fact, self.moves, len(self.items)
            case Epoch() as fact:
                self._apply_epoch(fact, entry.seq)
            case Offloaded() as fact:
                self._replace_result(fact.call, fact.preview)
            case Cleared() as fact:
                self._apply_cleared(fact, entry.seq)
            case Compacted() as fact:
                self._apply_compacted(fact, entry.seq)
            case Restored() | Rewound() as fact:
                self._apply_restored(fact)
            case _:
                self._apply_opened(entry.fact)

    def _apply_epoch(self, epoch: Epoch, seq: int) -> None:
        old = self.epoch
        if old is None or old.model.name != epoch.model.name:
            self.since, self.counted = seq, -1
        if epoch.unbind:
            self._drop_thinking(SEALED_KINDS)
        elif old and (old.system != epoch.system or old.tools != epoch.tools):
            self._drop_thinking()
        if self.cleared and not epoch.model.has_context_editing:
            self.cleared, self.cleared_inputs, self.counted = (), (), -1
        self.epoch, self.moves, self.anchor = epoch, self.moves + 1, 0

    def _drop_thinking(self, kinds: tuple[str, ...] = THINKING_KINDS) -> None:
        """Drop all thinking so far: it is bound to a history that no longer exists."""
        self.items = [_without_blocks(item, kinds) for item in self.items]

    def _apply_opened(self, fact: AnyFact) -> None:
        if isinstance(fact, Opened):
            self.branch = -1 if fact.parent else 0

    def _add_message(self, item: ViewItem) -> None:
        if self.branch < 0 and isinstance(item.fact, User) and item.fact.origin == "task":
            self.branch = item.seq
        (self.queued if self.open else self.items).append(item)

    def _add_reply(self, item: ViewItem) -> None:
        for call in [id for id, answer in self.open.items() if answer is None]:
            self._add_result(ViewItem(item.seq, Result(call, (Text(LOST_RESULT),), error=True)))
        if not self.items:
            self.items.append(ViewItem(item.seq, User((Text(LOST_START),), origin="note")))
        self.replied = self.counted = len(self.items)
        self.items.append(item)
        assert isinstance(item.fact, Assistant)
        self.open = {call.id: None for call in extract_calls(item.fact.content)}
        self.ids.update(self.open)
        if self.sent is not None:
            self.anchor = self.sent.pieces

    def _add_result(self, item: ViewItem) -> None:
        assert isinstance(item.fact, Result)
        if item.fact.call not in self.open or self.open[item.fact.call] is not None:
            return
        self.open[item.fact.call] = item
        for id, answer in list(self.open.items()):
            if answer is None:
                return
            self.items.append(answer)
            del self.open[id]
        self.items.extend(self.queued)
        self.queued = []

    def _apply_cleared(self, fact: Cleared, seq: int) -> None:
        if fact.where == "server":
            self.cleared += tuple(call for call in fact.calls if call not in self.cleared)
            if fact.what == "inputs":
                fresh = tuple(call for call in fact.calls if call not in self.cleared_inputs)
                self.cleared_inputs += fresh
            self.counted = -1
            self._add_tail_note(seq, fact.text)
            return
        self.moves, self.anchor, self.counted = self.moves + 1, 0, -1
        if fact.what == "thinking":  # taken from the front, which leaves the rest valid
            until = fact.until
            self.items = [
                _without_blocks(i, THINKING_KINDS) if i.seq <= until else i for i in self.items
            ]
            return
        self._drop_thinking()
        if fact.what == "inputs":
            self.items = [_with_short_inputs(item, fact) for item in self.items]
            return
        for call in fact.calls:
            self._replace_result(call, fact.text.replace("{call}", call))

    def _add_tail_note(self, seq: int, *texts: str) -> None:
        """Append a note that may not be inserted into a bound history."""
        if told := tuple(Text(text) for text in texts if text):
            self._add_message(ViewItem(seq, User(told, origin="note")))

    def _replace_result(self, call: str, text: str) -> None:
        """Show another text in place of a result's content."""
        held = self.open.get(call)
        if held is not None:
            self.open[call] = _with_text(held, text)
            return
        for index in range(len(self.items) - 1, -1, -1):
            item = self.items[index]
            if isinstance(item.fact, Result) and item.fact.call == call:
                self.items[index] = _with_text(item, text)
                return

    def _apply_restored(self, fact: Restored | Rewound) -> None:
        """Apply a changed history: one move for it, and one for the removed compaction."""
        assert isinstance(fact, Restored), "a rewound log is projected anew"
        self.moves, self.anchor, self.counted = self.moves + 2, 0, -1
        self._drop_thinking()

    def _apply_compacted(self, fact: Compacted, seq: int) -> None:
        where = {item.seq: index for index, item in enumerate(self.items)}
        if fact.first not in where or fact.last not in where:
            if any(self._is_omitted(seq) for seq in (fact.first, fact.last)):
                raise OmittedSpan
            return
        first, last = where[fact.first], where[fact.last]
        # A span that ends in a reply meant its summary, whose line was lost: calls, answered or
        # not, go with their reply.
        while last + 1 < len(self.items) and isinstance(self.items[last + 1].fact, Result):
            last += 1
        if first <= self.replied <= last:
            self.open = {}
            self.items.extend(self.queued)
            self.queued = []
        gone = {item.seq for item in self.items[first : last + 1]}
        if self.omitted and first == 0 < last:
            gone |= {at for at in self.summaries.values() if fact.first <= at <= fact.last}
            self.omitted = self.omitted_chars = 0
        self.summaries = {n: at for n, at in self.summaries.items() if at not in gone}
        self.summaries[seq] = fact.last
        self.items[first : last + 1] = [_build_summary_item(fact)]
        self.moves, self.anchor, self.counted = self.moves + 1, 0, -1
        if fact.by != "provider":
            self._drop_thinking()
        elif _provider_blocks(fact):
            self._add_tail_note(seq, *(b.text for b in fact.summary if isinstance(b, Text)))
        self.seen = max(0, self.seen - (last - first))
        self.replied = max(
            (i for i, item in enumerate(self.items) if isinstance(item.fact, Assistant)), default=-1
        )

    def _is_omitted(self, seq: int) -> bool:
        return bool(self.omitted) and self.items[0].seq < seq < self.items[1].seq

    def trim(self, *, slack: int = 1) -> None:
        """Leave out the older items of a conversation that exceeds any window.

        The first item stays, and of the last those that a compaction may keep word for word, or
        `slack` times as many: what is left is the same however often this is done on the way.
        """
        windows = CHARS_PER_WINDOW_TOKEN * (self.epoch.model.window if self.epoch else 0)
        if not self.omitted and self._last_within(max(2 * MIN_KEPT_CHARS, windows)) == 0:
            return
        cut = self._last_within(slack * max(MIN_KEPT_CHARS, windows // 8))
        if cut == 0 or (self.open and self.replied <= cut):
            return
        while cut + 1 < len(self.items) and isinstance(self.items[cut + 1].fact, Result):
            cut += 1  # no result stays without its call
        gone = self.items[1 : cut + 1]
        del self.items[1 : cut + 1]
        self.omitted += cut
        self.omitted_chars += sum(map(_item_chars, gone))
        self.replied = self.replied - cut if self.replied > cut else -1
        self.counted = self.counted - cut if self.counted > cut else -1
        self.seen = max(1, self.seen - cut)

    def _last_within(self, most: int) -> int:
        """Return the last item from which on there are too many characters; 0 if none."""
        size = 0
        for index in range(len(self.items) - 1, 0, -1):
            size += _item_chars(self.items[index])
            if size > most:
                return index
        return 0


def _item_chars(item: ViewItem) -> int:
    """Estimate the number of characters of an item in the view."""
    size = 50
    for block in item.fact.content:
        if isinstance(block, Text):
            size += len(block.text)
        elif isinstance(block, Call):
            size += len(block.args)
        elif isinstance(block, Opaque):
            size += len(block.raw)
    return size


def project_view(entries: Iterable[Entry]) -> View:
    """Build the view of the conversation from these log entries."""
    view, told = View(), list(entries)
    alive = keep_live_entries(told)
    for entry in alive:
        view.add(entry)
    if len(alive) < len(told):
        replies = (entry.fact for entry in told if isinstance(entry.fact, Assistant))
        view.ids.update(call.id for reply in replies for call in extract_calls(reply.content))
    return view


class RemovedEntries(msgspec.Struct, frozen=True):
    """The entries that rewinds and undone compactions removed."""

    spans: tuple[tuple[int, int], ...] = ()
    """After which entry and up to which nothing counts, the last first."""
    compactions: frozenset[int] = frozenset()

    def has(self, seq: int) -> bool:
        """Return whether this entry was removed."""
        return seq in self.compactions or any(to < seq <= last for to, last in self.spans)

    @property
    def first(self) -> int:
        """The first entry that may not count."""
        return min((*self.compactions, *(to + 1 for to, _ in self.spans)), default=1 << 62)


def find_removed_entries(entries: Iterable[Entry]) -> RemovedEntries:
    """Find the entries that the `Rewound` and `Restored` facts removed."""
    edits = [entry for entry in entries if isinstance(entry.fact, Rewound | Restored)]
    spans: list[tuple[int, int]] = []
    undone: set[int] = set()
    limit = 1 << 62
    for entry in reversed(edits):
        if entry.seq > limit:
            continue
        if isinstance(entry.fact, Rewound):
            limit = entry.fact.to
            spans.append((min(limit, entry.seq - 1), entry.seq))
        elif isinstance(entry.fact, Restored):
            undone.add(entry.fact.compaction)
    return RemovedEntries(tuple(spans), frozenset(undone))


def keep_live_entries(entries: list[Entry]) -> list[Entry]:
    """Return the log entries that no later `Rewound` or `Restored` removed."""
    gone = find_removed_entries(entries)
    if not gone.spans and not gone.compactions:
        return entries
    return [entry for entry in entries if not gone.has(entry.seq)]


def awaits_model(view: View) -> bool:
    """Return whether the view ends with something that the model has to answer."""
    if view.open or not view.items:
        return False
    last = view.items[-1].fact
    return not isinstance(last, Assistant) or last.stop == "pause"


def has_thinking(view: View, kinds: tuple[str, ...] = THINKING_KINDS) -> bool:
    """Return whether a view shows thinking, which binds everything before it."""
    blocks = (b for i in view.items if isinstance(i.fact, Assistant) for b in i.fact.content)
    return any(isinstance(block, Opaque) and block.kind in kinds for block in blocks)


def open_calls(view: View) -> tuple[Call, ...]:
    """Return the view's tool calls without a result, in order."""
    if not view.open:
        return ()
    reply = view.items[view.replied].fact
    assert isinstance(reply, Assistant)
    return tuple(
        c for c in extract_calls(reply.content) if c.id in view.open and view.open[c.id] is None
    )


def _with_text(item: ViewItem, text: str) -> ViewItem:
    assert isinstance(item.fact, Result)
    return ViewItem(item.seq, msgspec.structs.replace(item.fact, content=(Text(text),)))


def _without_blocks(item: ViewItem, kinds: tuple[str, ...]) -> ViewItem:
    """Return a message without the provider's own blocks of these kinds, such as thinking."""
    if not isinstance(item.fact, Assistant):
        return item
    kept = tuple(b for b in item.fact.content if not (isinstance(b, Opaque) and b.kind in kinds))
    if len(kept) == len(item.fact.content):
        return item
    return ViewItem(item.seq, msgspec.structs.replace(item.fact, content=kept))


def _with_short_inputs(item: ViewItem, fact: Cleared) -> ViewItem:
    """Return a reply for the view with a text in place of its calls' long arguments."""
    if not isinstance(item.fact, Assistant):
        return item
    blocks = tuple(
        msgspec.structs.replace(
            b, args=shorten_arguments(b.args, fact.text.replace("{call}", b.id))
        )
        if isinstance(b, Call) and b.id in fact.calls
        else b
        for b in item.fact.content
    )
    return ViewItem(item.seq, msgspec.structs.replace(item.fact, content=blocks))


def _build_summary_item(fact: Compacted) -> ViewItem:
    """Build the view's item for a compaction summary: our note, or a provider's block."""
    if fact.by == "provider":
        return ViewItem(
            fact.last, Assistant(_provider_blocks(fact) or fact.summary, stop="compaction")
        )
    shown = tuple(block for block in fact.summary if not isinstance(block, Call | Opaque))
    return ViewItem(fact.last, User(shown, origin="note"))


def _provider_blocks(fact: Compacted) -> tuple[Opaque, ...]:
    """Return a summary's blocks by the provider; the view shows the rest at its end."""
    return tuple(block for block in fact.summary if isinstance(block, Opaque))
