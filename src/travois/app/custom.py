"""Using the commands of the user's own."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from travois.app.options import Options
from travois.app.sdk import Session
from travois.app.slash.command import WORD
from travois.context.custom import Custom, Part, filled
from travois.engine.tool import Refusal
from travois.engine.unasked import unasked
from travois.kernel.blocks import Shown, Text, words
from travois.kernel.faults import Fault

Known = tuple[dict[str, Custom], tuple[str, ...]]


def known(options: Options, *, taken: Collection[str] = ()) -> Known:
    """All commands of the user's own here by name, but those whose name is taken; and notices."""
    from travois.app.compose import prepare
    from travois.store.commands import commands

    place, _ = prepare(options)
    found, notices = commands(place.home, place.project.root, place.cwd)
    hidden = (
        f"/{name} of {found[name].origin} is left out: a command of ours is called so"
        for name in taken
        if name in found
    )
    return {n: one for n, one in found.items() if n not in taken}, (*notices, *hidden)


async def said(
    session: Session, known: Mapping[str, Custom], content: tuple[Shown, ...]
) -> tuple[Shown, ...]:
    """What is said; a command in place of its last words is what it stands for, then the words."""
    texts = [(at, block.text) for at, block in enumerate(content) if isinstance(block, Text)]
    at, line = texts[-1] if texts else (0, "")
    found = WORD.fullmatch(line.strip())
    if found is None or found[1] not in known:
        return content
    text = await expanded(session, known[found[1]], (found[2] or "").strip())
    return (*content[:at], Text(text), *content[at:])


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
