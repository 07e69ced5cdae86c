"""All commands, in the order in which they are listed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from travois.tui import slash_commands
from travois.tui import slash_commands as talking
from travois.tui.slash import Command, Desk

LEFT = 24


async def _help(desk: Desk, _: str) -> str:
    return "\n".join(_listed(desk.commands))


GROUPS: dict[str, Mapping[str, Command]] = {
    "Conversation": talking.TALK_COMMANDS,
    "Sessions": slash_commands.SESSION_COMMANDS,
    "Window and cost": slash_commands.WINDOW_COMMANDS,
    "Memory": slash_commands.MEMORY_COMMANDS,
    "Rights": slash_commands.PERMISSION_COMMANDS,
    "Beside": slash_commands.SIDE_COMMANDS,
    "Program": slash_commands.PROGRAM_COMMANDS
    | {"help": Command("/help", "this list", _help, when="ever")},
}
COMMANDS = {name: one for group in GROUPS.values() for name, one in group.items()}


def _listed(known: Mapping[str, Command]) -> Iterator[str]:
    own = {name: one for name, one in known.items() if name not in COMMANDS}
    for title, group in (*GROUPS.items(), ("Yours", own)):
        if group:
            yield title
            yield from (f"  {one.usage:<{LEFT}} {one.what}" for one in group.values())
    yield "Also: !COMMAND runs it, #TEXT is remembered, @FILE shows it to the model."
