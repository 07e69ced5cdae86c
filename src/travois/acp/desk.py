"""Commands that are typed in an editor: ours that make sense there, and the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from travois.acp.calls import fenced
from travois.compose import commands as custom
from travois.compose import mcp as lending
from travois.compose.options import Options
from travois.compose.session_picker import Shelf
from travois.core.content import Shown
from travois.core.errors import Fault
from travois.headless.json_shapes import Json, Object
from travois.sdk import Session, typed
from travois.sessions.catalog import Summary
from travois.tui import own
from travois.tui.slash import Command, Prompt, named, obey
from travois.tui.slash_registry import COMMANDS

OURS = (
    *("compact", "context", "notes", "cost", "todos", "memory", "agents", "tasks", "mcp", "skills"),
    *("hooks", "config", "rename", "inspect"),
)
"""What stands neither in the editor's own menus, nor in the way of what it shows."""
COLUMNS = 100


class Desk:
    """Where commands are typed: in the editor's own prompt."""

    def __init__(self, session: Session, options: Options) -> None:
        self.session = session
        self.options = options
        self.columns = COLUMNS
        ours = {name: COMMANDS[name] for name in OURS}
        known, self.notices = custom.known(options, taken=ours)
        self.commands: Mapping[str, Command] = {**ours, **own.commands(known)}

    async def obeyed(self, content: tuple[Shown, ...]) -> str | tuple[Shown, ...]:
        """The answer to a command, or what is to be said to the model."""
        line = typed(content)
        if named(self, line) is None and not line.startswith(f"/{custom.LENT}"):
            return content
        match await obey(self, line):
            case Prompt(content=said):
                return (*content[:-1], *said)
            case str(answer):
                return fenced(answer) if "\n" in answer else answer
            case None:
                return content

    def listed(self) -> Object:
        """All commands, as the editor offers them."""
        commands: list[Json] = [
            _offer(name, one.what, one.usage.partition(" ")[2])
            for name, one in self.commands.items()
        ]
        prompts = lending.prompts(self.session.crew.loan).items()
        commands += (
            _offer(name, f"a prompt of {lender.server.name}", " ".join(prompt.fields))
            for name, (lender, prompt) in prompts
        )
        return {"sessionUpdate": "available_commands_update", "availableCommands": commands}

    # --- what commands may want of a desk ---------------------------------------------------------

    async def pick(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """None of our commands that are offered here wants it."""
        return None

    async def browse(self, shelf: Shelf) -> Summary | None:
        """The editor has a list of sessions itself."""
        return None

    def type(self, text: str) -> None:
        """What stands in the editor's prompt is its own."""

    def turn_to(self, options: Options | None) -> None:
        """The editor opens conversations itself."""
        raise Fault("This conversation is the editor's", fix="Open another one there.")

    def dress(self, theme: str) -> None:
        """The editor has its own colours."""
        raise Fault("The editor has its own colours")


def _offer(name: str, what: str, hint: str) -> Json:
    told: Object = {"name": name, "description": what}
    return {**told, "input": {"hint": hint}} if hint else told
