"""What stands in the place of the older conversation, put together from the record."""

from __future__ import annotations

from collections.abc import Sequence

from travois.context.compact import OPENING, Cut
from travois.context.layers import Layers
from travois.engine.agent import Agent
from travois.kernel.blocks import Text
from travois.kernel.facts import Cleared, Compacted, Entry
from travois.kernel.tokens import estimate, fact_tokens, head_tokens, ratio
from travois.kernel.view import Item, project


def summarise(
    agent: Agent,
    parted: Cut,
    entries: list[Entry],
    *,
    layers: Layers,
    prose: str,
    restored: tuple[Text, ...],
) -> Compacted:
    """The fact that sets the older part aside, and where each part of it can be read."""
    from travois.context import ledger, names, spans

    ever = _ever(entries)
    pieces = spans.split([ever.get(item.seq, item) for item in parted.fresh])
    files = tuple(
        agent.world.spill(f"span-{parted.last}-{number}", span.text.encode(errors="replace"))
        for number, span in enumerate(pieces, 1)
    )
    told = ledger.render(ledger.fold(entries), budget=layers.ledger).text
    kept = "\n".join(str(item.fact.content) for item in parted.kept)
    found = names.index(_until(ever, parted.last), budget=layers.names, skip=told + kept)
    past = [entry.fact for entry in entries if isinstance(entry.fact, Compacted)]
    titles = tuple(span.title for span in pieces)
    listing = spans.contents(
        [*(title for fact in past for title in fact.titles), *titles],
        [*(path for fact in past for path in fact.files), *files],
        budget=layers.contents,
    )
    text = "\n\n".join(part for part in (OPENING, told, prose, found, listing) if part)
    blocks = (*agent.baseline(), Text(text), *restored)
    return Compacted(
        parted.first,
        parted.last,
        blocks,
        "model" if prose else "notes",
        after=_size(agent, blocks, parted.kept),
        files=files,
        titles=titles,
    )


def _size(agent: Agent, blocks: Sequence[Text], kept: Sequence[Item]) -> int:
    """What the next request will come to, as far as that can be told."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    said = sum(estimate(block.text) for block in blocks)
    return round((head + said + sum(fact_tokens(item.fact) for item in kept)) * ratio(view))


def _ever(entries: list[Entry]) -> dict[int, Item]:
    """All items as they once stood, by entry: also those that gave way before or were cleared."""
    whole = project(e for e in entries if not isinstance(e.fact, Compacted | Cleared))
    return {item.seq: item for item in whole.items}


def _until(ever: dict[int, Item], last: int) -> tuple[Item, ...]:
    return tuple(item for seq, item in ever.items() if seq <= last)
