"""Taking snapshots before a tool call changes files.

If a tool names the files that it changes, only these are saved. Otherwise the whole workspace is
saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from travois.core.content import Text
from travois.core.facts import Changed, User
from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.permissions.paths import is_inside
from travois.ports.world import ActivityShown, UserWarned
from travois.snapshots.uncovered import find_losses

if TYPE_CHECKING:
    from travois.engine.permission_gate import ParsedCall
    from travois.permissions.access import Access
    from travois.permissions.shell.destruction import PossibleLoss

with lazy_imports():
    from travois.permissions.shell import destruction


AFTER_TURN = "after the turn"
OUTWARD_ACCESS_KINDS = ("read", "net", "tell")
"""Kinds of access that touch no file of the workspace."""


async def snapshot_before_calls(agent: Agent, batch: Sequence[ParsedCall]) -> None:
    """Snapshot the files that tool calls are about to change, else the workspace."""
    changing = [
        ready
        for ready in batch
        if any(a.kind not in OUTWARD_ACCESS_KINDS for a in ready.collision_accesses)
    ]
    if agent.world.snapshots is None or not changing:
        return
    # A hook may change any file after a tool call, so with hooks no change is known in advance.
    unknown = [
        ready
        for ready in changing
        if agent.hooks.active is not None or not _names_every_change(ready)
    ]
    losses = [loss for ready in changing for loss in find_losses(agent, ready.plans)]
    if unknown and (losses or agent.turn.kept != agent.session.prompted):
        await _snapshot_workspace(agent, unknown[0], losses)
    named = [path for ready in changing for path in _list_written_files(ready)]
    saved = agent.turn.kept_files
    fresh = [path for path in named if not any(is_inside(path, folder) for folder in saved)]
    if fresh:
        await _snapshot_files(agent, changing[0], fresh)


async def snapshot_after_turn(agent: Agent) -> None:
    """Snapshot the state after a turn, to tell later changes by others from its own."""
    if agent.world.snapshots is None:
        return
    files, agent.turn.kept_files = agent.turn.kept_files, ()
    beyond, agent.turn.kept_beyond = agent.turn.kept_beyond, ()
    tree, agent.turn.kept = agent.turn.kept >= 0, -1
    try:
        if tree:
            name = (
                await agent.world.snapshots.snapshot_workspace(
                    why=AFTER_TURN, also=beyond, files=files
                )
            ).name
        elif files:
            name, _ = await agent.world.snapshots.snapshot_files(files, why=AFTER_TURN)
        else:
            return
    except OSError:
        return
    agent.session.append(Changed("snapshot", f"{name} {AFTER_TURN}"))


async def _snapshot_workspace(
    agent: Agent, ready: ParsedCall, losses: Iterable[PossibleLoss]
) -> None:
    """Take a snapshot of the workspace and of the paths that the calls may destroy."""
    assert agent.world.snapshots is not None
    also = tuple(dict.fromkeys(path for loss in losses for path in loss.paths))
    why = _describe_call(ready)
    try:
        kept = await agent.world.snapshots.snapshot_workspace(
            why=why, also=also, heed=lambda n: _show_scan_progress(agent, n)
        )
    except OSError as error:
        _report_snapshot_failure(agent, error, first=agent.turn.kept != agent.session.prompted)
    else:
        agent.session.append(Changed("snapshot", f"{kept.name} {why}"))
        if kept.uncovered:
            some = ", ".join(kept.uncovered)
            text = f"Not in the snapshot before this call, so a rewind cannot restore it: {some}."
            agent.session.append(User((Text(text),), origin="note"))
        beyond = (path for path in also if path not in (*kept.uncovered, *agent.turn.kept_beyond))
        agent.turn.kept_beyond += tuple(
            path for path in beyond if _is_outside_workspace(agent, path)
        )
    agent.turn.kept = agent.session.prompted


async def _snapshot_files(agent: Agent, ready: ParsedCall, paths: Sequence[str]) -> None:
    """Snapshot some files before a tool call changes them, and log it."""
    assert agent.world.snapshots is not None
    why = _describe_call(ready)
    try:
        name, covered = await agent.world.snapshots.snapshot_files(paths, why=why)
    except OSError as error:
        _report_snapshot_failure(agent, error, first=not agent.turn.kept_files)
        covered = tuple(paths)
    else:
        agent.session.append(Changed("snapshot", f"{name} {why}"))
    agent.turn.kept_files = (*agent.turn.kept_files, *covered)


def _is_outside_workspace(agent: Agent, path: str) -> bool:
    return not any(is_inside(path, folder) for folder in agent.permissions.guard.folders)


def _report_snapshot_failure(agent: Agent, error: OSError, *, first: bool) -> None:
    """Report a failed snapshot: to the model each time, to the user once in a turn."""
    why = error.strerror or str(error)
    note = f"No snapshot was taken before this call: {why}. A rewind cannot undo it."
    agent.session.append(User((Text(note),), origin="note"))
    if first:
        agent.session.emit(
            UserWarned(f"No snapshot was taken, so a rewind cannot restore files to here: {why}")
        )


def _show_scan_progress(agent: Agent, count: int) -> None:
    agent.session.emit(ActivityShown(f"Taking a snapshot: {count:,} files"))


def _describe_call(ready: ParsedCall) -> str:
    return f"before {ready.call.name}: {ready.tool.summary(ready.args)}"[:200]


def _names_every_change(ready: ParsedCall) -> bool:
    """Return whether a call changes only the files it names, so a snapshot of them suffices."""
    changing = (
        access for access in _list_call_accesses(ready) if access.kind not in OUTWARD_ACCESS_KINDS
    )
    return all(access.kind == "write" and access.scope == "one" for access in changing)


def _list_written_files(ready: ParsedCall) -> list[str]:
    """Return the files that a call says it will write, for the snapshot before it."""
    found = (access for access in _list_call_accesses(ready) if access.kind == "write")
    return [access.target for access in found if access.scope == "one"]


def _list_call_accesses(ready: ParsedCall) -> tuple[Access, ...]:
    """Return a call's accesses for the snapshot; for harmless commands each single file."""
    if not ready.plans or any(
        destruction.find_possible_loss(plan, cwd="/") is not None for plan in ready.plans
    ):
        return ready.collision_accesses
    plain = tuple(access for access in ready.accesses if access.kind != "exec")
    return (*plain, *(access for plan in ready.plans for access in plan.accesses))
