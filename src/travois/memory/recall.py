"""Memory recall: add memories that fit a prompt before the prompt is sent.

An agent without memory does none of this work.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from travois.core.content import Text, extract_text
from travois.core.errors import UserError
from travois.core.facts import Entry, Epoch, User
from travois.core.view import View, project_view
from travois.engine.agent import Agent, SmallModel
from travois.engine.fork import ask_quietly
from travois.memory.memory import Memory
from travois.memory.port import Memories
from travois.memory.recall_text import mark, names, opening, render, untold, useful
from travois.ports.world import UserWarned
from travois.prompt.environment import plain

CHOOSE = Path(__file__).parent / "prompts" / "choose.md"
CANDIDATES = 20
MOST = 5
PATIENCE = 2.0
"""Seconds for the small model's choice; after that the search order counts."""
LONGEST = 4_000
"""Characters of a prompt that are used for the search."""
LINE = 200


async def recollect(agent: Agent, said: User) -> None:
    """Show the model the memories that fit the user's prompt, each once."""
    text = extract_text(said.content)[:LONGEST] if said.origin == "human" else ""
    if (
        agent.memory.memories is None
        or agent.team.birth
        or not agent.memory.recall
        or not text.strip()
    ):
        return
    try:
        note = await _note(agent, agent.memory.memories, text)
    except (OSError, UserError) as error:
        agent.session.emit(UserWarned(f"Memory recall failed: {error}"))
        return
    if note:
        agent.session.append(User((Text(note),), origin="note"))


async def _note(agent: Agent, memories: Memories, text: str) -> str:
    """Search memories for a prompt and render the ones to show; empty if none fit."""
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
    """Renew memories whose files still support them; return the changed files of the others."""
    checked = [memories.reverify(memory) or memory for memory in chosen]
    return checked, {mark(memory): memories.stale(memory) for memory in checked}


async def remembered(agent: Agent) -> str:
    """Return the note about the memory index, or about its changes; empty if none is due."""
    if agent.memory.memories is None or agent.team.birth or not agent.memory.recall:
        return ""
    try:
        index = await anyio.to_thread.run_sync(agent.memory.memories.index)
    except (OSError, UserError) as error:
        agent.session.emit(UserWarned(f"Memory could not be read: {error}"))
        return ""
    return opening(index, agent.session.view.items)


async def _chosen(agent: Agent, text: str, fresh: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """Let a small model choose; without an answer in time, take the best search results."""
    small, reply = agent.models.small(), None
    if small is not None:
        with anyio.move_on_after(PATIENCE):
            asked = msgspec.structs.replace(agent, model=small.model)
            reply = await ask_quietly(asked, _question(agent, small, text, fresh), what="recall")
    numbers = _numbers(extract_text(reply.content)) if reply else None
    if numbers is None:
        return fresh[:MOST]
    picked = dict.fromkeys(number for number in numbers if 1 <= number <= len(fresh))
    return tuple(fresh[number - 1] for number in picked)[:MOST]


def _question(agent: Agent, small: SmallModel, text: str, fresh: tuple[Memory, ...]) -> View:
    """Build the request in which a small model chooses among memories."""
    lines = (f"{n}. {plain(m.description[:LINE])}" for n, m in enumerate(fresh, 1))
    asked = "\n".join((f"<message>\n{plain(text)}\n</message>", "<notes>", *lines, "</notes>"))
    head = Epoch(small.card, CHOOSE.read_text("utf-8").strip())
    at = agent.runtime.clock()
    return project_view([Entry(1, at, head), Entry(2, at, User((Text(asked),)))])


def _numbers(reply: str) -> list[int] | None:
    """Parse the numbers that a reply chose; None if it is not a valid answer."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        return msgspec.json.decode(reply[start : end + 1], type=list[int])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
