"""The session picker: the list of sessions to resume, and choosing one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from msgspec.structs import replace

from travois.compose.live_session import typed_text
from travois.compose.options import Options
from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import AnyFact, Assistant, User
from travois.sessions import lock, log_line
from travois.sessions.catalog import SessionSummary, list_sessions
from travois.sessions.home import Project, TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME

LOG_TAIL_BYTES = 1 << 18
"""The bytes at the end of a log that are searched for its last words."""


class SessionPicker:
    """All sessions but one, the newest first."""

    def __init__(self, home: TravoisHome, project: Project, *, but: str = "") -> None:
        self._home, self._project, self._but = home, project, but
        self._told: dict[bool, list[tuple[str, SessionSummary]]] = {}
        self._endings: dict[str, tuple[str, str]] = {}

    def search(self, text: str, *, everywhere: bool) -> list[SessionSummary]:
        """Return the sessions whose title, folder or id matches the text."""
        wanted = text.casefold().split()
        told = self._list_summaries(everywhere=everywhere)
        return [
            one
            for known, one in told
            if all(word in known or one.id.startswith(word) for word in wanted)
        ]

    def last_words(self, summary: SessionSummary) -> tuple[str, str]:
        """Return the last words of the person and of the model."""
        if summary.id not in self._endings:
            path = self._home.session_folder(summary.project, summary.id) / LOG_FILE_NAME
            self._endings[summary.id] = _read_last_words(str(path))
        return self._endings[summary.id]

    def resume_options(self, summary: SessionSummary, options: Options) -> Options:
        """Return the options to resume a session; raises `UserError` if it is open elsewhere."""
        if (
            lock.find_lock_holder(self._home.session_folder(summary.project, summary.id))
            is not None
        ):
            raise UserError(
                "That session is open elsewhere", fix="Close it there, or use --fork-session."
            )
        stays = summary.project in self._project.keys or not os.path.isdir(summary.cwd)
        cwd = options.cwd if stays else summary.cwd
        fresh = replace(options, latest=False, fork=False, session_id="", cleared=False)
        return replace(fresh, cwd=cwd, resume=summary.id)

    def _list_summaries(self, *, everywhere: bool) -> list[tuple[str, SessionSummary]]:
        if everywhere not in self._told:
            keys = None if everywhere else self._project.keys
            found = (s for s in list_sessions(self._home, keys) if s.cwd and s.id != self._but)
            self._told[everywhere] = [(f"{s.title}\n{s.cwd}".casefold(), s) for s in found]
        return self._told[everywhere]


def _read_last_words(path: str) -> tuple[str, str]:
    """Read the last prompt and the reply to it from a log, for the session picker."""
    answered = ""
    for fact in _read_facts_backwards(path):
        if isinstance(fact, Assistant):
            answered = answered or " ".join(extract_text(fact.content).split())
        elif isinstance(fact, User) and fact.origin == "human":
            return " ".join(typed_text(fact.content).split()), answered
    return "", answered


def _read_facts_backwards(path: str) -> Iterator[AnyFact]:
    """Yield the last facts of a session's log in reverse, without unreadable ones."""
    lines = list[bytes]()
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - LOG_TAIL_BYTES))
        lines = file.read().splitlines(keepends=True)
    for record in (one for text in reversed(lines) for one in log_line.split_records(text)[0]):
        with suppress(log_line.UnknownFactError):
            yield log_line.decode_record(record).fact
