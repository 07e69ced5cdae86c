"""A request that was refused for its size or its pictures is made smaller and sent again."""

from __future__ import annotations

from msgspec.structs import replace

from travois.engine.agent import Agent
from travois.engine.compaction import compact
from travois.engine.room import model
from travois.kernel.blocks import Media, Shown, Text
from travois.kernel.facts import Cleared, Compacted, Result, User
from travois.kernel.tokens import context_tokens
from travois.kernel.view import Item
from travois.wire.replies import Problem

TRIES = 2
"""How often a request is made smaller before the user hears of it: three calls in all."""
MARGIN = 0.85
SHRINK = 0.6
"""How much of its size a request may keep when nobody told by how much it is too large."""


async def recover(agent: Agent, problem: Problem, *, tried: int) -> bool:
    """Whether something was done after which the next try may pass."""
    if tried >= TRIES:
        return False
    match problem.kind:
        case "overflow":
            _learn(agent, problem)
            return await compact(agent, trigger="overflow", goal=_goal(agent, problem)) is not None
        case "large":
            if tried == 0 and drop_media(agent, problem.message):
                return True
            return await compact(agent, trigger="overflow", goal=_goal(agent, problem)) is not None
        case "media":
            return drop_media(agent, problem.message)
        case _:
            return False


def drop_media(agent: Agent, why: str) -> bool:
    """Put a remark in the place of every picture and document; whether there were any."""
    items = [item for item in agent.session.view.items if _media(item)]
    remark = f"[An image or document was left out: {why}]"
    answered = [item.fact.call for item in items if isinstance(item.fact, Result)]
    if answered:
        agent.session.append(Cleared(tuple(answered), remark))
    for item in items:
        if isinstance(item.fact, User):
            summary = tuple(_worded(block, remark) for block in item.fact.content)
            agent.session.append(Compacted(item.seq, item.seq, summary, "dropped"))
    return bool(items)


def _worded(block: Shown, remark: str) -> Text:
    return block if isinstance(block, Text) else Text(remark)


def _media(item: Item) -> bool:
    return any(isinstance(block, Media) for block in item.fact.content)


def _learn(agent: Agent, problem: Problem) -> None:
    """Believe the provider about its window rather than the catalogue."""
    epoch = agent.session.view.epoch
    if epoch is None or not 0 < problem.limit < epoch.model.window:
        return
    smaller = replace(epoch.model, window=problem.limit)
    agent.session.append(replace(epoch, model=smaller, why=problem.message, unbind=False))


def _goal(agent: Agent, problem: Problem) -> int:
    size = context_tokens(agent.session.view)
    if problem.tokens and problem.limit:
        return round(size * problem.limit / problem.tokens * MARGIN)
    return round(min(size, model(agent).window) * SHRINK)
