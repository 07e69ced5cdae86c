"""Going back: files and conversation as they were before something was said."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from travois.engine.keeping import ENDED
from travois.engine.session import Session
from travois.kernel.facts import Changed, Entry, Rewound
from travois.kernel.faults import Fault
from travois.store.snapshot.node import Change, Snapshot
from travois.store.snapshot.restore import Outcome
from travois.store.snapshot.timeline import (
    NONE,
    REWINDING,
    REWOUND,
    Mark,
    marked,
    marks,
    pauses,
    turns,
)
from travois.store.snapshots import Snapshots

Part = Literal["all", "conversation"]
GIT = re.compile(rb"(.*?/\.git)/.*", re.DOTALL)
FLEETING = re.compile(
    rb".*/\.git/(.*/)?(index|[A-Z_]+_HEAD|COMMIT_EDITMSG|[^/]*\.lock|gc\.\w+|objects(/.*)?)",
    re.DOTALL,
)
"""What git writes also when somebody only looks, and what it can do without."""


class Way(msgspec.Struct, frozen=True):
    """How to go back: to which entry, and which changes of files that takes."""

    to: int
    """The last entry that stands; 0 if the conversation stays as it is."""
    here: str
    """The snapshot of what is there; `NONE` if files have no part in it."""
    changes: tuple[Change, ...] = ()
    theirs: tuple[Change, ...] = ()
    """Changes to what somebody else has changed since: not made unless asked for."""


def before_turn(
    entries: Sequence[Entry], keeper: Snapshots, *, number: int, part: Part = "all"
) -> Way:
    """The way to the end of a turn; number 0 is the beginning."""
    said = turns(entries)
    if not 0 <= number < len(said):
        why = f"{len(said)} turns stand" if said else "nothing was said"
        raise Fault(f"There is no turn {number} to go back to", why=why, fix="See --list.")
    point = said[number].before
    if part == "conversation":
        return Way(point, NONE)
    later = [mark for mark in marks(entries) if mark.seq > point]
    if later and later[0].why == ENDED:
        raise _lost("no snapshot could be taken before they were changed")
    return _way(keeper, point, later, later, since=entries[-1].at)


def before_rewind(entries: Sequence[Entry], keeper: Snapshots) -> Way:
    """The way back to where the last rewind began."""
    found = [at for at, entry in enumerate(entries) if _begins_rewind(entry)]
    if not found:
        raise Fault("There is no rewind to take back")
    start = entries[found[-1]]
    after = entries[found[-1] + 1 :]
    spoken = bool(after) and isinstance(after[0].fact, Rewound)
    begun = marks((start,))
    later = [mark for mark in marks(after) if mark.seq > start.seq]
    point = entries[found[-1] - 1].seq if spoken else 0
    return _way(keeper, point, begun, later, since=entries[-1].at)


def at_snapshot(entries: Sequence[Entry], keeper: Snapshots, *, name: str) -> Way:
    """The way of the files alone to one snapshot."""
    found = marks(entries)
    at = next((i for i, mark in enumerate(found) if mark.name == name), None)
    if at is None:
        raise Fault(f"There is no snapshot {name!r} in this session", fix="See --list.")
    return _way(keeper, 0, found[at:], found[at:], since=entries[-1].at)


def go(
    session: Session,
    keeper: Snapshots,
    way: Way,
    *,
    wrote: Callable[[str], None] = lambda path: None,
) -> Outcome:
    """Go back. What was there can be brought back in the same manner.

    `wrote` hears of each path.
    """
    session.append(marked(way.here, REWINDING))
    session.sync()
    outcome = keeper.restore(list(way.changes)) if way.changes else Outcome()
    for change in way.changes:
        wrote(os.fsdecode(change.path))
    if way.to:
        session.append(Rewound(way.to))
    name = NONE if way.here == NONE else keeper.take(REWOUND)
    session.append(marked(name, REWOUND))
    session.sync()
    return outcome


def _begins_rewind(entry: Entry) -> bool:
    fact = entry.fact
    return isinstance(fact, Changed) and fact.what == "snapshot" and fact.value.endswith(REWINDING)


def _way(keeper: Snapshots, point: int, goal: list[Mark], gaps: list[Mark], *, since: float) -> Way:
    """Compare what is there with what the marks of the goal tell, the first one before others."""
    if not goal:
        return Way(point, NONE)
    told = _found(keeper, goal)
    roots = [root for snapshot in told for root in snapshot.roots]
    keeper.cover(root.path for root in roots if not root.whole)
    here = keeper.take(REWINDING, sorted({root.path for root in roots if root.whole}))
    now = _one(keeper, here)
    wanted = keeper.compare((now,), told)
    found = _others(keeper, gaps, now, since=since).intersection(_paths(wanted))
    others = {_unit(path) for path in found}
    theirs = tuple(change for change in wanted if _unit(change.path) in others)
    return Way(point, here, tuple(c for c in wanted if c not in theirs), theirs)


def _found(keeper: Snapshots, goal: list[Mark]) -> list[Snapshot]:
    found = [keeper.find(mark.name) for mark in goal]
    if found and found[0] is None:
        raise _lost("that snapshot was dropped to make room for later ones")
    return [snapshot for snapshot in found if snapshot is not None]


def _one(keeper: Snapshots, name: str) -> Snapshot:
    found = keeper.find(name)
    assert found is not None
    return found


def _others(keeper: Snapshots, gaps: list[Mark], now: Snapshot, *, since: float) -> set[bytes]:
    """What others than the harness have changed, as far as can be told."""
    found: list[bytes] = []
    for one, other in pauses(gaps):
        before, after = keeper.find(one.name), keeper.find(other.name)
        if before is not None and after is not None:
            found += _paths(keeper.compare((before,), (after,)))
    last = keeper.find(gaps[-1].name) if gaps else None
    if last is not None:
        changed = _paths(keeper.compare((last,), (now,)))
        found += changed if gaps[-1].last else [p for p in changed if _changed_since(p, since)]
    return {path for path in found if not FLEETING.fullmatch(path)}


def _paths(changes: Iterable[Change]) -> list[bytes]:
    """What is changed besides folders: what matters of those is what is in them."""
    nodes = ((change.path, change.new or change.old) for change in changes)
    return [path for path, node in nodes if node is not None and not node.folder]


def _unit(path: bytes) -> bytes:
    """A repository's own files go together or not at all."""
    found = GIT.fullmatch(path)
    return found[1] if found else path


def _changed_since(path: bytes, when: float) -> bool:
    try:
        return os.lstat(path).st_ctime > when
    except OSError:
        return False


def _lost(why: str) -> Fault:
    return Fault(
        "The files of that time cannot be brought back", why=why, fix="Use --conversation-only."
    )
