"""Recall: before a prompt is sent, what earlier sessions left that may help with it.

An agent that remembers nothing pays for none of this.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from travois.core.content import Text, words
from travois.core.errors import Fault
from travois.core.facts import Entry, Epoch, User
from travois.core.view import View, project
from travois.engine.agent import Agent, Small
from travois.memory.memory import Memory
from travois.memory.port import Memories
from travois.memory.recall_text import mark, names, opening, render, untold, useful
from travois.ports.world import Warned
from travois.prompt.environment import plain

CHOOSE = Path(__file__).parent / "prompts" / "choose.md"
CANDIDATES = 20
MOST = 5
PATIENCE = 2.0
"""How many seconds the choice may take; without it the order of the search counts."""
LONGEST = 4_000
"""How many characters of a prompt are searched with."""
LINE = 200


async def recollect(agent: Agent, said: User) -> None:
    """Show the model what is remembered and fits what a person says, once."""
    text = words(said.content)[:LONGEST] if said.origin == "human" else ""
    if (
        agent.memory.memories is None
        or agent.team.birth
        or not agent.memory.recall
        or not text.strip()
    ):
        return
    try:
        note = await _note(agent, agent.memory.memories, text)
    except (OSError, Fault) as error:
        agent.session.emit(Warned(f"Nothing could be recalled: {error}"))
        return
    if note:
        agent.session.append(User((Text(note),), origin="note"))


async def _note(agent: Agent, memories: Memories, text: str) -> str:
    search = partial(memories.search, text, limit=CANDIDATES)
    found = await anyio.to_thread.run_sync(search)
    items = agent.session.view.items
    fresh = useful(untold(found, items), items)
    chosen = await _chosen(agent, text, fresh) if len(fresh) > MOST else fresh
    if not chosen:
        return ""
    note = render(*await anyio.to_thread.run_sync(_checked, memories, chosen))
    await anyio.to_thread.run_sync(memories.used, names(note))
    return note


def _checked(
    memories: Memories, chosen: Iterable[Memory]
) -> tuple[list[Memory], dict[str, tuple[str, ...]]]:
    """Memories as they hold at the moment, and the files that changed under others."""
    checked = [memories.reverify(memory) or memory for memory in chosen]
    return checked, {mark(memory): memories.stale(memory) for memory in checked}


async def remembered(agent: Agent) -> str:
    """What is to be said of the index of memories before a prompt."""
    if agent.memory.memories is None or agent.team.birth or not agent.memory.recall:
        return ""
    try:
        index = await anyio.to_thread.run_sync(agent.memory.memories.index)
    except (OSError, Fault) as error:
        agent.session.emit(Warned(f"Memory could not be read: {error}"))
        return ""
    return opening(index, agent.session.view.items)


async def _chosen(agent: Agent, text: str, fresh: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """The few that a small model would take; the first ones if it does not say in time."""
    from travois.engine.fork import aside

    small, reply = agent.models.small(), None
    if small is not None:
        with anyio.move_on_after(PATIENCE):
            asked = msgspec.structs.replace(agent, model=small.model)
            reply = await aside(asked, _question(agent, small, text, fresh), what="recall")
    numbers = _numbers(words(reply.content)) if reply else None
    if numbers is None:
        return fresh[:MOST]
    picked = dict.fromkeys(number for number in numbers if 1 <= number <= len(fresh))
    return tuple(fresh[number - 1] for number in picked)[:MOST]


def _question(agent: Agent, small: Small, text: str, fresh: tuple[Memory, ...]) -> View:
    lines = (f"{n}. {plain(m.description[:LINE])}" for n, m in enumerate(fresh, 1))
    asked = "\n".join((f"<message>\n{plain(text)}\n</message>", "<notes>", *lines, "</notes>"))
    head = Epoch(small.card, CHOOSE.read_text("utf-8").strip())
    at = agent.runtime.clock()
    return project([Entry(1, at, head), Entry(2, at, User((Text(asked),)))])


def _numbers(reply: str) -> list[int] | None:
    """The numbers that a reply chose; none if it is no answer."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        return msgspec.json.decode(reply[start : end + 1], type=list[int])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
