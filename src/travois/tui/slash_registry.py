"""All slash commands, in the order of /help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from travois.tui import slash_commands
from travois.tui.slash import CommandHost, SlashCommand

USAGE_COLUMNS = 24


async def _run_help_command(desk: CommandHost, _: str) -> str:
    return "\n".join(_render_help(desk.commands))


COMMAND_GROUPS: dict[str, Mapping[str, SlashCommand]] = {
    "Conversation": slash_commands.TALK_COMMANDS,
    "Sessions": slash_commands.SESSION_COMMANDS,
    "Context and cost": slash_commands.WINDOW_COMMANDS,
    "Memory": slash_commands.MEMORY_COMMANDS,
    "Permissions": slash_commands.PERMISSION_COMMANDS,
    "Background": slash_commands.SIDE_COMMANDS,
    "General": slash_commands.PROGRAM_COMMANDS
    | {"help": SlashCommand("/help", "show this list", _run_help_command, when="ever")},
}
SLASH_COMMANDS = {name: one for group in COMMAND_GROUPS.values() for name, one in group.items()}


def _render_help(known: Mapping[str, SlashCommand]) -> Iterator[str]:
    """Yield the lines of /help."""
    own = {name: one for name, one in known.items() if name not in SLASH_COMMANDS}
    for title, group in (*COMMAND_GROUPS.items(), ("Custom commands", own)):
        if group:
            yield title
            yield from (f"  {one.usage:<{USAGE_COLUMNS}} {one.what}" for one in group.values())
    yield "Also: !COMMAND runs a shell command, #TEXT adds a memory, @FILE attaches a file."
