"""Sessions of Travois itself; a fork without the session it started from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from travois.compat.sessions.format import (
    NO_TEXT_LIMIT,
    RecordedSession,
    RecordedTurn,
    SessionFile,
    build_recorded_session,
    shorten_text,
    stat_session_file,
)
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

TRAVOIS_AGENT, RESUME = "travois", "travois --resume {id}"
TEXT_PLACEHOLDER = Noted("said", "")
"""Stands for what was said while it is found out what was rewound: logs may be large."""


def find_sessions(environ: Mapping[str, str]) -> Iterator[SessionFile]:
    """Yield all Travois sessions, in no order."""
    for folder in list_session_folders(locate_home(environ)):
        if found := stat_session_file(TRAVOIS_AGENT, folder / LOG):
            yield found


def read_session(path: Path, *, longest: int = NO_TEXT_LIMIT) -> RecordedSession:
    """Read a Travois session, with what was compacted and without what was rewound."""
    cwd = name = ""
    bare: list[Entry] = []
    said: dict[int, RecordedTurn] = {}
    for entry in read_entries(path, []):
        match entry.fact:
            case Opened(cwd=where):
                cwd = where
            case Changed(what="name", value=value):
                name = value
            case Rewound():
                bare.append(entry)
            case fact if spoken := _turn_of_fact(fact, entry.at, longest):
                said[entry.seq] = spoken
                bare.append(Entry(entry.seq, entry.at, TEXT_PLACEHOLDER))
            case _:
                pass
    turns = [said[entry.seq] for entry in keep_live_entries(bare)]
    return build_recorded_session(
        TRAVOIS_AGENT, path, turns=turns, id=path.parent.name, cwd=cwd, names=(name,)
    )


def _turn_of_fact(fact: AnyFact, at: float, longest: int) -> RecordedTurn | None:
    """Convert a fact of our own session log to a recorded turn; None if it is no message."""
    match fact:
        case User(content=content, origin=origin):
            return RecordedTurn(
                "user" if origin == "human" else "note",
                shorten_text(extract_text(content), longest),
                at,
            )
        case Assistant(content=content):
            return RecordedTurn(
                "model", shorten_text(extract_text(content), longest), at, extract_calls(content)
            )
        case Result(call=call, content=content, error=error):
            return RecordedTurn(
                "tool", shorten_text(extract_text(content), longest), at, answers=call, error=error
            )
        case _:
            return None
