"""Mentions in a prompt: @file and @server:uri, read and attached to the prompt.

Since the user asked for them, resources of MCP servers are read unless a rule denies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from travois.core.content import Text, extract_text
from travois.core.facts import User
from travois.core.patterns import compile_lazily
from travois.core.tokens import estimate_tokens
from travois.engine.agent import Agent
from travois.lazy_imports import lazy_imports
from travois.ports.tool import ToolError, ToolOutcome
from travois.ports.world import content_digest
from travois.prompt.environment import escape_line

if TYPE_CHECKING:
    from travois.engine.permission_gate import ApprovalSource

with lazy_imports():
    from travois.engine import tool_calls


FILE_MENTION = compile_lazily(r'(?<![\w@])@(?:"([^"\n]+)"|((?>[\w./~+-]*\w))(?!:\S))')
RESOURCE_MENTION = compile_lazily(r"(?<![\w@])@([\w.-]+):(\S*[^\s.,;:!?)\]}'\"])")
APPROVAL_BY_TOOL: dict[str, ApprovalSource] = {"Read": "rules", "ReadMcpResource": "person"}
MAX_MENTIONS = 10
"""The most mentions of one prompt that are read."""
MAX_MENTION_TOKENS = 8_000
"""A longer file is shown only by its beginning."""


async def read_mentions(agent: Agent, prompt: str) -> tuple[User, ...]:
    """Return a note for each @mentioned file or resource that may be read."""
    notes: list[User] = []
    for name, tool, args in _find_mentions(prompt):
        if len(notes) == MAX_MENTIONS:
            break
        try:
            outcome = await tool_calls.run_preapproved_tool(
                agent, tool, args, by=APPROVAL_BY_TOOL[tool]
            )
        except ToolError:
            continue
        notes.append(build_mention_note(name, outcome, tool=tool))
    return tuple(notes)


def _find_mentions(prompt: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield each @mention in a prompt with the tool call that reads it."""
    for path in dict.fromkeys(_find_mentioned_paths(prompt)):
        yield path, "Read", {"file_path": path}
    for server, uri in dict.fromkeys(found.groups() for found in RESOURCE_MENTION.finditer(prompt)):
        yield f"{server}:{uri}", "ReadMcpResource", {"server": server, "uri": uri}


def _find_mentioned_paths(prompt: str) -> Iterator[str]:
    return (found[1] or found[2] for found in FILE_MENTION.finditer(prompt))


def build_mention_note(path: str, outcome: ToolOutcome, *, tool: str = "Read") -> User:
    """Build the note with an @mention's content; long content is truncated."""
    text = extract_text(outcome.content)
    shown = text[: MAX_MENTION_TOKENS * 3] if estimate_tokens(text) > MAX_MENTION_TOKENS else text
    rest = "" if shown == text else f"\n[Truncated: {tool} shows the rest.]"
    media = (block for block in outcome.content if not isinstance(block, Text))
    name, mark = (
        escape_line(path).replace('"', ""),
        content_digest(text.encode(errors="replace"))[:16],
    )
    opening, closing = f'<mentioned file="{name}" digest="{mark}">', f"</mentioned {mark}>"
    return User((Text(f"{opening}\n{shown}{rest}\n{closing}"), *media), origin="note")
