"""Commands where there are only lines: choices are made by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from travois.app.options import Options
from travois.app.sdk import Session
from travois.app.slash.catalogue import COMMANDS
from travois.app.slash.command import Command
from travois.app.trusting import Reader
from travois.kernel.faults import Fault


class Lines:
    """A desk of lines: what cannot be done with them is said."""

    def __init__(self, session: Session, options: Options, reader: Reader) -> None:
        self.session = session
        self.options = options
        self.left = False
        """Whether the person wants to leave."""
        self._reader = reader

    @property
    def commands(self) -> Mapping[str, Command]:
        """All commands."""
        return COMMANDS

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
        """Leave; another conversation needs another start."""
        if options is not None:
            raise Fault("This conversation cannot be left for another one here", fix="Start again.")
        self.left = True

    def dress(self, theme: str) -> None:
        """There are no colours."""
        raise Fault("There are no colours here", why="only lines are shown")
