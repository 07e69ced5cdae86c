"""All sessions of this machine, findable by what was said in them.

The index is only a copy: deleting it costs the time to read the sessions again, no more.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec

from travois.compat.sessions import AGENTS, read
from travois.compat.sessions.format import Found
from travois.search import rank
from travois.search.database import Candidate, Document, Query
from travois.search.index import Index
from travois.search.rank import WIDE
from travois.sessions import disk
from travois.sessions.home import Home
from travois.sessions.passages import masked, passages

COLLECTION = "sessions"
LONGEST = 20_000
"""How many characters of each text are read."""
SHOWN = 2


class Known(msgspec.Struct, frozen=True, array_like=True):
    """A session as it was when it was read last."""

    agent: str
    id: str
    path: str
    stamp: str
    cwd: str = ""
    at: float = 0.0
    title: str = ""
    passages: int = 0

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return AGENTS[self.agent].RESUME.format(id=self.id)


decode = msgspec.json.Decoder(Known).decode


class Match(msgspec.Struct, frozen=True):
    """A session that has to do with a question, and its best passages."""

    session: Known
    score: float
    passages: tuple[Document, ...]


class Progress(msgspec.Struct, frozen=True):
    """How far the index is: sessions that can be found as they are, and those still to read."""

    ready: int
    left: int
    read: int = 0
    """How many were read just now."""


class SessionIndex:
    """The index of a home; `agents` are those whose sessions are in it."""

    def __init__(
        self, home: Home, environ: Mapping[str, str], *, agents: Iterable[str] = AGENTS
    ) -> None:
        self.folder = home.path / "index"
        self._environ = environ
        self._agents = tuple(agents)
        self._index = Index(self.folder / "sessions.db", None)

    @property
    def trouble(self) -> str:
        """What is wrong with the file of the index; empty while all is well."""
        return self._index.trouble

    def close(self) -> None:
        """Let go of the file."""
        self._index.close()

    def forget(self) -> None:
        """Drop all that is known, so that every session is read again."""
        self.close()
        for path in self.folder.glob("sessions.db*"):
            path.unlink(missing_ok=True)

    def refresh(
        self, go_on: Callable[[Progress], bool], *, turn: Literal["ask", "wait"] = "ask"
    ) -> Progress:
        """Read what has changed, the latest first, for as long as the caller says.

        While another process does so, this one only looks, or waits for its turn.
        """
        with _alone(self.folder, turn=turn) as alone:
            known = self.known()
            found = {_group(one): one for one in self._find()}
            stale = [f for g, f in found.items() if g not in known or known[g].stamp != f.stamp]
            stale.sort(key=lambda one: (-one.at, str(one.path)))
            progress = Progress(len(found) - len(stale), len(stale))
            if alone:
                self._drop({group: one for group, one in known.items() if group not in found})
            for one in stale if alone else ():
                if not go_on(progress):
                    break
                self._take(one, before=known.get(_group(one)))
                progress = Progress(progress.ready + 1, progress.left - 1, progress.read + 1)
            return progress

    def known(self) -> dict[str, Known]:
        """The sessions that are in the index, each by what its passages have in common."""
        return {group: decode(mark) for group, mark in self._index.marks(COLLECTION).items()}

    def search(
        self, text: str, *, limit: int, now: float, wanted: Callable[[Known], bool] | None = None
    ) -> list[Match]:
        """The wanted sessions that have most to do with a text, the best first."""
        groups = [group for group, one in self.known().items() if wanted(one)] if wanted else ()
        if wanted and not groups:
            return []
        query, candidates = self._index.candidates(
            COLLECTION, text, now=now, width=WIDE, groups=groups
        )
        marks = self._index.marks(COLLECTION)
        among = marks.keys() & set(groups) if wanted else marks.keys()
        telling = [one for one in candidates if one.document.group in among]
        best = _best(query, telling)
        places = {group: decode(marks[group]).cwd for group in best}
        ranked = [hit for hit in rank.groups(query, telling, places=places) if best.get(hit.id)]
        found = (
            Match(decode(marks[hit.id]), hit.score, tuple(best[hit.id][:SHOWN])) for hit in ranked
        )
        return list(islice(_once(found), limit))

    def _find(self) -> Iterator[Found]:
        for agent in self._agents:
            yield from AGENTS[agent].find(self._environ)

    def _take(self, found: Found, *, before: Known | None) -> None:
        """Read one session; the passages that it no longer has go."""
        recorded = read(found, longest=LONGEST)
        group = _group(found)
        now = Known(found.agent, found.path.stem, str(found.path), found.stamp)
        documents: list[Document] = []
        if recorded is not None:
            documents = passages(recorded, group=group)
            now = Known(
                *(found.agent, recorded.id, now.path, found.stamp, recorded.cwd, recorded.at),
                title=masked(recorded.title),
                passages=len(documents),
            )
        gone = range(len(documents), before.passages if before else 0)
        self._index.update(
            COLLECTION,
            documents,
            gone=[f"{group}-{order}" for order in gone],
            marks={group: msgspec.json.encode(now).decode()},
        )

    def _drop(self, gone: Mapping[str, Known]) -> None:
        for group, one in gone.items():
            ids = [f"{group}-{order}" for order in range(one.passages)]
            self._index.update(COLLECTION, (), gone=ids, marks={group: ""})


def _group(found: Found) -> str:
    """What the passages of a session have in common: a name of its file."""
    return blake2b(f"{found.agent} {found.path}".encode(), digest_size=8).hexdigest()


def _best(query: Query, candidates: Sequence[Candidate]) -> dict[str, list[Document]]:
    """The passages of each group that have the words, the best first, none twice."""
    documents = {one.document.id: one.document for one in candidates if one.lexical}
    best: dict[str, list[Document]] = {}
    for hit in rank.rank(query, candidates):
        chosen, one = best.setdefault(hit.group, []), documents.get(hit.id)
        if one is not None and all(one.text != other.text for other in chosen):
            chosen.append(one)
    return best


def _once(found: Iterable[Match]) -> Iterator[Match]:
    """A session that lies in two places is one."""
    seen: set[tuple[str, str]] = set()
    for match in found:
        name = (match.session.agent, match.session.id)
        if name not in seen:
            seen.add(name)
            yield match


@contextmanager
def _alone(folder: Path, *, turn: Literal["ask", "wait"]) -> Generator[bool]:
    """Whether nobody else is reading sessions into this index; nobody else will meanwhile."""
    try:
        disk.make_folders(folder)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield True  # an index that cannot be kept is this process's own
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (fcntl.LOCK_NB if turn == "ask" else 0))
            alone = True
        except BlockingIOError:
            alone = False
        except OSError:  # a file system without locks
            alone = True
        yield alone
    finally:
        os.close(fd)
