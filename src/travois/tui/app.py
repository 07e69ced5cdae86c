"""The full-screen terminal app: reads input, runs turns and shows what happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import aclosing
from time import monotonic

import anyio

from travois.commands import trust
from travois.compose.live_session import LiveSession
from travois.compose.open_session import is_worth_keeping
from travois.compose.options import PICK_SESSION, Options, new_session_options
from travois.compose.session import load_workspace
from travois.context.keep_warm import keep_cache_warm
from travois.core.content import Text, TextOrMedia, extract_text
from travois.core.errors import UserError
from travois.core.facts import Asked, Assistant, Ended, Entry, Result, User
from travois.hooks.fire import notify_hooks, on_idle
from travois.ports.world import AgentProgress
from travois.process.local_processes import LocalProcesses
from travois.sessions.home import locate_home
from travois.settings.schema import TuiSettings
from travois.terminal import hold_hangups, ignore_hangups
from travois.tui import keys, shell_command, start
from travois.tui.agent_progress import enable_activity_names
from travois.tui.controller import Controller
from travois.tui.footer import StatusLineProgram
from travois.tui.key_file import KEY_FILE, load_key_file
from travois.tui.line_mode import PERMISSION_NOTICE
from travois.tui.slash import CommandPrompt, find_slash_command, run_slash_line
from travois.tui.slash_commands.sessions import (
    choose_session,
    reason_for_leaving,
)
from travois.tui.transcript import FRAME_SECONDS

IDLE_REDRAW_SECONDS = 0.3
"""Seconds between two redraws of the spinner while no text arrives."""
CACHE_AGE_SECONDS = 15.0
"""Seconds between two updates of the cache lifetime in the footer."""
MAX_REPLAYED_ENTRIES = 40
"""Log entries that are shown again when a session is resumed."""
SIGNAL_EXIT_CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


class SessionGuide:
    """Hooks for a program that plays the user, such as the demo; this one does nothing."""

    def prepare_screen(self, controller: Controller) -> None:
        """Prepare the screen before it is drawn."""

    async def on_user_turn(self, controller: Controller) -> None:
        """Run while the app waits for input; cancelled when the user submits some."""

    def show_farewell(self, lines: Sequence[str]) -> None:
        """Print the closing lines after the screen is gone."""
        for line in lines:
            print(line)  # noqa: T201 - the screen is gone


NO_GUIDE = SessionGuide()


def run_terminal_app(
    first: str, options: Options, taste: TuiSettings, *, guide: SessionGuide = NO_GUIDE
) -> int:
    """Run the terminal app until the user exits; return the exit code."""
    keys.register_key_sequences()
    start.erase_first_prompt()
    return anyio.run(_run_app, first, options, taste, guide)


async def _run_app(first: str, options: Options, taste: TuiSettings, guide: SessionGuide) -> int:
    """Run sessions and the screen side by side until the user exits."""
    place, loaded = load_workspace(options)
    history = str(place.home.path / "history" / place.project.key)
    talking = TerminalApp(Controller(options, taste, history=history), guide)
    async with anyio.create_task_group() as group:
        group.start_soon(talking.watch_signals)
        group.start_soon(talking.run_screen)
        group.start_soon(talking.draw_slow_start)
        try:
            await trust.ask_for_trust(place.home, loaded, talking.desk)
            await talking.run_sessions(options, first)
        finally:
            talking.desk.restore_title()
            talking.desk.screen.close()
            group.cancel_scope.cancel()
    guide.show_farewell(talking.parting)
    return talking.code


class TerminalApp:
    """The running terminal app."""

    def __init__(self, controller: Controller, guide: SessionGuide) -> None:
        self.desk, self._guide = controller, guide
        guide.prepare_screen(controller)
        self.code = 0
        self.parting: list[str] = []
        self._has_talked = False
        """True once a session has been opened and left."""
        self._notes: list[User] = []
        """Notes that the model gets with the next prompt."""
        self._stopped = False
        """True if the user stopped the last turn."""

    async def run_screen(self) -> None:
        """Run the screen; exit when the terminal is closed."""
        own, notices = load_key_file(locate_home(os.environ).config / KEY_FILE)
        for notice in notices:
            self.desk.page.show_note(notice, tone="warn")
        board = keys.Keyboard(self.desk.screen, self.desk, self.desk.pastes, own)
        try:
            await self.desk.screen.run(board.build_bindings())
        except EOFError:
            self.desk.handle_key("leave")

    async def draw_slow_start(self) -> None:
        """Keep the line moving that says what the start of a session waits for."""
        while True:
            await self.desk.starting.wait()
            await anyio.sleep(IDLE_REDRAW_SECONDS)
            self.desk.screen.refresh()

    async def watch_signals(self) -> None:
        """Exit cleanly on the first signal; a second one kills the process."""
        with anyio.open_signal_receiver(*SIGNAL_EXIT_CODES) as signals:
            async for number in signals:
                self.code = SIGNAL_EXIT_CODES[number]
                self.desk.handle_key("leave")
                if number != signal.SIGHUP:
                    return
                hold_hangups()
                break
        ignore_hangups()

    async def run_sessions(self, options: Options, first: str) -> None:
        """Run one session after another."""
        chosen = (
            await choose_session(self.desk.pick_session, options)
            if options.resume == PICK_SESSION
            else options
        )
        while chosen is not None and not self.code:
            if self.desk.change_folder(chosen):
                place, loaded = load_workspace(chosen)
                await trust.ask_for_trust(place.home, loaded, self.desk)
            try:
                await self._run_session(chosen, first)
                chosen = self.desk.next
            except UserError as fault:
                if not self._has_talked:
                    raise
                self.desk.page.show_note(str(fault), tone="warn")
                chosen = new_session_options(chosen)
            first = ""

    async def _run_session(self, options: Options, first: str) -> None:
        desk = self.desk
        opening = LiveSession(options, person=desk.dialogs, report_start=desk.report_start)
        async with opening as session:
            session.runtime.agent.runtime.stays_open = True
            desk.attach_session(session)
            enable_activity_names(session.runtime.agent)
            self._replay_history(session)
            async with anyio.create_task_group() as group:
                group.start_soon(self._show_events, session)
                group.start_soon(self._run_side_commands)
                group.start_soon(self._run_status_line, session)
                group.start_soon(self._draw_frames)
                group.start_soon(self._refresh_cache_age)
                await self._prompt_loop(first)
                group.cancel_scope.cancel()
            session.leaving = reason_for_leaving(desk.next)
            self._has_talked, self.parting = True, []
            talked = session.runtime.agent.session
            if talked.is_lasting and is_worth_keeping(talked.history()):
                self.parting = [f"  Resume with: travois --resume {session.id}"]
        self.parting += [f"  · {notice}" for notice in session.parting]

    def _replay_history(self, session: LiveSession) -> None:
        told = (User, Assistant, Result)
        entries = [
            one for one in session.runtime.agent.session.history() if isinstance(one.fact, told)
        ]
        for entry in entries[-MAX_REPLAYED_ENTRIES:]:
            self.desk.page.show_event(entry)

    async def _show_events(self, session: LiveSession) -> None:
        agent, desk = session.runtime.agent, self.desk
        with agent.session.watch() as events:
            async for event in events:
                desk.page.show_event(event)
                if isinstance(event, AgentProgress):
                    desk.refresh_status()
                if not isinstance(event, Entry):
                    continue
                if desk.program is not None:
                    desk.program.work.add(event)
                desk.refresh_status()
                if isinstance(event.fact, Ended):
                    self._stopped = event.fact.why == "aborted"
                if isinstance(event.fact, Asked):
                    desk.dialogs.call_shown_event(event.fact.call).set()
                    desk.show_title("? ")
                    desk.notify_person("Travois has a question")
                    await notify_hooks(agent, "permission_prompt", PERMISSION_NOTICE)

    async def _run_side_commands(self) -> None:
        """Run slash commands that need not wait for the end of a turn."""
        async for line in self.desk.asked:
            answer = await run_slash_line(self.desk, line)
            if isinstance(answer, str) and answer:
                self.desk.page.show_prompt((Text(line),))
                self.desk.page.show_paragraph(answer)

    async def _run_status_line(self, session: LiveSession) -> None:
        """Run the user's status line command, if one is configured."""
        desk, settings = self.desk, load_workspace(self.desk.options)[1].settings
        chosen = settings.status_line
        if settings.disable_all_hooks or chosen.type != "command" or not chosen.command:
            return
        processes = LocalProcesses(passed=settings.env_passthrough, extra=settings.env)
        desk.program = StatusLineProgram(chosen, processes, desk.page.show_note)
        try:
            desk.program.request_update()
            await desk.program.keep_updating(session, desk.screen)
        finally:
            desk.program = None
            with anyio.CancelScope(shield=True):
                await processes.aclose()

    async def _draw_frames(self) -> None:
        """Draw streamed text at a fixed frame rate, and keep the spinner moving."""
        moved, page = 0.0, self.desk.page
        while True:
            await page.working.wait()
            await anyio.sleep(FRAME_SECONDS)
            if page.draw_frame():
                moved = monotonic()
            elif monotonic() - moved >= IDLE_REDRAW_SECONDS and not self.desk.screen.is_asking:
                moved = monotonic()
                self.desk.screen.refresh()

    async def _refresh_cache_age(self) -> None:
        """Keep the cache lifetime in the footer up to date while the prompt cache lives."""
        agent = self.desk.session.runtime.agent
        while True:
            await self.desk.page.resting.wait()
            left = agent.session.cache.seconds_left(agent.runtime.clock())
            await (
                anyio.sleep(min(left, CACHE_AGE_SECONDS) + 0.5)
                if left > 0
                else self.desk.page.working.wait()
            )
            self.desk.refresh_status()

    async def _prompt_loop(self, first: str) -> None:
        text: str | None = first
        while not self.desk.over:
            if text is None or text:
                await self._handle_line(text or "")
            text = await self._next_input()

    async def _handle_line(self, text: str) -> None:
        desk, page = self.desk, self.desk.page
        if text.startswith("!") and (line := text[1:].strip()):
            await self._run_shell_command(line)
            return
        answer = await self._run_slash_command(text) if text else None
        if isinstance(answer, CommandPrompt):
            page.expanded[extract_text(answer.content)] = text
        if answer is None or isinstance(answer, CommandPrompt):
            await self._run_turn(answer or text)
        elif answer:
            page.show_prompt((Text(text),))
            page.show_paragraph(answer)
        desk.refresh_status()

    async def _run_slash_command(self, text: str) -> str | CommandPrompt | None:
        command = find_slash_command(self.desk, text)
        if command is None or command.when != "long":
            return await run_slash_line(self.desk, text)
        self.desk.begin_turn()
        try:
            return await run_slash_line(self.desk, text)
        finally:
            self.desk.end_turn(stopped=False)

    async def _run_shell_command(self, line: str) -> None:
        """Run a shell command of the user (`!command`)."""
        desk, told = self.desk, "stopped"
        desk.page.show_paragraph(f"$ {line}")
        desk.begin_turn()
        with anyio.CancelScope() as desk.errand:
            told, notes = await shell_command.run_user_command(desk.session.runtime.agent, line)
            self._notes.extend(notes)
        desk.end_turn(stopped=desk.errand.cancelled_caught)
        desk.errand = None
        if told:
            desk.page.show_paragraph(told)

    async def _run_turn(self, text: str | CommandPrompt) -> None:
        desk, said = self.desk, tuple[TextOrMedia, ...]()
        session, self._stopped = desk.session, False
        session.runtime.agent.turn.inbox.extend(self._notes)
        self._notes.clear()
        desk.begin_turn()
        try:
            if isinstance(text, CommandPrompt):
                said = text.content
            elif text:
                said = desk.prompt_content(text)
            async with aclosing(session.run(said)) as events:
                async for _ in events:
                    pass
        except UserError as fault:
            desk.page.show_note(str(fault), tone="warn")
        finally:
            desk.end_turn(stopped=self._stopped)

    async def _next_input(self) -> str | None:
        """Wait for input; return None if mail or a finished background agent starts a turn."""
        desk, runtime = self.desk, self.desk.session.runtime
        if any(one.origin == "human" for one in runtime.agent.turn.inbox):
            return None
        if not desk.waiting and not desk.over:
            desk.stirred = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(keep_cache_warm, runtime.agent)
                group.start_soon(on_idle, runtime.agent)
                group.start_soon(self._guide.on_user_turn, desk)
                group.start_soon(self._watch_mail, group.cancel_scope)
                group.start_soon(self._watch_subagents, group.cancel_scope)
                await desk.stirred.wait()
                group.cancel_scope.cancel()
        if desk.waiting:
            return desk.waiting.popleft()
        called = runtime.mail is not None and runtime.mail.called
        # A note waits for the next prompt: what it tells is no reason to ask the model.
        news = any(one.origin != "note" for one in runtime.agent.turn.inbox)
        return None if news or called else ""

    async def _watch_mail(self, scope: anyio.CancelScope) -> None:
        mail = self.desk.session.runtime.mail
        if mail is not None:
            await mail.wait_for_mail()
            scope.cancel()

    async def _watch_subagents(self, scope: anyio.CancelScope) -> None:
        if await self.desk.session.news():
            scope.cancel()
