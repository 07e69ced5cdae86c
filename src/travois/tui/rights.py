"""/permissions and /hooks: what may happen, and what happens by itself."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from msgspec.structs import replace

from travois.core.errors import Fault
from travois.settings.sources import ANSWERS
from travois.terminal.tables import table
from travois.tui.program import told
from travois.tui.slash import Command, Desk

WORDS = ("why", "forget", "mode")


async def _permissions(desk: Desk, typed: str) -> str:
    from travois.cli import permissions

    word, _, rest = typed.partition(" ")
    guard, rest = desk.session.crew.agent.guard, rest.strip()
    match word:
        case "":
            bounds = desk.session.crew.agent.bounds
            origin = "your answer, or the settings" if bounds is not None and bounds.free else ""
            rules = permissions.listing(guard.rules, sandboxed=origin)
            return f"Mode {guard.mode}.\n\n{rules}"
        case "why":
            args = Namespace(
                text=rest, mode=guard.mode, tool="Bash", settings=desk.options.settings
            )
            return await told(desk, partial(permissions.run_why, args))
        case "forget":
            return await _forget(desk, rest)
        case "mode":
            desk.session.enter(rest)
            return f"The mode is {desk.session.crew.agent.guard.mode}."
        case _:
            fix = f"It knows: {', '.join(WORDS)}."
            raise Fault(f"/permissions does not know {word!r}", fix=fix)


async def _forget(desk: Desk, rule: str) -> str:
    """Drop an answer of the person's, for this session and those to come."""
    from travois.cli.permissions import SANDBOXED_COMMANDS, run_forget

    await told(desk, partial(run_forget, Namespace(rule=rule)))
    agent = desk.session.crew.agent
    if rule == SANDBOXED_COMMANDS and agent.bounds is not None:
        agent.bounds = replace(agent.bounds, free=False, offered=True)
    answers = {(rule, origin) for origin in (ANSWERS, "your answer")}
    left = (one for one in agent.guard.rules if (one.text, one.origin) not in answers)
    agent.guard = replace(agent.guard, rules=tuple(left))
    return f"{rule} is no longer allowed by an answer of yours."


async def _hooks(desk: Desk, _: str) -> str:
    from travois.compose import hooks as hooking
    from travois.compose.session import prepare

    hooks, notices = hooking.known(prepare(desk.options)[1])
    if not hooks and not notices:
        return "No hooks: nothing runs by itself here."
    rows = [(one.event, one.matcher or "*", one.origin, one.name) for one in hooks]
    return "\n".join((table([("EVENT", "FOR", "SAID BY", "RUNS"), *rows]), *notices))


COMMANDS = {
    "permissions": Command(
        "/permissions [WORD …]",
        "rules in force; why COMMAND, forget RULE, mode NAME",
        _permissions,
        lambda desk: WORDS,
        when="ever",
    ),
    "hooks": Command("/hooks", "what runs by itself, and who said so", _hooks, when="ever"),
}
