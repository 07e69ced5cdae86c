"""/compact, /context, /notes and /cost: what is in the window, and what it costs."""

from __future__ import annotations

import re
import time

from travois.core.content import words
from travois.core.errors import Fault
from travois.core.facts import User
from travois.tui.slash import Command, Desk

SHOWN = 100
"""How many messages are offered at most."""
FROM, UP_TO, PICK = "from", "up-to", "pick"
PARTS = (
    ("everything but the newest messages", "as when it starts by itself"),
    ("from a message on", "what stands before it stays as it is, and so does its cache"),
    ("up to a message", "what comes after it stays as it is"),
)


CHOSEN = re.compile(r"(from|up-to)(?:\s+(\d+)(?:\s+(.*))?)?", re.DOTALL)


async def _compact(desk: Desk, typed: str) -> str:
    """Compact all, or what stands on one side of a message that is named or picked."""
    from travois.context.compaction.compact import receipt

    if typed == PICK:
        part = await desk.pick("What is to be set aside?", PARTS)
        if part is None:
            return ""
        typed = ("", FROM, UP_TO)[part]
    chosen = CHOSEN.fullmatch(typed)
    if chosen is None:
        return receipt(await desk.session.compact(typed))
    entry = int(chosen[2]) if chosen[2] else await _picked(desk, chosen[1])
    if entry is None:
        return ""
    first, last = (entry, 0) if chosen[1] == FROM else (0, entry)
    return receipt(await desk.session.compact(chosen[3] or "", first=first, last=last))


async def _picked(desk: Desk, side: str) -> int | None:
    """Let the person pick one of their messages; the newest is pointed at first."""
    items = desk.session.crew.agent.session.view.items
    said = [
        (item.seq, " ".join(words(item.fact.content).split())[:200])
        for item in items
        if isinstance(item.fact, User) and item.fact.origin == "human"
    ][::-1][:SHOWN]
    if not said:
        raise Fault("There is no message to choose", why="nothing that you said is in the window")
    title = "Set aside from which message on?" if side == FROM else "Set aside up to which message?"
    picked = await desk.pick(title, [(text, "") for _, text in said])
    return None if picked is None else said[picked][0]


async def _context(desk: Desk, _: str) -> str:
    from travois.cli.context import line

    agent = desk.session.crew.agent
    return line(agent.session, agent.layers)


async def _notes(desk: Desk, _: str) -> str:
    from travois.cli.context import told, versions

    return told(versions(desk.session.crew.agent.session.record()))


async def _cost(desk: Desk, _: str) -> str:
    from travois.cli.context import bill, render_bill

    return render_bill(bill(desk.session.crew.agent.session.record()), time.time())


COMMANDS = {
    "compact": Command(
        "/compact [FOCUS | from [N] | up-to [N] | pick]",
        "set the older conversation aside, or what is on one side of a message",
        _compact,
        lambda desk: (FROM, UP_TO, PICK),
        when="long",
    ),
    "context": Command("/context", "what is in the window", _context, when="ever"),
    "notes": Command(
        "/notes", "the notes that the model keeps on the session", _notes, when="ever"
    ),
    "cost": Command(
        "/cost", "what the session cost, and what its cache missed", _cost, when="ever"
    ),
}
