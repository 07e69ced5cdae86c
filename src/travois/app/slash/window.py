"""/compact, /context, /notes and /cost: what is in the window, and what it costs."""

from __future__ import annotations

import time

from travois.app.slash.command import Command, Desk


async def _compact(desk: Desk, focus: str) -> str:
    from travois.engine.compaction import receipt

    return receipt(await desk.session.compact(focus))


async def _context(desk: Desk, _: str) -> str:
    from travois.app.commands.context import line

    agent = desk.session.crew.agent
    return line(agent.session, agent.layers)


async def _notes(desk: Desk, _: str) -> str:
    from travois.app.commands.notes import told, versions

    return told(versions(desk.session.crew.agent.session.record()))


async def _cost(desk: Desk, _: str) -> str:
    from travois.app.commands.cost import bill, told

    return told(bill(desk.session.crew.agent.session.record()), time.time())


COMMANDS = {
    "compact": Command(
        "/compact [FOCUS]", "set the older conversation aside", _compact, when="long"
    ),
    "context": Command("/context", "what is in the window", _context, when="ever"),
    "notes": Command(
        "/notes", "the notes that the model keeps on the session", _notes, when="ever"
    ),
    "cost": Command(
        "/cost", "what the session cost, and what its cache missed", _cost, when="ever"
    ),
}
