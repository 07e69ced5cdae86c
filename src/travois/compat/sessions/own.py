"""Sessions of Travois itself; a fork without the session it started from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.sessions.format import WHOLE, Found, Recorded, Spoken, cut, stamped, told
from travois.core.content import extract_calls, extract_text
from travois.core.facts import (
    AnyFact,
    Assistant,
    Changed,
    Entry,
    Noted,
    Opened,
    Result,
    Rewound,
    User,
)
from travois.core.view import keep_live_entries
from travois.sessions.catalog import list_session_folders
from travois.sessions.home import locate_home
from travois.sessions.log_file import LOG_FILE_NAME as LOG
from travois.sessions.log_file import read_entries

NAME, RESUME = "travois", "travois --resume {id}"
BARE = Noted("said", "")
"""Stands for what was said while it is found out what was rewound: logs may be large."""


def find(environ: Mapping[str, str]) -> Iterator[Found]:
    """Yield all sessions, in no order."""
    for folder in list_session_folders(locate_home(environ)):
        if found := stamped(NAME, folder / LOG):
            yield found


def read(path: Path, *, longest: int = WHOLE) -> Recorded:
    """Return a session; what was compacted is in it, what was rewound is not."""
    cwd = name = ""
    bare: list[Entry] = []
    said: dict[int, Spoken] = {}
    for entry in read_entries(path, []):
        match entry.fact:
            case Opened(cwd=where):
                cwd = where
            case Changed(what="name", value=value):
                name = value
            case Rewound():
                bare.append(entry)
            case fact if spoken := _spoken(fact, entry.at, longest):
                said[entry.seq] = spoken
                bare.append(Entry(entry.seq, entry.at, BARE))
            case _:
                pass
    turns = [said[entry.seq] for entry in keep_live_entries(bare)]
    return told(NAME, path, turns=turns, id=path.parent.name, cwd=cwd, names=(name,))


def _spoken(fact: AnyFact, at: float, longest: int) -> Spoken | None:
    match fact:
        case User(content=content, origin=origin):
            return Spoken(
                "user" if origin == "human" else "note", cut(extract_text(content), longest), at
            )
        case Assistant(content=content):
            return Spoken("model", cut(extract_text(content), longest), at, extract_calls(content))
        case Result(call=call, content=content, error=error):
            return Spoken(
                "tool", cut(extract_text(content), longest), at, answers=call, error=error
            )
        case _:
            return None
