"""Memory extraction after a turn, in the background; `memory.extract_memories` does the work."""

from __future__ import annotations

import anyio
import msgspec

from travois.engine.agent import Agent, ExtractionJob
from travois.lazy_imports import lazy_imports
from travois.memory.memory import ExtractionOutcome, TurnEnding

with lazy_imports():
    from travois.memory import extract_memories


EXTRACTION_WAIT_SECONDS = 30.0
"""Seconds for which a session that ends waits for extraction."""


def start_extraction(agent: Agent, *, after: TurnEnding = "answer") -> None:
    """Start memory extraction in the background if the conversation may be worth it."""
    if (
        agent.memory.memories is None
        or agent.team.birth is not None
        or agent.memory.extract == "off"
    ):
        return
    busy = agent.turn.extraction is not None and not agent.turn.extraction.done.is_set()
    if busy or agent.runtime.background is None:
        return
    if not extract_memories.is_extraction_due(agent.session.view, agent.session.extracted):
        return
    look = agent.turn.extraction = ExtractionJob(anyio.Event())

    async def run_extraction() -> None:
        try:
            look.told = (await extract_memories.extract_memories(agent, after=after)).summary
        finally:
            look.done.set()

    agent.runtime.background(run_extraction)


async def wait_for_extraction(agent: Agent, *, patience: float = EXTRACTION_WAIT_SECONDS) -> str:
    """Wait a while for memory extraction to finish; return its summary, once."""
    look, told = agent.turn.extraction, ""
    if look is not None:
        with anyio.move_on_after(patience):
            await look.done.wait()
        told, look.told = look.told, ""
    return told


def render_extraction_note(noted: str) -> str:
    """Render the recorded outcome of an extraction for the user; empty if nothing changed."""
    return msgspec.json.decode(noted, type=ExtractionOutcome).summary
