"""A session: one log, the view of it, and whoever watches."""

from __future__ import annotations

import gc
import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from travois.engine.crew import HOOK
from travois.engine.ports import Delta, Event, Log, Resumable, Warned
from travois.kernel.audit import Cache, Spent, Strikes
from travois.kernel.blocks import AnyBlock, Media, calls
from travois.kernel.facts import (
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
    Spawned,
    Unknown,
    User,
)
from travois.kernel.legal import illegal
from travois.kernel.models import Usage
from travois.kernel.view import OmittedSpan, TakenOut, View, living, taken_out
from travois.policy.secrets import Secrets

NO_SECRETS = Secrets()
JOB = "job:"
"""Before the id of a background command, in the name of its state and of the report of its end."""
FORK = "fork"
"""The state that a fork's log sets where its own part begins."""
STRIDE = 4 << 20
"""How many bytes a log may grow before what is derived from it is kept again."""
CHECKED = 10_000
"""From how many items on it is seen whether they are too many for any window."""
QUIET = frozenset((Decided, Asked, Changed, Hooked, Offloaded, Ended, Unknown))
"""Facts of which nothing is kept count."""
NEWS = frozenset((User, Changed))
SETTLING = frozenset((Opened, Changed, User, Decided, Assistant, Ended, Noted))
EDITS = frozenset((Rewound, Restored))
UNSEEN = frozenset((Decided, Asked, Hooked, Spawned, Finished, Changed, Noted, Failed, Ended))
"""Facts of which a view takes no account."""
BESIDE = frozenset((Hooked, Spawned, Finished, Noted, Compacted, Restored, Epoch))
"""What also happens between turns, so that it tells nothing about how one ended."""


def _news(fact: AnyFact) -> bool:
    """Whether this is word of a child or its change of the task list, also between turns."""
    match fact:
        case User(origin="task") | Changed(what="todos"):
            return True
        case _:
            return False


class Derived(msgspec.Struct, array_like=True):
    """All that a session knows from its log: a fold over the entries, up to one of them."""

    view: View = msgspec.field(default_factory=View)
    state: dict[str, str] = {}
    decided: dict[str, Decided] = {}
    prompted: int = 0
    spent: Spent = Spent()
    cache: Cache = Cache()
    last: Entry | None = None
    strikes: Strikes = Strikes()
    received: set[str] = set()
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


class _Edited(Exception):
    """A rewind or an undone compaction: what came before it has to be derived anew."""


def _count_pictures(content: tuple[AnyBlock, ...]) -> int:
    return len([block for block in content if isinstance(block, Media)])


def _decoded(state: bytes) -> Derived | None:
    try:
        return msgspec.msgpack.decode(state, type=Derived)
    except (ValueError, RecursionError):
        return None


class Session:
    """The one writer of a log. Everything it knows is a fold over the entries."""

    view: View
    state: dict[str, str]
    decided: dict[str, Decided]
    prompted: int
    """The entry of the last thing that a person said."""
    spent: Spent
    cache: Cache
    last: Entry | None
    strikes: Strikes
    received: set[str]
    """The letters that came by mail, also those that were taken back."""
    children: dict[str, Spawned]
    """All that were ever started from here, by id."""
    outcomes: dict[str, str]
    """How each of them ended last."""
    running: dict[str, Spawned]
    """Those of which nothing says that they have ended."""
    owed: dict[str, Spawned]
    """Those whose report has not come in."""
    jobs: dict[str, str]
    """How the background commands that were started from here stand, by id."""
    pictures: int
    """How many images and documents were ever brought in."""
    notes: str
    """What was noted last on the conversation so far."""
    draft: str
    """The prose that was prepared for the next compaction."""
    drafted: bool
    """Whether it was asked for."""
    drafted_at: int
    """The entry where it was: what came after that is not in it."""
    extracted: int
    """The entry up to which the conversation was looked through for what is worth keeping."""
    seq: int
    """The last entry."""

    def __init__(self, log: Log, *, secrets: Secrets = NO_SECRETS) -> None:
        self._log = log
        self.secrets = secrets
        self._watchers: list[MemoryObjectSendStream[Event]] = []
        self.is_lasting = True
        """Whether the log outlives the process, so that the session can be resumed."""
        self._load()

    def _load(self) -> None:
        """Derive everything from the log, from where it was last kept on.

        Cycles are not looked for meanwhile: a long log makes many objects, and none of them.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._replay()
        finally:
            if collecting:
                gc.enable()
        if self._kept_beside is not None and self._kept_beside.grown > STRIDE:
            self._keep()

    @property
    def _kept_beside(self) -> Resumable | None:
        return self._log if isinstance(self._log, Resumable) else None

    def _replay(self) -> None:
        known, entries = self._resumed()
        try:
            return self._derive(known, entries, gone=TakenOut())
        except OmittedSpan:
            return self._derive_all(trim=False)
        except _Edited:
            known, entries = self._resumed()
        gone = taken_out(entries)
        if gone.first <= known.seq:
            return self._derive_all()
        known, entries = self._resumed()
        return self._derive(known, entries, gone=gone)

    def _resumed(self) -> tuple[Derived, Iterable[Entry]]:
        """What was kept of this session, and the entries after that."""
        if self._kept_beside is None:
            return Derived(), self._log.read()
        state, entries = self._kept_beside.resume()
        known = _decoded(state) if state else Derived()
        return (known, entries) if known is not None else (Derived(), self._log.read())

    def _derive_all(self, *, trim: bool = True) -> None:
        """Start over, where what was kept is of no use."""
        if self._kept_beside is not None:
            self._kept_beside.discard()
        gone = taken_out(self._log.read())
        self._derive(Derived(), self._log.read(), gone=gone, trim=trim)

    def _derive(
        self, start: Derived, entries: Iterable[Entry], *, gone: TakenOut, trim: bool = True
    ) -> None:
        """Go on from a start; raises `_Edited` where something unforeseen takes entries out."""
        self._know(start)
        view, checked = self.view, CHECKED
        planned = bool(gone.spans or gone.compactions)
        for entry in entries:
            fact = entry.fact
            kind = type(fact)
            if not planned and kind in EDITS:
                raise _Edited
            self._account(entry)
            self.seq = entry.seq
            if planned and gone.has(entry.seq):
                if isinstance(fact, Assistant):
                    view.ids.update(call.id for call in calls(fact.content))
                continue
            if kind not in UNSEEN:
                view.add(entry)
            if kind in SETTLING:
                self._settle(entry)
            if trim and len(view.items) > checked:
                view.trim(slack=2)
                checked = 2 * len(view.items)
        if trim:
            view.trim()

    def _keep(self) -> None:
        """Keep what is derived so far beside the log, so that a resume can go on from there."""
        if self._kept_beside is not None:
            self._kept_beside.keep(self._derived())

    def _derived(self) -> bytes:
        known = {name: getattr(self, name) for name in Derived.__struct_fields__}
        return msgspec.msgpack.encode(Derived(**known))

    def _know(self, known: Derived) -> None:
        for name in Derived.__struct_fields__:
            setattr(self, name, getattr(known, name))

    @property
    def usage(self) -> Usage:
        """All tokens so far, also those of turns that were taken back."""
        return self.spent.usage

    @property
    def dollars(self) -> float:
        """What they cost."""
        return self.spent.dollars

    def record(self) -> list[Entry]:
        """All entries, also those that were taken back; of a very long log, those that matter."""
        recent = self._kept_beside.recent() if self._kept_beside is not None else None
        return list(self._log.read() if recent is None else recent)

    def history(self) -> list[Entry]:
        """The same without what a rewind took out."""
        return living(self.record())

    @property
    def is_long(self) -> bool:
        """Whether the log is so long that `record` gives only what matters of it."""
        return self._kept_beside is not None and self._kept_beside.recent() is not None

    def twin(self, log: Log) -> Session:
        """A session that knows the same as this one, and writes to another log."""
        other = Session(log, secrets=self.secrets)
        other._know(msgspec.msgpack.decode(self._derived(), type=Derived))
        return other

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
            self.seq = entry.seq
        self._tell(entry)
        self._tell_news()
        return entry

    def _tell_news(self) -> None:
        """Tell of a disk that takes nothing, or does again, as soon as somebody watches."""
        beside = self._kept_beside if self._watchers else None
        if beside is not None and (news := beside.news()):
            self.emit(Warned(news))

    def emit(self, delta: Delta) -> None:
        """Show something that is not worth keeping."""
        self._tell(delta)

    def sync(self) -> None:
        """Bring everything so far to the disk itself."""
        self._log.sync()
        if self._kept_beside is not None and self._kept_beside.grown > STRIDE:
            self._keep()

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
            case Assistant():
                self.decided = {}
            case Decided() as fact:
                self.decided[fact.call] = fact
            case Opened():
                self.jobs = {}  # those of the session that this one branched off are not ours
            case Changed() as fact:
                self._change(fact)
            case User(mail=letter) if letter.startswith(JOB):
                self.state[letter] = self.jobs[letter.removeprefix(JOB)] = "ended"
            case User(origin="human"):
                self.prompted = entry.seq
            case Noted(what="notes", text=text):  # a rewind also takes back what was noted
                self.notes = text
            case Ended():
                self.state.pop("ending", None)
            case _:
                pass

    def _change(self, fact: Changed) -> None:
        self.state[fact.what] = fact.value
        if fact.what.startswith(JOB):
            self.jobs[fact.what.removeprefix(JOB)] = fact.value
        if fact.what == FORK:  # what was prepared was on the task of its original
            self.draft, self.drafted, self.notes = "", False, ""

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
        fact = entry.fact
        kind = type(fact)
        if kind not in BESIDE and not (kind in NEWS and _news(fact)):
            self.last = entry
        if kind not in QUIET:
            self._count(entry)

    def _count(self, entry: Entry) -> None:
        """Keep count of children, costs, the provider's cache, letters, pictures and notes.

        Most entries are results and replies, which count for little.
        """
        fact = entry.fact
        if isinstance(fact, Result):
            self.pictures += _count_pictures(fact.content)
            if self.owed:
                self._parent(fact)
            return
        self.strikes = self.strikes.after(fact)
        self.spent = self.spent.after(entry)
        self.cache = self.cache.after(entry)
        if not isinstance(fact, Assistant):
            self._count_others(entry)

    def _count_others(self, entry: Entry) -> None:
        self._parent(entry.fact)
        match entry.fact:
            case User(mail=letter) if letter:
                self.received.add(letter)
            case User(content=content):
                self.pictures += _count_pictures(content)
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
