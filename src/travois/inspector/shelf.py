"""The logs that can be looked into, and the questions that a page may ask of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock

import msgspec

from travois.cli.agents import agent_folder, tree
from travois.core.errors import Fault
from travois.core.view import Item
from travois.inspector import api as answers
from travois.inspector.reading import Reading
from travois.sessions import lock
from travois.sessions.blobs import Blobs
from travois.sessions.catalog import Summary, summaries, summarise
from travois.sessions.home import Home
from travois.sessions.log_file import NAME

KEPT = 4
"""How many stories stay in memory."""
RECENT = 3600.0
"""Sessions that were not touched for so long are not asked whether they are open."""
PIECE = 1 << 16
Query = Mapping[str, str]


class Listed(msgspec.Struct, frozen=True):
    """A session in the list."""

    summary: Summary
    title: str
    live: bool


class Shelf:
    """The stories that were opened last, each as far as its log has grown."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._fetch = Blobs(home.blobs).get
        self._readings: dict[Path, Reading] = {}
        self._busy = Lock()

    def answer(self, question: str, query: Query) -> object:
        """What a page asked for; one question at a time."""
        ask = QUESTIONS.get(question)
        if ask is None:
            raise Fault(f"There is no question {question!r}")
        with self._busy:
            return ask(self, query)

    def log(self, query: Query) -> Path:
        """The file of the log that is asked about."""
        return self._folder(query) / NAME

    def sessions(self, query: Query) -> list[Listed]:
        """All sessions, the newest first."""
        return [self._listed(summary) for summary in summaries(self._home)]

    def overview(self, query: Query) -> tuple[Listed, answers.Overview]:
        """One log at a glance."""
        reading = self._read(query)
        told = answers.overview(
            reading.story, first=_number(query, "first"), damaged=len(reading.skipped)
        )
        return self._listed(summarise(self._folder({"session": query["session"]}))), told

    def seen(self, query: Query) -> answers.Seen:
        """What the model saw in one request."""
        return answers.seen(self._read(query).story, _number(query, "step"), fetch=self._fetch)

    def items(self, query: Query) -> list[answers.Line]:
        """Some items of one request, or of those that a compaction took away."""
        found = self._items(query)
        first = max(0, _number(query, "first"))
        return answers.lines(found, first, min(_number(query, "last"), first + answers.WINDOW))

    def text(self, query: Query) -> str:
        """One text of an item in full."""
        items, number = self._items(query), _number(query, "item")
        if not 0 <= number < len(items):
            raise Fault(f"There is no item {number}")
        return answers.whole(items[number], _number(query, "part"))

    def head(self, query: Query) -> answers.Head:
        """System text and tools of one request."""
        return answers.head(self._read(query).story, _number(query, "step"))

    def bytes(self, query: Query) -> answers.Bytes:
        """Some of the bytes of one request."""
        return answers.raw(
            self._read(query).story,
            _number(query, "step"),
            start=_number(query, "start"),
            size=_number(query, "size", default=PIECE),
            fetch=self._fetch,
        )

    def choices(self, query: Query) -> list[answers.Choice]:
        """Decisions, questions and hooks."""
        return answers.choices(self._read(query).story)

    def search(self, query: Query) -> list[answers.Hit]:
        """Where words stand."""
        return answers.search(self._read(query).story, query.get("words", ""))

    def diff(self, query: Query) -> answers.Diff:
        """What one compaction took away."""
        return answers.diff(self._read(query).story, _number(query, "compaction"))

    def span(self, query: Query) -> str:
        """A file that a compaction has left."""
        story, entry = self._read(query).story, _number(query, "compaction")
        return answers.span(story, entry, _number(query, "span"), home=self._home.path)

    def agents(self, query: Query) -> list[object]:
        """The agents below a session, as a tree."""
        return [*tree(self._folder({"session": query.get("session", "")}), [])]

    def _items(self, query: Query) -> list[Item]:
        story, entry = self._read(query).story, _number(query, "compaction")
        if entry:
            return answers.dropped(story, entry)
        return answers.items(story, _number(query, "step"))

    def _listed(self, summary: Summary) -> Listed:
        recent = time.time() - summary.updated < RECENT
        folder = self._home.session(summary.project, summary.id)
        return Listed(summary, summary.title, recent and lock.holder(folder) is not None)

    def _folder(self, query: Query) -> Path:
        """Only what is found on the shelf has a name."""
        session, agent = query.get("session", ""), query.get("agent", "")
        named = session == Path(session).name and session not in ("", "..")
        places = (path / session for path in self._home.sessions.iterdir()) if named else ()
        found = next((path for path in places if (path / NAME).is_file()), None)
        if found is None:
            raise Fault(f"There is no session {session!r}")
        return agent_folder(found, agent) if agent else found

    def _read(self, query: Query) -> Reading:
        folder = self._folder(query)
        reading = self._readings.pop(folder, None) or Reading(folder)
        self._readings[folder] = reading
        while len(self._readings) > KEPT:
            del self._readings[next(iter(self._readings))]
        reading.update()
        return reading


QUESTIONS: dict[str, Callable[[Shelf, Query], object]] = {
    "sessions": Shelf.sessions,
    "overview": Shelf.overview,
    "seen": Shelf.seen,
    "items": Shelf.items,
    "text": Shelf.text,
    "head": Shelf.head,
    "bytes": Shelf.bytes,
    "choices": Shelf.choices,
    "search": Shelf.search,
    "diff": Shelf.diff,
    "span": Shelf.span,
    "agents": Shelf.agents,
}


def _number(query: Query, name: str, *, default: int = 0) -> int:
    text = query.get(name, str(default))
    if not text.removeprefix("-").isdecimal() or len(text) > 15:
        raise Fault(f"{name} is to be a number, not {text!r}")
    return int(text)
