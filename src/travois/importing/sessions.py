"""Importing other agents' sessions: each is written to a staging folder, then moved into place.

What a killed import leaves behind lies where nothing looks for it, and the next import removes it.
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

from travois.compat.sessions import claude, codex, gemini, pi, read_recorded_session, traj
from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedCompaction,
    RecordedMedia,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    decode_json_object,
    make_session_title,
    read_json_lines,
    stat_session_file,
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


PATH_ARGUMENT = ("file_path",)
EDIT_ARGUMENTS = ("file_path", "old_string", "new_string")
WRITE_ARGUMENTS = ("file_path", "content")
FOREIGN_TOOLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("shell", "local_shell", "exec_command", "bash"), ("Bash", ("command",))),
    "run_shell_command": ("Bash", ("command",)),
    **dict.fromkeys(("read", "read_file"), ("Read", PATH_ARGUMENT)),
    **dict.fromkeys(("edit", "replace"), ("Edit", EDIT_ARGUMENTS)),
    **dict.fromkeys(("write", "write_file", "create"), ("Write", WRITE_ARGUMENTS)),
    **dict.fromkeys(("grep", "search_file_content", "grep_search"), ("Grep", ("pattern",))),
    "glob": ("Glob", ("pattern",)),
    **dict.fromkeys(("todowrite", "write_todos"), ("TodoWrite", ("todos",))),
    **dict.fromkeys(("webfetch", "web_fetch"), ("WebFetch", ("url",))),
    **dict.fromkeys(("Task", "task"), ("Agent", ("prompt",))),
}
"""Their name, ours, and what a call must say to mean the same."""
ARGUMENT_ALIASES = {
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
SHELL_PROGRAMS = ("bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/bin/zsh")


def translate_foreign_call(call: Call) -> Call:
    """Translate an imported tool call to our tool; unchanged if ours would differ."""
    name, needed = FOREIGN_TOOLS.get(call.name, ("", ()))
    args = decode_json_object(call.args) if name else None
    if args is None:
        return call
    said = _rename_arguments(args, path="file_path" in needed)
    if not all(key in said for key in needed):
        return call
    return Call(call.id, name, msgspec.json.encode(said).decode())


def _rename_arguments(args: Json, *, path: bool) -> Json:
    """Rename the arguments of another agent's tool call to those of our tools."""
    said: Json = {}
    for key, value in args.items():
        ours = "file_path" if path and key == "path" else ARGUMENT_ALIASES.get(key, key)
        said[ours] = _join_argv(cast("list[object]", value)) if _is_argv(ours, value) else value
    return said


def _is_argv(key: str, value: object) -> bool:
    return key == "command" and isinstance(value, list)


def _join_argv(argv: list[object]) -> str:
    """Join an imported call's argument vector into a command line."""
    words = [str(word) for word in argv]
    if len(words) == 3 and words[0] in SHELL_PROGRAMS and words[1] in ("-c", "-lc"):
        return words[2]
    return shlex.join(words)


# A recorded session, told as facts of ours: every call with its one result, in the order asked.


SESSION_START_NOTE = "(The recorded session begins here.)"
NO_RESULT_NOTE = (
    "(No result was recorded for this call: it was interrupted, or its result was lost.)"
)
UNREADABLE_MEDIA_NOTE = "(A recorded {kind}, {mime}, could not be read.)"
STRAY_RESULT_NOTE = "(A tool returned this; its call is not part of the recorded session.)\n{text}"
IMPORTED_NOTE = (
    "(The conversation up to here took place in another program, {agent}, and was imported. Its "
    "tools may be missing here or have other names: use the tools you have.)"
)
StoreBlob = Callable[[bytes], str]
"""Keeps bytes and says under which name."""
SetTime = Callable[[float], None]
"""Hears when that which follows was said."""


def append_recorded_session(
    recorded: RecordedSession, session: Session, *, keep: StoreBlob, tell: SetTime
) -> None:
    """Append an imported session to a log that was just opened.

    The last summary is also the text that our own next compaction begins with.
    """
    told = _TurnConverter(session, recorded.turns, keep=keep, tell=tell, model=recorded.model)
    shorter = {one.at: one for one in recorded.compactions}
    breaks = {one.at - one.kept for one in recorded.compactions}
    marks: dict[int, int] = {}
    for number, turn in enumerate((*recorded.turns, None)):
        if number in breaks:
            told.flush_reply()
            marks[number] = session.last.seq if session.last else 0
        again = False
        if compaction := shorter.get(number):
            told.flush_reply()
            done = _append_compaction(session, compaction, last=marks[number - compaction.kept])
            again = done and turn is not None and turn.text == compaction.summary
        if turn is not None and not again:
            told.add_turn(turn)
    told.end_turn()
    if recorded.compactions and recorded.compactions[-1].summary.strip():
        session.append(Noted("draft", recorded.compactions[-1].summary))
    session.append(User((Text(IMPORTED_NOTE.format(agent=recorded.agent)),), origin="note"))
    assert session.last is not None
    session.append(Noted("extracted", str(session.last.seq)))


def _append_compaction(session: Session, compaction: RecordedCompaction, *, last: int) -> bool:
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


class _TurnConverter:
    """A converter of recorded turns that joins replies with the results of their calls."""

    def __init__(
        self,
        session: Session,
        turns: Iterable[RecordedTurn],
        *,
        keep: StoreBlob,
        tell: SetTime,
        model: str,
    ) -> None:
        self._session, self._keep, self._tell, self._model = session, keep, tell, model
        self._reply: list[RecordedTurn] = []
        self._said, self._open = False, False
        """Whether anybody has said anything, and whether a turn has begun."""
        self._used: set[str] = set()
        asked = (call.id for turn in turns for call in turn.calls)
        self._answers: dict[str, deque[RecordedTurn]] = {id: deque() for id in asked}
        for turn in turns:
            if turn.who == "tool" and turn.answers in self._answers:
                self._answers[turn.answers].append(turn)

    def add_turn(self, turn: RecordedTurn) -> None:
        """Add one more turn."""
        if turn.who == "model":
            self._reply.append(turn)
            return
        self.flush_reply()
        if turn.who == "tool" and turn.answers in self._answers:
            return
        if turn.who == "user" and self._open:
            self.end_turn()
        text = STRAY_RESULT_NOTE.format(text=turn.text) if turn.who == "tool" else turn.text
        content = (*_text_blocks(text), *self._store_media(turn.pictures))
        if content:
            origin = "human" if turn.who == "user" else "note"
            self._append_fact(User(content, origin=origin), turn.at)
            self._open = self._open or turn.who == "user"

    def flush_reply(self) -> None:
        """Append the reply so far, and the results of its calls."""
        parts, self._reply = self._reply, []
        blocks: list[AnyBlock] = []
        results: list[tuple[Result, float]] = []
        for part in parts:
            blocks += _text_blocks(part.text)
            for call in part.calls:
                id = self._unused_call_id(call.id)
                blocks.append(translate_foreign_call(Call(id, call.name, call.args)))
                results.append(self._result_of_call(id, call.id, part.at))
        if not blocks:
            return
        if not self._said:
            self._append_fact(User((Text(SESSION_START_NOTE),), origin="note"), parts[0].at)
        stop = "calls" if results else "end"
        reply = Assistant(tuple(blocks), stop, model=self._model, detail=IMPORTED_DETAIL)
        self._append_fact(reply, parts[-1].at)
        for result, at in results:
            self._append_fact(result, at)
        self._open = True

    def end_turn(self) -> None:
        """End a turn: by the model's last reply, or because it was interrupted."""
        self.flush_reply()
        if not self._open:
            return
        last = self._session.view.items[-1].fact if self._session.view.items else None
        done = isinstance(last, Assistant) and last.stop == "end"
        self._session.append(Ended("end" if done else "aborted", IMPORTED_DETAIL))
        self._open = False

    def _append_fact(self, fact: AnyFact, at: float) -> None:
        self._tell(at)
        self._session.append(fact)
        self._said = True

    def _result_of_call(self, id: str, theirs: str, at: float) -> tuple[Result, float]:
        waiting = self._answers[theirs]
        if not waiting:
            return Result(id, (Text(NO_RESULT_NOTE),), error=True), at
        answer = waiting.popleft()
        content = (*_text_blocks(answer.text), *self._store_media(answer.pictures))
        return Result(id, content, error=answer.error), answer.at

    def _unused_call_id(self, id: str) -> str:
        """Return an unused call id: some agents reuse ids, or have none."""
        free, number = id or "call", 1
        while free in self._used or (not id and free == "call"):
            free, number = f"{id or 'call'}_{number}", number + 1
        self._used.add(free)
        return free

    def _store_media(self, pictures: tuple[RecordedMedia, ...]) -> Iterable[TextOrMedia]:
        for one in pictures:
            try:
                data = b64decode(one.data, validate=False)
            except binascii.Error:
                data = b""
            kind = "image" if one.mime.startswith("image/") else "document"
            lost = Text(UNREADABLE_MEDIA_NOTE.format(kind=kind, mime=one.mime))
            yield Media(kind, one.mime, self._keep(data), len(data)) if data else lost


def _text_blocks(text: str) -> tuple[TextOrMedia, ...]:
    return (Text(text),) if text.strip() else ()


def build_origin_note(recorded: RecordedSession) -> Noted:
    """Build the note that records where an imported session comes from."""
    told = {
        "agent": recorded.agent,
        "id": recorded.id,
        "path": str(recorded.path),
        "model": recorded.model,
        "last": recorded.at,
        "turns": len(recorded.turns),
    }
    return Noted("origin", msgspec.json.encode(told).decode())


PREVIEW_CHARS = 300
"""The most characters of each text that a preview reads."""
STAGING_FOLDER = "importing"


class ImportCandidate(msgspec.Struct, frozen=True):
    """A session that can be imported: its file, its content, and its id here."""

    found: SessionFile
    id: str
    title: str
    cwd: str
    at: float
    turns: int
    known: bool
    """Whether it was imported before, and nothing was said in it since."""


def list_import_candidates(
    home: TravoisHome, found: Iterable[SessionFile]
) -> Iterator[ImportCandidate]:
    """List the sessions to import that have messages, each read only in part."""
    there = {folder.name for folder in list_session_folders(home)}
    for one in found:
        told = _read_source_session(one, longest=PREVIEW_CHARS)
        if told is not None:
            id = imported_session_id(told)
            about = (told.title, told.cwd, told.at, len(told.turns))
            yield ImportCandidate(one, id, *about, known=id in there)


def imported_session_id(recorded: RecordedSession) -> str:
    """Return an imported session's ID, which stays the same until the original continues.

    One that was continued in the other agent gets another ID: what was made of the earlier import
    here is never touched.
    """
    last = f"{recorded.at:.3f}" if recorded.at else str(len(recorded.turns))
    return str(uuid5(NAMESPACE_URL, f"travois:import {recorded.agent} {recorded.id} {last}"))


@contextmanager
def lock_staging_folder(home: TravoisHome) -> Generator[Path]:
    """Lock the staging folder of imported sessions, for one import at a time."""
    folder = home.path / STAGING_FOLDER
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


def import_session(
    home: TravoisHome, file: SessionFile, folder: Path, *, environ: Mapping[str, str]
) -> str:
    """Import one session, staged in `folder` until it is complete; return its ID.

    Raises `UserError` if it cannot be read or stored; then nothing of it is left.
    """
    told = _read_source_session(file, longest=NO_TEXT_LIMIT)
    if told is None:
        raise UserError(f"Cannot read {file.path}", why="it was deleted, or it has no messages")
    id, project = imported_session_id(told), _project_key(home, told.cwd)
    draft, place = folder / id, home.session_folder(project, id)
    rmtree(draft, ignore_errors=True)
    try:
        dated = min((turn.at for turn in told.turns if turn.at), default=file.at)
        opened = Opened(id, told.cwd, project, __version__)
        _write_session(home, draft, told, opened=opened, since=dated, environ=environ)
        blobs.make_folders(place.parent)
        draft.rename(place)
        blobs.sync_folder(place.parent)
    except OSError as error:
        raise blobs.make_storage_error("Cannot import a session", error, path=place) from error
    finally:
        rmtree(draft, ignore_errors=True)
    return id


def _write_session(
    home: TravoisHome,
    draft: Path,
    recorded: RecordedSession,
    *,
    opened: Opened,
    since: float,
    environ: Mapping[str, str],
) -> None:
    """Write an imported session to a staging folder as a session log of ours."""
    times = [since]
    with SessionLog.create(draft, opened, clock=lambda: times[-1]) as log:
        session = Session(log, secrets=collect_secrets(environ.items()))
        session.append(build_origin_note(recorded))
        if recorded.title != make_session_title(list(recorded.turns)):
            session.append(Changed("name", recorded.title))
        append_recorded_session(
            recorded,
            session,
            keep=BlobStore(home.blobs).put,
            tell=lambda at: times.append(at or times[-1]),
        )
        log.sync()


def _read_source_session(file: SessionFile, *, longest: int) -> RecordedSession | None:
    """Read the session to import, of another agent or in the traj/1 format; None if it is empty."""
    if file.agent != traj.TRAJ_AGENT:
        return read_recorded_session(file, longest=longest)
    told = traj.read_traj_session(file.path, longest=longest)
    return told if told.turns else None


def _project_key(home: TravoisHome, cwd: str) -> str:
    """Return the project key of an imported session, whose folder may be gone."""
    if os.path.isdir(cwd):
        return identify_project(home, cwd).key
    return f"gone-{blake2b(os.fsencode(cwd), digest_size=10).hexdigest()}"


def recognize_session_file(path: Path) -> SessionFile:
    """Recognize by its content which agent's session a file to import is; raises `UserError`."""
    try:
        agent, found = _detect_session_agent(path), stat_session_file("", path)
    except OSError as error:
        raise UserError(f"Cannot read {path}", why=str(error.strerror)) from None
    if not agent or found is None:
        fix = "Supported are sessions of claude, codex, gemini and pi, and traj/1 files."
        raise UserError(f"{path} is not a session that Travois can import", fix=fix)
    return msgspec.structs.replace(found, agent=agent, path=path.absolute())


def _detect_session_agent(path: Path) -> str:
    """Detect the agent that wrote a session file from its first line; empty if unknown."""
    with path.open("rb") as file:
        if file.read(2) == traj.GZIP_MAGIC:
            return traj.TRAJ_AGENT
    first = next(read_json_lines(path), None) or decode_json_object(path.read_bytes()) or Json()
    if first.get("format") == traj.TRAJ_FORMAT:
        return traj.TRAJ_AGENT
    if first.get("type") == "session" and "timestamp" in first:
        return pi.PI_AGENT
    if "payload" in first or "cli_version" in first:
        return codex.CODEX_AGENT
    if "messages" in first or "projectHash" in first:
        return gemini.GEMINI_AGENT
    return claude.CLAUDE_AGENT if "sessionId" in first or "uuid" in first else ""
