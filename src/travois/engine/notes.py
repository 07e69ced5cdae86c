"""Keeping notes beside the conversation, one update at a time."""

from __future__ import annotations

from pathlib import Path

import msgspec

from travois.context.notes import Progress, blank, due, fitted, request
from travois.engine.agent import Agent
from travois.kernel.blocks import calls
from travois.kernel.facts import Assistant, Noted
from travois.kernel.tokens import context_tokens
from travois.kernel.view import View

PROMPTS = Path(__file__).parent.parent / "context" / "prompts"


class Notes(msgspec.Struct, frozen=True):
    """What was noted, and how large the conversation was then."""

    size: int
    text: str


def keep_notes(agent: Agent) -> None:
    """Bring the notes up to date in the background, if they should be."""
    session = agent.session
    if not agent.layers.notes or agent.background is None or "notes" in _underway(agent):
        return
    held = notes(agent)
    size = context_tokens(session.view)
    since = held.size if held.size <= size else 0  # a compaction has begun a new count
    asked, paused = _asked(session.view)
    if not due(Progress(size, since, asked, paused)):
        return

    async def update() -> None:
        from travois.engine.fork import inquire

        text = await inquire(agent, _request(agent, held.text), what="notes")
        if text and not blank(text, template=template(agent)):
            agent.world.spill("notes", text.encode(errors="replace"))
            noted = msgspec.json.encode(Notes(size, text)).decode()
            session.append(Noted("notes", noted))

    agent.background(update)


def notes(agent: Agent) -> Notes:
    """The notes as they stand; empty if there are none."""
    text = agent.session.notes
    return msgspec.json.decode(text, type=Notes) if text else Notes(0, "")


def shown(agent: Agent) -> str:
    """What a compaction takes of them, without asking anybody."""
    held = notes(agent).text
    return fitted(held, path=f"{agent.world.kept}/notes.txt") if held else ""


def template(agent: Agent) -> str:
    """The sections that notes have: the user's own, or ours."""
    return _own(agent.layers.notes_template) or (PROMPTS / "notes.md").read_text("utf-8")


def _request(agent: Agent, held: str) -> str:
    asking = _own(agent.layers.notes_prompt) or (PROMPTS / "notes-update.md").read_text("utf-8")
    return request(held, template=template(agent), instructions=asking)


def _own(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8") if path else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _underway(agent: Agent) -> set[str]:
    return {child.what for child in agent.session.running.values() if child.kind == "fork"}


def _asked(view: View) -> tuple[int, bool]:
    """How many calls stand in the view, and whether the last reply made none."""
    replies = [item.fact for item in view.items if isinstance(item.fact, Assistant)]
    asked = sum(len(calls(reply.content)) for reply in replies)
    return asked, bool(replies) and not calls(replies[-1].content)
