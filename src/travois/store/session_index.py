"""All sessions of this machine, findable by what was said in them.

The index is only a copy: deleting it costs the time to read the sessions again, no more.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec

from travois.store.home import Home
from travois.store.recorded import AGENTS, read
from travois.store.recorded.passages import masked, passages
from travois.store.recorded.spoken import Found
from travois.store.search import rank
from travois.store.search.document import Document
from travois.store.search.index import Index

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
    def group(self) -> str:
        """What its passages have in common; a name of its file, not of the session."""
        return blake2b(f"{self.agent} {self.path}".encode(), digest_size=8).hexdigest()

    @property
    def resume(self) -> str:
        """The command that goes on with it."""
        return AGENTS[self.agent].RESUME.format(id=self.id)


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
            found = {str(one.path): one for one in self._find()}
            stale = [f for p, f in found.items() if p not in known or known[p].stamp != f.stamp]
            stale.sort(key=lambda one: (-one.at, str(one.path)))
            progress = Progress(len(found) - len(stale), len(stale))
            if alone:
                self._drop(one for path, one in known.items() if path not in found)
            for one in stale if alone else ():
                if not go_on(progress):
                    break
                self._take(one, before=known.get(str(one.path)))
                progress = Progress(progress.ready + 1, progress.left - 1, progress.read + 1)
            return progress

    def known(self) -> dict[str, Known]:
        """The sessions that are in the index, by the path of each."""
        decode = msgspec.json.Decoder(Known).decode
        return {path: decode(value) for path, value in self._index.marks(COLLECTION).items()}

    def search(
        self, text: str, *, limit: int, now: float, wanted: Callable[[Known], bool] | None = None
    ) -> list[Match]:
        """The wanted sessions that have most to do with a text, the best first."""
        all_known = self.known().values()
        known = {one.group: one for one in all_known if wanted is None or wanted(one)}
        if not known:
            return []
        groups = known if wanted else ()
        query, candidates = self._index.candidates(COLLECTION, text, now=now, groups=groups)
        telling = [one for one in candidates if one.document.group in known]
        documents = {one.document.id: one.document for one in telling if one.lexical}
        best: dict[str, list[Document]] = {}
        for hit in rank.rank(query, telling):
            chosen = best.setdefault(hit.group, [])
            one = documents.get(hit.id)
            if one is not None and all(one.text != other.text for other in chosen):
                chosen.append(one)
        ranked = [hit for hit in rank.groups(query, telling) if best.get(hit.id)]
        return [
            Match(known[hit.id], hit.score, tuple(best[hit.id][:SHOWN]))
            for hit in _once(ranked, known)
        ][:limit]

    def _find(self) -> Iterator[Found]:
        for agent in self._agents:
            yield from AGENTS[agent].find(self._environ)

    def _take(self, found: Found, *, before: Known | None) -> None:
        """Read one session; the passages that it no longer has go."""
        recorded = read(found, longest=LONGEST)
        now = Known(found.agent, found.path.stem, str(found.path), found.stamp)
        documents: list[Document] = []
        if recorded is not None:
            documents = passages(recorded, group=now.group)
            now = Known(
                *(found.agent, recorded.id, now.path, found.stamp, recorded.cwd, recorded.at),
                title=masked(recorded.title),
                passages=len(documents),
            )
        gone = range(len(documents), before.passages if before else 0)
        self._index.update(
            COLLECTION,
            documents,
            gone=[f"{now.group}-{order}" for order in gone],
            marks={now.path: msgspec.json.encode(now).decode()},
        )

    def _drop(self, gone: Iterable[Known]) -> None:
        for one in gone:
            ids = [f"{one.group}-{order}" for order in range(one.passages)]
            self._index.update(COLLECTION, (), gone=ids, marks={one.path: ""})


def _once(hits: Iterable[rank.Hit], known: Mapping[str, Known]) -> Iterator[rank.Hit]:
    """A session that lies in two places is one."""
    seen: set[tuple[str, str]] = set()
    for hit in hits:
        name = (known[hit.id].agent, known[hit.id].id)
        if name not in seen:
            seen.add(name)
            yield hit


@contextmanager
def _alone(folder: Path, *, turn: Literal["ask", "wait"]) -> Generator[bool]:
    """Whether nobody else is reading sessions into this index; nobody else will meanwhile."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
