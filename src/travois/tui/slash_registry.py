"""All commands, in the order in which they are listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from travois.tui import beside, memory, program, rights, sessions, window
from travois.tui import slash_commands as talking
from travois.tui.slash import Command, Desk

LEFT = 24


async def _help(desk: Desk, _: str) -> str:
    return "\n".join(_listed(desk.commands))


GROUPS: dict[str, Mapping[str, Command]] = {
    "Conversation": talking.COMMANDS,
    "Sessions": sessions.COMMANDS,
    "Window and cost": window.COMMANDS,
    "Memory": memory.COMMANDS,
    "Rights": rights.COMMANDS,
    "Beside": beside.COMMANDS,
    "Program": program.COMMANDS | {"help": Command("/help", "this list", _help, when="ever")},
}
COMMANDS = {name: one for group in GROUPS.values() for name, one in group.items()}


def _listed(known: Mapping[str, Command]) -> Iterator[str]:
    own = {name: one for name, one in known.items() if name not in COMMANDS}
    for title, group in (*GROUPS.items(), ("Yours", own)):
        if group:
            yield title
            yield from (f"  {one.usage:<{LEFT}} {one.what}" for one in group.values())
    yield "Also: !COMMAND runs it, #TEXT is remembered, @FILE shows it to the model."
