"""/memory, and a line that begins with #: what is remembered, without leaving the conversation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import anyio.to_thread

from travois.core.errors import Fault
from travois.tui.slash import Command, Desk

if TYPE_CHECKING:
    from travois.memory.store import FolderMemories

WORDS = ("search", "show", "add", "forget", "undo", "history", "inbox", "accept", "reject")


async def _memory(desk: Desk, typed: str) -> str:
    from travois.compose.memory import open_here
    from travois.compose.session import prepare

    place, loaded = prepare(desk.options)
    known = open_here(place.home, place.project, loaded)
    return await anyio.to_thread.run_sync(partial(_answer, known, typed, session=desk.session.id))


def _answer(memories: FolderMemories, typed: str, *, session: str) -> str:
    from travois.cli import memory as change
    from travois.cli import memory as told

    word, _, rest = typed.partition(" ")
    now, rest = time.time(), rest.strip()

    def rejected(id: str) -> str:
        memories.reject(id)
        return f"{id} is rejected, and will not be proposed again."

    answers: dict[str, Callable[[], str]] = {
        "": lambda: told.listing(memories, memories.all(), now=now),
        "search": lambda: told.listing(memories, memories.search(rest, limit=10), now=now),
        "show": lambda: told.whole(memories, memories.get(rest), now=now),
        "add": lambda: change.render_change(change.keep(memories, rest, session=session)),
        "forget": lambda: change.render_change(memories.forget(rest)),
        "undo": lambda: change.render_change(memories.undo(rest)),
        "history": lambda: told.changes(memories.history(), now=now),
        "inbox": lambda: told.proposals(memories.inbox(), now=now),
        "accept": lambda: change.render_change(memories.accept(rest)),
        "reject": lambda: rejected(rest),
    }
    if word not in answers:
        raise Fault(f"/memory does not know {word!r}", fix=f"It knows: {', '.join(WORDS)}.")
    return answers[word]().replace("travois memory", "/memory")


COMMANDS = {
    "memory": Command(
        "/memory [WORD …]",
        "what is remembered; #TEXT adds to it",
        _memory,
        lambda desk: WORDS,
        when="ever",
    )
}
