"""What the model sees, as a function of the log.

A view grows by `add`, one entry at a time, and is always equal to `project` of the same entries.
It is total: whatever lines a damaged log has lost, the rest projects to a history that a provider
accepts.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.kernel.blocks import Call, Opaque, Text, calls
from travois.kernel.facts import (
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

LOST_RESULT = "The result of this call was lost when the session log was damaged."
THINKING = ("thinking", "redacted_thinking")
"""Blocks that a provider binds to everything before them."""
SEALED = (*THINKING, "sealed")
"""All blocks that only their maker can read, and may refuse to hear again."""
LOST_START = "(The beginning of this conversation was lost when the session log was damaged.)"


class Item(msgspec.Struct, frozen=True, gc=False):
    """One message as shown, under the number of the entry that brought it."""

    seq: int
    fact: User | Assistant | Result


class View(msgspec.Struct):
    """The conversation as the model sees it. Only `add` changes it."""

    epoch: Epoch | None = None
    items: list[Item] = []
    open: dict[str, Item | None] = {}
    """Calls of the last reply that still lack a shown result, in the order asked."""
    queued: list[Item] = []
    """What was said while calls were open: shown after their results."""
    ids: set[str] = set()
    """Every call id ever used, so that none is used twice."""
    moves: int = 0
    """How many facts have moved the prefix: an encoder that saw fewer starts over."""
    moved: int = 0
    """The last entry that did: all requests after it only grew."""
    seen: int = 0
    """How many items the model has been sent."""
    sent: Sent | None = None
    sent_moves: int = 0
    """`moves` when the last request left: if it still stands, the prefix must too."""
    anchor: int = 0
    """How many pieces the last answered request had: the provider's cache ends there."""
    branch: int = 0
    """The entry with which a fork goes its own way: its siblings share all before it."""
    replied: int = -1
    """Where the last reply stands among the items."""
    counted: int = -1
    """Where the last reply stands whose own count of tokens still holds."""
    since: int = 0
    """The number of the entry with which the present model began: it counts in its own way."""
    cleared: tuple[str, ...] = ()
    """Calls whose results the provider clears for us."""
    summaries: dict[int, int] = {}
    """The compactions whose summary is shown, by entry; and under which number it is."""

    def add(self, entry: Entry) -> None:
        """Take one more entry into account.

        `Rewound` and `Restored` change what came before them, which only `project` can honour.
        """
        moves = self.moves
        self._take(entry)
        if self.moves != moves:
            self.moved = entry.seq

    def _take(self, entry: Entry) -> None:
        match entry.fact:
            case User() as fact:
                self._say(Item(entry.seq, fact))
            case Assistant() as fact:
                self._reply(Item(entry.seq, fact))
            case Result() as fact:
                self._answer(Item(entry.seq, fact))
            case Sent() as fact:
                self.sent, self.sent_moves, self.seen = fact, self.moves, len(self.items)
            case Epoch() as fact:
                self._begin(fact, entry.seq)
            case Offloaded() as fact:
                self._show(fact.call, fact.preview)
            case Cleared() as fact:
                self._clear(fact, entry.seq)
            case Compacted() as fact:
                self._compact(fact, entry.seq)
            case Restored() | Rewound() as fact:
                self._restore(fact)
            case _:
                self._open(entry.fact)

    def _begin(self, epoch: Epoch, seq: int) -> None:
        old = self.epoch
        if old is None or old.model.name != epoch.model.name:
            self.since, self.counted = seq, -1
        if epoch.unbind:
            self._unbind(SEALED)
        elif old and (old.system != epoch.system or old.tools != epoch.tools):
            self._unbind()
        if self.cleared and not epoch.model.edits:
            self.cleared, self.counted = (), -1
        self.epoch, self.moves, self.anchor = epoch, self.moves + 1, 0

    def _unbind(self, kinds: tuple[str, ...] = THINKING) -> None:
        """Let go of all thinking so far: it is bound to a history that no longer stands."""
        self.items = [_without(item, kinds) for item in self.items]

    def _open(self, fact: AnyFact) -> None:
        if isinstance(fact, Opened):
            self.branch = -1 if fact.parent else 0

    def _say(self, item: Item) -> None:
        if self.branch < 0 and isinstance(item.fact, User) and item.fact.origin == "task":
            self.branch = item.seq
        (self.queued if self.open else self.items).append(item)

    def _reply(self, item: Item) -> None:
        for call in [id for id, answer in self.open.items() if answer is None]:
            self._answer(Item(item.seq, Result(call, (Text(LOST_RESULT),), error=True)))
        if not self.items:
            self.items.append(Item(item.seq, User((Text(LOST_START),), origin="note")))
        self.replied = self.counted = len(self.items)
        self.items.append(item)
        assert isinstance(item.fact, Assistant)
        self.open = {call.id: None for call in calls(item.fact.content)}
        self.ids.update(self.open)
        if self.sent is not None:
            self.anchor = self.sent.pieces

    def _answer(self, item: Item) -> None:
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

    def _clear(self, fact: Cleared, seq: int) -> None:
        if fact.where == "server":
            self.cleared += tuple(call for call in fact.calls if call not in self.cleared)
            self.counted = -1
            self._note(seq, fact.text)
            return
        self.moves, self.anchor, self.counted = self.moves + 1, 0, -1
        self._unbind()
        for call in fact.calls:
            self._show(call, fact.text.replace("{call}", call))

    def _note(self, seq: int, *texts: str) -> None:
        """Tell at the tail what may not be told inside a history that is bound."""
        if told := tuple(Text(text) for text in texts if text):
            self._say(Item(seq, User(told, origin="note")))

    def _show(self, call: str, text: str) -> None:
        """Show another text in place of a result's content."""
        held = self.open.get(call)
        if held is not None:
            self.open[call] = _retold(held, text)
            return
        for index in range(len(self.items) - 1, -1, -1):
            item = self.items[index]
            if isinstance(item.fact, Result) and item.fact.call == call:
                self.items[index] = _retold(item, text)
                return

    def _restore(self, fact: Restored | Rewound) -> None:
        """Own up to a changed history: one move for it, and one for the compaction that is gone."""
        assert isinstance(fact, Restored), "a rewound log is projected anew"
        self.moves, self.anchor, self.counted = self.moves + 2, 0, -1
        self._unbind()

    def _compact(self, fact: Compacted, seq: int) -> None:
        where = {item.seq: index for index, item in enumerate(self.items)}
        if fact.first not in where or fact.last not in where:
            return
        first, last = where[fact.first], where[fact.last]
        gone = {item.seq for item in self.items[first : last + 1]}
        self.summaries = {n: at for n, at in self.summaries.items() if at not in gone}
        self.summaries[seq] = fact.last
        self.items[first : last + 1] = [_summary(fact)]
        self.moves, self.anchor, self.counted = self.moves + 1, 0, -1
        if fact.by != "provider":
            self._unbind()
        elif _signed(fact):
            self._note(seq, *(b.text for b in fact.summary if isinstance(b, Text)))
        self.seen = max(0, self.seen - (last - first))
        self.replied = max(
            (i for i, item in enumerate(self.items) if isinstance(item.fact, Assistant)), default=-1
        )


def project(entries: Iterable[Entry]) -> View:
    """What the model sees after these entries."""
    view, told = View(), list(entries)
    alive = living(told)
    for entry in alive:
        view.add(entry)
    if len(alive) < len(told):
        replies = (entry.fact for entry in told if isinstance(entry.fact, Assistant))
        view.ids.update(call.id for reply in replies for call in calls(reply.content))
    return view


def living(entries: list[Entry]) -> list[Entry]:
    """The entries that no later `Rewound` or `Restored` has taken out of the conversation."""
    kept: list[Entry] = []
    limit = None
    for entry in reversed(entries):
        if limit is not None and entry.seq > limit:
            continue
        if isinstance(entry.fact, Rewound):
            limit = entry.fact.to
            continue
        kept.append(entry)
    kept.reverse()
    undone = {entry.fact.compaction for entry in kept if isinstance(entry.fact, Restored)}
    return [entry for entry in kept if entry.seq not in undone] if undone else kept


def waiting(view: View) -> bool:
    """Whether the next word is the model's."""
    if view.open or not view.items:
        return False
    last = view.items[-1].fact
    return not isinstance(last, Assistant) or last.stop == "pause"


def thinks(view: View, kinds: tuple[str, ...] = THINKING) -> bool:
    """Whether thinking is shown, which binds all that stands before it."""
    blocks = (b for i in view.items if isinstance(i.fact, Assistant) for b in i.fact.content)
    return any(isinstance(block, Opaque) and block.kind in kinds for block in blocks)


def open_calls(view: View) -> tuple[Call, ...]:
    """The calls of the last reply that have no result yet, in the order asked."""
    if not view.open:
        return ()
    reply = view.items[view.replied].fact
    assert isinstance(reply, Assistant)
    return tuple(c for c in calls(reply.content) if c.id in view.open and view.open[c.id] is None)


def _retold(item: Item, text: str) -> Item:
    assert isinstance(item.fact, Result)
    return Item(item.seq, msgspec.structs.replace(item.fact, content=(Text(text),)))


def _without(item: Item, kinds: tuple[str, ...]) -> Item:
    if not isinstance(item.fact, Assistant):
        return item
    kept = tuple(b for b in item.fact.content if not (isinstance(b, Opaque) and b.kind in kinds))
    if len(kept) == len(item.fact.content):
        return item
    return Item(item.seq, msgspec.structs.replace(item.fact, content=kept))


def _summary(fact: Compacted) -> Item:
    """A summary is the harness speaking, but a provider's own summary is the model's block."""
    if fact.by == "provider":
        return Item(fact.last, Assistant(_signed(fact) or fact.summary, stop="compaction"))
    shown = tuple(block for block in fact.summary if not isinstance(block, Call | Opaque))
    return Item(fact.last, User(shown, origin="note"))


def _signed(fact: Compacted) -> tuple[Opaque, ...]:
    """The provider's own blocks; what else a summary says is ours, and is told at the tail."""
    return tuple(block for block in fact.summary if isinstance(block, Opaque))
