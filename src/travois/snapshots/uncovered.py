"""Parts of the workspace that a rewind cannot restore: warnings before and after a command."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.permissions.paths import is_inside
from travois.permissions.shell.plan import CommandPlan

if TYPE_CHECKING:
    from travois.permissions.shell.destruction import PossibleLoss

with lazy_imports():
    from travois.permissions.shell import destruction


MAX_LISTED_PATHS = 4
"""The most paths that a question names."""
MAX_RESTORED_BYTES = 256 << 20
MAX_COUNTED_FILES = 20_000
"""The limits of what a snapshot keeps of a path that a command names; counting stops there."""


def find_losses(agent: Agent, plans: Iterable[CommandPlan]) -> list[PossibleLoss]:
    """Return the paths that commands may destroy, to warn if a rewind cannot restore them."""
    cwd = agent.session.state.get("cwd", agent.world.root)
    found = (destruction.find_possible_loss(plan, cwd=cwd) for plan in plans)
    return [loss for loss in found if loss is not None]


def warn_of_uncovered(agent: Agent, plans: Iterable[CommandPlan]) -> tuple[str, ...]:
    """Return warnings about paths that a rewind cannot restore if a command changes them."""
    left_out = tuple(_iterate_uncovered(agent, plans))
    if not left_out:
        return ()
    more = (
        f" and {len(left_out) - MAX_LISTED_PATHS} more" if len(left_out) > MAX_LISTED_PATHS else ""
    )
    return (f"a rewind does not restore {', '.join(left_out[:MAX_LISTED_PATHS])}{more}",)


def find_unrecoverable(agent: Agent, plans: Iterable[CommandPlan]) -> tuple[str, ...]:
    """Return the paths that commands would destroy and that no rewind could restore."""
    named = dict.fromkeys(path for loss in find_losses(agent, plans) for path in loss.paths)
    there = [path for path in named if os.path.lexists(path) and _is_in_workspace(agent, path)]
    if agent.world.snapshots is None:
        return tuple(there[:MAX_LISTED_PATHS])
    left_out = agent.world.snapshots.list_uncovered()
    apart = (p for p in there if any(is_inside(p, one) or is_inside(one, p) for one in left_out))
    return tuple(path for path in apart if _is_too_large(path))[:MAX_LISTED_PATHS]


def _is_in_workspace(agent: Agent, path: str) -> bool:
    """Return whether a path lies below a workspace folder, where a rewind could restore it."""
    return any(
        is_inside(path, folder) and path != folder for folder in agent.permissions.guard.folders
    )


def _is_too_large(path: str) -> bool:
    """Return whether a file, or a folder's files together, exceed what a snapshot keeps."""
    size = count = 0
    for folder, _, names in os.walk(path):
        for name in names:
            stamp = _stamp_path(os.path.join(folder, name))
            size, count = size + (stamp[1] if stamp else 0), count + 1
            if size > MAX_RESTORED_BYTES or count > MAX_COUNTED_FILES:
                return True
    stamp = _stamp_path(path)
    return bool(stamp) and not os.path.isdir(path) and stamp[1] > MAX_RESTORED_BYTES


def stamp_uncovered(agent: Agent, plans: Iterable[CommandPlan]) -> dict[str, tuple[int, ...]]:
    """Record the state of uncovered paths before a command, to detect its changes afterwards."""
    return {path: _stamp_path(path) for path in _iterate_uncovered(agent, plans)}


def warn_of_changed(stamps: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Return notes about changed paths that a rewind cannot restore."""
    changed = [path for path, stamp in stamps.items() if _stamp_path(path) != stamp]
    return (f"A rewind will not restore what changed in {', '.join(changed)}.",) if changed else ()


def _iterate_uncovered(agent: Agent, plans: Iterable[CommandPlan]) -> Iterator[str]:
    """Yield what a snapshot before these commands leaves out; paths that they name are covered."""
    losses = find_losses(agent, plans) if agent.world.snapshots is not None else []
    if agent.world.snapshots is not None and losses:
        named = [path for loss in losses for path in loss.paths]
        for path in agent.world.snapshots.list_uncovered():
            if not any(is_inside(path, one) for one in named):
                yield path


def _stamp_path(path: str) -> tuple[int, ...]:
    """Return an uncovered path's inode, size and time, to notice changes; empty if missing."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
