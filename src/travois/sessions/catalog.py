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
from travois.sessions import blobs, lock, log_line
from travois.sessions.blobs import size
from travois.sessions.home import TMP, Home, Project
from travois.sessions.log_file import NAME

CACHE = "summary.json"
ROSTER = "roster.json"
WORTH_CACHING = 1 << 14
BLOCK = 1 << 20
PROMPT = 200
SHORTEST_PREFIX = 4
FACT = b'"fact":{"type":'
ENDED = FACT + b'"ended"'
USER = FACT + b'"user"'
NAMED = FACT + b'"changed","what":"name"'


class Summary(msgspec.Struct, frozen=True):
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
        """The name to show for it."""
        return self.name or self.first_prompt or "(no messages yet)"


class Glance(msgspec.Struct, frozen=True, array_like=True):
    """A summary, and the modification time of the log that it covers."""

    stamp: int
    summary: Summary


def summaries(home: Home, keys: Iterable[str] | None = None) -> list[Summary]:
    """Return the sessions of these projects (all, if none are given), newest first.

    Logs that have not changed since they were last summarised are not opened.
    """
    known, fresh = _roster(home), dict[str, Glance]()
    for place, stat in _logs(home, keys):
        held = known.get(place)
        if held is None or (held.stamp, held.summary.size) != (stat.st_mtime_ns, stat.st_size):
            held = Glance(stat.st_mtime_ns, summarise(home.sessions / place))
        fresh[place] = held
    if any(known.get(place) is not glance for place, glance in fresh.items()):
        _keep(home, {**known, **fresh} if keys is not None else fresh)
    found = (glance.summary for glance in fresh.values())
    return sorted(found, key=lambda summary: (summary.updated, summary.id), reverse=True)


def _roster(home: Home) -> dict[str, Glance]:
    """Load the summaries of all sessions; they can always be built again."""
    try:
        return msgspec.json.decode((home.path / ROSTER).read_bytes(), type=dict[str, Glance])
    except (OSError, ValueError):
        return {}


def _keep(home: Home, roster: dict[str, Glance]) -> None:
    with suppress(OSError):
        blobs.replace(home.path / ROSTER, msgspec.json.encode(roster), sync="whenever")


def folders(home: Home, keys: Iterable[str] | None = None) -> Iterator[Path]:
    """Return the folders of these projects' sessions, in no order, without empty ones."""
    return (home.sessions / place for place, _ in _logs(home, keys))


def _logs(home: Home, keys: Iterable[str] | None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the place of each session with a log below the sessions folder, and the log's stat."""
    top = str(home.sessions)
    keys = _names(top) if keys is None else dict.fromkeys(keys)
    for place in (f"{key}/{name}" for key in keys for name in _names(f"{top}/{key}")):
        with suppress(OSError):
            stat = os.stat(f"{top}/{place}/{NAME}")
            if stat.st_size:
                yield place, stat


def find(home: Home, text: str, *, project: Project | None = None) -> Summary:
    """Return the session with this id, name, or id prefix."""
    everywhere = list(folders(home))
    here = [f for f in everywhere if project is not None and f.parent.name in project.keys]
    for found in (
        [folder for folder in everywhere if folder.name == text],
        _called(here, text),
        [f for f in everywhere if len(text) >= SHORTEST_PREFIX and f.name.startswith(text)],
        _called(everywhere, text),
    ):
        if len(found) == 1:
            return summarise(found[0])
        if found:
            raise _ambiguous(text, found)
    raise UserError(
        f"There is no session {text!r}", fix="List sessions with `travois sessions --all`."
    )


def newest(home: Home, project: Project, *, cwd: str) -> Summary:
    """Return the session to continue: the newest of this folder, else of this project."""
    found = [summary for summary in summaries(home, project.keys) if summary.cwd]
    if not found:
        raise UserError(
            "There is no session to continue here",
            why=f"no session was started in {project.root}",
            fix="Start one with `travois`, or list all with `travois sessions --all`.",
        )
    return next((summary for summary in found if summary.cwd == cwd), found[0])


def summarise(folder: Path) -> Summary:
    """Summarise a session. What an earlier summary covers is not read again."""
    path = folder / NAME
    size = path.stat().st_size
    known = _recall(folder, size)
    if known is not None and known.size == size:
        return known
    with path.open("rb") as file:
        summary = known or _first(folder, file.readline())
        for block in _blocks(file, summary.size):
            summary = _fold(summary, block)
        torn = file.seek(0, 2) > summary.size
    if summary.size - (known.size if known else 0) > WORTH_CACHING:
        with suppress(OSError):
            blobs.replace(folder / CACHE, msgspec.json.encode(summary), sync="whenever")
    if torn and not summary.trouble:
        return msgspec.structs.replace(summary, trouble="its last line is torn")
    return summary


def _recall(folder: Path, size: int) -> Summary | None:
    try:
        known = msgspec.json.decode((folder / CACHE).read_bytes(), type=Summary)
    except (OSError, ValueError):
        return None
    mine = (known.project, known.id) == (folder.parent.name, folder.name)
    return known if mine and known.size <= size else None


def _first(folder: Path, text: bytes) -> Summary:
    """Build a summary from the first line; nothing of it counts as read yet."""
    summary = Summary(folder.name, folder.parent.name)
    entry = _entry(text)
    if entry is None or not isinstance(entry.fact, Opened):
        return msgspec.structs.replace(summary, trouble="its first line is damaged")
    return msgspec.structs.replace(
        summary, cwd=entry.fact.cwd, created=entry.at, parent=entry.fact.parent
    )


def _blocks(file: BinaryIO, offset: int) -> Iterator[bytes]:
    """Yield blocks of whole lines from an offset on."""
    file.seek(offset)
    rest = b""
    while chunk := file.read(BLOCK):
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]


def _fold(summary: Summary, block: bytes) -> Summary:
    """Update a summary with more lines. No string in a line can hold the bytes looked for."""
    last = _entry(block[block.rfind(b"\n", 0, -1) + 1 :])
    return msgspec.structs.replace(
        summary,
        turns=summary.turns + block.count(ENDED),
        name=_name(block) or summary.name,
        first_prompt=summary.first_prompt or _prompt(block),
        updated=last.at if last is not None else summary.updated,
        size=summary.size + len(block),
    )


def _name(block: bytes) -> str:
    end = len(block)
    while (at := block.rfind(NAMED, 0, end)) >= 0:
        entry = _entry(_line_at(block, at))
        if entry is not None and isinstance(entry.fact, Changed):
            return entry.fact.value
        end = at
    return ""


def _prompt(block: bytes) -> str:
    at = -1
    while (at := block.find(USER, at + 1)) >= 0:
        entry = _entry(_line_at(block, at))
        if entry is not None and isinstance(entry.fact, User) and entry.fact.origin == "human":
            text = " ".join(extract_text(entry.fact.content)[: 4 * PROMPT].split())
            return text if len(text) <= PROMPT else text[: PROMPT - 1] + "…"
    return ""


def _line_at(block: bytes, at: int) -> bytes:
    return block[block.rfind(b"\n", 0, at) + 1 : block.find(b"\n", at) + 1]


def _entry(text: bytes) -> Entry | None:
    found, _ = log_line.records(text)
    try:
        return log_line.decode(found[-1]) if found else None
    except log_line.Foreign:
        return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise blobs.fault("Sessions cannot be listed", error, path=Path(folder)) from error


def _called(among: list[Path], text: str) -> list[Path]:
    wanted = text.casefold()
    return [folder for folder in among if summarise(folder).name.casefold() == wanted]


def _ambiguous(text: str, found: list[Path]) -> UserError:
    some = sorted(map(summarise, found), key=lambda summary: -summary.updated)[:5]
    listed = "".join(f"\n  {summary.id}  {summary.title[:60]}" for summary in some)
    return UserError(f"{text!r} matches {len(found)} sessions", fix=f"Name one by its id:{listed}")


# Getting rid of sessions: into the trash first, and never what something else stands on.


BLOB = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
DAY = 24 * 3600.0
GRACE = 24 * 3600.0
"""Seconds for which an unnamed blob is kept: the log line that names it may not be written yet."""


class Kept(msgspec.Struct, frozen=True):
    """An old session that is not pruned, and why."""

    summary: Summary
    because: str


class Plan(msgspec.Struct, frozen=True):
    """The sessions to prune, and the old ones that stay."""

    doomed: tuple[Summary, ...]
    kept: tuple[Kept, ...]


def plan(candidates: list[Summary], everything: list[Summary], *, before: float, keep: int) -> Plan:
    """Choose the candidates (newest first) to prune.

    They are untouched since `before`, beyond the newest `keep`, and not the base of a fork that
    stays.
    """
    old = {summary.id: summary for summary in candidates[keep:] if summary.updated < before}
    doomed = dict(old)
    while bases := {s.parent for s in everything if s.id not in doomed}.intersection(doomed):
        for id in bases:
            del doomed[id]
    kept = tuple(
        Kept(summary, "a session that stays was forked from it")
        for id, summary in old.items()
        if id not in doomed
    )
    return Plan(tuple(doomed.values()), kept)


def tidy(home: Home, *, days: int, now: float) -> None:
    """Move sessions untouched for so many days to the trash, at most once a day."""
    mark = home.path / "tidied"
    if not days or (mark.exists() and now - mark.stat().st_mtime < DAY):
        return
    mark.touch()
    everything = summaries(home)
    for summary in plan(everything, everything, before=now - days * DAY, keep=0).doomed:
        with suppress(UserError):  # somebody is writing to it after all
            discard(home, summary)
    for path in home.summaries.glob("*/*/*.md"):
        with suppress(OSError):
            if path.stat().st_mtime < now - days * DAY:
                path.unlink()


def discard(home: Home, summary: Summary) -> Path:
    """Move a session to the trash. Raises UserError if another process is writing to it."""
    folder = home.session(summary.project, summary.id)
    held = lock.acquire(folder)
    try:
        goal = _free(home.trash / summary.project / summary.id)
        blobs.make_folders(goal.parent)
        with suppress(FileNotFoundError):
            home.session_tmp(summary.id).rename(folder / TMP)
        return folder.rename(goal)
    except OSError as error:
        raise UserError(f"Session {summary.id} could not be moved", why=str(error)) from error
    finally:
        held.release()


def empty_trash(home: Home, *, now: float) -> int:
    """Delete what is in the trash, and blobs that no session names; return the freed bytes."""
    from shutil import rmtree

    freed = size(home.trash)
    rmtree(home.trash, ignore_errors=True)
    return freed + sum(_delete(path) for path in sweepable(home, now=now))


def sweepable(home: Home, *, now: float) -> Iterator[Path]:
    """Yield the blobs that no session names and that were not used recently."""
    named = set(_named(home.sessions.glob(f"*/*/{NAME}")))
    named |= set(_named(home.trash.glob(f"*/*/{NAME}")))
    for path in home.blobs.glob("??/*"):
        idle = now - path.stat().st_mtime
        if path.parent.name + path.name not in named and idle > GRACE:
            yield path


def session_size(home: Home, summary: Summary) -> int:
    """Return how many bytes a session takes, including its /tmp."""
    return size(home.session(summary.project, summary.id)) + size(home.session_tmp(summary.id))


def _named(logs: Iterable[Path]) -> Iterator[str]:
    for path in logs:
        with path.open("rb") as file:
            for text in file:
                yield from (name.decode() for name in BLOB.findall(text))


def _delete(path: Path) -> int:
    freed = path.stat().st_size
    path.unlink(missing_ok=True)
    return freed


def _free(path: Path) -> Path:
    number, goal = 1, path
    while goal.exists():
        number, goal = number + 1, path.with_name(f"{path.name}-{number + 1}")
    return goal
