"""The provider's own summary: it is signed, so that the thinking after it stays valid."""

from __future__ import annotations

from msgspec.structs import replace

from travois.context.compaction.cut import SET_ASIDE
from travois.context.window import model
from travois.core.content import Opaque, Text
from travois.core.facts import Compacted
from travois.core.models import SUMMARIES
from travois.core.tokens import block_tokens
from travois.core.view import View, thinks, waiting
from travois.engine.fork import aside
from travois.ports.agent import Agent
from travois.providers.anthropic_extras import summing

WARM = ("auto", "manual")
"""When the span can be read from the cache: else its summary costs more than it is worth."""
OURS = (
    f"{SET_ASIDE} A summary stands in their place; the newest messages come after it unchanged. "
    "What follows was gathered from the record and goes beyond that summary. Go on with the work "
    "where it stands. Anything that was set aside can be read again in the files named below, or "
    "found with Recall."
)


async def record(agent: Agent, fact: Compacted) -> Compacted:
    """Put a compaction on record: as it is, or with the provider's own summary in its place.

    Then what we gathered is told at the tail: nothing may come between the summary and thinking.
    """
    block = await _summary(agent, fact)
    if block is None:
        agent.session.append(fact)
        return fact
    texts = [_reopened(block.text) for block in fact.summary if isinstance(block, Text)]
    summary, size = (block, *map(Text, texts)), fact.after + block_tokens(block)
    signed = replace(fact, summary=summary, by="provider", after=size)
    agent.session.append(signed)
    return signed


def _reopened(text: str) -> str:
    """Open what we gathered as something that goes beyond the provider's summary."""
    _, gap, rest = text.partition("\n\n")
    return f"{OURS}{gap}{rest}" if text.startswith(SET_ASIDE) else text


async def _summary(agent: Agent, fact: Compacted) -> Opaque | None:
    """The provider's summary of the same span; none where it cannot or will not."""
    view = _before(agent.session.view, fact)
    able = agent.layers.signed and SUMMARIES in model(agent).betas
    if view is None or not able or fact.trigger not in WARM:
        return None
    reply = await aside(agent, view, what="signed summary", change=summing)
    match reply.content if reply else ():
        case (Opaque(kind="compaction", text=text) as block,) if text.strip():
            return block
        case _:
            return None


def _before(view: View, fact: Compacted) -> View | None:
    """The conversation up to the end of the span, if it was once a request of its own."""
    ends = [index for index, item in enumerate(view.items, 1) if item.seq == fact.last]
    if not ends or view.items[0].seq != fact.first or not thinks(view):
        return None
    part = View(epoch=view.epoch, items=view.items[: ends[0]], moves=view.moves, since=view.since)
    return part if waiting(part) else None
