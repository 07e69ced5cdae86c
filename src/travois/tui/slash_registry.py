"""All slash commands, in the order of /help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from travois.tui import slash_commands
from travois.tui.slash import Command, Desk

LEFT = 24


async def _help(desk: Desk, _: str) -> str:
    return "\n".join(_listed(desk.commands))


GROUPS: dict[str, Mapping[str, Command]] = {
    "Conversation": slash_commands.TALK_COMMANDS,
    "Sessions": slash_commands.SESSION_COMMANDS,
    "Context and cost": slash_commands.WINDOW_COMMANDS,
    "Memory": slash_commands.MEMORY_COMMANDS,
    "Permissions": slash_commands.PERMISSION_COMMANDS,
    "Background": slash_commands.SIDE_COMMANDS,
    "General": slash_commands.PROGRAM_COMMANDS
    | {"help": Command("/help", "show this list", _help, when="ever")},
}
COMMANDS = {name: one for group in GROUPS.values() for name, one in group.items()}


def _listed(known: Mapping[str, Command]) -> Iterator[str]:
    """Yield the lines of /help."""
    own = {name: one for name, one in known.items() if name not in COMMANDS}
    for title, group in (*GROUPS.items(), ("Custom commands", own)):
        if group:
            yield title
            yield from (f"  {one.usage:<{LEFT}} {one.what}" for one in group.values())
    yield "Also: !COMMAND runs a shell command, #TEXT adds a memory, @FILE attaches a file."
