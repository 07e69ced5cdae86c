"""Session state derived from its log: a fold over the entries, and a fast replay of many.

Each fast path of `LogReplay` has the same outcome as `LogDerivation.count_entry`, `View.add` and
`LogDerivation.apply_state` one after another. Everything uncommon takes that slow path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import msgspec

from travois.core.cache_audit import (
    CacheMiss,
    CompactionStrikes,
    PromptCache,
    SessionSpending,
    is_cache_miss,
)
from travois.core.content import AnyBlock, Call, Media, Text, extract_calls
from travois.core.cost import compute_cost
from travois.core.facts import (
    AnyFact,
    Asked,
    Assistant,
    Changed,
    Compacted,
    Decided,
    Ended,
    Entry,
    Epoch,
    Failed,
    Finished,
    Hooked,
    Noted,
    Offloaded,
    Opened,
    Restored,
    Result,
    Rewound,
    Sent,
    Spawned,
    Unknown,
    User,
)
from travois.core.models import Price, Usage
from travois.core.view import RemovedEntries, View, ViewItem
from travois.ports.agents import HOOK_CALL, SIDE_REQUEST_PREFIX

JOB_STATE_PREFIX = "job:"
"""Before the id of a background command, in the name of its state and of the report of its end."""
WAKE_UP_PREFIX = "wake-up:"
"""Before the id of a wake-up, in the name of its state and of its message."""
FORK_STATE_KEY = "fork"
"""The state that a fork's log sets where its own part begins."""
UNCOUNTED_FACTS = frozenset((Decided, Asked, Changed, Hooked, Offloaded, Ended, Unknown))
"""Facts of which nothing is kept count."""
NEWS_FACTS = frozenset((User, Changed))
FACTS_BETWEEN_TURNS = frozenset((Hooked, Spawned, Finished, Noted, Compacted, Restored, Epoch))
"""Facts that also occur between turns, so they say nothing about how a turn ended."""

STATE_FACTS = frozenset((Opened, Changed, User, Decided, Assistant, Ended, Noted))
HISTORY_EDITS = frozenset((Rewound, Restored))
FACTS_OUTSIDE_VIEW = frozenset(
    (Decided, Asked, Hooked, Spawned, Finished, Changed, Noted, Failed, Ended)
)
"""Facts of which a view takes no account."""


def is_child_news(fact: AnyFact) -> bool:
    """Return whether a log entry comes from a subagent or changes the task list."""
    match fact:
        case User(origin="task") | Changed(what="todos"):
            return True
        case _:
            return False


class DerivedState(msgspec.Struct, array_like=True):
    """Everything that a session derives from its log up to some entry, as a value."""

    view: View = msgspec.field(default_factory=View)
    state: dict[str, str] = {}
    decided: dict[str, Decided] = {}
    prompted: int = 0
    spent: SessionSpending = SessionSpending()
    cache: PromptCache = PromptCache()
    last: Entry | None = None
    strikes: CompactionStrikes = CompactionStrikes()
    received: set[str] = set()
    spawned: int = 0
    children: dict[str, Spawned] = {}
    outcomes: dict[str, str] = {}
    running: dict[str, Spawned] = {}
    owed: dict[str, Spawned] = {}
    jobs: dict[str, str] = {}
    pictures: int = 0
    notes: str = ""
    draft: str = ""
    drafted: bool = False
    drafted_at: int = 0
    extracted: int = 0
    seq: int = 0


def count_pictures(content: tuple[AnyBlock, ...]) -> int:
    """Return how many images and documents are in a log entry's blocks."""
    return len([block for block in content if isinstance(block, Media)])


class LogDerivation:
    """The state derived from the entries so far; `DerivedState` is the same as a value."""

    view: View
    state: dict[str, str]
    decided: dict[str, Decided]
    prompted: int
    """The entry of the last thing that a person said."""
    spent: SessionSpending
    cache: PromptCache
    last: Entry | None
    strikes: CompactionStrikes
    received: set[str]
    """The letters that came by mail, also those that were taken back."""
    spawned: int
    """The number of subagents and side requests that were ever started from here."""
    children: dict[str, Spawned]
    """The subagents that were ever started from here, by id."""
    outcomes: dict[str, str]
    """The last outcome of each of them."""
    running: dict[str, Spawned]
    """The children that have not ended, as far as the log says."""
    owed: dict[str, Spawned]
    """The children whose report has not come in."""
    jobs: dict[str, str]
    """The state of the background commands started here, by id."""
    pictures: int
    """The number of images and documents ever added."""
    notes: str
    """The latest session notes."""
    draft: str
    """The prose that was prepared for the next compaction."""
    drafted: bool
    """True if a draft was asked for."""
    drafted_at: int
    """The entry where it was: what came after that is not in it."""
    extracted: int
    """The entry up to which the conversation was looked through for what is worth keeping."""
    seq: int
    """The last entry."""

    def encode_state(self) -> bytes:
        """Encode all of it for a checkpoint."""
        known = {name: getattr(self, name) for name in DerivedState.__struct_fields__}
        return msgspec.msgpack.encode(DerivedState(**known))

    def load_state(self, known: DerivedState) -> None:
        """Take over a saved state."""
        for name in DerivedState.__struct_fields__:
            setattr(self, name, getattr(known, name))

    @property
    def usage(self) -> Usage:
        """The tokens so far, including those of turns that were rewound."""
        return self.spent.usage

    @property
    def dollars(self) -> float:
        """The cost of these tokens."""
        return self.spent.dollars

    def apply_state(self, entry: Entry) -> None:
        """Apply an entry to the state that a rewind takes back."""
        match entry.fact:
            case Assistant():
                self.decided = {}
            case Decided() as fact:
                self.decided[fact.call] = fact
            case Opened():
                self.jobs = {}  # those of the session that this one branched off are not ours
                for what in [what for what in self.state if what.startswith(WAKE_UP_PREFIX)]:
                    del self.state[what]
            case Changed() as fact:
                self.set_state(fact)
            case User(mail=letter) if letter.startswith(JOB_STATE_PREFIX):
                self.state[letter] = self.jobs[letter.removeprefix(JOB_STATE_PREFIX)] = "ended"
            case User(origin="human"):
                self.prompted = entry.seq
            case Noted(what="notes", text=text):  # a rewind also takes back what was noted
                self.notes = text
            case Ended():
                self.state.pop("ending", None)
            case _:
                pass

    def set_state(self, fact: Changed) -> None:
        """Set a state of the session."""
        self.state[fact.what] = fact.value
        if fact.what.startswith(JOB_STATE_PREFIX):
            self.jobs[fact.what.removeprefix(JOB_STATE_PREFIX)] = fact.value
        if fact.what == FORK_STATE_KEY:  # what was prepared was on the task of its original
            self.draft, self.drafted, self.notes = "", False, ""

    def _track_children(self, fact: AnyFact) -> None:
        """Track children; those of the session that this one was forked from are not ours."""
        match fact:
            case Opened():
                self.running, self.owed = {}, {}
            case Spawned(id=id):
                self.spawned += 1
                if not id.startswith(SIDE_REQUEST_PREFIX):  # whoever asks waits for the answer
                    self.children[id] = self.running[id] = self.owed[id] = fact
            case Finished(id=id, outcome=outcome) if id in self.children:
                self.running.pop(id, None)
                self.outcomes[id] = outcome
                if id in self.owed and self.owed[id].call == HOOK_CALL:
                    del self.owed[id]
            case Result(call=call):
                over = [id for id in self.owed if id not in self.running]
                for id in over:
                    if self.owed[id].call == call:
                        del self.owed[id]
            case User(mail=letter):
                self.owed.pop(letter, None)
            case _:
                pass

    def count_entry(self, entry: Entry) -> None:
        """Count an entry in totals that a rewind does not take back."""
        fact = entry.fact
        kind = type(fact)
        if kind not in FACTS_BETWEEN_TURNS and not (kind in NEWS_FACTS and is_child_news(fact)):
            self.last = entry
        if kind not in UNCOUNTED_FACTS:
            self._count_totals(entry)

    def _count_totals(self, entry: Entry) -> None:
        """Count children, costs, the provider's cache, mail, pictures and notes.

        Most entries are results and replies, which affect few of these.
        """
        fact = entry.fact
        if isinstance(fact, Result):
            self.pictures += count_pictures(fact.content)
            if self.owed:
                self._track_children(fact)
            return
        self.strikes = self.strikes.after_fact(fact)
        self.spent = self.spent.after_entry(entry)
        self.cache = self.cache.after_entry(entry)
        if not isinstance(fact, Assistant):
            self._count_other_totals(entry)

    def _count_other_totals(self, entry: Entry) -> None:
        self._track_children(entry.fact)
        match entry.fact:
            case User(mail=letter) if letter:
                self.received.add(letter)
            case User(content=content):
                self.pictures += count_pictures(content)
            case Spawned(kind="fork", what="draft", call=""):
                self.drafted, self.drafted_at = True, entry.seq
            case Noted(what="draft", text=text):
                self.draft = text
            case Noted(what="extracted", text=text):
                self.extracted = int(text)
            case Compacted(by=by) if by != "folded":  # what folds is still covered by a draft
                self.draft, self.drafted = "", False
            case Rewound(to=to) if to < self.drafted_at:  # what it tells of did not happen
                self.draft, self.drafted = "", False
            case _:
                pass


class HistoryEdited(Exception):
    """A rewind or an undone compaction: the entries before it have to be replayed."""


class LogReplay:
    """A pass over a log. Costs and the cache lag behind until `finish`."""

    def __init__(self, known: LogDerivation) -> None:
        self._known = known
        self._view = known.view
        self._usages: list[Usage] = []
        self._load_cache()
        self._ways: dict[type, Callable[[Entry, Any], None]] = {
            Assistant: self._add_reply,
            Result: self._replay_result,
            Sent: self._replay_request,
            Decided: self._add_decision,
            Changed: self._add_change,
            User: self._add_prompt,
        }

    def add(self, block: list[Entry]) -> None:
        """Add entries; raises `HistoryEdited` where one takes others out."""
        find, other = self._ways.get, self._add_other
        for entry in block:
            fact = entry.fact
            find(type(fact), other)(entry, fact)
        self._note_last_entry(block)

    def add_edited(self, block: list[Entry], removed: RemovedEntries) -> None:
        """Add entries of which those in `gone` do not count."""
        self.finish()
        for entry in block:
            self._known.count_entry(entry)
            if not removed.has(entry.seq):
                self._replay_entry(entry)
            elif isinstance(entry.fact, Assistant):
                self._view.ids.update(call.id for call in extract_calls(entry.fact.content))
        self._load_cache()
        self._note_last_entry(block)

    def finish(self) -> None:
        """Bring costs and the cache up to date."""
        if self._usages:
            self._known.spent = _add_usages(self._known.spent, self._usages)
            self._usages = []
        if self._is_cache_behind:
            self._known.cache = self._build_cache()
            self._load_cache()

    def _note_last_entry(self, block: list[Entry]) -> None:
        """Note the last entry of a block, and the last that shows how a turn ended."""
        known = self._known
        for entry in reversed(block):
            kind = type(entry.fact)
            if kind not in FACTS_BETWEEN_TURNS and not (
                kind in NEWS_FACTS and is_child_news(entry.fact)
            ):
                known.last = entry
                break
        known.seq = block[-1].seq

    # --- the long way ----------------------------------------------------------------------------

    def _add_other(self, entry: Entry, fact: AnyFact) -> None:
        kind = type(fact)
        if kind in HISTORY_EDITS:
            raise HistoryEdited
        if kind in UNCOUNTED_FACTS:
            self._known.count_entry(entry)
        else:
            self.finish()
            self._known.count_entry(entry)
            self._load_cache()
        self._replay_entry(entry)

    def _replay_entry(self, entry: Entry) -> None:
        kind = type(entry.fact)
        if kind not in FACTS_OUTSIDE_VIEW:
            self._view.add(entry)
        if kind in STATE_FACTS:
            self._known.apply_state(entry)

    # --- the short ways --------------------------------------------------------------------------

    def _add_reply(self, entry: Entry, fact: Assistant) -> None:
        view, known = self._view, self._known
        items = view.items
        if view.open or not items or fact.detail or known.strikes.pending:
            return self._add_other(entry, fact)
        usage = fact.usage
        self._usages.append(usage)
        self._count_cached_tokens(usage, entry.seq)
        view.replied = view.counted = len(items)
        items.append(ViewItem(entry.seq, fact))
        view.open = {block.id: None for block in fact.content if type(block) is Call}
        if view.open:
            view.ids.update(view.open)
        if view.sent is not None:
            view.anchor = view.sent.pieces
        if known.decided:
            known.decided = {}
        return None

    def _replay_result(self, entry: Entry, fact: Result) -> None:
        view, known = self._view, self._known
        if known.owed:
            return self._add_other(entry, fact)
        content, asked = fact.content, view.open
        if len(content) != 1 or type(content[0]) is not Text:
            known.pictures += count_pictures(content)
        if len(asked) == 1 and fact.call in asked and not view.queued:
            view.items.append(ViewItem(entry.seq, fact))
            del asked[fact.call]
        else:
            view.add(entry)
        return None

    def _replay_request(self, entry: Entry, fact: Sent) -> None:
        view, at = self._view, entry.at
        view.sent, view.sent_moves, view.seen = fact, view.moves, len(view.items)
        if self._used and at - self._used > self._pause:
            self._pause = at - self._used
        self._used, self._is_cache_behind = at, True

    def _add_decision(self, entry: Entry, fact: Decided) -> None:
        self._known.decided[fact.call] = fact

    def _add_change(self, entry: Entry, fact: Changed) -> None:
        self._known.set_state(fact)

    def _add_prompt(self, entry: Entry, fact: User) -> None:
        view, known = self._view, self._known
        struck = known.strikes.useless or known.strikes.failures
        if fact.origin != "human" or fact.mail or known.owed or struck:
            return self._add_other(entry, fact)
        known.pictures += count_pictures(fact.content)
        known.prompted = entry.seq
        (view.queued if view.open else view.items).append(ViewItem(entry.seq, fact))
        return None

    # --- the provider's cache, as in `Cache.after` -----------------------------------------------

    def _load_cache(self) -> None:
        known = self._known.cache
        self._held, self._used, self._pause = known.held, known.used, known.pause
        self._moved = known.moved
        self._misses: list[CacheMiss] = []
        self._is_cache_behind = False

    def _build_cache(self) -> PromptCache:
        known = self._known.cache
        misses = (*known.misses, *self._misses) if self._misses else known.misses
        return PromptCache(self._held, self._used, self._pause, self._moved, known.epoch, misses)

    def _count_cached_tokens(self, usage: Usage, seq: int) -> None:
        held = usage.read + usage.write + usage.write_1h
        prompt = held + usage.input
        if not prompt or usage.estimated:
            return
        readable = min(self._held, prompt)
        if readable > usage.read and is_cache_miss(readable, usage.read):
            self._misses.append(self._build_cache().build_miss(usage, seq))
        self._held, self._pause, self._moved = held, 0.0, ()
        self._is_cache_behind = True


def _add_usages(spending: SessionSpending, usages: list[Usage]) -> SessionSpending:
    """Add these replies' usage to the session's, in order: sums of fractions depend on it."""
    price, before = spending.current_price, spending.usage
    beside = [usage.beside for usage in usages if usage.beside is not None]
    total = Usage(
        input=before.input + sum([usage.input for usage in usages]),
        read=before.read + sum([usage.read for usage in usages]),
        write=before.write + sum([usage.write for usage in usages]),
        write_1h=before.write_1h + sum([usage.write_1h for usage in usages]),
        output=before.output + sum([usage.output for usage in usages]),
        reasoning=before.reasoning + sum([usage.reasoning for usage in usages]),
        searches=before.searches + sum([usage.searches for usage in usages]),
        estimated=before.estimated or any(usage.estimated for usage in usages),
        beside=reduce(add, beside, before.beside) if before.beside else _sum_usages(beside),
    )
    dollars = reduce(add, _price_usages(usages, price), spending.dollars)
    return SessionSpending(total, dollars, spending.prices)


def _price_usages(usages: list[Usage], price: Price) -> list[float]:
    """Return the cost of each reply, by `cost` unless it is plain."""
    if price.above is not None or any(usage.beside or usage.searches for usage in usages):
        return [compute_cost(usage, price) for usage in usages]
    fresh, read, write, output = price.input, price.read, price.write, price.output
    longer = price.write_1h or write
    return [
        (
            u.input * fresh
            + u.read * read
            + u.write * write
            + u.write_1h * longer
            + u.output * output
        )
        / 1_000_000
        for u in usages
    ]


def _sum_usages(usages: list[Usage]) -> Usage | None:
    return reduce(add, usages) if usages else None
