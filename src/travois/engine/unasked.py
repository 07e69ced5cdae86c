"""Calls that a person's words bring with them: a file that they mention, a command of a command."""

from __future__ import annotations

import msgspec

from travois.core.content import Call, words
from travois.core.facts import Noted
from travois.engine.permission_gate import Word, granted
from travois.engine.tool_calls import Unfit, carry_out, understand
from travois.ports.agent import Agent
from travois.ports.tool import Outcome, Refusal

RAN = "ran"


async def unasked(agent: Agent, name: str, args: dict[str, str], *, by: Word = "rules") -> Outcome:
    """What a call brings that may run without a question; raises `Refusal` if it may not.

    It is on record, and no part of the conversation. `by` is whose word lets it run.
    """
    call = Call(f"unasked-{agent.session.seq}", name, msgspec.json.encode(args).decode())
    ready = understand(agent, call)
    if isinstance(ready, Unfit):
        raise Refusal(ready.why)
    ruling = granted(agent, ready, by=by)
    if ruling is None:
        raise Refusal(f"{ready.tool.summary(ready.args)} may not run without a question.")
    agent.session.append(Noted(RAN, f"{name} {call.args}"))
    outcome = await carry_out(agent, ready, ruling.cage)
    if outcome.error:
        raise Refusal(words(outcome.content).strip())
    for change in outcome.changes:
        agent.session.append(change)
    return outcome
