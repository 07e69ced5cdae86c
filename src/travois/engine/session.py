"""A session: one log, the view of it, and whoever watches."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from travois.engine.crew import HOOK
from travois.engine.ports import Delta, Event, Log
from travois.kernel.audit import Cache, Spent, Strikes
from travois.kernel.blocks import Media
from travois.kernel.facts import (
    AnyFact,
    Assistant,
    Changed,
    Compacted,
    Decided,
    Ended,
    Entry,
    Epoch,
    Finished,
    Hooked,
    Noted,
    Opened,
    Restored,
    Result,
    Rewound,
    Spawned,
    User,
)
from travois.kernel.legal import illegal
from travois.kernel.models import Usage
from travois.kernel.view import View, living, project
from travois.policy.secrets import Secrets

NO_SECRETS = Secrets()
JOB = "job:"
"""Before the id of a background command, in the name of its state and of the report of its end."""
BESIDE = Hooked | Spawned | Finished | Noted | Compacted | Restored | Epoch
"""What also happens between turns, so that it tells nothing about how one ended."""


def _news(fact: AnyFact) -> bool:
    """Whether this is word of a child or its change of the task list, also between turns."""
    match fact:
        case User(origin="task") | Changed(what="todos"):
            return True
        case _:
            return False


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
        self.prompted = 0
        """The entry of the last thing that a person said."""
        self.spent = Spent()
        self.cache = Cache()
        self.last: Entry | None = None
        self.strikes = Strikes()
        self.received: set[str] = set()
        """The letters that came by mail, also those that were taken back."""
        self.children: dict[str, Spawned] = {}
        """All that were ever started from here, by id."""
        self.outcomes: dict[str, str] = {}
        """How each of them ended last."""
        self.running: dict[str, Spawned] = {}
        """Those of which nothing says that they have ended."""
        self.owed: dict[str, Spawned] = {}
        """Those whose report has not come in."""
        self.jobs: dict[str, str] = {}
        """How the background commands that were started from here stand, by id."""
        self.pictures = 0
        """How many images and documents were ever brought in."""
        self.notes = ""
        """What was noted last on the conversation so far."""
        self.draft = ""
        """The prose that was prepared for the next compaction."""
        self.drafted = False
        """Whether it was asked for."""
        self.drafted_at = 0
        """The entry where it was: what came after that is not in it."""
        self.extracted = 0
        """The entry up to which the conversation was looked through for what is worth keeping."""
        entries = list(self._log.read())
        for entry in entries:
            self._account(entry)
        self.view = project(entries)
        for entry in living(entries):
            self._settle(entry)

    @property
    def usage(self) -> Usage:
        """All tokens so far, also those of turns that were taken back."""
        return self.spent.usage

    @property
    def dollars(self) -> float:
        """What they cost."""
        return self.spent.dollars

    def record(self) -> list[Entry]:
        """All entries, also those that were taken back."""
        return list(self._log.read())

    def history(self) -> list[Entry]:
        """All entries that count: those that a rewind took out are left out."""
        return living(list(self._log.read()))

    def append(self, fact: AnyFact) -> Entry:
        """Make it so: on file first, then in the view, then on screens; without our secrets."""
        fact = self.secrets.concealed(fact)
        why = illegal(self.view, fact)
        assert not why, f"{type(fact).__name__}: {why}"
        entry = self._log.append(fact)
        if isinstance(fact, Rewound | Restored):
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
            case Opened():
                self.jobs = {}  # those of the session that this one branched off are not ours
            case Changed(what=what, value=value):
                self.state[what] = value
                if what.startswith(JOB):
                    self.jobs[what.removeprefix(JOB)] = value
            case User(mail=letter) if letter.startswith(JOB):
                self.state[letter] = self.jobs[letter.removeprefix(JOB)] = "ended"
            case Decided() as fact:
                self.decided[fact.call] = fact
            case Assistant():
                self.decided = {}
            case User(origin="human"):
                self.prompted = entry.seq
            case Ended():
                self.state.pop("ending", None)
            case _:
                pass

    def _parent(self, fact: AnyFact) -> None:
        """Keep count of children; those of the session that this one branched off are not ours."""
        match fact:
            case Opened():
                self.running, self.owed = {}, {}
            case Spawned(id=id):
                self.children[id] = self.running[id] = self.owed[id] = fact
            case Finished(id=id, outcome=outcome):
                self.running.pop(id, None)
                self.outcomes[id] = outcome
                if id in self.owed and self.owed[id].call == HOOK:
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

    def _account(self, entry: Entry) -> None:
        """What has happened has happened, also if it was taken back."""
        if not isinstance(entry.fact, BESIDE) and not _news(entry.fact):
            self.last = entry
        self._parent(entry.fact)
        self.strikes = self.strikes.after(entry.fact)
        self.spent = self.spent.after(entry)
        self.cache = self.cache.after(entry)
        match entry.fact:
            case User(mail=letter) if letter:
                self.received.add(letter)
            case User(content=content) | Result(content=content):
                self.pictures += sum(isinstance(block, Media) for block in content)
            case Spawned(kind="fork", what="summary", call=""):
                self.drafted, self.drafted_at = True, entry.seq
            case Noted(what="draft", text=text):
                self.draft = text
            case Noted(what="notes", text=text):
                self.notes = text
            case Noted(what="extracted", text=text):
                self.extracted = int(text)
            case Compacted():
                self.draft, self.drafted = "", False
            case Changed(what="fork"):  # what was prepared was on the task of its original
                self.draft, self.drafted, self.notes = "", False, ""
            case _:
                pass
