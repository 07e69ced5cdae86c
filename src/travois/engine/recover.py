"""A request that was refused for its size or its pictures is made smaller and sent again."""

from __future__ import annotations

from math import inf

from msgspec.structs import replace

from travois.engine.agent import Agent
from travois.engine.ports import Warned
from travois.engine.room import fitted, model
from travois.kernel.blocks import Call, Media, Opaque, Shown, Text
from travois.kernel.budget import room
from travois.kernel.facts import Assistant, Changed, Cleared, Compacted, Epoch, Result, User
from travois.kernel.tokens import block_tokens, context_tokens, head_tokens, ratio
from travois.kernel.view import Item, View
from travois.wire.replies import Problem

KEPT = (20, 5, 0)
"""How many messages with pictures stay, try by try, until a request can hold them."""
HEAVY = frozenset(("bytes", "media", "media_bytes"))
TRIES = 2
"""How often a request is made smaller before the user hears of it: three calls in all."""
MARGIN = 0.85
CUTS = "cuts:"
"""State of the session: the server of this model was seen to cut prompts, at so many tokens."""
KNOWN = 0.9
LEAST = 0.5
"""No tokenizer counts less than this of what we estimate."""
ENOUGH = 2_000
PLAUSIBLE = 1_000
"""Who counts less than this of a large prompt does not count at all."""
SHRINK = 0.6
"""How much of its size a request may keep when nobody told by how much it is too large."""


async def recover(agent: Agent, problem: Problem, *, tried: int) -> bool:
    """Whether something was done after which the next try may pass."""
    from travois.engine.compaction import compact

    if tried >= TRIES:
        return False
    match problem.kind:
        case "pairing" | "bound" | "thinking":
            return flatten(agent)
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


def flatten(agent: Agent) -> bool:
    """Tell a history that a provider will not hear as it was as one note; whether there is any."""
    from travois.context.compact import Cut
    from travois.engine.summary import summarise

    items = tuple(agent.session.view.items)
    if len(items) < 2:
        return False
    part = Cut(items[:-1], items[-1:]) if isinstance(items[-1].fact, User) else Cut(items, ())
    entries, layers = agent.session.history(), fitted(agent)
    fact = summarise(agent, part, entries, layers=layers, prose="", restored=())
    before = context_tokens(agent.session.view)
    agent.session.append(replace(fact, trigger="overflow", before=before))
    return True


def lighten(agent: Agent) -> None:
    """Leave the oldest pictures out when there are more than one request may hold."""
    if not agent.session.pictures or not model(agent).images:
        return
    for keep in KEPT:
        view = agent.session.view
        if HEAVY.isdisjoint(room(view).short):
            return
        found = [item.seq for item in view.items if _media(item)]
        until = found[-keep - 1] if len(found) > keep else 0
        drop_media(agent, "there are more than one request may hold", until=until)


def drop_media(agent: Agent, why: str, *, until: float = inf) -> bool:
    """Put a remark in the place of media up to an entry; whether there were any."""
    items = [item for item in agent.session.view.items if item.seq <= until and _media(item)]
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


def suspect(agent: Agent, *, counted: int) -> None:
    """Notice a server that cuts what it is sent without a word: its count tells.

    `counted` is where the reply stood whose count held when the request left; -1 if none did.
    """
    session, view = agent.session, agent.session.view
    epoch, prompt = view.epoch, _prompt(view, view.replied)
    if epoch is None or prompt < PLAUSIBLE or not _cut(view, counted):
        return
    most, key = max(prompt, _prompt(view, counted)), CUTS + epoch.model.name
    if most >= KNOWN * epoch.model.window or key in session.state:
        return
    told = f"the server counts {most:,} tokens at most: it seems to cut what it is sent"
    session.append(Changed(key, str(most)))
    if most >= 2 * head_tokens(epoch) * ratio(view):
        session.append(_narrowed(epoch, most, why=told))
    session.emit(Warned(f"{told}; name the window with the model, as in --model name[32k]"))


def _cut(view: View, counted: int) -> bool:
    """Whether a count is too low for what was sent: for all, or for what the last one lacked."""
    said, prompt = view.items[: view.replied], _prompt(view, view.replied)
    if counted < 0:
        head = head_tokens(view.epoch) if view.epoch else 0
        return head + sum(map(_plain, said)) > max(ENOUGH, prompt / LEAST)
    added = sum(map(_plain, said[counted:]))
    if added < ENOUGH or prompt > _prompt(view, counted) + added * LEAST / 2:
        return False
    return not any(isinstance(b, Opaque) for item in said for b in item.fact.content)


def _prompt(view: View, index: int) -> int:
    """The provider's own count for the request of a reply; nought if there is none."""
    fact = view.items[index].fact if index >= 0 else None
    if not isinstance(fact, Assistant) or fact.usage.estimated or view.cleared:
        return 0
    return fact.usage.prompt


def _plain(item: Item) -> int:
    """The tokens of an item that every provider must count: its text."""
    kept = (b for b in item.fact.content if isinstance(b, Text | Call))
    return sum(map(block_tokens, kept))


def _narrowed(epoch: Epoch, window: int, *, why: str) -> Epoch:
    """The same head for a model with less room than we thought."""
    output = min(epoch.model.output, max(1, window // 4))
    return replace(
        epoch, model=replace(epoch.model, window=window, output=output), why=why, unbind=False
    )


def _learn(agent: Agent, problem: Problem) -> None:
    """Believe the provider about its window rather than the catalogue."""
    epoch = agent.session.view.epoch
    if epoch is None or not 0 < problem.limit < epoch.model.window:
        return
    agent.session.append(_narrowed(epoch, problem.limit, why=problem.message))


def _goal(agent: Agent, problem: Problem) -> int:
    size = context_tokens(agent.session.view)
    if problem.tokens and problem.limit:
        return round(size * problem.limit / problem.tokens * MARGIN)
    return round(min(size, model(agent).window) * SHRINK)
