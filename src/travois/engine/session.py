"""A session: one log, the view of it, and whoever watches."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from travois.engine.ports import Delta, Event, Log
from travois.kernel.audit import Strikes
from travois.kernel.facts import (
    AnyFact,
    Assistant,
    Changed,
    Compacted,
    Decided,
    Entry,
    Epoch,
    Finished,
    Hooked,
    Noted,
    Opened,
    Rewound,
    Sent,
    Spawned,
)
from travois.kernel.legal import illegal
from travois.kernel.models import Price, Usage, cost
from travois.kernel.view import View, living, project
from travois.policy.secrets import Secrets

NO_SECRETS = Secrets()


class Session:
    """The one writer of a log. Everything it knows is a fold over the entries."""

    def __init__(self, log: Log, *, secrets: Secrets = NO_SECRETS) -> None:
        self._log = log
        self.secrets = secrets
        self._watchers: list[MemoryObjectSendStream[Event]] = []
        self._load()

    def _load(self) -> None:
        self.view = View()
        self.state: dict[str, str] = {}
        self.decided: dict[str, Decided] = {}
        self.usage = Usage()
        self.dollars = 0.0
        self._price = Price()
        self.last: Entry | None = None
        self.sent_at = 0.0
        """When the last request left: the provider's cache lives from then on."""
        self.strikes = Strikes()
        self.draft = ""
        """The prose that was prepared for the next compaction."""
        self.drafted = False
        """Whether it was asked for."""
        entries = list(self._log.read())
        for entry in entries:
            self._account(entry)
        self.view = project(entries)
        for entry in living(entries):
            self._settle(entry)
        if self.view.epoch is not None:
            self._price = self.view.epoch.model.price

    def history(self) -> list[Entry]:
        """All entries that count: those that a rewind took out are left out."""
        return living(list(self._log.read()))

    def append(self, fact: AnyFact) -> Entry:
        """Make it so: on file first, then in the view, then on screens; without our secrets."""
        fact = self.secrets.concealed(fact)
        why = illegal(self.view, fact)
        assert not why, f"{type(fact).__name__}: {why}"
        entry = self._log.append(fact)
        if isinstance(fact, Rewound):
            self._load()
        else:
            self.view.add(entry)
            self._settle(entry)
            self._account(entry)
        self._tell(entry)
        return entry

    def emit(self, delta: Delta) -> None:
        """Show something that is not worth keeping."""
        self._tell(delta)

    def sync(self) -> None:
        """Bring everything so far to the disk itself."""
        self._log.sync()

    @contextmanager
    def watch(self) -> Generator[MemoryObjectReceiveStream[Event]]:
        """Everything from here on, in order. A watcher runs no code inside an append."""
        send, receive = anyio.create_memory_object_stream[Event](math.inf)
        self._watchers.append(send)
        try:
            yield receive
        finally:
            self._watchers.remove(send)
            send.close()
            receive.close()

    def _tell(self, event: Event) -> None:
        for watcher in self._watchers:
            if watcher.statistics().open_receive_streams:
                watcher.send_nowait(event)

    def _settle(self, entry: Entry) -> None:
        match entry.fact:
            case Changed(what=what, value=value):
                self.state[what] = value
            case Decided() as fact:
                self.decided[fact.call] = fact
            case Assistant():
                self.decided = {}
            case _:
                pass

    def _account(self, entry: Entry) -> None:
        """What was spent stays spent, also after a rewind; a fork starts at nil."""
        if not isinstance(entry.fact, Hooked):  # hooks also run between turns
            self.last = entry
        self.strikes = self.strikes.after(entry.fact)
        match entry.fact:
            case Opened():
                self.usage, self.dollars = Usage(), 0.0
            case Epoch() as fact:
                self._price = fact.model.price
            case Assistant() as fact:
                self.usage += fact.usage
                self.dollars += cost(fact.usage, self._price)
            case Finished() as fact:
                self.usage += fact.usage
                self.dollars += cost(fact.usage, self._price)
            case Sent():
                self.sent_at = entry.at
            case Spawned(kind="fork", what="summary"):
                self.drafted = True
            case Noted(what="draft", text=text):
                self.draft = text
            case Compacted():
                self.draft, self.drafted = "", False
            case _:
                pass
