"""The guide where there are only lines."""

from __future__ import annotations

import anyio

from travois.tui.line_mode import LineTerminal
from travois_lab.demo.tour import LABEL, STEPS, Pace

TURN = "> "
"""How somebody is asked for a prompt; all else that is asked is a question."""


class Guided(LineTerminal):
    """Proposes each step, and takes an empty line for a yes to it; with a pace, does not ask."""

    def __init__(self, pace: Pace | None) -> None:
        super().__init__()
        self._pace = pace
        self._at = 0
        self._introduced = -1
        self._waiting: anyio.CancelScope | None = None

    @property
    def finished(self) -> bool:
        """Whether the last step was taken."""
        return self._at == len(STEPS)

    async def read(self, prompt: str) -> str | None:
        """What they type, or what was proposed; None when they leave."""
        with anyio.CancelScope() as self._waiting:
            return await (self._step() if prompt == TURN else self._answer(prompt))
        return None

    def on_interrupt(self) -> None:
        """Leave."""
        if self._waiting is not None:
            self._waiting.cancel()

    def show_resume_hint(self, id: str) -> None:
        """What there is to say is in the account."""

    async def _step(self) -> str | None:
        step = STEPS[self._at]
        if self._introduced < self._at:
            self._introduced = self._at
            self.line(f"\n[{self._at + 1}/{len(STEPS)}] {step.title} ({LABEL})\n{step.about}")
        if self._pace:
            await anyio.sleep(len(step.about) * self._pace.reading)
            self.line(f"> {step.typed}")
            typed = ""
        else:
            typed = await super().read(f"Press Enter to send: {step.typed}\n> ")
        said = step.typed if typed == "" else typed
        self._at += said is not None and step.taken(said.strip())
        return said

    async def _answer(self, prompt: str) -> str | None:
        if not self._pace:
            return await super().read(prompt)
        self.line(prompt)
        await anyio.sleep(self._pace.deciding)
        self.line("y")
        return "y"
