"""The say of hooks before a call runs: they may deny it, ask, grant, or change what it does.

Whatever they change is validated and judged as a call of its own; no rule gives way to them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from travois.core.content import Call
from travois.core.facts import Decided, Noted
from travois.engine.permission_gate import Ready, Ruling, decide, use, walls
from travois.hooks.fire import before
from travois.permissions.decide import judge
from travois.ports.agent import Agent

Understand = Callable[[Agent, Call], Ready | str]
"""What a call comes to, or why it cannot run."""


async def ruled(agent: Agent, ready: Ready, understand: Understand) -> tuple[Ready, Ruling]:
    """The ruling on a call, and the call as hooks have left it."""
    wanted = use(agent, ready)
    if judge(agent.guard, wanted).effect == "deny":
        return ready, await decide(agent, ready)
    heard = await before(agent, ready.call, wanted)
    if why := heard.block or heard.stop:
        return ready, _no(ready, why)
    if heard.input:
        changed = _changed(agent, ready, heard.input, understand)
        if isinstance(changed, str):
            return ready, _no(ready, changed)
        ready = changed
    return amended(agent, ready, await decide(agent, ready, heard), understand)


def amended(
    agent: Agent, ready: Ready, ruling: Ruling, understand: Understand
) -> tuple[Ready, Ruling]:
    """The call with the input that came with a permission, if one did."""
    if not ruling.input or ruling.decided.verdict == "deny":
        return ready, ruling
    changed = _changed(agent, ready, ruling.input, understand)
    if isinstance(changed, str):
        return ready, _no(ready, changed)
    wanted = use(agent, changed)
    verdict = judge(agent.guard, wanted)
    if verdict.effect == "deny":
        return ready, _no(ready, verdict.because)
    return changed, replace(ruling, input="", cage=walls(agent, wanted))


def _changed(agent: Agent, ready: Ready, text: str, understand: Understand) -> Ready | str:
    """The call with another input, which is a fact."""
    call = replace(ready.call, args=text)
    fact = {"call": call.id, "before": ready.call.args, "after": text}
    agent.session.append(Noted("hook changed input", msgspec.json.encode(fact).decode()))
    found = understand(agent, call)
    return f"a hook changed its input, and then {found}" if isinstance(found, str) else found


def _no(ready: Ready, why: str) -> Ruling:
    return Ruling(Decided(ready.call.id, "deny", why, by="hook"))
