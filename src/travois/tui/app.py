"""The full-screen terminal app: reads input, runs turns and shows what happens."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import aclosing
from time import monotonic

import anyio

from travois.commands import trust_prompt
from travois.compose.open_session import is_worth_keeping
from travois.compose.options import PICK_SESSION, Options
from travois.compose.session import load_workspace
from travois.context.keep_warm import keep_cache_warm
from travois.core.content import Text, TextOrMedia
from travois.core.errors import UserError
from travois.core.facts import Asked, Assistant, Ended, Entry, Result, User
from travois.hooks.fire import notify, remind
from travois.ports.world import AgentProgress
from travois.process.run import LocalProcesses
from travois.sdk import Session
from travois.settings.schema import TuiSettings
from travois.terminal.hangup import hold_hangups, ignore_hangups
from travois.tui import keys, shell_command, start
from travois.tui.agent_progress import watch_agents
from travois.tui.controller import Desk
from travois.tui.footer import Asking
from travois.tui.line_mode import PERMISSION
from travois.tui.slash import Prompt, named, obey
from travois.tui.slash_commands import afresh, left, pick_up
from travois.tui.transcript import FRAME

SLOW = 0.3
"""Seconds between two redraws of the spinner while no text arrives."""
AGING = 15.0
"""Seconds between two updates of the cache lifetime in the footer."""
REPLAYED = 40
"""Log entries that are shown again when a session is resumed."""
CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


class Guide:
    """Hooks for a program that plays the user, such as the demo; this one does nothing."""

    def meet(self, desk: Desk) -> None:
        """Prepare the screen before it is drawn."""

    async def lead(self, desk: Desk) -> None:
        """Run while the app waits for input; cancelled when the user submits some."""

    def part(self, lines: Sequence[str]) -> None:
        """Print the closing lines after the screen is gone."""
        for line in lines:
            print(line)  # noqa: T201 - the screen is gone


ALONE = Guide()


def talk(first: str, options: Options, taste: TuiSettings, *, guide: Guide = ALONE) -> int:
    """Run the terminal app until the user exits; return the exit code."""
    keys.teach()
    start.unpaint()
    return anyio.run(_talk, first, options, taste, guide)


async def _talk(first: str, options: Options, taste: TuiSettings, guide: Guide) -> int:
    """Run sessions and the screen side by side until the user exits."""
    place, loaded = load_workspace(options)
    history = str(place.home.path / "history" / place.project.key)
    talking = Talking(Desk(options, taste, history=history), guide)
    async with anyio.create_task_group() as group:
        group.start_soon(talking.watch_signals)
        group.start_soon(talking.be_there)
        try:
            await trust_prompt.ask(place.home, loaded, talking.desk)
            await talking.converse(options, first)
        finally:
            talking.desk.screen.close()
            group.cancel_scope.cancel()
    guide.part(talking.parting)
    return talking.code


class Talking:
    """The running terminal app."""

    def __init__(self, desk: Desk, guide: Guide) -> None:
        self.desk, self._guide = desk, guide
        guide.meet(desk)
        self.code = 0
        self.parting: list[str] = []
        self._has_talked = False
        """True once a session has been opened and left."""
        self._notes: list[User] = []
        """Notes that the model gets with the next prompt."""
        self._stopped = False
        """True if the user stopped the last turn."""

    async def be_there(self) -> None:
        """Run the screen; exit when the terminal is closed."""
        board = keys.Keyboard(self.desk.screen, self.desk, self.desk.pastes)
        try:
            await self.desk.screen.run(board.bindings())
        except EOFError:
            self.desk.press("leave")

    async def watch_signals(self) -> None:
        """Exit cleanly on the first signal; a second one kills the process."""
        with anyio.open_signal_receiver(*CODES) as signals:
            async for number in signals:
                self.code = CODES[number]
                self.desk.press("leave")
                if number != signal.SIGHUP:
                    return
                hold_hangups()
                break
        ignore_hangups()

    async def converse(self, options: Options, first: str) -> None:
        """Run one session after another."""
        chosen = (
            await pick_up(self.desk.browse, options) if options.resume == PICK_SESSION else options
        )
        while chosen is not None and not self.code:
            if self.desk.go(chosen):
                place, loaded = load_workspace(chosen)
                await trust_prompt.ask(place.home, loaded, self.desk)
            try:
                await self._conversation(chosen, first)
                chosen = self.desk.next
            except UserError as fault:
                if not self._has_talked:
                    raise
                self.desk.page.note(str(fault), tone="warn")
                chosen = afresh(chosen)
            first = ""

    async def _conversation(self, options: Options, first: str) -> None:
        desk = self.desk
        async with Session(options, person=desk.dialogs) as session:
            desk.seat(session)
            watch_agents(session.crew.agent)
            self._greet(session)
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, session)
                group.start_soon(self._answer)
                group.start_soon(self._attend, session)
                group.start_soon(self._tick)
                group.start_soon(self._age)
                await self._take_up(first)
                group.cancel_scope.cancel()
            session.leaving = left(desk.next)
            self._has_talked, self.parting = True, []
            talked = session.crew.agent.session
            if talked.is_lasting and is_worth_keeping(talked.history()):
                self.parting = [f"  Resume with: travois --resume {session.id}"]
        self.parting += [f"  · {notice}" for notice in session.parting]

    def _greet(self, session: Session) -> None:
        told = (User, Assistant, Result)
        entries = [
            one for one in session.crew.agent.session.history() if isinstance(one.fact, told)
        ]
        for entry in entries[-REPLAYED:]:
            self.desk.page.tell(entry)

    async def _watch(self, session: Session) -> None:
        agent, desk = session.crew.agent, self.desk
        with agent.session.watch() as events:
            async for event in events:
                desk.page.tell(event)
                if isinstance(event, AgentProgress):
                    desk.look()
                if not isinstance(event, Entry):
                    continue
                if desk.program is not None:
                    desk.program.work.hear(event)
                desk.look()
                if isinstance(event.fact, Ended):
                    self._stopped = event.fact.why == "aborted"
                if isinstance(event.fact, Asked):
                    desk.dialogs.told(event.fact.call).set()
                    await notify(agent, "permission_prompt", PERMISSION)

    async def _answer(self) -> None:
        """Run slash commands that need not wait for the end of a turn."""
        async for line in self.desk.asked:
            answer = await obey(self.desk, line)
            if isinstance(answer, str) and answer:
                self.desk.page.said((Text(line),))
                self.desk.page.paragraph(answer)

    async def _attend(self, session: Session) -> None:
        """Run the user's status line command, if one is configured."""
        desk, settings = self.desk, load_workspace(self.desk.options)[1].settings
        chosen = settings.status_line
        if settings.disable_all_hooks or chosen.type != "command" or not chosen.command:
            return
        processes = LocalProcesses(passed=settings.env_passthrough, extra=settings.env)
        desk.program = Asking(chosen, processes, desk.page.note)
        try:
            desk.program.stir()
            await desk.program.keep(session, desk.screen)
        finally:
            desk.program = None
            with anyio.CancelScope(shield=True):
                await processes.aclose()

    async def _tick(self) -> None:
        """Draw streamed text at a fixed frame rate, and keep the spinner moving."""
        moved, page = 0.0, self.desk.page
        while True:
            await page.working.wait()
            await anyio.sleep(FRAME)
            if page.advance():
                moved = monotonic()
            elif monotonic() - moved >= SLOW and not self.desk.screen.asking:
                moved = monotonic()
                self.desk.screen.refresh()

    async def _age(self) -> None:
        """Keep the cache lifetime in the footer up to date while the prompt cache lives."""
        agent = self.desk.session.crew.agent
        while True:
            await self.desk.page.resting.wait()
            left = agent.session.cache.seconds_left(agent.runtime.clock())
            await (
                anyio.sleep(min(left, AGING) + 0.5) if left > 0 else self.desk.page.working.wait()
            )
            self.desk.look()

    async def _take_up(self, first: str) -> None:
        text: str | None = first
        while not self.desk.over:
            if text is None or text:
                await self._do(text or "")
            text = await self._next()

    async def _do(self, text: str) -> None:
        desk, page = self.desk, self.desk.page
        if text.startswith("!") and (line := text[1:].strip()):
            await self._run(line)
            return
        answer = await self._obeyed(text) if text else None
        if answer is None or isinstance(answer, Prompt):
            await self._turn(answer or text)
        elif answer:
            page.said((Text(text),))
            page.paragraph(answer)
        desk.look()

    async def _obeyed(self, text: str) -> str | Prompt | None:
        command = named(self.desk, text)
        if command is None or command.when != "long":
            return await obey(self.desk, text)
        self.desk.begin()
        try:
            return await obey(self.desk, text)
        finally:
            self.desk.end(stopped=False)

    async def _run(self, line: str) -> None:
        """Run a shell command of the user (`!command`)."""
        desk, told = self.desk, "stopped"
        desk.page.paragraph(f"$ {line}")
        desk.begin()
        with anyio.CancelScope() as desk.errand:
            told, notes = await shell_command.run(desk.session.crew.agent, line)
            self._notes.extend(notes)
        desk.end(stopped=desk.errand.cancelled_caught)
        desk.errand = None
        if told:
            desk.page.paragraph(told)

    async def _turn(self, text: str | Prompt) -> None:
        desk, said = self.desk, tuple[TextOrMedia, ...]()
        session, self._stopped = desk.session, False
        session.crew.agent.turn.inbox.extend(self._notes)
        self._notes.clear()
        desk.begin()
        try:
            if isinstance(text, Prompt):
                said = text.content
            elif text:
                said = desk.said(text)
            async with aclosing(session.run(said)) as events:
                async for _ in events:
                    pass
        except UserError as fault:
            desk.page.note(str(fault), tone="warn")
        finally:
            desk.end(stopped=self._stopped)

    async def _next(self) -> str | None:
        """Wait for input; return None if mail or a finished background agent starts a turn."""
        desk, crew = self.desk, self.desk.session.crew
        if any(one.origin == "human" for one in crew.agent.turn.inbox):
            return None
        if not desk.waiting and not desk.over:
            desk.stirred = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(keep_cache_warm, crew.agent)
                group.start_soon(remind, crew.agent)
                group.start_soon(self._guide.lead, desk)
                group.start_soon(self._wake, group.cancel_scope)
                group.start_soon(self._heed, group.cancel_scope)
                await desk.stirred.wait()
                group.cancel_scope.cancel()
        if desk.waiting:
            return desk.waiting.popleft()
        called = crew.office is not None and crew.office.called
        return None if crew.agent.turn.inbox or called else ""

    async def _wake(self, scope: anyio.CancelScope) -> None:
        office = self.desk.session.crew.office
        if office is not None:
            await office.wait_for_mail()
            scope.cancel()

    async def _heed(self, scope: anyio.CancelScope) -> None:
        if await self.desk.session.news():
            scope.cancel()
