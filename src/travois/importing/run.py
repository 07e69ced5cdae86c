"""Running an import from another agent: a preview of what would happen, then the import."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from travois.compat.sessions.format import SessionFile
from travois.compose.memory import open_memories_here
from travois.core.errors import UserError
from travois.importing import agent_plans
from travois.importing.plan import (
    ALREADY_THERE,
    ImportLine,
    ImportPart,
    ImportPlan,
    apply_import_plan,
)
from travois.importing.sessions import (
    ImportCandidate,
    import_session,
    list_import_candidates,
    lock_staging_folder,
)
from travois.memory import foreign_memories
from travois.sessions.home import Project, TravoisHome, identify_project
from travois.settings.load import load_settings
from travois.settings.trust import trust_root

ReportProgress = Callable[[str], None]
"""Hears how far it is, and nothing when that is done; or why a session could not be read."""
IMPORT_PLANNERS: Mapping[str, Callable[[ImportPlan, Mapping[str, str]], None]] = {
    "claude": agent_plans.plan_claude_import,
    "codex": agent_plans.plan_codex_import,
    "opencode": agent_plans.plan_opencode_import,
    "gemini": agent_plans.plan_gemini_import,
    "pi": agent_plans.plan_pi_import,
}


class ImportRequest(msgspec.Struct, frozen=True):
    """The request of an import: the agent, its sessions, and the parts that are wanted."""

    agent: str
    found: tuple[SessionFile, ...]
    only: tuple[ImportPart, ...]
    project: Project | None = None
    """The one whose sessions are wanted; none for all."""


class ImportPreview(msgspec.Struct, frozen=True):
    """The preview of an import: everything it would do."""

    wish: ImportRequest
    luggage: ImportPlan
    lines: tuple[ImportLine, ...]
    sessions: tuple[ImportCandidate, ...]
    memories: int

    @property
    def new_sessions(self) -> list[ImportCandidate]:
        """The sessions that are not imported yet, the oldest first."""
        return sorted((one for one in self.sessions if not one.known), key=lambda one: one.at)

    @property
    def has_work(self) -> bool:
        """True if there is anything to do."""
        return bool(self.luggage.copies or self.new_sessions or self.memories)


def preview_import(
    home: TravoisHome, project: Project, *, request: ImportRequest, progress: ReportProgress
) -> ImportPreview:
    """Preview an import, without writing anything."""
    luggage = ImportPlan(home, only=request.only)
    if request.agent:
        IMPORT_PLANNERS[request.agent](luggage, os.environ)
    memories = _memory_lines(home, project, request) if "memory" in request.only else []
    spoken = _list_with_progress(
        list_import_candidates(home, request.found), len(request.found), progress
    )
    told = tuple(one for one in spoken if _is_of_project(request.project, one, home))
    lines = (
        *luggage.lines,
        *memories,
        *_session_lines(spoken, told, silent=len(request.found) - len(spoken)),
    )
    count = sum(1 for one in memories if one.fate == "kept" and one.why != ALREADY_THERE)
    return ImportPreview(request, luggage, lines, told, count)


def _list_with_progress(
    found: Iterable[ImportCandidate], number: int, progress: ReportProgress
) -> list[ImportCandidate]:
    """Collect the sessions to import and report progress meanwhile."""
    listed: list[ImportCandidate] = []
    for one in found:
        progress(f"reading sessions … {len(listed):,} of {number:,}")
        listed.append(one)
    progress("")
    return listed


def _is_of_project(project: Project | None, one: ImportCandidate, home: TravoisHome) -> bool:
    """Return whether a session to import belongs to the project, if only those are wanted."""
    if project is None:
        return True
    return os.path.isdir(one.cwd) and identify_project(home, one.cwd).key in project.keys


def _session_lines(
    spoken: list[ImportCandidate], told: tuple[ImportCandidate, ...], *, silent: int
) -> Iterator[ImportLine]:
    """Yield the import preview's lines about sessions; an empty one often belongs to another."""
    if fresh := sum(1 for one in told if not one.known):
        yield ImportLine("sessions", format_session_count(fresh), "translated", "sessions")
    left = {
        "already imported": len(told) - fresh,
        "from other projects": len(spoken) - len(told),
        "empty, part of another session, or unreadable": silent,
    }
    for why, number in left.items():
        if number:
            yield ImportLine("sessions", format_session_count(number), "left out", why=why)


def _memory_lines(home: TravoisHome, project: Project, request: ImportRequest) -> list[ImportLine]:
    """Return the import preview's lines about this project's memories."""
    place, lines = None, list[ImportLine]()
    if request.agent in ("claude", "codex"):
        place = foreign_memories.find_source(request.agent, os.environ, trust_root(project.root))
    if request.agent == "claude" and (
        others := len(foreign_memories.find_other_projects(os.environ, place))
    ):
        why = "run `travois import claude --only memory` in each"
        lines.append(ImportLine("memory", f"{others} other projects", "left out", why=why))
    if place is None or not place.exists():
        return lines
    try:
        found = list(
            foreign_memories.read_foreign_memories(place, scope="project", label=request.agent)
        )
    except OSError as error:
        return [*lines, ImportLine("memory", str(place), "left out", why=str(error))]
    loaded = load_settings(home, project.root, cwd=os.getcwd(), environ=os.environ)
    held = {one.body.strip() for one in open_memories_here(home, project, loaded).read_all()}
    why = {
        one.name: ALREADY_THERE if one.body.strip() in held else one.description for one in found
    }
    return [
        *(ImportLine("memory", name, "kept", "memory", said) for name, said in why.items()),
        *lines,
    ]


class ImportResult(msgspec.Struct, frozen=True):
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


def import_agent_data(
    home: TravoisHome,
    project: Project,
    *,
    outlook: ImportPreview,
    progress: ReportProgress,
    complain: ReportProgress,
) -> ImportResult:
    """Run an import that was previewed."""
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{outlook.wish.agent}"
    kept = apply_import_plan(home, outlook.luggage, stamp=stamp)
    undo = ""
    if outlook.memories:
        loaded = load_settings(home, project.root, cwd=os.getcwd(), environ=os.environ)
        undo = open_memories_here(home, project, loaded).import_from(outlook.wish.agent).id
    ids = tuple(_import_sessions(home, outlook.new_sessions, progress=progress, complain=complain))
    failed, files = len(outlook.new_sessions) - len(ids), len(outlook.luggage.copies)
    return ImportResult(ids, failed, files, str(kept or ""), undo)


def _import_sessions(
    home: TravoisHome,
    wanted: list[ImportCandidate],
    *,
    progress: ReportProgress,
    complain: ReportProgress,
) -> Iterator[str]:
    """Import sessions one by one; one that cannot be read does not stop the others."""
    if not wanted:
        return
    with lock_staging_folder(home) as folder:
        for number, one in enumerate(wanted):
            progress(f"importing sessions … {number:,} of {len(wanted):,}")
            try:
                yield import_session(home, one.found, folder, environ=os.environ)
            except UserError as fault:
                complain(str(fault))
    progress("")


def format_session_count(number: int) -> str:
    """Format the number of sessions to import."""
    return f"{number:,} session{'' if number == 1 else 's'}"
