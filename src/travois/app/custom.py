"""Using the commands of the user's own."""

from __future__ import annotations

import os

from travois.app.sdk import Session
from travois.context.custom import Custom, Part, filled
from travois.engine.tool import Refusal
from travois.engine.unasked import unasked
from travois.kernel.blocks import words
from travois.kernel.faults import Fault


async def expanded(session: Session, custom: Custom, typed: str) -> str:
    """The prompt that a command stands for; raises `Fault` if what it runs may not or fails."""
    agent = session.crew.agent
    root = agent.world.root
    variables = {
        "CLAUDE_SESSION_ID": session.id,
        "CLAUDE_PROJECT_DIR": root,
        "CLAUDE_SKILL_DIR": os.path.dirname(custom.origin),
    }
    parts = [await _told(session, part, custom) for part in filled(custom, typed, variables)]
    return "".join(parts).strip()


async def _told(session: Session, part: Part, custom: Custom) -> str:
    agent = session.crew.agent
    try:
        match part.kind:
            case "text":
                return part.text
            case "command":
                outcome = await unasked(agent, "Bash", {"command": part.text.strip()})
                return words(outcome.content).strip()
            case "file":
                outcome = await unasked(agent, "Read", {"file_path": part.text})
                return f"{part.text}:\n{words(outcome.content)}\n"
    except Refusal as refusal:
        if part.kind == "file":
            return f"@{part.text}"
        raise Fault(
            f"/{custom.name} was not run",
            why=f"`{part.text.strip()}` in {custom.origin}: {refusal}",
            fix="Allow the command with a rule, or take it out of the file.",
            code=1,
        ) from None
