"""Catalogue of sessions: list, find, summarise and prune them, reading as little as possible."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from travois.core.content import extract_text
from travois.core.errors import UserError
from travois.core.facts import Changed, Entry, Opened, User
from travois.lazy_imports import lazy_imports
from travois.sessions import blobs, lock, log_line
from travois.sessions.blobs import folder_size
from travois.sessions.home import SESSION_TMP_NAME, Project, TravoisHome
from travois.sessions.log_file import LOG_FILE_NAME
from travois.sessions.titles import is_greeting, make_title

with lazy_imports():
    import shutil


SUMMARY_CACHE_FILE = "summary.json"
ROSTER_FILE = "roster.json"
MIN_CACHED_BYTES = 1 << 14
CATALOG_BLOCK_BYTES = 1 << 20
MAX_FIRST_PROMPT_CHARS = 200
MIN_ID_PREFIX = 4
FACT_BYTES = b'"fact":{"type":'
ENDED_FACT = FACT_BYTES + b'"ended"'
USER_FACT = FACT_BYTES + b'"user"'
NAME_FACT = FACT_BYTES + b'"changed","what":"name"'


class SessionSummary(msgspec.Struct, frozen=True):
    """A session at a glance; `size` is how many bytes of its log are covered here."""

    id: str
    project: str
    cwd: str = ""
    created: float = 0.0
    updated: float = 0.0
    turns: int = 0
    name: str = ""
    first_prompt: str = ""
    parent: str = ""
    size: int = 0
    trouble: str = ""
    """Damage of the log, as far as a glance shows."""

    @property
    def title(self) -> str:
        """The name to show for it; without one, what its first prompt asks for."""
        return self.name or make_title(self.first_prompt) or "(no messages yet)"


class CachedSummary(msgspec.Struct, frozen=True, array_like=True):
    """A summary, and the modification time of the log that it covers."""

    stamp: int
    summary: SessionSummary


def list_sessions(home: TravoisHome, keys: Iterable[str] | None = None) -> list[SessionSummary]:
    """Return the sessions of these projects (all, if none are given), newest first.

    Logs that have not changed since they were last summarised are not opened.
    """
    known, fresh = _load_roster(home), dict[str, CachedSummary]()
    for place, stat in _find_logs(home, keys):
        held = known.get(place)
        if held is None or (held.stamp, held.summary.size) != (stat.st_mtime_ns, stat.st_size):
            held = CachedSummary(stat.st_mtime_ns, summarise_session(home.sessions / place))
        fresh[place] = held
    if any(known.get(place) is not glance for place, glance in fresh.items()):
        _save_roster(home, {**known, **fresh} if keys is not None else fresh)
    found = (glance.summary for glance in fresh.values())
    return sorted(found, key=lambda summary: (summary.updated, summary.id), reverse=True)


def _load_roster(home: TravoisHome) -> dict[str, CachedSummary]:
    """Load the cached summaries of all sessions; they can always be rebuilt."""
    try:
        return msgspec.json.decode(
            (home.cache / ROSTER_FILE).read_bytes(), type=dict[str, CachedSummary]
        )
    except (OSError, ValueError):
        return {}


def _save_roster(home: TravoisHome, roster: dict[str, CachedSummary]) -> None:
    with suppress(OSError):
        blobs.replace_file(home.cache / ROSTER_FILE, msgspec.json.encode(roster), sync="whenever")


def list_session_folders(home: TravoisHome, keys: Iterable[str] | None = None) -> Iterator[Path]:
    """Return the folders of these projects' sessions, in no order, without empty ones."""
    return (home.sessions / place for place, _ in _find_logs(home, keys))


def _find_logs(
    home: TravoisHome, keys: Iterable[str] | None
) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each session with a log below the sessions folder, with the file status of the log."""
    top = str(home.sessions)
    keys = _list_names(top) if keys is None else dict.fromkeys(keys)
    for place in (f"{key}/{name}" for key in keys for name in _list_names(f"{top}/{key}")):
        with suppress(OSError):
            stat = os.stat(f"{top}/{place}/{LOG_FILE_NAME}")
            if stat.st_size:
                yield place, stat


def find_session(home: TravoisHome, text: str, *, project: Project | None = None) -> SessionSummary:
    """Return the session with this id, name, or id prefix."""
    everywhere = list(list_session_folders(home))
    here = [f for f in everywhere if project is not None and f.parent.name in project.keys]
    for found in (
        [folder for folder in everywhere if folder.name == text],
        _sessions_named(here, text),
        [f for f in everywhere if len(text) >= MIN_ID_PREFIX and f.name.startswith(text)],
        _sessions_named(everywhere, text),
    ):
        if len(found) == 1:
            return summarise_session(found[0])
        if found:
            raise _make_ambiguous_error(text, found)
    raise UserError(
        f"There is no session {text!r}", fix="List sessions with `travois sessions --all`."
    )


def find_newest_session(home: TravoisHome, project: Project, *, cwd: str) -> SessionSummary:
    """Return the session to continue: the newest of this folder, else of this project."""
    found = [summary for summary in list_sessions(home, project.keys) if summary.cwd]
    if not found:
        raise UserError(
            "There is no session to continue here",
            why=f"no session was started in {project.root}",
            fix="Start one with `travois`, or list all with `travois sessions --all`.",
        )
    return next((summary for summary in found if summary.cwd == cwd), found[0])


def summarise_session(folder: Path) -> SessionSummary:
    """Summarise a session. What an earlier summary covers is not read again."""
    path = folder / LOG_FILE_NAME
    size = path.stat().st_size
    known = _load_summary(folder, size)
    if known is not None and known.size == size:
        return known
    with path.open("rb") as file:
        summary = known or _read_first_line(folder, file.readline())
        for block in _read_line_blocks(file, summary.size):
            summary = _add_block(summary, block)
        torn = file.seek(0, 2) > summary.size
    if summary.size - (known.size if known else 0) > MIN_CACHED_BYTES:
        with suppress(OSError):
            blobs.replace_file(
                folder / SUMMARY_CACHE_FILE, msgspec.json.encode(summary), sync="whenever"
            )
    if torn and not summary.trouble:
        return msgspec.structs.replace(summary, trouble="its last line is torn")
    return summary


def _load_summary(folder: Path, size: int) -> SessionSummary | None:
    """Load the cached summary of a session; None if it is missing or does not fit the log."""
    try:
        known = msgspec.json.decode((folder / SUMMARY_CACHE_FILE).read_bytes(), type=SessionSummary)
    except (OSError, ValueError):
        return None
    mine = (known.project, known.id) == (folder.parent.name, folder.name)
    return known if mine and known.size <= size else None


def _read_first_line(folder: Path, text: bytes) -> SessionSummary:
    """Build a session summary from the log's first line; nothing counts as read yet."""
    summary = SessionSummary(folder.name, folder.parent.name)
    entry = _decode_line(text)
    if entry is None or not isinstance(entry.fact, Opened):
        return msgspec.structs.replace(summary, trouble="its first line is damaged")
    return msgspec.structs.replace(
        summary, cwd=entry.fact.cwd, created=entry.at, parent=entry.fact.parent
    )


def _read_line_blocks(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Yield blocks of whole lines of a session log from an offset on."""
    file.seek(offset)
    rest = b""
    while chunk := file.read(CATALOG_BLOCK_BYTES):
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]


def _add_block(summary: SessionSummary, block: bytes) -> SessionSummary:
    """Update a session summary with more lines of the log."""
    last = _decode_line(block[block.rfind(b"\n", 0, -1) + 1 :])
    return msgspec.structs.replace(
        summary,
        turns=summary.turns + block.count(ENDED_FACT),
        name=_find_last_name(block) or summary.name,
        first_prompt=_find_first_prompt(block, summary.first_prompt),
        updated=last.at if last is not None else summary.updated,
        size=summary.size + len(block),
    )


def _find_last_name(block: bytes) -> str:
    """Find the last name given to a session in a block of its log."""
    end = len(block)
    while (at := block.rfind(NAME_FACT, 0, end)) >= 0:
        entry = _decode_line(_line_at(block, at))
        if entry is not None and isinstance(entry.fact, Changed):
            return entry.fact.value
        end = at
    return ""


def _find_first_prompt(block: bytes, known: str) -> str:
    """Find the user's first message that is more than a greeting, shortened for the list."""
    at = -1
    while is_greeting(known) and (at := block.find(USER_FACT, at + 1)) >= 0:
        entry = _decode_line(_line_at(block, at))
        if entry is not None and isinstance(entry.fact, User) and entry.fact.origin == "human":
            text = " ".join(extract_text(entry.fact.content)[: 4 * MAX_FIRST_PROMPT_CHARS].split())
            if len(text) > MAX_FIRST_PROMPT_CHARS:
                text = text[: MAX_FIRST_PROMPT_CHARS - 1] + "…"
            known = known if known and is_greeting(text) else text
    return known


def _line_at(block: bytes, at: int) -> bytes:
    return block[block.rfind(b"\n", 0, at) + 1 : block.find(b"\n", at) + 1]


def _decode_line(text: bytes) -> Entry | None:
    """Decode one line of a session log for the catalogue; None if it is damaged or unknown."""
    found, _ = log_line.split_records(text)
    try:
        return log_line.decode_record(found[-1]) if found else None
    except log_line.UnknownFactError:
        return None


def _list_names(folder: str) -> list[str]:
    """List the names in a sessions folder; empty if there is none."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise blobs.make_storage_error(
            "Sessions cannot be listed", error, path=Path(folder)
        ) from error


def _sessions_named(among: list[Path], text: str) -> list[Path]:
    wanted = text.casefold()
    return [folder for folder in among if summarise_session(folder).name.casefold() == wanted]


def _make_ambiguous_error(text: str, found: list[Path]) -> UserError:
    """Build the error for a session name that matches several, listing the latest."""
    some = sorted(map(summarise_session, found), key=lambda summary: -summary.updated)[:5]
    listed = "".join(f"\n  {summary.id}  {summary.title[:60]}" for summary in some)
    return UserError(f"{text!r} matches {len(found)} sessions", fix=f"Name one by its id:{listed}")


# Getting rid of sessions: into the trash first, and never what something else stands on.


BLOB_NAME = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
TIDY_INTERVAL_SECONDS = 24 * 3600.0
BLOB_GRACE_SECONDS = 24 * 3600.0
"""Seconds for which an unnamed blob is kept: the log line that names it may not be written yet."""


class KeptSession(msgspec.Struct, frozen=True):
    """An old session that is not pruned, and why."""

    summary: SessionSummary
    because: str


class PrunePlan(msgspec.Struct, frozen=True):
    """The sessions to prune, and the old ones that stay."""

    doomed: tuple[SessionSummary, ...]
    kept: tuple[KeptSession, ...]


def plan_pruning(
    candidates: list[SessionSummary], everything: list[SessionSummary], *, before: float, keep: int
) -> PrunePlan:
    """Choose which sessions (newest first) to prune.

    They are untouched since `before`, beyond the newest `keep`, and not the base of a fork that
    stays.
    """
    old = {summary.id: summary for summary in candidates[keep:] if summary.updated < before}
    doomed = dict(old)
    while bases := {s.parent for s in everything if s.id not in doomed}.intersection(doomed):
        for id in bases:
            del doomed[id]
    kept = tuple(
        KeptSession(summary, "a session that stays was forked from it")
        for id, summary in old.items()
        if id not in doomed
    )
    return PrunePlan(tuple(doomed.values()), kept)


def prune_old_sessions(home: TravoisHome, *, days: int, now: float) -> None:
    """Move sessions untouched for so many days to the trash, at most once a day."""
    mark = home.path / "tidied"
    if not days or (mark.exists() and now - mark.stat().st_mtime < TIDY_INTERVAL_SECONDS):
        return
    mark.touch()
    everything = list_sessions(home)
    for summary in plan_pruning(
        everything, everything, before=now - days * TIDY_INTERVAL_SECONDS, keep=0
    ).doomed:
        with suppress(UserError):  # somebody is writing to it after all
            trash_session(home, summary)
    for path in home.summaries.glob("*/*/*.md"):
        with suppress(OSError):
            if path.stat().st_mtime < now - days * TIDY_INTERVAL_SECONDS:
                path.unlink()


def trash_session(home: TravoisHome, summary: SessionSummary) -> Path:
    """Move a session to the trash. Raises UserError if another process is writing to it."""
    folder = home.session_folder(summary.project, summary.id)
    held = lock.acquire_lock(folder)
    try:
        goal = _find_free_path(home.trash / summary.project / summary.id)
        blobs.make_folders(goal.parent)
        with suppress(FileNotFoundError):
            home.session_tmp(summary.id).rename(folder / SESSION_TMP_NAME)
        return folder.rename(goal)
    except OSError as error:
        raise UserError(f"Session {summary.id} could not be moved", why=str(error)) from error
    finally:
        held.release()


def empty_trash(home: TravoisHome, *, now: float) -> int:
    """Delete trashed sessions, and blobs that no session refers to; return the freed bytes."""
    freed = folder_size(home.trash)
    shutil.rmtree(home.trash, ignore_errors=True)
    return freed + sum(_delete_file(path) for path in list_unused_blobs(home, now=now))


def list_unused_blobs(home: TravoisHome, *, now: float) -> Iterator[Path]:
    """Yield the blobs that no session refers to and that were not used recently."""
    named = set(_blob_names_in(home.sessions.glob(f"*/*/{LOG_FILE_NAME}")))
    named |= set(_blob_names_in(home.trash.glob(f"*/*/{LOG_FILE_NAME}")))
    for path in home.blobs.glob("??/*"):
        idle = now - path.stat().st_mtime
        if path.parent.name + path.name not in named and idle > BLOB_GRACE_SECONDS:
            yield path


def session_size(home: TravoisHome, summary: SessionSummary) -> int:
    """Return a session's size on disk in bytes, including its /tmp."""
    return folder_size(home.session_folder(summary.project, summary.id)) + folder_size(
        home.session_tmp(summary.id)
    )


def _blob_names_in(logs: Iterable[Path]) -> Iterator[str]:
    """Yield the names of the blobs that session logs refer to."""
    for path in logs:
        with path.open("rb") as file:
            for text in file:
                yield from (name.decode() for name in BLOB_NAME.findall(text))


def _delete_file(path: Path) -> int:
    """Delete a file of a trashed session; return the freed bytes."""
    freed = path.stat().st_size
    path.unlink(missing_ok=True)
    return freed


def _find_free_path(path: Path) -> Path:
    """Return the path itself for a trashed session, or the first numbered one that is free."""
    number, goal = 1, path
    while goal.exists():
        number, goal = number + 1, path.with_name(f"{path.name}-{number + 1}")
    return goal
