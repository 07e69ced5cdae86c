"""Folding: old calls become one line each in place of a compaction, where that is enough."""

from __future__ import annotations

from travois.context.compaction import spans
from travois.context.compaction.cut import CompactionTrigger
from travois.context.microcompact.plan import find_foldable_part, fold_items, is_folded
from travois.context.window import compaction_threshold, room_beside_head
from travois.core.content import Text
from travois.core.facts import Cleared, Compacted
from travois.core.tokens import (
    context_tokens,
    estimate_tokens,
    fact_tokens,
    format_tokens,
    token_ratio,
)
from travois.core.view import project_view
from travois.engine.agent import Agent
from travois.ports.world import UserWarned

UNFOLDED_TAIL_SHARE = 0.35
"""The share of the room between head and threshold whose newest messages stay unchanged."""
ENOUGH_FOLDED_SHARE = 0.65
"""Folding is enough if less than this share of the threshold is in use after it."""
FOLDED_TEXT_SHARE = 0.2
"""The share of the room that the folded text may take."""


def fold_old_calls(agent: Agent, *, trigger: CompactionTrigger) -> bool:
    """Fold the middle of the conversation; return whether a compaction is no longer needed."""
    session, view = agent.session, agent.session.view
    room = room_beside_head(agent) / token_ratio(view)  # as we estimate
    cut = find_foldable_part(view, tail=round(room * UNFOLDED_TAIL_SHARE))
    if cut is None or view.omitted:
        return False
    entries = session.history()
    whole = project_view(e for e in entries if not isinstance(e.fact, Compacted | Cleared))
    ever = {item.seq: item for item in whole.items}
    gone = [ever.get(item.seq, item) for item in cut.dropped if not is_folded(item)]
    pieces = spans.split_into_spans(gone)
    names = [f"folded-{cut.last_seq}-{number}" for number in range(1, len(pieces) + 1)]
    before = _earlier_folded_files(agent)
    paths = [f"{agent.world.kept}/{name}.txt" for name in names]
    text = fold_items(
        cut.dropped,
        [*before, *paths],
        budget=round(room * FOLDED_TEXT_SHARE),
        snip=agent.context.layers.snip,
    )
    size = context_tokens(view)
    freed = sum(fact_tokens(item.fact) for item in cut.dropped) - estimate_tokens(text)
    after = size - round(freed * token_ratio(view))
    if not text or after >= ENOUGH_FOLDED_SHARE * compaction_threshold(agent):
        return False
    data = (span.text.encode(errors="replace") for span in pieces)
    files = tuple(map(agent.world.spill, names, data))
    fact = Compacted(
        cut.first_seq,
        cut.last_seq,
        (Text(text),),
        "folded",
        trigger=trigger,
        before=size,
        after=after,
        files=files,
        titles=tuple(span.title for span in pieces),
        limit=compaction_threshold(agent),
    )
    session.append(fact)
    sizes = f"{format_tokens(size)} → {format_tokens(after)} tokens"
    many = f"Folded {len(cut.dropped)} old messages"
    session.emit(UserWarned(f"{many}: {sizes}. The full text is kept on disk."))
    return True


def _earlier_folded_files(agent: Agent) -> list[str]:
    """Return the files of earlier foldings that are folded again."""
    facts = [entry.fact for entry in agent.session.history()]
    cuts = [fact for fact in facts if isinstance(fact, Compacted)]
    found: list[str] = []
    for fact in cuts:
        found = [*found, *fact.files] if fact.by == "folded" else []
    return found
