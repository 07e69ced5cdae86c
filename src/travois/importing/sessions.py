"""Sessions of other agents, made ours: each written aside, and put in its place when it is whole.

What an import leaves behind when it is killed lies where no one looks, and goes with the next one.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from uuid import NAMESPACE_URL, uuid5

import msgspec

from travois.compat import sessions as recorded
from travois.compat.sessions import claude, codex, gemini, pi, traj
from travois.compat.sessions.format import (
    WHOLE,
    Found,
    Json,
    Recorded,
    decode,
    headline,
    lines,
    stamped,
)
from travois.core.errors import Fault
from travois.core.facts import Changed, Opened
from travois.importing.retelling import origin, retell
from travois.permissions.secrets import secrets
from travois.sessions import disk, lock
from travois.sessions.blobs import Blobs
from travois.sessions.catalog import folders
from travois.sessions.home import Home
from travois.sessions.log_file import Log
from travois.sessions.project import identify
from travois.sessions.session import Session
from travois.version import __version__

GLANCE = 300
"""How many characters of each text are read to tell what a session is."""
ASIDE = "importing"


class Candidate(msgspec.Struct, frozen=True):
    """A session that can be imported: where it lies, what it is, and the id that it gets."""

    found: Found
    id: str
    title: str
    cwd: str
    at: float
    turns: int
    known: bool
    """Whether it was imported before, and nothing was said in it since."""


def candidates(home: Home, found: Iterable[Found]) -> Iterator[Candidate]:
    """The sessions among these in which something was said, each read at a glance."""
    there = {folder.name for folder in folders(home)}
    for one in found:
        told = _read(one, longest=GLANCE)
        if told is not None:
            id = identity(told)
            about = (told.title, told.cwd, told.at, len(told.turns))
            yield Candidate(one, id, *about, known=id in there)


def identity(told: Recorded) -> str:
    """The id of an import: the same as long as nothing more is said in the session.

    One that was gone on with in the other agent gets another id: what was made of the earlier
    import here is never touched.
    """
    last = f"{told.at:.3f}" if told.at else str(len(told.turns))
    return str(uuid5(NAMESPACE_URL, f"travois:import {told.agent} {told.id} {last}"))


@contextmanager
def aside(home: Home) -> Generator[Path]:
    """The folder in which sessions are written, for one import at a time."""
    folder = home.path / ASIDE
    try:
        disk.make_folders(folder)
        held = lock.acquire(folder)
    except OSError as error:
        raise disk.fault("Nothing can be imported", error, path=folder) from error
    except Fault as fault:
        raise Fault("Another import is at work", why=fault.why, fix="Wait for its end.") from None
    try:
        for left in (path for path in folder.iterdir() if path.is_dir()):
            rmtree(left, ignore_errors=True)
        yield folder
    finally:
        held.release()


def bring(home: Home, found: Found, folder: Path, *, environ: Mapping[str, str]) -> str:
    """Import one session, which `folder` holds until it is whole; returns its id.

    Raises `Fault` if it cannot be read or kept; then nothing of it is left.
    """
    told = _read(found, longest=WHOLE)
    if told is None:
        raise Fault(f"{found.path} cannot be read", why="it is gone, or nothing is said in it")
    id, project = identity(told), _project(home, told.cwd)
    draft, place = folder / id, home.session(project, id)
    rmtree(draft, ignore_errors=True)
    try:
        dated = min((turn.at for turn in told.turns if turn.at), default=found.at)
        opened = Opened(id, told.cwd, project, __version__)
        _write(home, draft, told, opened=opened, since=dated, environ=environ)
        disk.make_folders(place.parent)
        draft.rename(place)
        disk.sync_folder(place.parent)
    except OSError as error:
        raise disk.fault("A session cannot be imported", error, path=place) from error
    finally:
        rmtree(draft, ignore_errors=True)
    return id


def _write(
    home: Home,
    draft: Path,
    told: Recorded,
    *,
    opened: Opened,
    since: float,
    environ: Mapping[str, str],
) -> None:
    times = [since]
    with Log.create(draft, opened, clock=lambda: times[-1]) as log:
        session = Session(log, secrets=secrets(environ.items()))
        session.append(origin(told))
        if told.title != headline(list(told.turns)):
            session.append(Changed("name", told.title))
        blobs = Blobs(home.blobs)
        retell(told, session, keep=blobs.put, tell=lambda at: times.append(at or times[-1]))
        log.sync()


def _read(found: Found, *, longest: int) -> Recorded | None:
    if found.agent != traj.NAME:
        return recorded.read(found, longest=longest)
    told = traj.read(found.path, longest=longest)
    return told if told.turns else None


def _project(home: Home, cwd: str) -> str:
    """The key of the project that a session was about; its folder may be gone."""
    if os.path.isdir(cwd):
        return identify(home, cwd).key
    return f"gone-{blake2b(os.fsencode(cwd), digest_size=10).hexdigest()}"


def recognised(path: Path) -> Found:
    """A file that some agent has recorded a session in, by what it says."""
    try:
        agent, found = _maker(path), stamped("", path)
    except OSError as error:
        raise Fault(f"{path} cannot be read", why=str(error.strerror)) from None
    if not agent or found is None:
        fix = "It takes sessions of claude, codex, gemini and pi, and files of the format traj/1."
        raise Fault(f"{path} is no session that Travois knows", fix=fix)
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
