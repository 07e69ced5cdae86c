"""Files that a person mentions with an @: the model sees them with the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator

from travois.context.sources import plain
from travois.engine.agent import Agent
from travois.engine.ports import digest
from travois.engine.tool import Outcome, Refusal
from travois.engine.unasked import unasked
from travois.kernel.blocks import Text, words
from travois.kernel.facts import User
from travois.kernel.tokens import estimate

MENTION = re.compile(r'(?<![\w@])@(?:"([^"\n]+)"|([\w./~+-]*\w))')
MOST, TOKENS = 10, 8_000
"""How many files of one prompt are shown, and how much of each."""


async def mentioned(agent: Agent, prompt: str) -> tuple[User, ...]:
    """A note for each file that a prompt mentions and that may be read; others are just words."""
    notes: list[User] = []
    for path in dict.fromkeys(_paths(prompt)):
        if len(notes) == MOST:
            break
        try:
            outcome = await unasked(agent, "Read", {"file_path": path})
        except Refusal:
            continue
        notes.append(note(path, outcome))
    return tuple(notes)


def _paths(prompt: str) -> Iterator[str]:
    return (found[1] or found[2] for found in MENTION.finditer(prompt))


def note(path: str, outcome: Outcome) -> User:
    """The file with its name; a long one only by its beginning. It cannot hold its own end."""
    text = words(outcome.content)
    shown = text[: TOKENS * 3] if estimate(text) > TOKENS else text
    rest = "" if shown == text else "\n[There is more: Read shows it.]"
    media = (block for block in outcome.content if not isinstance(block, Text))
    name, mark = plain(path).replace('"', ""), digest(text.encode(errors="replace"))[:16]
    opening, closing = f'<mentioned file="{name}" digest="{mark}">', f"</mentioned {mark}>"
    return User((Text(f"{opening}\n{shown}{rest}\n{closing}"), *media), origin="note")
