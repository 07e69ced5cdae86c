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
from travois.snapshots.before_call import ENDED
from travois.snapshots.restore import Outcome
from travois.snapshots.snapshots import (
    NONE,
    REWINDING,
    REWOUND,
    Mark,
    Snapshots,
    is_pause,
    marked,
    marks,
    turns,
)
from travois.snapshots.tree import Change, Root, Snapshot, within

Part = Literal["all", "conversation"]
GIT = re.compile(rb"(.*?/\.git)/.*", re.DOTALL)
FLEETING = re.compile(
    rb".*/\.git/(.*/)?(index|[A-Z_]+_HEAD|COMMIT_EDITMSG|[^/]*\.lock|gc\.\w+|objects(/.*)?)",
    re.DOTALL,
)
"""Git files that change also when somebody only looks, and that git can do without."""


class Way(msgspec.Struct, frozen=True):
    """A plan for a rewind: the entry to return to, and the file changes it takes."""

    to: int
    """The last entry that stands; 0 if the conversation stays as it is."""
    here: str
    """The snapshot of the present state; `NO_SNAPSHOT` if files are not involved."""
    changes: tuple[Change, ...] = ()
    theirs: tuple[Change, ...] = ()
    """Changes to files that others have changed since: skipped unless asked for."""


def before_turn(
    entries: Sequence[Entry], keeper: Snapshots, *, number: int, part: Part = "all"
) -> Way:
    """Plan the rewind to the end of a turn; number 0 is the beginning."""
    said = turns(entries)
    if not 0 <= number < len(said):
        plural = "" if len(said) == 1 else "s"
        why = f"the conversation has {len(said)} turn{plural}" if said else "nothing was said yet"
        raise UserError(f"Turn {number} not found", why=why, fix="Use --list to see the turns.")
    point = said[number].before
    if part == "conversation":
        return Way(point, NONE)
    later = [mark for mark in marks(entries) if mark.seq > point]
    if later and later[0].why == ENDED:
        raise _lost("no snapshot was taken before they changed")
    return _way(keeper, point, later, later, since=entries[-1].at)


def before_rewind(entries: Sequence[Entry], keeper: Snapshots) -> Way:
    """Plan the return to where the last rewind began."""
    found = [at for at, entry in enumerate(entries) if _begins_rewind(entry)]
    if not found:
        raise UserError("No rewind to undo")
    start = entries[found[-1]]
    after = entries[found[-1] + 1 :]
    spoken = bool(after) and isinstance(after[0].fact, Rewound)
    begun = marks((start,))
    later = [mark for mark in marks(after) if mark.seq > start.seq]
    point = entries[found[-1] - 1].seq if spoken else 0
    return _way(keeper, point, begun, later, since=entries[-1].at)


def at_snapshot(entries: Sequence[Entry], keeper: Snapshots, *, name: str) -> Way:
    """Plan restoring only the files of one snapshot."""
    found = marks(entries)
    at = next((i for i, mark in enumerate(found) if mark.name == name), None)
    if at is None:
        raise UserError(f"Snapshot {name!r} not found in this session", fix="See --list.")
    return _way(keeper, 0, found[at:], found[at:], since=entries[-1].at)


def go(
    session: Session,
    keeper: Snapshots,
    way: Way,
    *,
    wrote: Callable[[str], None] = lambda path: None,
) -> Outcome:
    """Carry out a rewind, which can itself be undone.

    `wrote` is called with each path.
    """
    # On disk before the first file changes, so that even a half rewind can be undone.
    session.append(marked(way.here, REWINDING))
    session.sync()
    outcome = keeper.restore(list(way.changes)) if way.changes else Outcome()
    for change in way.changes:
        wrote(os.fsdecode(change.path))
    if way.to:
        session.append(Rewound(way.to))
    name = NONE if way.here == NONE else _take(keeper, REWOUND, _one(keeper, way.here).roots)
    session.append(marked(name, REWOUND))
    session.sync()
    return outcome


def _begins_rewind(entry: Entry) -> bool:
    fact = entry.fact
    return isinstance(fact, Changed) and fact.what == "snapshot" and fact.value.endswith(REWINDING)


def _way(keeper: Snapshots, point: int, goal: list[Mark], gaps: list[Mark], *, since: float) -> Way:
    """Compare the present files with the goal's snapshots; of two, the first one counts."""
    if not goal:
        return Way(point, NONE)
    told = _found(keeper, goal)
    here = _take(keeper, REWINDING, [root for snapshot in told for root in snapshot.roots])
    now = _one(keeper, here)
    wanted = keeper.compare((now,), told)
    found = _others(keeper, gaps, now, since=since).intersection(_paths(wanted))
    others = {_unit(path) for path in found}
    theirs = tuple(change for change in wanted if _unit(change.path) in others)
    ours = (change for change in wanted if change not in theirs)
    return Way(point, here, tuple(c for c in ours if not _holds(c, others)), theirs)


def _take(keeper: Snapshots, why: str, roots: Sequence[Root]) -> str:
    """Take a snapshot of the paths that others cover: the workspace, or single paths."""
    folders = {root.path for root in roots if not root.whole}
    single = sorted({root.path for root in roots if root.whole})
    if not folders:
        return keeper.take_files(why, single).name
    keeper.cover(folders)
    return keeper.take(why, single)


def _holds(change: Change, others: set[bytes]) -> bool:
    """Return whether a change would remove a folder with files that others have added."""
    going = change.new is None and change.old is not None and change.old.folder
    return going and any(within(path, change.path) for path in others)


def _found(keeper: Snapshots, goal: list[Mark]) -> list[Snapshot]:
    found = [keeper.find(mark.name) for mark in goal]
    if found and found[0] is None:
        raise _lost("that snapshot was removed to make room for newer ones")
    return [snapshot for snapshot in found if snapshot is not None]


def _one(keeper: Snapshots, name: str) -> Snapshot:
    found = keeper.find(name)
    assert found is not None
    return found


def _others(keeper: Snapshots, gaps: list[Mark], now: Snapshot, *, since: float) -> set[bytes]:
    """Return the paths that others than the harness have changed, as far as can be known."""
    found: list[bytes] = []
    before: list[Snapshot] = []
    """The states that earlier turns have left, the last one first."""
    during: list[Snapshot] = []
    for number, mark in enumerate(gaps):
        if number and is_pause(gaps[number - 1], mark):
            before, during = [*during[-1:], *before], []
        if (snapshot := keeper.find(mark.name)) is not None:
            covered = {root.path for one in during for root in one.roots}
            changed = _paths(keeper.compare(before, (snapshot,))) if before else []
            found += (path for path in changed if not _lies_in(path, covered))
            during.append(snapshot)
    before = [*during[-1:], *before]
    if before:
        changed = _paths(keeper.compare(before, (now,)))
        found += changed if gaps[-1].last else [p for p in changed if _changed_since(p, since)]
    return {path for path in found if not FLEETING.fullmatch(path)}


def _lies_in(path: bytes, folders: set[bytes]) -> bool:
    """Return whether a path was covered earlier in its turn: later changes are the turn's own."""
    return any(path == folder or within(path, folder) for folder in folders)


def _paths(changes: Iterable[Change]) -> list[bytes]:
    """Return the changed paths besides folders, which matter only for their contents."""
    nodes = ((change.path, change.new or change.old) for change in changes)
    return [path for path, node in nodes if node is not None and not node.folder]


def _unit(path: bytes) -> bytes:
    """Return a path, or the repository of a file in `.git`: its files go together or not at all."""
    found = GIT.fullmatch(path)
    return found[1] if found else path


def _changed_since(path: bytes, when: float) -> bool:
    try:
        return os.lstat(path).st_ctime > when
    except OSError:
        return False


def _lost(why: str) -> UserError:
    return UserError(
        "Cannot restore the files of that turn",
        why=why,
        fix="Use --conversation-only to rewind the conversation alone.",
    )
