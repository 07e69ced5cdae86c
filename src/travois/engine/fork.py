"""A fork: one question to the model that shares the conversation's cache and leaves it as it is."""

from __future__ import annotations

from travois.engine.agent import Agent
from travois.kernel.blocks import Text, words
from travois.kernel.facts import Entry, Finished, Spawned, User
from travois.kernel.legal import unsendable
from travois.kernel.models import Usage
from travois.kernel.view import View, project
from travois.wire.pieces import PrefixBreak
from travois.wire.replies import Problem, Reply


async def inquire(agent: Agent, instruction: str, *, what: str) -> str:
    """The model's words on the conversation so far; empty if there are none, whatever the reason.

    The request is the conversation's own pieces and then the instruction, so it reads its cache.
    Calls that the reply asks for are not run.
    """
    session = agent.session
    entries = session.history()
    last = entries[-1]
    asked = Entry(last.seq + 1, last.at, User((Text(instruction),), origin="note"))
    view = project([*entries, asked])
    if unsendable(view):
        return ""
    id = f"fork-{last.seq}"
    session.append(Spawned(id, "fork", what))
    usage, text, outcome = Usage(), "", "stopped"
    try:
        reply = await _reply(agent, view)
        usage, text = reply.usage, words(reply.content).strip()
        outcome = "done" if text else "said nothing"
    except (Problem, PrefixBreak) as problem:
        outcome = str(problem)
    finally:
        session.append(Finished(id, outcome, usage))
    return text


async def _reply(agent: Agent, view: View) -> Reply:
    async with agent.model.stream(agent.encoder.fork().request(view)) as stream:
        async for event in stream:
            if isinstance(event, Reply):
                return event
    raise Problem("garbled", "the stream ended without a reply")
