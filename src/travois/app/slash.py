"""What can be typed at the prompt besides prompts: a word after a slash."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable

import msgspec

from travois.app.sdk import Session
from travois.kernel.faults import Fault

WORD = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)


class Command(msgspec.Struct, frozen=True):
    """One command: how it is written, what it does, and who does it."""

    usage: str
    what: str
    run: Callable[[Session, str], Awaitable[str]]


async def obey(session: Session, line: str) -> str | None:
    """Do what a line says and give the answer; none if it is a prompt."""
    found = WORD.fullmatch(line.strip())
    if found is None:
        return None
    known = COMMANDS.get(found[1])
    if known is None:
        return f"There is no command /{found[1]}; /help lists those that there are."
    try:
        return await known.run(session, (found[2] or "").strip())
    except Fault as fault:
        return str(fault)


async def _compact(session: Session, focus: str) -> str:
    from travois.engine.compaction import receipt

    return receipt(await session.compact(focus))


async def _context(session: Session, _: str) -> str:
    from travois.app.commands.context import line

    agent = session.crew.agent
    return line(agent.session, agent.layers)


async def _cost(session: Session, _: str) -> str:
    from travois.app.commands.cost import bill, told

    return told(bill(session.crew.agent.session.record()), time.time())


async def _model(session: Session, name: str) -> str:
    if name:
        session.switch(name)
    return f"The model is {session.crew.model.name}."


async def _help(session: Session, _: str) -> str:
    return "\n".join(f"{one.usage:<18} {one.what}" for one in COMMANDS.values())


COMMANDS = {
    "compact": Command("/compact [FOCUS]", "set the older conversation aside", _compact),
    "context": Command("/context", "what is in the window", _context),
    "cost": Command("/cost", "what the session cost, and what its cache missed", _cost),
    "model": Command("/model [NAME]", "go on with another model", _model),
    "help": Command("/help", "this list", _help),
}
