"""Memory extraction after a turn: deciding when to look for memories, in the background.

This module decides cheaply when to look; `memory.extract_memories` does the work.
"""

from __future__ import annotations

import re

import anyio
import msgspec

from travois.core.content import extract_text
from travois.core.facts import Assistant, User
from travois.core.tokens import estimate_tokens
from travois.engine.agent import Agent, ExtractionJob
from travois.lazy_imports import lazy_imports
from travois.memory.memory import EXTRACTION_GROWTH_TOKENS, ExtractionOutcome, TurnEnding

with lazy_imports():
    from travois.memory import extract_memories


EXTRACTION_WAIT_SECONDS = 30.0
"""Seconds for which a session that ends waits for extraction."""
WISH_HINT_PATTERN = (
    r"(?i)\b(?:remember|memori[sz]e|note|mind|forget|future|now on|forward|always|n?ever|prefer|"
    r"like|love|hate|don.?t|do not|stop|no|nope|wrong|actually|again|instead|when(?:ever)?|"
    r"time|want|usually|rather|not how|only|my|our|i.?m|i am|i'd|i (?:work|live|speak)|call me|"
    r"rememb?er|remeb\w+|each|every\w*|banned|forbidden|"
    r"immer|nie\w*|merken?|bitte|keine?n?|nicht|künftig|sofort|jetzt|bevorzuge|ich|"
    r"siempre|nunca|recuerda|prefiero|olvides|ahora|soy|toujours|jamais|préfère|retiens|désormais)\b"
)
"""A word without which no sentence is a wish, whatever else it says."""


def start_extraction(agent: Agent, *, after: TurnEnding = "answer") -> None:
    """Start memory extraction in the background if the conversation may be worth it."""
    if (
        agent.memory.memories is None
        or agent.team.birth is not None
        or agent.memory.extract == "off"
    ):
        return
    busy = agent.turn.extraction is not None and not agent.turn.extraction.done.is_set()
    if busy or agent.runtime.background is None or not _may_be_due(agent):
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


def _may_be_due(agent: Agent) -> bool:
    """Return, cheaply, whether memory extraction may find anything since the last one."""
    fresh = [i.fact for i in agent.session.view.items if i.seq > agent.session.extracted]
    human = [f for f in fresh if isinstance(f, User) and f.origin == "human"]
    hinted = any(re.search(WISH_HINT_PATTERN, extract_text(fact.content)) for fact in human)
    size = sum(
        estimate_tokens(extract_text(f.content))
        for f in fresh
        if isinstance(f, Assistant) or f in human
    )
    return hinted or size >= EXTRACTION_GROWTH_TOKENS
