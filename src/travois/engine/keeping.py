"""Keeping what files are like before a call changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from travois.engine.agent import Agent
from travois.engine.ports import Warned
from travois.kernel.blocks import Text
from travois.kernel.facts import Changed, User
from travois.policy.paths import inside

if TYPE_CHECKING:
    from travois.engine.consent import Ready
    from travois.policy.destroys import Loss

ENDED = "after the turn"


async def keep(agent: Agent, batch: Sequence[Ready]) -> None:
    """Take a snapshot before the first change of a turn, and before all that may destroy work."""
    changing = [ready for ready in batch if any(a.kind != "read" for a in ready.touching)]
    if agent.keeper is None or not changing:
        return
    losses = [loss for ready in changing for loss in _losses(agent, ready)]
    if not losses and agent.kept == agent.session.prompted:
        return
    also = tuple(dict.fromkeys(path for loss in losses for path in loss.paths))
    summary = changing[0].tool.summary(changing[0].args)
    why = await _take(agent, f"before {changing[0].call.name}: {summary}"[:200], also)
    if why and losses:
        note = f"No snapshot could be taken before this: {why}. It cannot be undone by a rewind."
        agent.session.append(User((Text(note),), origin="note"))
    if why and agent.kept != agent.session.prompted:
        agent.session.emit(Warned(f"No snapshot could be taken, so no rewind to here: {why}"))
    agent.kept = agent.session.prompted


async def settle(agent: Agent) -> None:
    """Remember what a turn has left behind, to tell later changes of others from its own."""
    if agent.keeper is not None and agent.kept >= 0:
        await _take(agent, ENDED, ())
        agent.kept = -1


async def _take(agent: Agent, why: str, also: tuple[str, ...]) -> str:
    """Take a snapshot and say so in the log; returns why that failed, if it did."""
    assert agent.keeper is not None
    try:
        name = await agent.keeper.keep(why=why, also=also)
    except OSError as error:
        return error.strerror or str(error)
    agent.session.append(Changed("snapshot", f"{name} {why}"))
    return ""


def _losses(agent: Agent, ready: Ready) -> list[Loss]:
    """What its command lines may destroy, and files elsewhere that it writes itself."""
    from travois.policy.destroys import Loss, destroys

    cwd = agent.session.state.get("cwd", agent.world.root)
    found = (destroys(plan, cwd=cwd) for plan in ready.plans)
    written = (access.target for access in ready.accesses if access.kind == "write")
    folders = agent.guard.folders
    outside = (path for path in written if not any(inside(path, folder) for folder in folders))
    return [*(loss for loss in found if loss is not None), *(Loss((path,)) for path in outside)]
