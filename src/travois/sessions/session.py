"""A session: its log, the state derived from it, resuming, and the watchers of new events."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from itertools import chain
from typing import TypeVar

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from travois.core.facts import AnyFact, Entry, Restored, Rewound
from travois.core.legality import find_violation
from travois.core.view import OmittedSpan, RemovedEntries, find_removed_entries, keep_live_entries
from travois.permissions.secrets import Secrets
from travois.ports.world import Delta, Event, HistoryFold, ResumableLog, SessionLog, UserWarned
from travois.sessions.derived import FORK_STATE_KEY as FORK_STATE_KEY
from travois.sessions.derived import JOB_STATE_PREFIX as JOB_STATE_PREFIX
from travois.sessions.derived import WAKE_UP_PREFIX as WAKE_UP_PREFIX
from travois.sessions.derived import DerivedState, HistoryEdited, LogDerivation, LogReplay

NO_SECRETS = Secrets()
CHECKPOINT_STRIDE_BYTES = 4 << 20
"""The bytes that a log may grow before another checkpoint is saved."""
TRIM_CHECK_ITEMS = 10_000
"""The number of items from which on they are trimmed if too many for any window."""
Fold = TypeVar("Fold", bound=HistoryFold)
EntryBlocks = Iterable[list[Entry]]
"""Entries in their order, many at once."""


def _decode_state(state: bytes) -> DerivedState | None:
    """Decode the derived state in a session checkpoint; None if it is invalid."""
    try:
        return msgspec.msgpack.decode(state, type=DerivedState)
    except (ValueError, RecursionError):
        return None


class Session(LogDerivation):
    """The only writer of a log. Everything it knows is derived from the entries."""

    def __init__(self, log: SessionLog, *, secrets: Secrets = NO_SECRETS) -> None:
        self._log = log
        self.secrets = secrets
        self._watchers: list[MemoryObjectSendStream[Event]] = []
        self._folds: dict[type, tuple[int, HistoryFold]] = {}
        self.is_lasting = True
        """True if the log outlives the process, so that the session can be resumed."""
        self._derive_from_log()

    def _derive_from_log(self) -> None:
        """Derive everything from the log, starting at the last checkpoint.

        Garbage collection is off meanwhile: a long log makes many objects, and none of them in
        cycles.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._replay_log()
        finally:
            if collecting:
                gc.enable()
        if (
            self._resumable_log is not None
            and self._resumable_log.new_bytes > CHECKPOINT_STRIDE_BYTES
        ):
            self._save_derived_state()

    @property
    def _resumable_log(self) -> ResumableLog | None:
        return self._log if isinstance(self._log, ResumableLog) else None

    def _replay_log(self) -> None:
        known, blocks = self._resume_state()
        try:
            return self._derive_from(known, blocks, removed=RemovedEntries())
        except OmittedSpan:
            return self._derive_all(trim=False)
        except HistoryEdited:
            known, blocks = self._resume_state()
        gone = find_removed_entries(chain.from_iterable(blocks))
        if gone.first <= known.seq:
            return self._derive_all()
        known, blocks = self._resume_state()
        return self._derive_from(known, blocks, removed=gone)

    def _resume_state(self) -> tuple[DerivedState, EntryBlocks]:
        """Return the checkpointed state of this session, and the entries after it."""
        if self._resumable_log is None:
            return DerivedState(), self._all_blocks()
        state, blocks = self._resumable_log.resume()
        known = _decode_state(state) if state else DerivedState()
        return (known, blocks) if known is not None else (DerivedState(), self._all_blocks())

    def _all_blocks(self) -> EntryBlocks:
        if self._resumable_log is None:
            return (list(self._log.read()),)
        return self._resumable_log.read_blocks()

    def _derive_all(self, *, trim: bool = True) -> None:
        """Start over, where the checkpoint is of no use."""
        if self._resumable_log is not None:
            self._resumable_log.discard_state()
        gone = find_removed_entries(chain.from_iterable(self._all_blocks()))
        self._derive_from(DerivedState(), self._all_blocks(), removed=gone, trim=trim)

    def _derive_from(
        self,
        start: DerivedState,
        blocks: EntryBlocks,
        *,
        removed: RemovedEntries,
        trim: bool = True,
    ) -> None:
        """Continue from a state; raises `HistoryEdited` where entries are taken out."""
        self.load_state(start)
        view, checked, replay = self.view, TRIM_CHECK_ITEMS, LogReplay(self)
        for block in filter(None, blocks):
            if removed.first <= block[-1].seq:
                replay.add_edited(block, removed)
            else:
                replay.add(block)
            if trim and len(view.items) > checked:
                view.trim(slack=2)
                checked = 4 * len(view.items)
        replay.finish()
        if trim:
            view.trim()

    def _save_derived_state(self) -> None:
        """Save a checkpoint beside the log, so that a resume can start there."""
        if self._resumable_log is not None:
            self._resumable_log.save_state(self.encode_state())

    def read_whole_log(self) -> Iterable[Entry]:
        """Return every entry, also of a very long log, which takes a while."""
        return chain.from_iterable(self._all_blocks())

    def all_entries(self) -> list[Entry]:
        """Return all entries, including rewound ones; of a very long log, an excerpt."""
        recent = self._resumable_log.read_recent() if self._resumable_log is not None else None
        return list(self._log.read() if recent is None else recent)

    def history(self) -> list[Entry]:
        """Return all entries without those that a rewind took out."""
        return keep_live_entries(self.all_entries())

    def entries_since(self, seq: int) -> list[Entry]:
        """Return the entries after this one without those that a rewind took out.

        This costs what those entries cost to read, however old the session is.
        """
        if self._resumable_log is None:
            return [entry for entry in self.history() if entry.seq > seq]
        return keep_live_entries(self._resumable_log.read_since(seq))

    def fold(self, kind: type[Fold]) -> Fold:
        """Return what this kind of fold makes of the history, up to date.

        The entries so far are read once; after that only those that are new, unless a rewind took
        some out.
        """
        seq, known = self._folds.get(kind, (0, None))
        if not isinstance(known, kind):
            known = kind()
            known.add(self.history())
        elif seq < self.seq:
            known.add(self.entries_since(seq))
        self._folds[kind] = (self.seq, known)
        return known

    @property
    def is_long(self) -> bool:
        """Return whether the log is so long that only an excerpt of it is read."""
        return self._resumable_log is not None and self._resumable_log.read_recent() is not None

    def copy_to_log(self, log: SessionLog) -> Session:
        """Return a session with the same state that writes to another log."""
        other = Session(log, secrets=self.secrets)
        other.load_state(msgspec.msgpack.decode(self.encode_state(), type=DerivedState))
        return other

    def append(self, fact: AnyFact) -> Entry:
        """Append a fact, with secrets masked: to the file, then to the view, then to watchers."""
        fact = self.secrets.redact_fact(fact)
        why = find_violation(self.view, fact)
        assert not why, f"{type(fact).__name__}: {why}"
        entry = self._log.append(fact)
        sys.audit("travois.fact", entry)  # for --debug
        if isinstance(fact, Rewound | Restored):
            self._folds.clear()
            self._derive_from_log()
        else:
            self.view.add(entry)
            self.apply_state(entry)
            self.count_entry(entry)
            self.seq = entry.seq
        self._notify_watchers(entry)
        self._emit_news()
        return entry

    def _emit_news(self) -> None:
        """Report a disk that refuses to save, or saves again, as soon as somebody watches."""
        beside = self._resumable_log if self._watchers else None
        if beside is not None and (news := beside.take_notices()):
            self.emit(UserWarned(news))

    def emit(self, delta: Delta) -> None:
        """Send an event to watchers without logging it."""
        self._notify_watchers(delta)

    def sync(self) -> None:
        """Flush everything so far to the disk itself."""
        self._log.sync()
        if (
            self._resumable_log is not None
            and self._resumable_log.new_bytes > CHECKPOINT_STRIDE_BYTES
        ):
            self._save_derived_state()

    @contextmanager
    def watch(self) -> Generator[MemoryObjectReceiveStream[Event]]:
        """Receive every event from here on, in order. A watcher runs no code inside an append."""
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        self._watchers.append(send)
        try:
            yield receive
        finally:
            self._watchers.remove(send)
            send.close()
            receive.close()

    def _notify_watchers(self, event: Event) -> None:
        for watcher in self._watchers:
            if watcher.statistics().open_receive_streams:
                watcher.send_nowait(event)
