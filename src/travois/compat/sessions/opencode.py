"""Sessions of opencode: rows of a database, or JSON files in earlier versions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from travois.compat.foreign_agent import OPENCODE, find_config_folder
from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    Json,
    RecordedCompaction,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    build_recorded_session,
    classify_user_text,
    decode_json_object,
    encode_arguments,
    find_session_files,
    object_at,
    parse_timestamp,
    shorten_turns,
    split_content,
    string_at,
)
from travois.core.content import Call
from travois.lazy_imports import lazy_imports

with lazy_imports():
    import sqlite3


OPENCODE_AGENT, RESUME = OPENCODE.name, OPENCODE.resume
SELECT_SESSIONS = """\
select id, max(time_updated, coalesce(
  (select max(time_updated) from message where session_id = session.id), 0))
from session where parent_id is null"""
SELECT_MESSAGES = "select id, data from message where session_id = ? order by time_created, id"
SELECT_PARTS = "select data from part where message_id = ? order by id"
MessageWithParts = tuple[str, Json, Iterable[Json]]
"""Its id, what it is, and its parts."""


def find_sessions(environ: Mapping[str, str]) -> Iterator[SessionFile]:
    """Yield all opencode sessions, in no order; one in the database has a path below its path."""
    share = find_config_folder(environ, "XDG_DATA_HOME", ".local/share")
    if share is None:
        return
    home = share / "opencode"
    kept: set[str] = set()
    for database in home.glob("opencode*.db"):
        for id, stamp in _query_database(database, SELECT_SESSIONS):
            kept.add(str(id))
            yield SessionFile(
                OPENCODE_AGENT, database / str(id), str(stamp), parse_timestamp(stamp)
            )
    for found in find_session_files(OPENCODE, home):
        said = home / "storage" / "message" / found.path.stem
        if found.path.stem not in kept:
            yield replace(found, stamp=f"{found.stamp} {_modification_time(said)}")


def read_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read an opencode session; one that another session started has no turns of its own."""
    about, messages = (
        _read_from_files(path) if path.suffix == ".json" else _read_from_database(path)
    )
    back = object_at(about, "revert")
    turns: list[RecordedTurn] = []
    shorter: list[RecordedCompaction] = []
    model = ""
    for id, message, parts in messages:
        if string_at(back, "messageID") and id >= string_at(back, "messageID"):
            break
        said = [*shorten_turns(_parse_opencode_turns(message, parts), longest)]
        if message.get("summary") is True:
            summary = "\n".join(turn.text for turn in said if turn.text)
            shorter += [RecordedCompaction(len(turns), summary)] if summary else []
        else:
            turns += said
        model = string_at(message, "modelID") or model
    if string_at(about, "parentID"):
        turns = []
    cwd, names = string_at(about, "directory"), (string_at(about, "title"),)
    return build_recorded_session(
        OPENCODE_AGENT, path, turns=turns, cwd=cwd, names=names, shorter=shorter, model=model
    )


def _parse_opencode_turns(message: Json, parts: Iterable[Json]) -> Iterator[RecordedTurn]:
    """Yield the turns in one message of an opencode session."""
    at, role = (
        parse_timestamp(object_at(message, "time").get("created")),
        string_at(message, "role"),
    )
    answers: list[RecordedTurn] = []
    for part in parts:
        kind, text = string_at(part, "type"), string_at(part, "text")
        if kind == "tool":
            yield _opencode_call_turn(part, at)
            answers += _opencode_result_turn(part, at)
            continue
        yield from answers
        answers = []
        if kind == "text" and text:
            harness = part.get("synthetic") is True
            yield RecordedTurn(
                "model" if role != "user" else "note" if harness else classify_user_text(text),
                text,
                at,
            )
        elif kind == "file" and (shown := split_content([part])[1]):
            yield RecordedTurn("user", "", at, pictures=shown)
    yield from answers


def _opencode_call_turn(part: Json, at: float) -> RecordedTurn:
    """Build a turn from a tool call of an opencode session."""
    args = encode_arguments(object_at(part, "state", "input"))
    return RecordedTurn(
        "model", "", at, (Call(string_at(part, "callID"), string_at(part, "tool"), args),)
    )


def _opencode_result_turn(part: Json, at: float) -> Iterator[RecordedTurn]:
    """Yield the result of a tool call in an opencode session; nothing if it never finished."""
    state, id = object_at(part, "state"), string_at(part, "callID")
    error = string_at(state, "status") == "error"
    text = string_at(state, "error" if error else "output")
    if "output" in state or error:
        yield RecordedTurn("tool", text, at, answers=id, error=error)


def _read_from_database(path: Path) -> tuple[Json, Iterator[MessageWithParts]]:
    """Read the facts and messages of an opencode session from its database."""
    columns = "select title, directory, revert from session where id = ?"
    rows = list(_query_database(path.parent, columns, path.name))
    title, directory, revert = rows[0] if rows else ("", "", None)
    about: Json = {
        "title": title,
        "directory": directory,
        "revert": decode_json_object(str(revert)) or {},
    }
    messages = (
        (str(id), decode_json_object(str(data)) or {}, _select_parts(path.parent, str(id)))
        for id, data in _query_database(path.parent, SELECT_MESSAGES, path.name)
    )
    return about, messages


def _select_parts(database: Path, message: str) -> Iterator[Json]:
    """Yield the parts of an opencode message from the database."""
    return (
        decode_json_object(str(data)) or {}
        for (data,) in _query_database(database, SELECT_PARTS, message)
    )


def _query_database(database: Path, query: str, *values: str) -> Iterator[tuple[object, ...]]:
    """Yield rows of opencode's session database, even while in use; none if it is unreadable."""
    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as opened:
            yield from opened.execute(query, values)
    except sqlite3.Error:
        return


def _read_from_files(path: Path) -> tuple[Json, Iterator[MessageWithParts]]:
    """Read the facts and messages of an opencode session from its JSON files."""
    home = path.parents[2]
    messages = (
        (
            one.stem,
            _read_json_file(one),
            map(_read_json_file, sorted((home / "part" / one.stem).glob("*.json"))),
        )
        for one in sorted((home / "message" / path.stem).glob("*.json"))
    )
    return _read_json_file(path), messages


def _read_json_file(path: Path) -> Json:
    """Read a JSON object of an opencode session; empty if it is unreadable."""
    try:
        return decode_json_object(path.read_bytes()) or {}
    except OSError:
        return {}


def _modification_time(path: Path) -> int:
    """Return an opencode session file's modification time in nanoseconds; 0 if missing."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
