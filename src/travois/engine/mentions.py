"""Mentions in a prompt: @file and @server:uri, read and shown with the prompt.

What a server has is read since the person wants it: only a rule stands against that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from travois.core.content import Text, words
from travois.core.facts import User
from travois.core.tokens import estimate
from travois.engine.agent import Agent
from travois.ports.tool import Outcome, Refusal
from travois.ports.world import digest
from travois.prompt.environment import plain

if TYPE_CHECKING:
    from travois.engine.permission_gate import Word

MENTION = re.compile(r'(?<![\w@])@(?:"([^"\n]+)"|((?>[\w./~+-]*\w))(?!:\S))')
RESOURCE = re.compile(r"(?<![\w@])@([\w.-]+):(\S*[^\s.,;:!?)\]}'\"])")
WORD: dict[str, Word] = {"Read": "rules", "ReadMcpResource": "person"}
MOST = 10
"""The most mentions of one prompt that are read."""
TOKENS = 8_000
"""A longer file is shown only by its beginning."""


async def mentioned(agent: Agent, prompt: str) -> tuple[User, ...]:
    """Return a note for each mentioned file or resource that may be read."""
    notes: list[User] = []
    for name, tool, args in _wanted(prompt):
        if len(notes) == MOST:
            break
        from travois.engine.tool_calls import unasked

        try:
            outcome = await unasked(agent, tool, args, by=WORD[tool])
        except Refusal:
            continue
        notes.append(note(name, outcome, tool=tool))
    return tuple(notes)


def _wanted(prompt: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield each mention with the tool call that reads it."""
    for path in dict.fromkeys(_paths(prompt)):
        yield path, "Read", {"file_path": path}
    for server, uri in dict.fromkeys(found.groups() for found in RESOURCE.finditer(prompt)):
        yield f"{server}:{uri}", "ReadMcpResource", {"server": server, "uri": uri}


def _paths(prompt: str) -> Iterator[str]:
    return (found[1] or found[2] for found in MENTION.finditer(prompt))


def note(path: str, outcome: Outcome, *, tool: str = "Read") -> User:
    """Build the note with the mentioned content; long content is truncated."""
    text = words(outcome.content)
    shown = text[: TOKENS * 3] if estimate(text) > TOKENS else text
    rest = "" if shown == text else f"\n[Truncated: {tool} shows the rest.]"
    media = (block for block in outcome.content if not isinstance(block, Text))
    name, mark = plain(path).replace('"', ""), digest(text.encode(errors="replace"))[:16]
    opening, closing = f'<mentioned file="{name}" digest="{mark}">', f"</mentioned {mark}>"
    return User((Text(f"{opening}\n{shown}{rest}\n{closing}"), *media), origin="note")
