"""Getting rid of sessions: into the trash first, and never what something else stands on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from travois.core.errors import Fault
from travois.sandbox.session_tmp import TMP
from travois.sessions import disk, lock
from travois.sessions.catalog import Summary, summaries
from travois.sessions.disk import size
from travois.sessions.home import Home
from travois.sessions.log_file import NAME

BLOB = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
DAY = GRACE = 24 * 3600.0
"""How long a blob that no log names is left alone: its line may not be written yet."""


class Kept(msgspec.Struct, frozen=True):
    """An old session that is not thrown away, and why."""

    summary: Summary
    because: str


class Plan(msgspec.Struct, frozen=True):
    """What would go, and what is old but stays."""

    doomed: tuple[Summary, ...]
    kept: tuple[Kept, ...]


def plan(candidates: list[Summary], everything: list[Summary], *, before: float, keep: int) -> Plan:
    """Which of the candidates (newest first) may go: untouched since `before`, beyond the newest
    `keep`, and no fork that stays was made from them."""
    old = {summary.id: summary for summary in candidates[keep:] if summary.updated < before}
    doomed = dict(old)
    while bases := {s.parent for s in everything if s.id not in doomed}.intersection(doomed):
        for id in bases:
            del doomed[id]
    kept = tuple(
        Kept(summary, "a fork that stays was made from it")
        for id, summary in old.items()
        if id not in doomed
    )
    return Plan(tuple(doomed.values()), kept)


def tidy(home: Home, *, days: int, now: float) -> None:
    """Move sessions that nobody touched for so many days to the trash; once a day is enough."""
    mark = home.path / "tidied"
    if not days or (mark.exists() and now - mark.stat().st_mtime < DAY):
        return
    mark.touch()
    everything = summaries(home)
    for summary in plan(everything, everything, before=now - days * DAY, keep=0).doomed:
        with suppress(Fault):  # somebody is writing to it after all
            discard(home, summary)
    for path in home.summaries.glob("*/*/*.md"):
        with suppress(OSError):
            if path.stat().st_mtime < now - days * DAY:
                path.unlink()


def discard(home: Home, summary: Summary) -> Path:
    """Move a session to the trash. Raises Fault if somebody is writing to it."""
    folder = home.session(summary.project, summary.id)
    held = lock.acquire(folder)
    try:
        goal = _free(home.trash / summary.project / summary.id)
        disk.make_folders(goal.parent)
        with suppress(FileNotFoundError):
            home.session_tmp(summary.id).rename(folder / TMP)
        return folder.rename(goal)
    except OSError as error:
        raise Fault(f"Session {summary.id} could not be moved", why=str(error)) from error
    finally:
        held.release()


def empty_trash(home: Home, *, now: float) -> int:
    """Really delete what was discarded, and blobs that no session names; returns the bytes."""
    from shutil import rmtree

    freed = size(home.trash)
    rmtree(home.trash, ignore_errors=True)
    return freed + sum(_delete(path) for path in sweepable(home, now=now))


def sweepable(home: Home, *, now: float) -> Iterator[Path]:
    """The blobs that no session names and that nobody has asked for of late."""
    named = set(_named(home.sessions.glob(f"*/*/{NAME}")))
    named |= set(_named(home.trash.glob(f"*/*/{NAME}")))
    for path in home.blobs.glob("??/*"):
        idle = now - path.stat().st_mtime
        if path.parent.name + path.name not in named and idle > GRACE:
            yield path


def session_size(home: Home, summary: Summary) -> int:
    """How many bytes a session takes, with what lies in its /tmp."""
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
