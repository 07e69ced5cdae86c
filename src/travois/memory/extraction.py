"""Extraction: after a turn, what of it is worth knowing in later sessions.

When to look is decided here, at little cost; `engine.weighing` does the looking.
"""

from __future__ import annotations

import re

import anyio
import msgspec

from travois.core.content import words
from travois.core.facts import Assistant, User
from travois.core.tokens import estimate
from travois.engine.agent import Agent, Gathering
from travois.memory.port import GROWTH, Outcome, Turn

PATIENCE = 30.0
"""How many seconds a session that is left waits for this."""
HINT = (
    r"(?i)\b(?:remember|memori[sz]e|note|mind|forget|future|now on|forward|always|n?ever|prefer|"
    r"like|love|hate|don.?t|do not|stop|no|nope|wrong|actually|again|instead|when(?:ever)?|"
    r"time|want|usually|rather|not how|only|my|our|i.?m|i am|i'd|i (?:work|live|speak)|call me|"
    r"rememb?er|remeb\w+|each|every\w*|banned|forbidden|"
    r"immer|nie\w*|merken?|bitte|keine?n?|nicht|künftig|sofort|jetzt|bevorzuge|ich|"
    r"siempre|nunca|recuerda|prefiero|olvides|ahora|soy|toujours|jamais|préfère|retiens|désormais)\b"
)
"""A word without which no sentence is a wish, whatever else it says."""


def gather(agent: Agent, *, after: Turn = "answer") -> None:
    """Look through what was said since the last time, in the background, if it may be worth it."""
    if (
        agent.memory.memories is None
        or agent.team.birth is not None
        or agent.memory.extract == "off"
    ):
        return
    busy = agent.turn.extraction is not None and not agent.turn.extraction.done.is_set()
    if busy or agent.runtime.background is None or not _due(agent):
        return
    from travois.memory.weighing import extract

    look = agent.turn.extraction = Gathering(anyio.Event())

    async def work() -> None:
        try:
            look.told = (await extract(agent, after=after)).told
        finally:
            look.done.set()

    agent.runtime.background(work)


async def settled(agent: Agent, *, patience: float = PATIENCE) -> str:
    """Wait until what was said is looked through, but not for long; tells what came of it, once."""
    look, told = agent.turn.extraction, ""
    if look is not None:
        with anyio.move_on_after(patience):
            await look.done.wait()
        told, look.told = look.told, ""
    return told


def told(noted: str) -> str:
    """What was noted on a change of memory, for the eye; empty if nothing came of it."""
    return msgspec.json.decode(noted, type=Outcome).told


def _due(agent: Agent) -> bool:
    """Whether there may be something worth keeping in what was said since the last time."""
    fresh = [i.fact for i in agent.session.view.items if i.seq > agent.session.extracted]
    human = [f for f in fresh if isinstance(f, User) and f.origin == "human"]
    hinted = any(re.search(HINT, words(fact.content)) for fact in human)
    size = sum(estimate(words(f.content)) for f in fresh if isinstance(f, Assistant) or f in human)
    if not hinted and size < GROWTH:
        return False
    from travois.memory.weighing import due

    return due(agent.session.view, agent.session.extracted)
