"""Rewinding: restoring files and conversation to their state before a user message."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from travois.core.errors import UserError
from travois.core.facts import Changed, Entry, Rewound
from travois.sessions.session import Session
from travois.snapshots.before_call import AFTER_TURN
from travois.snapshots.restore import RestoreOutcome
from travois.snapshots.snapshots import (
    AFTER_REWIND,
    BEFORE_REWIND,
    NO_SNAPSHOT,
    SnapshotMark,
    Snapshots,
    build_snapshot_fact,
    has_pause_between,
    list_snapshot_marks,
    list_turns,
)
from travois.snapshots.tree import PathChange, Snapshot, SnapshotRoot, is_below_folder

RewindPart = Literal["all", "conversation"]
GIT_FOLDER_FILE = re.compile(rb"(.*?/\.git)/.*", re.DOTALL)
FLEETING_GIT_FILE = re.compile(
    rb".*/\.git/(.*/)?(index|[A-Z_]+_HEAD|COMMIT_EDITMSG|[^/]*\.lock|gc\.\w+|objects(/.*)?)",
    re.DOTALL,
)
"""Git files that change also when somebody only looks, and that git can do without."""


class RewindPlan(msgspec.Struct, frozen=True):
    """A plan for a rewind: the entry to return to, and the file changes it takes."""

    to: int
    """The last entry that stands; 0 if the conversation stays as it is."""
    here: str
    """The snapshot of the present state; `NO_SNAPSHOT` if files are not involved."""
    changes: tuple[PathChange, ...] = ()
    theirs: tuple[PathChange, ...] = ()
    """Changes to files that others have changed since: skipped unless asked for."""


def plan_rewind_to_turn(
    entries: Sequence[Entry], snapshots: Snapshots, *, number: int, part: RewindPart = "all"
) -> RewindPlan:
    """Plan a rewind to the end of a turn; number 0 is the beginning."""
    said = list_turns(entries)
    if not 0 <= number < len(said):
        plural = "" if len(said) == 1 else "s"
        why = f"the conversation has {len(said)} turn{plural}" if said else "nothing was said yet"
        raise UserError(f"Turn {number} not found", why=why, fix="Use --list to see the turns.")
    point = said[number].before
    if part == "conversation":
        return RewindPlan(point, NO_SNAPSHOT)
    later = [mark for mark in list_snapshot_marks(entries) if mark.seq > point]
    if later and later[0].why == AFTER_TURN:
        raise _files_lost_error("no snapshot was taken before they changed")
    return _build_rewind_plan(snapshots, point, later, later, since=entries[-1].at)


def plan_rewind_undo(entries: Sequence[Entry], snapshots: Snapshots) -> RewindPlan:
    """Plan undoing the last rewind: the return to where it began."""
    found = [at for at, entry in enumerate(entries) if _begins_rewind(entry)]
    if not found:
        raise UserError("No rewind to undo")
    start = entries[found[-1]]
    after = entries[found[-1] + 1 :]
    spoken = bool(after) and isinstance(after[0].fact, Rewound)
    begun = list_snapshot_marks((start,))
    later = [mark for mark in list_snapshot_marks(after) if mark.seq > start.seq]
    point = entries[found[-1] - 1].seq if spoken else 0
    return _build_rewind_plan(snapshots, point, begun, later, since=entries[-1].at)


def plan_rewind_to_snapshot(
    entries: Sequence[Entry], snapshots: Snapshots, *, name: str
) -> RewindPlan:
    """Plan restoring only the files of one snapshot."""
    found = list_snapshot_marks(entries)
    at = next((i for i, mark in enumerate(found) if mark.name == name), None)
    if at is None:
        raise UserError(f"Snapshot {name!r} not found in this session", fix="See --list.")
    return _build_rewind_plan(snapshots, 0, found[at:], found[at:], since=entries[-1].at)


def apply_rewind(
    session: Session,
    snapshots: Snapshots,
    plan: RewindPlan,
    *,
    wrote: Callable[[str], None] = lambda path: None,
) -> RestoreOutcome:
    """Apply a rewind, which can itself be undone.

    `wrote` is called with each path.
    """
    # On disk before the first file changes, so that even a half rewind can be undone.
    session.append(build_snapshot_fact(plan.here, BEFORE_REWIND))
    session.sync()
    outcome = snapshots.restore(list(plan.changes)) if plan.changes else RestoreOutcome()
    for change in plan.changes:
        wrote(os.fsdecode(change.path))
    if plan.to:
        session.append(Rewound(plan.to))
    name = (
        NO_SNAPSHOT
        if plan.here == NO_SNAPSHOT
        else _take_covering_snapshot(
            snapshots, AFTER_REWIND, _load_snapshot(snapshots, plan.here).roots
        )
    )
    session.append(build_snapshot_fact(name, AFTER_REWIND))
    session.sync()
    return outcome


def _begins_rewind(entry: Entry) -> bool:
    """Return whether a log entry is the snapshot that was taken before a rewind."""
    fact = entry.fact
    return (
        isinstance(fact, Changed) and fact.what == "snapshot" and fact.value.endswith(BEFORE_REWIND)
    )


def _build_rewind_plan(
    snapshots: Snapshots,
    point: int,
    goal: list[SnapshotMark],
    gaps: list[SnapshotMark],
    *,
    since: float,
) -> RewindPlan:
    """Plan a rewind by comparing files with the goal's snapshots; the first one counts."""
    if not goal:
        return RewindPlan(point, NO_SNAPSHOT)
    told = _load_goal_snapshots(snapshots, goal)
    here = _take_covering_snapshot(
        snapshots, BEFORE_REWIND, [root for snapshot in told for root in snapshot.roots]
    )
    now = _load_snapshot(snapshots, here)
    wanted = snapshots.compare((now,), told)
    found = _find_changes_by_others(snapshots, gaps, now, since=since).intersection(
        _list_changed_files(wanted)
    )
    others = {_group_by_repository(path) for path in found}
    theirs = tuple(change for change in wanted if _group_by_repository(change.path) in others)
    ours = (change for change in wanted if change not in theirs)
    return RewindPlan(
        point, here, tuple(c for c in ours if not _would_remove_others(c, others)), theirs
    )


def _take_covering_snapshot(snapshots: Snapshots, why: str, roots: Sequence[SnapshotRoot]) -> str:
    """Snapshot before a rewind the paths that it changes: the workspace, or single ones."""
    folders = {root.path for root in roots if not root.whole}
    single = sorted({root.path for root in roots if root.whole})
    if not folders:
        return snapshots.take_files(why, single).name
    snapshots.add_folders(folders)
    return snapshots.take(why, single)


def _would_remove_others(change: PathChange, others: set[bytes]) -> bool:
    """Return whether a rewind would remove a folder with files that others have added."""
    going = change.new is None and change.old is not None and change.old.is_folder
    return going and any(is_below_folder(path, change.path) for path in others)


def _load_goal_snapshots(snapshots: Snapshots, goal: list[SnapshotMark]) -> list[Snapshot]:
    """Load the snapshots that a rewind restores; raise if they were removed since."""
    found = [snapshots.find(mark.name) for mark in goal]
    if found and found[0] is None:
        raise _files_lost_error("that snapshot was removed to make room for newer ones")
    return [snapshot for snapshot in found if snapshot is not None]


def _load_snapshot(snapshots: Snapshots, name: str) -> Snapshot:
    """Load a snapshot that must exist, by its name."""
    found = snapshots.find(name)
    assert found is not None
    return found


def _find_changes_by_others(
    snapshots: Snapshots, gaps: list[SnapshotMark], now: Snapshot, *, since: float
) -> set[bytes]:
    """Return the paths to rewind that others changed since, as far as can be known."""
    found: list[bytes] = []
    before: list[Snapshot] = []
    """The states that earlier turns have left, the last one first."""
    during: list[Snapshot] = []
    for number, mark in enumerate(gaps):
        if number and has_pause_between(gaps[number - 1], mark):
            before, during = [*during[-1:], *before], []
        if (snapshot := snapshots.find(mark.name)) is not None:
            covered = {root.path for one in during for root in one.roots}
            changed = _list_changed_files(snapshots.compare(before, (snapshot,))) if before else []
            found += (path for path in changed if not _is_in_folders(path, covered))
            during.append(snapshot)
    before = [*during[-1:], *before]
    if before:
        changed = _list_changed_files(snapshots.compare(before, (now,)))
        found += (
            changed
            if gaps[-1].is_last_of_turn
            else [p for p in changed if _has_changed_since(p, since)]
        )
    return {path for path in found if not FLEETING_GIT_FILE.fullmatch(path)}


def _is_in_folders(path: bytes, folders: set[bytes]) -> bool:
    """Return whether a path was covered earlier in its turn, whose own later changes then count."""
    return any(path == folder or is_below_folder(path, folder) for folder in folders)


def _list_changed_files(changes: Iterable[PathChange]) -> list[bytes]:
    """Return the files that a rewind changes; folders matter only for their contents."""
    nodes = ((change.path, change.new or change.old) for change in changes)
    return [path for path, node in nodes if node is not None and not node.is_folder]


def _group_by_repository(path: bytes) -> bytes:
    """Return a path to rewind, or the repository of a file in `.git`: all or none of it."""
    found = GIT_FOLDER_FILE.fullmatch(path)
    return found[1] if found else path


def _has_changed_since(path: bytes, when: float) -> bool:
    """Return whether a file to rewind changed after this time; false if it is missing."""
    try:
        return os.lstat(path).st_ctime > when
    except OSError:
        return False


def _files_lost_error(why: str) -> UserError:
    """Build the error for a rewind whose files cannot be restored."""
    return UserError(
        "Cannot restore the files of that turn",
        why=why,
        fix="Use --conversation-only to rewind the conversation alone.",
    )
