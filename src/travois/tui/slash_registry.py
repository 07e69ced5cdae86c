"""All slash commands, in the order of /help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from travois.tui.slash import CommandHost, SlashCommand
from travois.tui.slash_commands import (
    account,
    background,
    context,
    conversation,
    permissions,
    program,
    sessions,
    work,
)

USAGE_COLUMNS = 24


async def _run_help_command(host: CommandHost, _: str) -> str:
    return "\n".join(_render_help(host.commands))


COMMAND_GROUPS: dict[str, Mapping[str, SlashCommand]] = {
    "Conversation": conversation.TALK_COMMANDS,
    "Work": work.WORK_COMMANDS,
    "Sessions": sessions.SESSION_COMMANDS,
    "Context and cost": context.WINDOW_COMMANDS,
    "Memory": program.MEMORY_COMMANDS,
    "Permissions": permissions.PERMISSION_COMMANDS,
    "Background": background.SIDE_COMMANDS,
    "Keys and reports": account.ACCOUNT_COMMANDS,
    "General": program.PROGRAM_COMMANDS
    | {"help": SlashCommand("/help", "show this list", _run_help_command, when="ever")},
}
YIELDING_COMMANDS = ("init", "review")
"""They only say something to the model: a command of the user's own with that name comes first."""
SLASH_COMMANDS = {name: one for group in COMMAND_GROUPS.values() for name, one in group.items()}
RESERVED_NAMES = SLASH_COMMANDS.keys() - set(YIELDING_COMMANDS)
"""Names that no command of the user's own can have."""


def _render_help(known: Mapping[str, SlashCommand]) -> Iterator[str]:
    """Yield the lines of /help."""
    own = {name: one for name, one in known.items() if one is not SLASH_COMMANDS.get(name)}
    for title, group in (*COMMAND_GROUPS.items(), ("Custom commands", own)):
        shown = [one for name, one in group.items() if group is own or name not in own]
        if shown:
            yield title
            yield from (f"  {one.usage:<{USAGE_COLUMNS}} {one.what}" for one in shown)
    yield "Also: !COMMAND runs a shell command, #TEXT adds a memory, @FILE attaches a file."
