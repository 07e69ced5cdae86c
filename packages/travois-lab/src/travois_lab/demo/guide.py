"""The guide on the screen: tells what comes, types it, and leaves the last key to the person."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from travois.compose.live_session import LiveSession
from travois.tui.app import SessionGuide
from travois.tui.controller import Controller
from travois.tui.layout import wrap_words
from travois.tui.menu import MENU_QUIET_SECONDS
from travois_lab.demo.tour import LABEL, STEPS, Pace

GLANCE = 0.1
WIDE = 100
"""No line that is to be read is longer."""


class Tour(SessionGuide):
    """Goes through the steps, one whenever the last was taken; with a pace, all by itself."""

    def __init__(self, pace: Pace | None) -> None:
        self._pace = pace
        self._at = -1
        """The step that was told last."""
        self._consents: LiveSession | None = None
        """The conversation whose questions are answered by themselves."""
        self.finished = False

    def prepare_screen(self, controller: Controller) -> None:
        """Say at all times who plays the model."""
        screen, below = controller.screen, controller.screen.footer

        def footer(columns: int) -> list[str]:
            ways = "" if controller.is_busy or self._pace else " · Enter continues, Ctrl-C exits"
            label = wrap_words(f"{LABEL}{ways}", columns - 2)
            return [*(screen.theme.mark(f"  {line}", "warn") for line in label), *below(columns)]

        screen.footer = footer

    def show_farewell(self, lines: Sequence[str]) -> None:
        """What there is to say is in the account."""

    async def on_user_turn(self, controller: Controller) -> None:
        """Tell the step that comes after what was typed, and propose what to type."""
        if self._at < 0:
            self._let_leave(controller)
        last = controller.screen.buffer.history.get_strings()[-1:]
        if self._at < 0 or (last and STEPS[self._at].taken(last[0])):
            self._at += 1
            self._tell(controller)
        self.finished = self._at == len(STEPS) - 1
        if self._pace:
            await self._play(controller, self._pace)
        else:
            controller.set_input(STEPS[self._at].typed)

    def _tell(self, controller: Controller) -> None:
        step, mark = STEPS[self._at], controller.screen.theme.mark
        title = f"{mark(f'{self._at + 1}/{len(STEPS)}', 'accent')}  {mark(step.title, 'strong')}"
        edge = mark("┃", "accent")
        about = wrap_words(step.about, min(controller.screen.columns, WIDE) - 6)
        controller.screen.show_lines(
            "", f"  {edge} {title}", *(f"  {edge} {line}" for line in about)
        )

    async def _play(self, controller: Controller, pace: Pace) -> None:
        step, beside = STEPS[self._at], controller.session.runtime.agent.runtime.background
        if self._consents is not controller.session and beside is not None:
            self._consents = controller.session
            beside(partial(self._consent, controller, pace))
        await anyio.sleep(len(step.about) * pace.reading)
        for end in range(1, len(step.typed) + 1):
            controller.set_input(step.typed[:end])
            await anyio.sleep(pace.typing)
        _press(controller, Keys.Enter)

    async def _consent(self, controller: Controller, pace: Pace) -> None:
        """Say yes to every question."""
        while True:
            await anyio.sleep(GLANCE)
            if controller.screen.menu is not None:
                await anyio.sleep(MENU_QUIET_SECONDS + pace.deciding)
                _press(controller, "y")

    def _let_leave(self, controller: Controller) -> None:
        """One Ctrl-C is enough where nothing is lost by it."""
        known = controller.screen.app.key_bindings
        assert isinstance(known, KeyBindings)
        idle = Condition(lambda: not controller.is_busy and not controller.screen.is_asking)

        def leave(event: KeyPressEvent) -> None:
            controller.handle_key("leave")

        known.add(Keys.ControlC, filter=idle)(leave)


def _press(controller: Controller, key: Keys | str) -> None:
    processor = controller.screen.app.key_processor
    processor.feed(KeyPress(key))
    processor.process_keys()
