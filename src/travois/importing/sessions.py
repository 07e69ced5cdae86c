"""Import of other agents' sessions: each is written to a staging folder, then moved into place.

What an import leaves behind when it is killed lies where no one looks, and goes with the next one.
"""

from __future__ import annotations

import binascii
import os
import shlex
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import cast
from uuid import NAMESPACE_URL, uuid5

import msgspec

from travois.compat.sessions import claude, codex, gemini, pi, read, traj
from travois.compat.sessions.format import (
    WHOLE,
    Compaction,
    Found,
    Json,
    Picture,
    Recorded,
    Spoken,
    decode,
    headline,
    lines,
    stamped,
)
from travois.core.content import AnyBlock, Call, Media, Text, TextOrMedia
from travois.core.errors import UserError
from travois.core.facts import (
    IMPORTED_DETAIL,
    AnyFact,
    Assistant,
    Changed,
    Compacted,
    Ended,
    Noted,
    Opened,
    Result,
    User,
)
from travois.permissions.secrets import collect_secrets
from travois.sessions import blobs, lock
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import list_session_folders
from travois.sessions.home import TravoisHome, identify_project
from travois.sessions.log_file import SessionLog
from travois.sessions.session import Session
from travois.version import __version__

# Calls of other agents' tools, in the words of ours where they mean the same.


PATH = ("file_path",)
EDIT = ("file_path", "old_string", "new_string")
WRITE = ("file_path", "content")
TOOLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("shell", "local_shell", "exec_command", "bash"), ("Bash", ("command",))),
    "run_shell_command": ("Bash", ("command",)),
    **dict.fromkeys(("read", "read_file"), ("Read", PATH)),
    **dict.fromkeys(("edit", "replace"), ("Edit", EDIT)),
    **dict.fromkeys(("write", "write_file", "create"), ("Write", WRITE)),
    **dict.fromkeys(("grep", "search_file_content", "grep_search"), ("Grep", ("pattern",))),
    "glob": ("Glob", ("pattern",)),
    **dict.fromkeys(("todowrite", "write_todos"), ("TodoWrite", ("todos",))),
    **dict.fromkeys(("webfetch", "web_fetch"), ("WebFetch", ("url",))),
    **dict.fromkeys(("Task", "task"), ("Agent", ("prompt",))),
}
"""Their name, ours, and what a call must say to mean the same."""
WORDS = {
    "cmd": "command",
    "filePath": "file_path",
    "absolute_path": "file_path",
    "oldString": "old_string",
    "old_str": "old_string",
    "newString": "new_string",
    "new_str": "new_string",
    "replaceAll": "replace_all",
    "file_text": "content",
}
SHELLS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh")


def translated(call: Call) -> Call:
    """Translate a call to our tool of the same meaning; unchanged if ours would differ."""
    name, needed = TOOLS.get(call.name, ("", ()))
    args = decode(call.args) if name else None
    if args is None:
        return call
    said = _renamed(args, path="file_path" in needed)
    if not all(key in said for key in needed):
        return call
    return Call(call.id, name, msgspec.json.encode(said).decode())


def _renamed(args: Json, *, path: bool) -> Json:
    said: Json = {}
    for key, value in args.items():
        ours = "file_path" if path and key == "path" else WORDS.get(key, key)
        said[ours] = _line(cast("list[object]", value)) if _argv(ours, value) else value
    return said


def _argv(key: str, value: object) -> bool:
    return key == "command" and isinstance(value, list)


def _line(argv: list[object]) -> str:
    """Join an argument vector into a command line."""
    words = [str(word) for word in argv]
    if len(words) == 3 and words[0] in SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


# A recorded session, told as facts of ours: every call with its one result, in the order asked.


BEGINS = "(The recorded session begins here.)"
NO_RESULT = "(No result was recorded for this call: it was interrupted, or its result was lost.)"
UNREADABLE = "(A recorded {kind}, {mime}, could not be read.)"
STRAY = "(A tool returned this; its call is not part of the recorded session.)\n{text}"
ENDS = (
    "(The conversation up to here took place in another program, {agent}, and was imported. Its "
    "tools may be missing here or have other names: use the tools you have.)"
)
Keep = Callable[[bytes], str]
"""Keeps bytes and says under which name."""
Tell = Callable[[float], None]
"""Hears when that which follows was said."""


def retell(recorded: Recorded, session: Session, *, keep: Keep, tell: Tell) -> None:
    """Append a recorded session to one that was just opened.

    The last summary is also the prose that our own next compaction begins with.
    """
    told = _Telling(session, recorded.turns, keep=keep, tell=tell, model=recorded.model)
    shorter = {one.at: one for one in recorded.compactions}
    breaks = {one.at - one.kept for one in recorded.compactions}
    marks: dict[int, int] = {}
    for number, turn in enumerate((*recorded.turns, None)):
        if number in breaks:
            told.flush()
            marks[number] = session.last.seq if session.last else 0
        again = False
        if compaction := shorter.get(number):
            told.flush()
            done = _compact(session, compaction, last=marks[number - compaction.kept])
            again = done and turn is not None and turn.text == compaction.summary
        if turn is not None and not again:
            told.take(turn)
    told.end()
    if recorded.compactions and recorded.compactions[-1].summary.strip():
        session.append(Noted("draft", recorded.compactions[-1].summary))
    session.append(User((Text(ENDS.format(agent=recorded.agent)),), origin="note"))
    assert session.last is not None
    session.append(Noted("extracted", str(session.last.seq)))


def _compact(session: Session, compaction: Compaction, *, last: int) -> bool:
    """Append a recorded compaction; what the model no longer saw stays in the log."""
    gone = [item.seq for item in session.view.items if item.seq <= last]
    summary = (Text(compaction.summary),)
    if not compaction.summary.strip():
        return False
    if gone:
        session.append(
            Compacted(gone[0], gone[-1], summary, "model", IMPORTED_DETAIL, compaction.tokens)
        )
    else:
        session.append(User(summary, origin="note"))
    return True


class _Telling:
    """A converter of recorded turns that joins replies with the results of their calls."""

    def __init__(
        self, session: Session, turns: Iterable[Spoken], *, keep: Keep, tell: Tell, model: str
    ) -> None:
        self._session, self._keep, self._tell, self._model = session, keep, tell, model
        self._reply: list[Spoken] = []
        self._said, self._open = False, False
        """Whether anybody has said anything, and whether a turn has begun."""
        self._used: set[str] = set()
        asked = (call.id for turn in turns for call in turn.calls)
        self._answers: dict[str, deque[Spoken]] = {id: deque() for id in asked}
        for turn in turns:
            if turn.who == "tool" and turn.answers in self._answers:
                self._answers[turn.answers].append(turn)

    def take(self, turn: Spoken) -> None:
        """Add one more turn."""
        if turn.who == "model":
            self._reply.append(turn)
            return
        self.flush()
        if turn.who == "tool" and turn.answers in self._answers:
            return
        if turn.who == "user" and self._open:
            self.end()
        text = STRAY.format(text=turn.text) if turn.who == "tool" else turn.text
        content = (*_words(text), *self._media(turn.pictures))
        if content:
            origin = "human" if turn.who == "user" else "note"
            self._append(User(content, origin=origin), turn.at)
            self._open = self._open or turn.who == "user"

    def flush(self) -> None:
        """Append the reply so far, and the results of its calls."""
        parts, self._reply = self._reply, []
        blocks: list[AnyBlock] = []
        results: list[tuple[Result, float]] = []
        for part in parts:
            blocks += _words(part.text)
            for call in part.calls:
                id = self._free(call.id)
                blocks.append(translated(Call(id, call.name, call.args)))
                results.append(self._result(id, call.id, part.at))
        if not blocks:
            return
        if not self._said:
            self._append(User((Text(BEGINS),), origin="note"), parts[0].at)
        stop = "calls" if results else "end"
        reply = Assistant(tuple(blocks), stop, model=self._model, detail=IMPORTED_DETAIL)
        self._append(reply, parts[-1].at)
        for result, at in results:
            self._append(result, at)
        self._open = True

    def end(self) -> None:
        """End a turn: by the model's last reply, or because it was interrupted."""
        self.flush()
        if not self._open:
            return
        last = self._session.view.items[-1].fact if self._session.view.items else None
        done = isinstance(last, Assistant) and last.stop == "end"
        self._session.append(Ended("end" if done else "aborted", IMPORTED_DETAIL))
        self._open = False

    def _append(self, fact: AnyFact, at: float) -> None:
        self._tell(at)
        self._session.append(fact)
        self._said = True

    def _result(self, id: str, theirs: str, at: float) -> tuple[Result, float]:
        waiting = self._answers[theirs]
        if not waiting:
            return Result(id, (Text(NO_RESULT),), error=True), at
        answer = waiting.popleft()
        content = (*_words(answer.text), *self._media(answer.pictures))
        return Result(id, content, error=answer.error), answer.at

    def _free(self, id: str) -> str:
        """Return an unused call id: some agents reuse ids, or have none."""
        free, number = id or "call", 1
        while free in self._used or (not id and free == "call"):
            free, number = f"{id or 'call'}_{number}", number + 1
        self._used.add(free)
        return free

    def _media(self, pictures: tuple[Picture, ...]) -> Iterable[TextOrMedia]:
        for one in pictures:
            try:
                data = b64decode(one.data, validate=False)
            except binascii.Error:
                data = b""
            kind = "image" if one.mime.startswith("image/") else "document"
            lost = Text(UNREADABLE.format(kind=kind, mime=one.mime))
            yield Media(kind, one.mime, self._keep(data), len(data)) if data else lost


def _words(text: str) -> tuple[TextOrMedia, ...]:
    return (Text(text),) if text.strip() else ()


def origin(recorded: Recorded) -> Noted:
    """Build the note that records where a session comes from."""
    told = {
        "agent": recorded.agent,
        "id": recorded.id,
        "path": str(recorded.path),
        "model": recorded.model,
        "last": recorded.at,
        "turns": len(recorded.turns),
    }
    return Noted("origin", msgspec.json.encode(told).decode())


GLANCE = 300
"""The most characters of each text that a preview reads."""
ASIDE = "importing"


class Candidate(msgspec.Struct, frozen=True):
    """A session that can be imported: its file, its content, and its id here."""

    found: Found
    id: str
    title: str
    cwd: str
    at: float
    turns: int
    known: bool
    """Whether it was imported before, and nothing was said in it since."""


def candidates(home: TravoisHome, found: Iterable[Found]) -> Iterator[Candidate]:
    """List the sessions that have messages, each read only in part."""
    there = {folder.name for folder in list_session_folders(home)}
    for one in found:
        told = _read(one, longest=GLANCE)
        if told is not None:
            id = identity(told)
            about = (told.title, told.cwd, told.at, len(told.turns))
            yield Candidate(one, id, *about, known=id in there)


def identity(told: Recorded) -> str:
    """Return the id of an imported session: the same until the session goes on.

    One that was gone on with in the other agent gets another id: what was made of the earlier
    import here is never touched.
    """
    last = f"{told.at:.3f}" if told.at else str(len(told.turns))
    return str(uuid5(NAMESPACE_URL, f"travois:import {told.agent} {told.id} {last}"))


@contextmanager
def aside(home: TravoisHome) -> Generator[Path]:
    """Lock the folder in which sessions are written, for one import at a time."""
    folder = home.path / ASIDE
    try:
        blobs.make_folders(folder)
        held = lock.acquire_lock(folder)
    except OSError as error:
        raise blobs.make_storage_error("Cannot start the import", error, path=folder) from error
    except UserError as fault:
        raise UserError(
            "Another import is running", why=fault.why, fix="Wait until it has finished."
        ) from None
    try:
        for left in (path for path in folder.iterdir() if path.is_dir()):
            rmtree(left, ignore_errors=True)
        yield folder
    finally:
        held.release()


def bring(home: TravoisHome, found: Found, folder: Path, *, environ: Mapping[str, str]) -> str:
    """Import one session, staged in `folder` until it is complete; returns its id.

    Raises `UserError` if it cannot be read or kept; then nothing of it is left.
    """
    told = _read(found, longest=WHOLE)
    if told is None:
        raise UserError(f"Cannot read {found.path}", why="it was deleted, or it has no messages")
    id, project = identity(told), _project(home, told.cwd)
    draft, place = folder / id, home.session_folder(project, id)
    rmtree(draft, ignore_errors=True)
    try:
        dated = min((turn.at for turn in told.turns if turn.at), default=found.at)
        opened = Opened(id, told.cwd, project, __version__)
        _write(home, draft, told, opened=opened, since=dated, environ=environ)
        blobs.make_folders(place.parent)
        draft.rename(place)
        blobs.sync_folder(place.parent)
    except OSError as error:
        raise blobs.make_storage_error("Cannot import a session", error, path=place) from error
    finally:
        rmtree(draft, ignore_errors=True)
    return id


def _write(
    home: TravoisHome,
    draft: Path,
    told: Recorded,
    *,
    opened: Opened,
    since: float,
    environ: Mapping[str, str],
) -> None:
    times = [since]
    with SessionLog.create(draft, opened, clock=lambda: times[-1]) as log:
        session = Session(log, secrets=collect_secrets(environ.items()))
        session.append(origin(told))
        if told.title != headline(list(told.turns)):
            session.append(Changed("name", told.title))
        retell(
            told,
            session,
            keep=BlobStore(home.blobs).put,
            tell=lambda at: times.append(at or times[-1]),
        )
        log.sync()


def _read(found: Found, *, longest: int) -> Recorded | None:
    if found.agent != traj.NAME:
        return read(found, longest=longest)
    told = traj.read(found.path, longest=longest)
    return told if told.turns else None


def _project(home: TravoisHome, cwd: str) -> str:
    """Return the key of a session's project, whose folder may be gone."""
    if os.path.isdir(cwd):
        return identify_project(home, cwd).key
    return f"gone-{blake2b(os.fsencode(cwd), digest_size=10).hexdigest()}"


def recognised(path: Path) -> Found:
    """Recognize the session file of an agent by its content."""
    try:
        agent, found = _maker(path), stamped("", path)
    except OSError as error:
        raise UserError(f"Cannot read {path}", why=str(error.strerror)) from None
    if not agent or found is None:
        fix = "Supported are sessions of claude, codex, gemini and pi, and traj/1 files."
        raise UserError(f"{path} is not a session that Travois can import", fix=fix)
    return msgspec.structs.replace(found, agent=agent, path=path.absolute())


def _maker(path: Path) -> str:
    with path.open("rb") as file:
        if file.read(2) == traj.PACKED:
            return traj.NAME
    first = next(lines(path), None) or decode(path.read_bytes()) or Json()
    if first.get("format") == traj.FORMAT:
        return traj.NAME
    if first.get("type") == "session" and "timestamp" in first:
        return pi.NAME
    if "payload" in first or "cli_version" in first:
        return codex.NAME
    if "messages" in first or "projectHash" in first:
        return gemini.NAME
    return claude.NAME if "sessionId" in first or "uuid" in first else ""
