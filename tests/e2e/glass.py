"""The program on a screen: a real pseudo-terminal, and pyte as the judge of what it shows."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

import pexpect
import pyte

from tests.e2e.program import Program

PATIENCE = 180.0
TIMES = re.compile(r"\d+(:\d\d min| s) ·.*")
SPIN = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")


class Glass:
    """Type, wait for words, and look: `lines` is the screen, `story` what scrolled off it too."""

    def __init__(
        self, program: Program, *args: str, columns: int = 80, rows: int = 24, **environ: str
    ) -> None:
        program.extra |= {"TERM": "xterm-256color", **environ}
        self.columns, self.rows, self.bytes = columns, rows, 0
        self.raw = ""
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000, ratio=0.5)
        self._stream = pyte.Stream(self.screen)
        command, *words = [*program.launcher, *args]
        self.child = pexpect.spawn(
            command,
            words,
            cwd=str(program.folder),
            env=program.environment,
            dimensions=(rows, columns),
            encoding="utf-8",
            codec_errors="replace",
        )
        self.child.delaybeforesend = None

    def type(self, words: str) -> None:
        data = words.encode()
        while data:  # a write to a terminal may take a part of it
            data = data[os.write(self.child.child_fd, data) :]

    def pump(self, seconds: float = 0.05) -> bool:
        """Take in what the program writes; whether there was anything."""
        try:
            data = self.child.read_nonblocking(1 << 16, seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        self.raw += data
        self.bytes += len(data.encode())
        self._stream.feed(data)
        return True

    def wait(self, seen: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not seen():
            assert time.monotonic() < end, f"{what} never came; there was:\n" + self.text
            self.pump()

    def until(self, *words: str) -> str:
        """The screen, once all these words are on it."""
        self.wait(lambda: all(word in self.text for word in words), repr(words))
        return self.text

    def gone(self, words: str) -> str:
        """The screen, once these words are no longer on it."""
        self.wait(lambda: words not in self.text, f"the end of {words!r}")
        return self.text

    def still(self) -> str:
        """The screen, once nothing has changed for a while."""
        while self.pump(0.4):
            pass
        return self.text

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def story(self) -> str:
        above = [
            "".join(row[x].data for x in range(self.columns)).rstrip()
            for row in self.screen.history.top
        ]
        return "\n".join((*above, *self.lines)).rstrip()

    def ready(self) -> None:
        """Wait for the prompt that can be edited and the session behind it."""
        self.until("❯", "%")

    def resize(self, columns: int, rows: int) -> None:
        self.child.setwinsize(rows, columns)
        self.screen.resize(rows, columns)
        self.columns, self.rows = columns, rows

    def leave(self) -> int:
        self.type("\x04")
        return self.end()

    def end(self) -> int:
        """How it ended; everything that it wrote is taken in."""
        end = time.monotonic() + PATIENCE
        while self.child.isalive():
            self.pump()
            assert time.monotonic() < end, self.text
        while self.pump():
            pass
        self.child.close()
        if self.child.signalstatus:
            return -self.child.signalstatus
        return self.child.exitstatus


def steady(text: str) -> str:
    """A screen without what differs from run to run."""
    return SPIN.sub("*", TIMES.sub("TIME", text))


def use(name: str, **args: object) -> dict[str, object]:
    return {"tool_use": {"name": name, "input": args}}
