"""Sessions of opencode: rows of a database, or JSON files in earlier versions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from travois.compat.foreign_agent import OPENCODE, find_folder
from travois.compat.sessions.format import (
    WHOLE,
    Compaction,
    Found,
    Json,
    Recorded,
    Spoken,
    asked,
    content,
    decode,
    encoded,
    inner,
    moment,
    sessions,
    shortened,
    string,
    told,
)
from travois.core.content import Call

NAME, RESUME = OPENCODE.name, OPENCODE.resume
LISTING = """\
select id, max(time_updated, coalesce(
  (select max(time_updated) from message where session_id = session.id), 0))
from session where parent_id is null"""
MESSAGES = "select id, data from message where session_id = ? order by time_created, id"
PARTS = "select data from part where message_id = ? order by id"
Message = tuple[str, Json, Iterable[Json]]
"""Its id, what it is, and its parts."""


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield all sessions, in no order. One of a database has a path below that of the database."""
    share = find_folder(environ, "XDG_DATA_HOME", ".local/share")
    if share is None:
        return
    home = share / "opencode"
    kept: set[str] = set()
    for database in home.glob("opencode*.db"):
        for id, stamp in _rows(database, LISTING):
            kept.add(str(id))
            yield Found(NAME, database / str(id), str(stamp), moment(stamp))
    for found in sessions(OPENCODE, home):
        said = home / "storage" / "message" / found.path.stem
        if found.path.stem not in kept:
            yield replace(found, stamp=f"{found.stamp} {_changed(said)}")


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Return a session; one that another one started has no turns of its own."""
    about, messages = _from_files(path) if path.suffix == ".json" else _from_database(path)
    back = inner(about, "revert")
    turns: list[Spoken] = []
    shorter: list[Compaction] = []
    model = ""
    for id, message, parts in messages:
        if string(back, "messageID") and id >= string(back, "messageID"):
            break
        said = [*shortened(_spoken(message, parts), longest)]
        if message.get("summary") is True:
            summary = "\n".join(turn.text for turn in said if turn.text)
            shorter += [Compaction(len(turns), summary)] if summary else []
        else:
            turns += said
        model = string(message, "modelID") or model
    if string(about, "parentID"):
        turns = []
    cwd, names = string(about, "directory"), (string(about, "title"),)
    return told(NAME, path, turns=turns, cwd=cwd, names=names, shorter=shorter, model=model)


def _spoken(message: Json, parts: Iterable[Json]) -> Iterator[Spoken]:
    at, role = moment(inner(message, "time").get("created")), string(message, "role")
    answers: list[Spoken] = []
    for part in parts:
        kind, text = string(part, "type"), string(part, "text")
        if kind == "tool":
            yield _called(part, at)
            answers += _answered(part, at)
            continue
        yield from answers
        answers = []
        if kind == "text" and text:
            harness = part.get("synthetic") is True
            yield Spoken(
                "model" if role != "user" else "note" if harness else asked(text), text, at
            )
        elif kind == "file" and (shown := content([part])[1]):
            yield Spoken("user", "", at, pictures=shown)
    yield from answers


def _called(part: Json, at: float) -> Spoken:
    args = encoded(inner(part, "state", "input"))
    return Spoken("model", "", at, (Call(string(part, "callID"), string(part, "tool"), args),))


def _answered(part: Json, at: float) -> Iterator[Spoken]:
    """Yield what a call brought; nothing if it was never finished."""
    state, id = inner(part, "state"), string(part, "callID")
    error = string(state, "status") == "error"
    text = string(state, "error" if error else "output")
    if "output" in state or error:
        yield Spoken("tool", text, at, answers=id, error=error)


def _from_database(path: Path) -> tuple[Json, Iterator[Message]]:
    columns = "select title, directory, revert from session where id = ?"
    rows = list(_rows(path.parent, columns, path.name))
    title, directory, revert = rows[0] if rows else ("", "", None)
    about: Json = {"title": title, "directory": directory, "revert": decode(str(revert)) or {}}
    messages = (
        (str(id), decode(str(data)) or {}, _parts(path.parent, str(id)))
        for id, data in _rows(path.parent, MESSAGES, path.name)
    )
    return about, messages


def _parts(database: Path, message: str) -> Iterator[Json]:
    return (decode(str(data)) or {} for (data,) in _rows(database, PARTS, message))


def _rows(database: Path, query: str, *values: str) -> Iterator[tuple[object, ...]]:
    """Rows of a database that its owner may be writing to; none if it is not one of the kind."""
    import sqlite3

    try:
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as opened:
            yield from opened.execute(query, values)
    except sqlite3.Error:
        return


def _from_files(path: Path) -> tuple[Json, Iterator[Message]]:
    home = path.parents[2]
    messages = (
        (one.stem, _json(one), map(_json, sorted((home / "part" / one.stem).glob("*.json"))))
        for one in sorted((home / "message" / path.stem).glob("*.json"))
    )
    return _json(path), messages


def _json(path: Path) -> Json:
    try:
        return decode(path.read_bytes()) or {}
    except OSError:
        return {}


def _changed(path: Path) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
