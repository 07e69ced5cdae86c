"""Memory recall: add memories that fit a prompt before the prompt is sent.

An agent without memory does none of this work.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
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
from travois.memory.memory import Memory, MemoryStore
from travois.memory.recall_text import (
    digest_memory,
    filter_unshown,
    filter_useful,
    find_shown_names,
    find_used_names,
    render_memory_index,
    render_recalled,
)
from travois.ports.world import UserWarned
from travois.prompt.environment import escape_line

RECALL_PROMPT_FILE = Path(__file__).parent / "prompts" / "choose.md"
MAX_RECALL_CANDIDATES = 20
MAX_RECALLED_MEMORIES = 5
MAX_USE_ITEMS = 60
"""The latest items of the conversation in which uses of memories are looked for."""
RECALL_CHOICE_SECONDS = 2.0
"""Seconds for the small model's choice; after that the search order counts."""
MAX_QUERY_CHARS = 4_000
"""Characters of a prompt that are used for the search."""
MAX_CANDIDATE_CHARS = 200


async def recall_for_prompt(agent: Agent, said: User) -> None:
    """Recall the memories that fit the user's prompt, and show each once to the model."""
    text = extract_text(said.content)[:MAX_QUERY_CHARS] if said.origin == "human" else ""
    if (
        agent.memory.memories is None
        or agent.team.birth
        or not agent.memory.recall
        or not text.strip()
    ):
        return
    try:
        note = await _build_recall_note(agent, agent.memory.memories, text)
    except (OSError, UserError) as error:
        agent.session.emit(UserWarned(f"Memory recall failed: {error}"))
        return
    if note:
        agent.session.append(User((Text(note),), origin="note"))


async def _build_recall_note(agent: Agent, memories: MemoryStore, text: str) -> str:
    """Search memories for a prompt and render those to recall; empty if none fit."""
    search = partial(memories.search, text, limit=MAX_RECALL_CANDIDATES)
    found = await anyio.to_thread.run_sync(search)
    items = agent.session.view.items
    fresh = filter_useful(filter_unshown(found, items), items)
    if len(fresh) > MAX_RECALLED_MEMORIES:
        fresh = await anyio.to_thread.run_sync(memories.put_idle_last, fresh)
    chosen = (
        await _pick_with_small_model(agent, text, fresh)
        if len(fresh) > MAX_RECALLED_MEMORIES
        else fresh
    )
    if not chosen:
        return ""
    note = render_recalled(*await anyio.to_thread.run_sync(_reverify_memories, memories, chosen))
    await anyio.to_thread.run_sync(memories.count_recalls, find_shown_names(note))
    return note


async def count_used_memories(agent: Agent) -> None:
    """Count the recalled memories that the turn's replies and calls made use of."""
    memories, items = agent.memory.memories, agent.session.view.items
    if memories is None or agent.team.birth or not agent.memory.recall:
        return
    if used := find_used_names(items[-MAX_USE_ITEMS:]):
        with suppress(OSError, UserError):  # a count that is lost changes no answer
            await anyio.to_thread.run_sync(memories.count_uses, used)


def _reverify_memories(
    memories: MemoryStore, chosen: Iterable[Memory]
) -> tuple[list[Memory], dict[str, tuple[str, ...]]]:
    """Renew recalled memories that their files support; return others' changed files."""
    checked = [memories.reverify(memory) or memory for memory in chosen]
    return checked, {digest_memory(memory): memories.find_stale_files(memory) for memory in checked}


async def memory_index_note(agent: Agent) -> str:
    """Return the note about the memory index, or about its changes; empty if none is due."""
    if agent.memory.memories is None or agent.team.birth or not agent.memory.recall:
        return ""
    try:
        index = await anyio.to_thread.run_sync(agent.memory.memories.index)
    except (OSError, UserError) as error:
        agent.session.emit(UserWarned(f"Memory could not be read: {error}"))
        return ""
    return render_memory_index(index, agent.session.view.items)


async def _pick_with_small_model(
    agent: Agent, text: str, fresh: tuple[Memory, ...]
) -> tuple[Memory, ...]:
    """Let a small model choose memories to recall; else take the best matches."""
    small, reply = agent.models.small(), None
    if small is not None:
        with anyio.move_on_after(RECALL_CHOICE_SECONDS):
            asked = msgspec.structs.replace(agent, model=small.model)
            reply = await ask_quietly(
                asked, _build_recall_question(agent, small, text, fresh), what="recall"
            )
    numbers = _parse_numbers(extract_text(reply.content)) if reply else None
    if numbers is None:
        return fresh[:MAX_RECALLED_MEMORIES]
    picked = dict.fromkeys(number for number in numbers if 1 <= number <= len(fresh))
    return tuple(fresh[number - 1] for number in picked)[:MAX_RECALLED_MEMORIES]


def _build_recall_question(
    agent: Agent, small: SmallModel, text: str, fresh: tuple[Memory, ...]
) -> View:
    """Build the request in which a small model chooses among memories."""
    lines = (
        f"{n}. {escape_line(m.description[:MAX_CANDIDATE_CHARS])}" for n, m in enumerate(fresh, 1)
    )
    asked = "\n".join(
        (f"<message>\n{escape_line(text)}\n</message>", "<notes>", *lines, "</notes>")
    )
    head = Epoch(small.card, RECALL_PROMPT_FILE.read_text("utf-8").strip())
    at = agent.runtime.clock()
    return project_view([Entry(1, at, head), Entry(2, at, User((Text(asked),)))])


def _parse_numbers(reply: str) -> list[int] | None:
    """Parse a small model's choice of memories to recall; None if it is invalid."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        return msgspec.json.decode(reply[start : end + 1], type=list[int])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
