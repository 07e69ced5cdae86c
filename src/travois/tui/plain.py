"""Commands where there are only lines: choices are made by number."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import anyio

from travois.cli.trust_prompt import Reader
from travois.compose import commands as custom
from travois.compose.options import Options
from travois.compose.session_picker import Shelf
from travois.core.errors import Fault
from travois.core.facts import User
from travois.sdk import Session
from travois.sessions.catalog import Summary
from travois.terminal.tables import ago, clean
from travois.tui import own
from travois.tui.slash import Command
from travois.tui.slash_registry import COMMANDS

SHOWN = 20
"""How many sessions are listed."""


async def browse(reader: Reader, shelf: Shelf) -> Summary | None:
    """Ask for a session: its number, or words to find it by."""
    text, everywhere = "", False
    while True:
        found = shelf.found(text, everywhere=everywhere)
        reader.line(f"{len(found):,} sessions {'of all projects' if everywhere else 'here'}:")
        for number, one in enumerate(found[:SHOWN], 1):
            reader.line(f"  {number}. {clean(one.title, lines='show')}  {_when(one)}")
        typed = (
            await reader.read("Number, words to find it by, * for all projects: ") or ""
        ).strip()
        if not typed:
            return None
        if typed.isdecimal() and 0 < int(typed) <= len(found[:SHOWN]):
            return found[int(typed) - 1]
        everywhere = everywhere or typed.startswith("*")
        text = typed.lstrip("* ")


def _when(one: Summary) -> str:
    return f"({ago(time.time() - one.updated)}, {clean(one.cwd, lines='show')})"


class Lines:
    """A desk of lines: what cannot be done with them is said."""

    def __init__(self, session: Session, options: Options, reader: Reader) -> None:
        self.session = session
        self.options = options
        self.left = False
        """Whether the person wants to leave."""
        self.next: Options | None = None
        """The conversation to turn to when this one is left."""
        self.errand: anyio.CancelScope | None = None
        """A command of theirs that runs."""
        self.notes: list[User] = []
        """What the model is to know with the next prompt."""
        self._reader = reader
        known, self.notices = custom.known(options, taken=COMMANDS)
        self._own = own.commands(known)

    @property
    def commands(self) -> Mapping[str, Command]:
        """All commands."""
        return {**COMMANDS, **self._own}

    @property
    def columns(self) -> int:
        """How wide an answer may be."""
        from shutil import get_terminal_size

        return get_terminal_size().columns

    async def browse(self, shelf: Shelf) -> Summary | None:
        """Ask for a session."""
        return await browse(self._reader, shelf)

    async def pick(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Ask for a number."""
        self._reader.line(title)
        for number, (text, remark) in enumerate(options, 1):
            self._reader.line(f"  {number}. {text}{f': {remark}' if remark else ''}")
        typed = (await self._reader.read("Number: ") or "").strip()
        found = int(typed) if typed.isdecimal() else 0
        return found - 1 if 0 < found <= len(options) else None

    def type(self, text: str) -> None:
        """Show what could be typed again."""
        self._reader.line(f"It was: {text}")

    def turn_to(self, options: Options | None) -> None:
        """Leave, for another conversation or for good."""
        self.left, self.next = True, options

    def dress(self, theme: str) -> None:
        """There are no colours."""
        raise Fault("There are no colours here", why="only lines are shown")
