"""The prompt loop, in a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time

from tests.e2e.program import Program

PATIENCE = 180


class Screen:
    """The program in a pty: type, and wait for words."""

    def __init__(self, program: Program, *args: str) -> None:
        self._fd, side = pty.openpty()
        self.text = ""
        self._seen = 0
        self.child = subprocess.Popen(
            [*program.launcher, *args],
            cwd=program.folder,
            env=program.environment,
            stdin=side,
            stdout=side,
            stderr=side,
            start_new_session=True,
        )
        os.close(side)

    def type(self, words: str) -> None:
        os.write(self._fd, words.encode())

    def until(self, words: str) -> str:
        """What was shown up to these words, which must come."""
        while (found := self.text.find(words, self._seen)) < 0:
            ready, _, _ = select.select([self._fd], [], [], PATIENCE)
            assert ready, f"{words!r} never came; there was: {self.text!r}"
            self.text += os.read(self._fd, 1 << 16).decode()
        start, self._seen = self._seen, found + len(words)
        return self.text[start : self._seen]

    def leave(self) -> int:
        """Leave; returns the exit code once all that was written is taken in."""
        self.type("\x04")
        while self.child.poll() is None or select.select([self._fd], [], [], 0)[0]:
            if not select.select([self._fd], [], [], 0.1)[0]:
                continue
            try:
                self.text += os.read(self._fd, 1 << 16).decode()
            except OSError:  # nobody holds the other side any more
                break
        return self.child.wait(PATIENCE)


def test_talking_answering_and_leaving(program: Program) -> None:
    script = [
        {"say": [{"text": "I would like to look."}, use("echo made > made.txt")]},
        {"when": {"tool_result": {"is_error": False}}, "say": [{"text": "It is made."}]},
        {"say": [use("rm made.txt")]},
        {"when": {"tool_result": {"contains": "I need it"}}, "say": [{"text": "Then it stays."}]},
    ]
    with program.served(script) as api:
        screen = Screen(program, *program.model)
        screen.until("> ")
        screen.type("make it\n")
        shown = screen.until("Answer: ")
        assert shown.index("I would like to look.") < shown.index("echo made > made.txt")
        screen.type("yes\n")
        screen.until("It is made.")
        screen.until("> ")
        assert (program.folder / "made.txt").read_text() == "made\n"
        screen.type("drop it\n")
        screen.until("Answer: ")
        screen.type("I need it\n")
        screen.until("Then it stays.")
        assert screen.leave() == 0
        api.no_invalid()


def test_an_interrupt_stops_the_turn_and_not_the_program(program: Program) -> None:
    script = [{"say": [use("touch up; sleep 60")]}, {"say": [{"text": "Stopped."}]}]
    with program.served(script) as api:
        screen = Screen(program, *program.model, "--permission-mode", "bypass")
        screen.until("> ")
        screen.type("wait\n")
        screen.until("Running $ touch up")
        screen.child.send_signal(signal.SIGINT)
        screen.until("aborted")
        screen.until("> ")
        screen.type("and?\n")
        screen.until("Stopped.")
        assert screen.leave() == 0
        api.no_orphans()


def test_a_command_of_ones_own_runs_and_an_interrupt_stops_it(program: Program) -> None:
    with program.served([{"say": [{"text": "I see."}]}]) as api:
        screen = Screen(program, *program.model)
        screen.until("> ")
        screen.type("!touch up; sleep 30\n")
        while not (program.folder / "up").exists():
            time.sleep(0.02)
        screen.child.send_signal(signal.SIGINT)
        screen.until("> ")
        screen.type("!echo $((40 + 2))\n")
        screen.until("42")
        screen.until("> ")
        screen.type("# Tests run with pytest\n")
        assert "\x1b" not in screen.until("Undo: /memory undo")
        screen.type("and?\n")
        screen.until("I see.")
        assert screen.leave() == 0
        said = json.dumps(api.bodies[0]["messages"])
    assert ("$ echo" in said, "sleep 30" in said) == (True, False)


def test_what_a_model_says_cannot_reach_the_terminal_raw(program: Program) -> None:
    with program.served([{"say": [{"text": "a\x1b]0;owned\x07b\x9bc"}]}]):
        screen = Screen(program, *program.model)
        screen.until("> ")
        screen.type("hi\n")
        shown = screen.until("c\r\n")
        assert "\x1b" not in shown and "\x07" not in shown and "\x9b" not in shown
        assert screen.leave() == 0


def use(command: str) -> dict[str, object]:
    return {"tool_use": {"name": "Bash", "input": {"command": command}}}
