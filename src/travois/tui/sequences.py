"""Escape sequences that arrive in pieces, as over a slow connection, are still one key."""

from __future__ import annotations

import re

from prompt_toolkit.input.base import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser

UNFINISHED = re.compile(r"\x1b\[[0-9;?<>=]*\Z")
LONGEST_SEQUENCE = 32
PASTE = "[200~"


class WholeSequences(Vt100Parser):
    """A parser that lets time run out for a lone Escape only.

    Nobody types `Esc [ 2` by hand within the time that an Escape has: its rest is on its way. Taken
    for keys, half of the mark before a paste would let each line of the paste be a prompt.
    """

    _tail = ""
    _is_escape_taken = False

    def feed(self, data: str) -> None:
        if self._is_escape_taken and data.startswith(PASTE):
            data = f"\x1b{data}"
        self._is_escape_taken = False
        self._tail = (self._tail + data)[-LONGEST_SEQUENCE:]
        super().feed(data)

    def flush(self) -> None:
        if not UNFINISHED.search(self._tail):
            self._is_escape_taken = self._tail.endswith("\x1b")
            super().flush()


def await_whole_sequences(terminal: Input) -> None:
    """Let this terminal's keys be read with `WholeSequences`."""
    if isinstance(terminal, Vt100Input):
        terminal.vt100_parser = WholeSequences(terminal.vt100_parser.feed_key_callback)
