"""Parts of the workspace that a rewind does not restore: said before a command, and after it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from travois.engine.agent import Agent
from travois.policy.paths import inside
from travois.policy.plan import Plan

if TYPE_CHECKING:
    from travois.policy.destroys import Loss

SHOWN = 4
"""How many paths a question names."""


def find_losses(agent: Agent, plans: Iterable[Plan]) -> list[Loss]:
    """Return what command lines may destroy."""
    from travois.policy.destroys import destroys

    cwd = agent.session.state.get("cwd", agent.world.root)
    found = (destroys(plan, cwd=cwd) for plan in plans)
    return [loss for loss in found if loss is not None]


def warn_of_uncovered(agent: Agent, plans: Iterable[Plan]) -> tuple[str, ...]:
    """Say what a rewind will not bring back if a command changes it."""
    left_out = tuple(_uncovered(agent, plans))
    if not left_out:
        return ()
    more = f" and {len(left_out) - SHOWN} more" if len(left_out) > SHOWN else ""
    return (f"a rewind does not restore {', '.join(left_out[:SHOWN])}{more}",)


def stamp_uncovered(agent: Agent, plans: Iterable[Plan]) -> dict[str, tuple[int, ...]]:
    """Note what is not covered before a command runs, to tell afterwards whether it changed."""
    return {path: _stamp(path) for path in _uncovered(agent, plans)}


def tell_changed(stamps: dict[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Say what has changed since and will not be restored."""
    changed = [path for path, stamp in stamps.items() if _stamp(path) != stamp]
    return (f"A rewind will not restore what changed in {', '.join(changed)}.",) if changed else ()


def _uncovered(agent: Agent, plans: Iterable[Plan]) -> Iterator[str]:
    """What a snapshot before these commands leaves out; what they name is covered."""
    losses = find_losses(agent, plans) if agent.keeper is not None else []
    if agent.keeper is not None and losses:
        named = [path for loss in losses for path in loss.paths]
        for path in agent.keeper.left_out():
            if not any(inside(path, one) for one in named):
                yield path


def _stamp(path: str) -> tuple[int, ...]:
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
