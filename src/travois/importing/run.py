"""The import from another agent: a preview of what would happen, then the import itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from travois.compat.sessions.format import Found
from travois.compose.memory import open_memories_here
from travois.core.errors import UserError
from travois.importing import claude, codex, gemini, opencode, pi
from travois.importing.plan import THERE, Line, Luggage, Part, carry_out
from travois.importing.sessions import Candidate, aside, bring, candidates
from travois.memory import foreign_memories
from travois.sessions.home import Project, TravoisHome, identify_project
from travois.settings.load import load_settings
from travois.settings.trust import trust_root

Say = Callable[[str], None]
"""Hears how far it is, and nothing when that is done; or why a session could not be read."""
PLANS: Mapping[str, Callable[[Luggage, Mapping[str, str]], None]] = {
    "claude": claude.plan,
    "codex": codex.plan,
    "opencode": opencode.plan,
    "gemini": gemini.plan,
    "pi": pi.plan,
}


class Wish(msgspec.Struct, frozen=True):
    """The request of an import: the agent, its sessions, and the parts that are wanted."""

    agent: str
    found: tuple[Found, ...]
    only: tuple[Part, ...]
    project: Project | None = None
    """The one whose sessions are wanted; none for all."""


class Outlook(msgspec.Struct, frozen=True):
    """The preview of an import: everything it would do."""

    wish: Wish
    luggage: Luggage
    lines: tuple[Line, ...]
    sessions: tuple[Candidate, ...]
    memories: int

    @property
    def fresh(self) -> list[Candidate]:
        """The sessions that are not imported yet, the oldest first."""
        return sorted((one for one in self.sessions if not one.known), key=lambda one: one.at)

    @property
    def work(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.luggage.copies or self.fresh or self.memories)


def look(home: TravoisHome, project: Project, *, wish: Wish, progress: Say) -> Outlook:
    """Preview an import, without writing anything."""
    luggage = Luggage(home, only=wish.only)
    if wish.agent:
        PLANS[wish.agent](luggage, os.environ)
    memories = _memories(home, project, wish) if "memory" in wish.only else []
    spoken = _counted(candidates(home, wish.found), len(wish.found), progress)
    told = tuple(one for one in spoken if _of(wish.project, one, home))
    lines = (*luggage.lines, *memories, *_talks(spoken, told, silent=len(wish.found) - len(spoken)))
    count = sum(1 for one in memories if one.fate == "kept" and one.why != THERE)
    return Outlook(wish, luggage, lines, told, count)


def _counted(found: Iterable[Candidate], number: int, progress: Say) -> list[Candidate]:
    listed: list[Candidate] = []
    for one in found:
        progress(f"reading sessions … {len(listed):,} of {number:,}")
        listed.append(one)
    progress("")
    return listed


def _of(project: Project | None, one: Candidate, home: TravoisHome) -> bool:
    """Return whether a session belongs to the project, if only those are wanted."""
    if project is None:
        return True
    return os.path.isdir(one.cwd) and identify_project(home, one.cwd).key in project.keys


def _talks(spoken: list[Candidate], told: tuple[Candidate, ...], *, silent: int) -> Iterator[Line]:
    """Yield the lines about sessions; an empty one is often part of another session."""
    if fresh := sum(1 for one in told if not one.known):
        yield Line("sessions", many(fresh), "translated", "sessions")
    left = {
        "already imported": len(told) - fresh,
        "from other projects": len(spoken) - len(told),
        "empty, part of another session, or unreadable": silent,
    }
    for why, number in left.items():
        if number:
            yield Line("sessions", many(number), "left out", why=why)


def _memories(home: TravoisHome, project: Project, wish: Wish) -> list[Line]:
    """Return the lines about memories of this project; others are imported there."""
    place, lines = None, list[Line]()
    if wish.agent in ("claude", "codex"):
        place = foreign_memories.find_source(wish.agent, os.environ, trust_root(project.root))
    if wish.agent == "claude" and (others := len(foreign_memories.others(os.environ, place))):
        why = "run `travois import claude --only memory` in each"
        lines.append(Line("memory", f"{others} other projects", "left out", why=why))
    if place is None or not place.exists():
        return lines
    try:
        found = list(foreign_memories.memories(place, scope="project", label=wish.agent))
    except OSError as error:
        return [*lines, Line("memory", str(place), "left out", why=str(error))]
    loaded = load_settings(home, project.root, cwd=os.getcwd(), environ=os.environ)
    held = {one.body.strip() for one in open_memories_here(home, project, loaded).all()}
    why = {one.name: THERE if one.body.strip() in held else one.description for one in found}
    return [*(Line("memory", name, "kept", "memory", said) for name, said in why.items()), *lines]


class Done(msgspec.Struct, frozen=True):
    """The result of an import."""

    imported: tuple[str, ...] = ()
    """The ids that the sessions have here."""
    failed: int = 0
    """The number of sessions that could not be read."""
    files: int = 0
    kept: str = ""
    """Where the files are as they were before."""
    undo: str = ""
    """The change by which memories came in."""


def take_along(
    home: TravoisHome, project: Project, *, outlook: Outlook, progress: Say, complain: Say
) -> Done:
    """Run an import that was previewed."""
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{outlook.wish.agent}"
    kept = carry_out(home, outlook.luggage, stamp=stamp)
    undo = ""
    if outlook.memories:
        loaded = load_settings(home, project.root, cwd=os.getcwd(), environ=os.environ)
        undo = open_memories_here(home, project, loaded).import_from(outlook.wish.agent).id
    ids = tuple(_bring(home, outlook.fresh, progress=progress, complain=complain))
    failed, files = len(outlook.fresh) - len(ids), len(outlook.luggage.copies)
    return Done(ids, failed, files, str(kept or ""), undo)


def _bring(
    home: TravoisHome, wanted: list[Candidate], *, progress: Say, complain: Say
) -> Iterator[str]:
    """Import sessions one by one; one that cannot be read does not stop the others."""
    if not wanted:
        return
    with aside(home) as folder:
        for number, one in enumerate(wanted):
            progress(f"importing sessions … {number:,} of {len(wanted):,}")
            try:
                yield bring(home, one.found, folder, environ=os.environ)
            except UserError as fault:
                complain(str(fault))
    progress("")


def many(number: int) -> str:
    """Format a number of sessions."""
    return f"{number:,} session{'' if number == 1 else 's'}"
