"""Full-text search over all recorded sessions of this machine.

The index is only a copy: deleting it costs the time to read the sessions again, no more.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.compat.sessions import AGENTS, read
from travois.compat.sessions.format import Found, Recorded, Spoken, cut, decode, objects, string
from travois.core.content import Call
from travois.permissions import secrets
from travois.search import rank
from travois.search.database import Candidate, Document, Query
from travois.search.index import Index
from travois.search.rank import WIDE
from travois.sessions import blobs
from travois.sessions.home import TravoisHome

# What of a session can be found: prompts, replies, errors, to-do lists, and files touched.


LENGTH = 1000
"""The approximate length of a passage in characters."""
ERROR = 500
MOST = 2000
"""The most passages of one session: half from its start, half from its end."""
PATHS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")
PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
TODOS = ("todos", "plan", "items")
STEP = ("content", "step", "description", "text")


def passages(recorded: Recorded, *, group: str) -> list[Document]:
    """Return the passages of a session, in order; what looks like a secret is not in them."""
    drafts = list(_drafts(recorded.turns))
    if len(drafts) > MOST:
        drafts = drafts[: MOST // 2] + drafts[-MOST // 2 :]
    found = [
        Document(f"{group}-{order}", text, group, order, at=turn.at, who=turn.who)
        for order, (turn, text) in enumerate(drafts)
    ]
    title = masked(recorded.title)
    return [replace(one, title=title) if not one.order else one for one in found]


def masked(text: str) -> str:
    """Return the text with a name in the place of what looks like a secret."""
    for found in reversed(secrets.find_secrets(text)):
        text = f"{text[: found.start]}[{found.kind}]{text[found.end :]}"
    return text


def touched(call: Call) -> tuple[str, ...]:
    """Return the files that a call names."""
    args = decode(call.args) or {}
    named = [string(args, key) for key in PATHS if string(args, key)]
    return (*named, *PATCHED.findall(string(args, "input")))


def _drafts(turns: tuple[Spoken, ...]) -> Iterator[tuple[Spoken, str]]:
    files: dict[str, None] = {}
    for turn in turns:
        if turn.who == "user" and files:
            yield replace(turn, who="model"), _listed(files)
            files = {}
        for text in _said(turn):
            yield turn, text
        files |= dict.fromkeys(path for call in turn.calls for path in touched(call))
    if files:
        yield replace(turns[-1], who="model"), _listed(files)


def _listed(files: dict[str, None]) -> str:
    return cut("Files: " + ", ".join(files), 2 * LENGTH)


def _said(turn: Spoken) -> Iterator[str]:
    if turn.who in ("user", "model"):
        yield from pieces(masked(turn.text))
    elif turn.error and turn.text.strip():
        yield masked(cut(turn.text.strip(), ERROR))
    for call in turn.calls:
        if steps := _steps(call):
            yield masked(cut("To do: " + "; ".join(steps), 2 * LENGTH))


def _steps(call: Call) -> list[str]:
    """Return the steps of a to-do list that a call writes."""
    name = call.name.lower()
    args = decode(call.args) if "todo" in name or "plan" in name else None
    listed = [step for key in TODOS for step in objects(args or {}, key)]
    found = (next((string(one, key) for key in STEP if string(one, key)), "") for one in listed)
    return [step for step in found if step]


def pieces(text: str) -> Iterator[str]:
    """Yield a text in parts of a readable size, divided where it pauses."""
    text = text.strip()
    while len(text) > LENGTH + LENGTH // 4:
        room = text[:LENGTH]
        at = next((at for mark in ("\n\n", "\n", ". ", " ") if (at := room.rfind(mark)) > 300), 0)
        at = at or LENGTH
        yield text[:at].strip()
        text = text[at:].strip()
    if text:
        yield text


COLLECTION = "sessions"
LONGEST = 20_000
"""The most characters of each text that are indexed."""
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


decode_mark = msgspec.json.Decoder(Known).decode


class Match(msgspec.Struct, frozen=True):
    """A session that matches a query, and its best passages."""

    session: Known
    score: float
    passages: tuple[Document, ...]


class Progress(msgspec.Struct, frozen=True):
    """The progress of indexing: sessions that are ready, and those still to read."""

    ready: int
    left: int
    read: int = 0
    """The number of sessions read in this run."""


class SessionIndex:
    """The index of a home; `agents` are those whose sessions are in it."""

    def __init__(
        self, home: TravoisHome, environ: Mapping[str, str], *, agents: Iterable[str] = AGENTS
    ) -> None:
        self.folder = home.path / "index"
        self._environ = environ
        self._agents = tuple(agents)
        self._index = Index(self.folder / "sessions.db", None)

    @property
    def trouble(self) -> str:
        """The state of the index file, in a sentence for the user; empty while all is well."""
        return self._index.trouble

    def close(self) -> None:
        """Close the file."""
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
        """Return the sessions that are in the index, each by what its passages have in common."""
        return {group: decode_mark(mark) for group, mark in self._index.marks(COLLECTION).items()}

    def search(
        self, text: str, *, limit: int, now: float, wanted: Callable[[Known], bool] | None = None
    ) -> list[Match]:
        """Return the wanted sessions that have most to do with a text, the best first."""
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
        places = {group: decode_mark(marks[group]).cwd for group in best}
        ranked = [hit for hit in rank.groups(query, telling, places=places) if best.get(hit.id)]
        found = (
            Match(decode_mark(marks[hit.id]), hit.score, tuple(best[hit.id][:SHOWN]))
            for hit in ranked
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
    """Return the group id of a session's passages, a digest of its file name."""
    return blake2b(f"{found.agent} {found.path}".encode(), digest_size=8).hexdigest()


def _best(query: Query, candidates: Sequence[Candidate]) -> dict[str, list[Document]]:
    """Return the passages of each group that have the words, the best first, none twice."""
    documents = {one.document.id: one.document for one in candidates if one.lexical}
    best: dict[str, list[Document]] = {}
    for hit in rank.rank(query, candidates):
        chosen, one = best.setdefault(hit.group, []), documents.get(hit.id)
        if one is not None and all(one.text != other.text for other in chosen):
            chosen.append(one)
    return best


def _once(found: Iterable[Match]) -> Iterator[Match]:
    """Drop a session that was found in two places."""
    seen: set[tuple[str, str]] = set()
    for match in found:
        name = (match.session.agent, match.session.id)
        if name not in seen:
            seen.add(name)
            yield match


@contextmanager
def _alone(folder: Path, *, turn: Literal["ask", "wait"]) -> Generator[bool]:
    """Lock the index; yields whether this process holds the lock."""
    try:
        blobs.make_folders(folder)
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
