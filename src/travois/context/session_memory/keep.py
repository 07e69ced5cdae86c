"""Session notes: deciding when to update them, in the background, and using them as a summary.

See docs/decisions/0046.
"""

from __future__ import annotations

import anyio
import msgspec

from travois.context import window
from travois.context.compaction.cut import Cut, cut_after
from travois.context.session_memory.plan import Budget, Pace, Progress, due, fitted, is_worthwhile
from travois.context.window import beside_head, limit, model
from travois.core.content import extract_calls
from travois.core.facts import Assistant, Noted
from travois.core.tokens import context_tokens, fact_tokens, token_ratio
from travois.core.view import View
from travois.engine.agent import Agent, NotesUpdate

FILE = "notes.md"
PATIENCE = 60.0
"""The longest time, in seconds, that a compaction waits for a running update."""
KEEP_LEAST = 10_000
KEEP_MOST = 40_000
"""The least and the most tokens that stay verbatim when notes become the summary."""
LEAST_SHARE = 0.07
MOST_SHARE = 0.3
"""The same bounds as shares of the room between head and threshold, for small windows."""


class Notes(msgspec.Struct, frozen=True):
    """The notes, the size of the conversation then, and the last entry that they cover."""

    size: int = 0
    text: str = ""
    covers: int = 0


class Offer(msgspec.Struct, frozen=True):
    """Notes that can replace the older conversation, and the cut that goes with them."""

    text: str
    cut: Cut
    covers: int
    """The last entry that they cover."""


def keeps_notes(agent: Agent) -> bool:
    """Return whether to keep notes on this conversation: as the user set, or if they pay off."""
    card, wanted = model(agent), agent.context.layers.notes
    if (
        agent.runtime.background is None
        or card.is_frail
        or not wanted
        or not agent.context.layers.draft
    ):
        return False
    if wanted != "auto" or not agent.context.layers.automatic:
        return wanted is True
    most = limit(agent)
    return is_worthwhile(card.price, limit=most, head=most - beside_head(agent))


def keep_notes(agent: Agent) -> None:
    """Start an update of the notes in the background, if one is due."""
    if not keeps_notes(agent) or is_updating(agent):
        return
    held, view, pace = notes(agent), agent.session.view, Pace.of(beside_head(agent))
    if not held.text and context_tokens(view) < pace.first:
        return
    since = max(held.covers, agent.turn.notes.covers if agent.turn.notes else 0)
    if not due(_progress(view, since, held, limit=limit(agent)), pace):
        return
    underway = agent.turn.notes = NotesUpdate(anyio.Event(), covers=agent.session.seq)

    async def update() -> None:
        underway.begun = True
        try:
            await _update(agent, held)
        finally:
            underway.done.set()

    assert agent.runtime.background is not None
    agent.runtime.background(update)


async def _update(agent: Agent, held: Notes) -> None:
    """Ask the model for edits of the notes, log the result and write the file."""
    from travois.context.session_memory.update import edited_notes

    session = agent.session
    covers, size = session.seq, context_tokens(session.view)
    text = await edited_notes(agent, held.text, path=notes_path(agent), budget=budget(agent))
    if text:
        session.append(Noted("notes", msgspec.json.encode(Notes(size, text, covers)).decode()))
        write_notes(agent, text)


def is_updating(agent: Agent) -> bool:
    """Return whether an update is running."""
    return agent.turn.notes is not None and not agent.turn.notes.done.is_set()


def notes(agent: Agent) -> Notes:
    """Return the current notes; empty if there are none."""
    return decode_notes(agent.session.notes)


def decode_notes(text: str) -> Notes:
    """Decode the notes from the log."""
    return msgspec.json.decode(text, type=Notes) if text else Notes()


def notes_path(agent: Agent) -> str:
    """Return the path of this session's notes file."""
    return f"{agent.world.kept}/{FILE}"


def budget(agent: Agent) -> Budget:
    """Return the size limit of the notes: no more than a summary may take."""
    return Budget(min(Budget().whole, window.fitted(agent).ledger))


def write_notes(agent: Agent, text: str) -> str:
    """Write the notes to their file, which can be rebuilt from the log; return its path."""
    return agent.world.spill(FILE, text.encode(errors="replace"))


async def offer_notes(agent: Agent) -> Offer | None:
    """Wait for a running update, then return the notes as the model's part of a summary."""
    if not agent.context.layers.notes or not agent.context.layers.draft:
        return None
    await settle_notes(agent)
    return ready_notes(agent)


def ready_notes(agent: Agent) -> Offer | None:
    """Return the current notes for a summary.

    None if there are none, or if they leave more uncovered than may stay verbatim.
    """
    cut = find_cut(agent)
    if cut is None:
        return None
    held = notes(agent)
    text = fitted(held.text, path=write_notes(agent, held.text), budget=budget(agent))
    return Offer(text, cut, held.covers) if text else None


def find_cut(agent: Agent) -> Cut | None:
    """Return the cut with which notes can replace what comes before; None if they miss too much."""
    held = notes(agent)
    if not held.text or not agent.context.layers.notes or not agent.context.layers.draft:
        return None
    free = beside_head(agent)
    least = min(KEEP_LEAST, round(free * LEAST_SHARE))
    most = min(KEEP_MOST, round(free * MOST_SHARE))
    return cut_after(agent.session.view, held.covers, least=least, most=most)


async def settle_notes(agent: Agent, *, patience: float = PATIENCE) -> None:
    """Wait for a running update, but not forever."""
    if agent.turn.notes is not None and agent.turn.notes.begun:
        with anyio.move_on_after(patience):
            await agent.turn.notes.done.wait()


def _progress(view: View, since: int, held: Notes, *, limit: int) -> Progress:
    """Measure how far the conversation has grown since an entry."""
    fresh = [item.fact for item in view.items if item.seq > since]
    replies = [fact for fact in fresh if isinstance(fact, Assistant)]
    return Progress(
        grown=round(sum(map(fact_tokens, fresh)) * token_ratio(view)),
        left=limit - context_tokens(view),
        first=not held.text,
        calls=sum(len(extract_calls(reply.content)) for reply in replies),
        paused=bool(replies) and not extract_calls(replies[-1].content),
    )
