"""Session notes: deciding when to update them, in the background, and using them as a summary.

See docs/decisions/0046.
"""

from __future__ import annotations

import anyio
import msgspec

from travois.context import window
from travois.context.compaction.cut import ConversationCut, cut_after_entry
from travois.context.session_memory.plan import (
    NotesBudget,
    NotesProgress,
    UpdatePace,
    are_notes_worthwhile,
    fit_notes,
    is_update_due,
)
from travois.context.window import compaction_threshold, current_model, room_beside_head
from travois.core.content import extract_calls
from travois.core.facts import Assistant, Noted
from travois.core.tokens import context_tokens, fact_tokens, token_ratio
from travois.core.view import View
from travois.engine.agent import Agent, NotesUpdate
from travois.lazy_imports import lazy_imports

with lazy_imports():
    from travois.context.session_memory import update as notes_update


NOTES_FILE = "notes.md"
UPDATE_WAIT_SECONDS = 60.0
"""The longest time, in seconds, that a compaction waits for a running update."""
MIN_KEPT_TOKENS = 10_000
MAX_KEPT_TOKENS = 40_000
"""The least and the most tokens that stay verbatim when notes become the summary."""
MIN_KEPT_SHARE = 0.07
MAX_KEPT_SHARE = 0.3
"""The same bounds as shares of the room between head and threshold, for small windows."""


class SessionNotes(msgspec.Struct, frozen=True):
    """The notes, the size of the conversation then, and the last entry that they cover."""

    size: int = 0
    text: str = ""
    covers: int = 0


class NotesSummary(msgspec.Struct, frozen=True):
    """Notes that can replace the older conversation, and the cut that goes with them."""

    text: str
    cut: ConversationCut
    covers: int
    """The last entry that they cover."""


def should_keep_notes(agent: Agent) -> bool:
    """Return whether to keep notes on this conversation: as the user set, or if they pay off."""
    card, wanted = current_model(agent), agent.context.layers.notes
    if (
        agent.runtime.background is None
        or card.is_frail
        or not wanted
        or not agent.context.layers.draft
    ):
        return False
    if wanted != "auto" or not agent.context.layers.is_automatic:
        return wanted is True
    most = compaction_threshold(agent)
    return are_notes_worthwhile(card.price, limit=most, head=most - room_beside_head(agent))


def update_notes_if_due(agent: Agent) -> None:
    """Start an update of the notes in the background, if one is due."""
    if not should_keep_notes(agent) or is_updating_notes(agent):
        return
    held, view, pace = (
        current_notes(agent),
        agent.session.view,
        UpdatePace.for_room(room_beside_head(agent)),
    )
    if not held.text and context_tokens(view) < pace.first:
        return
    since = max(held.covers, agent.turn.notes.covers if agent.turn.notes else 0)
    if not is_update_due(
        _measure_progress(view, since, held, limit=compaction_threshold(agent)), pace
    ):
        return
    underway = agent.turn.notes = NotesUpdate(anyio.Event(), covers=agent.session.seq)

    async def update() -> None:
        underway.begun = True
        try:
            await _update_notes(agent, held)
        finally:
            underway.done.set()

    assert agent.runtime.background is not None
    agent.runtime.background(update)


async def _update_notes(agent: Agent, held: SessionNotes) -> None:
    """Ask the model for edits of the notes, log the result and write the file."""
    session = agent.session
    covers, size = session.seq, context_tokens(session.view)
    text = await notes_update.ask_for_notes_update(
        agent, held.text, path=notes_path(agent), budget=notes_budget(agent)
    )
    if text:
        session.append(
            Noted("notes", msgspec.json.encode(SessionNotes(size, text, covers)).decode())
        )
        write_notes(agent, text)


def is_updating_notes(agent: Agent) -> bool:
    """Return whether an update is running."""
    return agent.turn.notes is not None and not agent.turn.notes.done.is_set()


def current_notes(agent: Agent) -> SessionNotes:
    """Return the current notes; empty if there are none."""
    return decode_notes(agent.session.notes)


def decode_notes(text: str) -> SessionNotes:
    """Decode the notes from the log."""
    return msgspec.json.decode(text, type=SessionNotes) if text else SessionNotes()


def notes_path(agent: Agent) -> str:
    """Return the path of this session's notes file."""
    return f"{agent.world.kept}/{NOTES_FILE}"


def notes_budget(agent: Agent) -> NotesBudget:
    """Return the size limit of the notes: no more than a summary may take."""
    return NotesBudget(min(NotesBudget().whole, window.scaled_layers(agent).ledger))


def write_notes(agent: Agent, text: str) -> str:
    """Write the notes to their file, which can be rebuilt from the log; return its path."""
    return agent.world.spill(NOTES_FILE, text.encode(errors="replace"))


async def wait_for_notes_summary(agent: Agent) -> NotesSummary | None:
    """Wait for a running update, then return the notes as the model's part of a summary."""
    if not agent.context.layers.notes or not agent.context.layers.draft:
        return None
    await wait_for_notes_update(agent)
    return prepare_notes_summary(agent)


def prepare_notes_summary(agent: Agent) -> NotesSummary | None:
    """Return the current notes for a summary.

    None if there are none, or if they leave more uncovered than may stay verbatim.
    """
    cut = find_notes_cut(agent)
    if cut is None:
        return None
    held = current_notes(agent)
    text = fit_notes(held.text, path=write_notes(agent, held.text), budget=notes_budget(agent))
    return NotesSummary(text, cut, held.covers) if text else None


def find_notes_cut(agent: Agent) -> ConversationCut | None:
    """Return the cut with which notes can replace what comes before; None if they miss too much."""
    held = current_notes(agent)
    if not held.text or not agent.context.layers.notes or not agent.context.layers.draft:
        return None
    free = room_beside_head(agent)
    least = min(MIN_KEPT_TOKENS, round(free * MIN_KEPT_SHARE))
    most = min(MAX_KEPT_TOKENS, round(free * MAX_KEPT_SHARE))
    return cut_after_entry(agent.session.view, held.covers, least=least, most=most)


async def wait_for_notes_update(agent: Agent, *, patience: float = UPDATE_WAIT_SECONDS) -> None:
    """Wait for a running update, but not forever."""
    if agent.turn.notes is not None and agent.turn.notes.begun:
        with anyio.move_on_after(patience):
            await agent.turn.notes.done.wait()


def _measure_progress(view: View, since: int, held: SessionNotes, *, limit: int) -> NotesProgress:
    """Measure how far the conversation has grown since an entry."""
    fresh = [item.fact for item in view.items if item.seq > since]
    replies = [fact for fact in fresh if isinstance(fact, Assistant)]
    return NotesProgress(
        grown=round(sum(map(fact_tokens, fresh)) * token_ratio(view)),
        left=limit - context_tokens(view),
        first=not held.text,
        calls=sum(len(extract_calls(reply.content)) for reply in replies),
        paused=bool(replies) and not extract_calls(replies[-1].content),
    )
