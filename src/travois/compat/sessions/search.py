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

from travois.compat.sessions import SESSION_SOURCES, read_recorded_session
from travois.compat.sessions.format import (
    RecordedSession,
    RecordedTurn,
    SessionFile,
    decode_json_object,
    objects_at,
    shorten_text,
    string_at,
)
from travois.core.content import Call
from travois.permissions import secrets
from travois.search import rank
from travois.search.candidates import MAX_CANDIDATES, MAX_GROUP_CANDIDATES
from travois.search.database import Embedder, SearchCandidate, SearchDocument, SearchQuery
from travois.search.embedder import StaticEmbedder
from travois.search.index import SearchIndex
from travois.sessions import blobs
from travois.sessions.home import TravoisHome

# What of a session can be found: prompts, replies, errors, to-do lists, and files touched.


PASSAGE_CHARS = 1000
"""The approximate length of a passage in characters."""
MAX_ERROR_CHARS = 500
MAX_PASSAGES = 2000
"""The most passages of one session: half from its start, half from its end."""
PATH_ARGUMENTS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")
PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
TODO_LIST_KEYS = ("todos", "plan", "items")
TODO_TEXT_KEYS = ("content", "step", "description", "text")


def build_passages(recorded: RecordedSession, *, group: str) -> list[SearchDocument]:
    """Build the passages of a session for the full-text index, with secrets masked."""
    drafts = list(_draft_passages(recorded.turns))
    if len(drafts) > MAX_PASSAGES:
        drafts = drafts[: MAX_PASSAGES // 2] + drafts[-MAX_PASSAGES // 2 :]
    found = [
        SearchDocument(
            *(f"{group}-{order}", text, group, order, turn.at, turn.name or turn.who),
            turn=str(number),
        )
        for order, (number, turn, text) in enumerate(drafts)
    ]
    title = mask_secrets(recorded.title)
    return [replace(one, title=title) if not one.order else one for one in found]


def mask_secrets(text: str) -> str:
    """Mask what looks like a secret in a session's text before it is indexed."""
    for found in reversed(secrets.find_secrets(text)):
        text = f"{text[: found.start]}[{found.kind}]{text[found.end :]}"
    return text


def files_of_call(call: Call) -> tuple[str, ...]:
    """Return the files that a recorded tool call names, for the session index."""
    args = decode_json_object(call.args) or {}
    named = [string_at(args, key) for key in PATH_ARGUMENTS if string_at(args, key)]
    return (*named, *PATCHED_FILE.findall(string_at(args, "input")))


def _draft_passages(turns: tuple[RecordedTurn, ...]) -> Iterator[tuple[int, RecordedTurn, str]]:
    """Yield the passages of a session with the numbers of their turns, and the files touched."""
    files: dict[str, None] = {}
    for number, turn in enumerate(turns):
        if turn.who == "user" and files:
            yield number - 1, replace(turn, who="model"), _list_files(files)
            files = {}
        for text in _texts_of_turn(turn):
            yield number, turn, text
        files |= dict.fromkeys(path for call in turn.calls for path in files_of_call(call))
    if files:
        yield len(turns) - 1, replace(turns[-1], who="model"), _list_files(files)


def _list_files(files: dict[str, None]) -> str:
    return shorten_text("Files: " + ", ".join(files), 2 * PASSAGE_CHARS)


def _texts_of_turn(turn: RecordedTurn) -> Iterator[str]:
    """Yield the searchable texts of a turn: words, errors and to-do lists, with secrets masked."""
    if turn.who in ("user", "model"):
        yield from split_passages(mask_secrets(turn.text))
    elif turn.error and turn.text.strip():
        yield mask_secrets(shorten_text(turn.text.strip(), MAX_ERROR_CHARS))
    for call in turn.calls:
        if steps := _todo_steps(call):
            yield mask_secrets(shorten_text("To do: " + "; ".join(steps), 2 * PASSAGE_CHARS))


def _todo_steps(call: Call) -> list[str]:
    """Return the steps of a to-do list that a recorded tool call writes."""
    name = call.name.lower()
    args = decode_json_object(call.args) if "todo" in name or "plan" in name else None
    listed = [step for key in TODO_LIST_KEYS for step in objects_at(args or {}, key)]
    found = (
        next((string_at(one, key) for key in TODO_TEXT_KEYS if string_at(one, key)), "")
        for one in listed
    )
    return [step for step in found if step]


def split_passages(text: str) -> Iterator[str]:
    """Split a session's text into passages of a readable size for the index."""
    text = text.strip()
    while len(text) > PASSAGE_CHARS + PASSAGE_CHARS // 4:
        room = text[:PASSAGE_CHARS]
        at = next((at for mark in ("\n\n", "\n", ". ", " ") if (at := room.rfind(mark)) > 300), 0)
        at = at or PASSAGE_CHARS
        yield text[:at].strip()
        text = text[at:].strip()
    if text:
        yield text


SESSION_COLLECTION = "sessions"
MAX_INDEXED_CHARS = 20_000
"""The most characters of each text that are indexed."""
PASSAGES_PER_MATCH = 2
EMBEDDED_TOGETHER = 64
"""How many passages are embedded before the next are looked for."""


class IndexedSession(msgspec.Struct, frozen=True, array_like=True):
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
    def resume_command(self) -> str:
        """The command that goes on with it."""
        return SESSION_SOURCES[self.agent].RESUME.format(id=self.id)


decode_indexed_session = msgspec.json.Decoder(IndexedSession).decode


class SessionMatch(msgspec.Struct, frozen=True):
    """A session that matches a query, and its best passages."""

    session: IndexedSession
    score: float
    passages: tuple[SearchDocument, ...]


class TurnMatch(msgspec.Struct, frozen=True):
    """A turn that matches a query."""

    session: IndexedSession
    turn: int
    """Its place in the session."""
    score: float
    passages: tuple[SearchDocument, ...]
    """The best passage of it."""


class IndexProgress(msgspec.Struct, frozen=True):
    """The progress of indexing: sessions that are ready, and those still to read."""

    ready: int
    left: int
    read: int = 0
    """The number of sessions read in this run."""


class SessionIndex:
    """The index of a home; `agents` are those whose sessions are in it."""

    def __init__(
        self,
        home: TravoisHome,
        environ: Mapping[str, str],
        *,
        agents: Iterable[str] = SESSION_SOURCES,
        embedder: Embedder | None = None,
    ) -> None:
        self.folder = home.cache / "index"
        self._environ = environ
        self._agents = tuple(agents)
        embedder = embedder or StaticEmbedder()
        self._index = SearchIndex(self.folder / "sessions.db", embedder)
        self._embeds_at_once = embedder.name == StaticEmbedder.name

    @property
    def trouble(self) -> str:
        """The state of the index file, in a sentence for the user; empty while all is well."""
        return self._index.trouble

    def close(self) -> None:
        """Close the file."""
        self._index.close()

    def delete(self) -> None:
        """Drop all that is known, so that every session is read again."""
        self.close()
        for path in self.folder.glob("sessions.db*"):
            path.unlink(missing_ok=True)

    def refresh(
        self, go_on: Callable[[IndexProgress], bool], *, turn: Literal["ask", "wait"] = "ask"
    ) -> IndexProgress:
        """Read what has changed, the latest first, for as long as the caller says.

        While another process does so, this one only looks, or waits for its turn.
        """
        with _indexing_lock(self.folder, turn=turn) as alone:
            known = self.list_sessions()
            found = {_passage_group(one): one for one in self._find_session_files()}
            stale = [f for g, f in found.items() if g not in known or known[g].stamp != f.stamp]
            stale.sort(key=lambda one: (-one.at, str(one.path)))
            progress = IndexProgress(len(found) - len(stale), len(stale))
            if alone:
                self._drop_sessions(
                    {group: one for group, one in known.items() if group not in found}
                )
            for one in stale if alone else ():
                if not go_on(progress):
                    break
                self._index_session(one, before=known.get(_passage_group(one)))
                progress = IndexProgress(progress.ready + 1, progress.left - 1, progress.read + 1)
            return progress

    def list_sessions(self) -> dict[str, IndexedSession]:
        """Return the sessions that are in the index, each by what its passages have in common."""
        return {
            group: decode_indexed_session(mark)
            for group, mark in self._index.read_marks(SESSION_COLLECTION).items()
        }

    def search(
        self,
        text: str,
        *,
        limit: int,
        now: float,
        wanted: Callable[[IndexedSession], bool] | None = None,
    ) -> list[SessionMatch]:
        """Return the wanted sessions that have most to do with a text, the best first."""
        query, telling, marks = self.find_candidates(
            text, now=now, width=MAX_GROUP_CANDIDATES, wanted=wanted
        )
        best = _best_passages(query, telling)
        places = {group: marks[group].cwd for group in best}
        found = (
            SessionMatch(marks[hit.id], hit.score, tuple(best[hit.id][:PASSAGES_PER_MATCH]))
            for hit in rank.rank_groups(query, telling, places=places)
            if best.get(hit.id)
        )
        return list(islice(_without_duplicates(found), limit))

    def search_turns(
        self,
        text: str,
        *,
        limit: int,
        now: float,
        wanted: Callable[[IndexedSession], bool] | None = None,
    ) -> list[TurnMatch]:
        """Return the turns of wanted sessions that have most to do with a text, the best first."""
        query, telling, marks = self.find_candidates(
            text, now=now, width=MAX_CANDIDATES, wanted=wanted
        )
        documents = {one.document.id: one.document for one in telling}
        found: dict[tuple[str, str], TurnMatch] = {}
        for hit in rank.rank_documents(query, telling):
            one = documents[hit.id]
            match = TurnMatch(marks[hit.group], int(one.turn or one.order), hit.score, (one,))
            found.setdefault((match.session.id, one.turn), match)
        return list(islice(found.values(), limit))

    def find_candidates(
        self,
        text: str,
        *,
        now: float,
        width: int,
        wanted: Callable[[IndexedSession], bool] | None = None,
    ) -> tuple[SearchQuery, list[SearchCandidate], dict[str, IndexedSession]]:
        """Return the query, the passages that may answer it, and all sessions."""
        groups = (
            [group for group, one in self.list_sessions().items() if wanted(one)] if wanted else ()
        )
        if wanted and not groups:
            return SearchQuery(text, (), {}, now, 0.0), [], {}
        query, candidates = self._index.find_candidates(
            SESSION_COLLECTION, text, now=now, width=width, groups=groups
        )
        marks = self.list_sessions()  # after the candidates, so that each of these has its session
        among = marks.keys() & set(groups) if wanted else marks.keys()
        return query, [one for one in candidates if one.document.group in among], marks

    def _find_session_files(self) -> Iterator[SessionFile]:
        for agent in self._agents:
            yield from SESSION_SOURCES[agent].find_sessions(self._environ)

    def _index_session(self, file: SessionFile, *, before: IndexedSession | None) -> None:
        """Read one session and index it."""
        self.put(file, read_recorded_session(file, longest=MAX_INDEXED_CHARS), before=before)

    def put(
        self,
        file: SessionFile,
        recorded: RecordedSession | None,
        *,
        before: IndexedSession | None = None,
    ) -> None:
        """Index a session as it was read from its file, in place of what was known `before`.

        The passages that it no longer has go.
        """
        group = _passage_group(file)
        now = IndexedSession(file.agent, file.path.stem, str(file.path), file.stamp)
        documents: list[SearchDocument] = []
        if recorded is not None:
            documents = build_passages(recorded, group=group)
            now = IndexedSession(
                *(file.agent, recorded.id, now.path, file.stamp, recorded.cwd, recorded.at),
                title=mask_secrets(recorded.title),
                passages=len(documents),
            )
        gone = range(len(documents), before.passages if before else 0)
        self._index.update(
            SESSION_COLLECTION,
            documents,
            gone=[f"{group}-{order}" for order in gone],
            marks={group: msgspec.json.encode(now).decode()},
            embed=len(documents) if self._embeds_at_once else 0,
        )

    def embed_rest(self) -> None:
        """Embed the passages that have no vector yet, the latest first."""
        while self._index.embed(SESSION_COLLECTION, limit=EMBEDDED_TOGETHER):
            pass

    def count_waiting(self) -> int:
        """Return how many passages have no vector yet."""
        return self._index.count_waiting(SESSION_COLLECTION)

    def _drop_sessions(self, gone: Mapping[str, IndexedSession]) -> None:
        for group, one in gone.items():
            ids = [f"{group}-{order}" for order in range(one.passages)]
            self._index.update(SESSION_COLLECTION, (), gone=ids, marks={group: ""})


def _passage_group(file: SessionFile) -> str:
    """Return the group id of a session's passages, a digest of its file name."""
    return blake2b(f"{file.agent} {file.path}".encode(), digest_size=8).hexdigest()


def _best_passages(
    query: SearchQuery, candidates: Sequence[SearchCandidate]
) -> dict[str, list[SearchDocument]]:
    """Return the best passages with the searched words in each session, without duplicates."""
    documents = {one.document.id: one.document for one in candidates if one.lexical}
    best: dict[str, list[SearchDocument]] = {}
    for hit in rank.rank_documents(query, candidates):
        chosen, one = best.setdefault(hit.group, []), documents.get(hit.id)
        if one is not None and all(one.text != other.text for other in chosen):
            chosen.append(one)
    return best


def _without_duplicates(found: Iterable[SessionMatch]) -> Iterator[SessionMatch]:
    """Drop a session from the search results that was found in two places."""
    seen: set[tuple[str, str]] = set()
    for match in found:
        name = (match.session.agent, match.session.id)
        if name not in seen:
            seen.add(name)
            yield match


@contextmanager
def _indexing_lock(folder: Path, *, turn: Literal["ask", "wait"]) -> Generator[bool]:
    """Lock the full-text index; yield whether this process holds the lock."""
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
