"""The controller: connects keys, slash commands and dialogs with the session on the screen."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from time import monotonic
from typing import Literal

import anyio

from travois.compose import commands
from travois.compose.live_session import LiveSession
from travois.compose.mcp import list_resource_uris
from travois.compose.options import Options
from travois.compose.session_picker import SessionPicker
from travois.core.content import TextOrMedia, extract_text
from travois.core.errors import UserError
from travois.core.facts import User
from travois.diff_rows import parse_unified_rows
from travois.progress_line import QUIET_SECONDS
from travois.sessions.catalog import SessionSummary
from travois.settings.schema import TuiSettings
from travois.tui import clipboard, footer, keys, notify, slash, theme
from travois.tui.agent_progress import render_waiting
from travois.tui.dialogs import SessionMenu, TerminalDialogs
from travois.tui.diff_view import render_diff_rows
from travois.tui.footer import FooterStatus, StatusLineProgram, read_footer_status
from travois.tui.keys import attach_named_images
from travois.tui.layout import clean_display_text, cut_line
from travois.tui.menu import MenuOption, PickerMenu
from travois.tui.screen import Screen
from travois.tui.slash import CURRENT_MARK, SlashCommand, complete_slash_line, find_slash_command
from travois.tui.slash_commands.sessions import find_inspector_address
from travois.tui.slash_registry import RESERVED_NAMES, SLASH_COMMANDS
from travois.tui.transcript import Transcript

CYCLED_MODES = ("default", "accept-edits", "plan", "auto")
MAX_DIFF_LINES = 400


class Controller:
    """The state of the terminal app: the screen, its session and the queued input."""

    can_choose = True

    def __init__(self, options: Options, taste: TuiSettings, *, history: str) -> None:
        self.options = options
        self.pastes = keys.Pastes()
        self.waiting: deque[str] = deque()
        """Input that is queued until the running turn ends."""
        self.stirred = anyio.Event()
        """Set when there is input, or the session is to be left."""
        self.errand: anyio.CancelScope | None = None
        """The scope of a running `!command`."""
        self.starting = anyio.Event()
        """Set while the start of a session waits for something."""
        self._start, self._start_began = "", 0.0
        self.over = False
        self.next: Options | None = None
        """Options of the session to switch to; None to exit."""
        completer = keys.InputCompleter(
            options.cwd or os.getcwd(), self._complete_command, self._mcp_resources
        )
        self._taste = taste
        self._theme = taste.theme
        self._background: tuple[int, int, int] | None = None
        """The terminal's background colour, if it has told it."""
        look = theme.choose_theme(taste.theme, os.environ)
        self.screen = Screen(look, keys.create_input_buffer(completer, history), vim=taste.vim)
        self.page = Transcript(self.screen, {})
        self.dialogs = TerminalDialogs(self.screen, lambda: self.page, self.interrupt)
        self._session: LiveSession | None = None
        self._own: Mapping[str, SlashCommand] = {}
        self._told: set[str] = set()
        self._ask, self.asked = anyio.create_memory_object_stream[str](inf)
        """Slash commands to run during a turn."""
        self._standing = FooterStatus()
        self._keys = ""
        """The vi mode when the footer was last drawn."""
        self._before = 0.0
        """The session's cost when the turn began."""
        self.program: StatusLineProgram | None = None
        """The user's status line command."""
        self.screen.footer = self._footer_lines
        self.screen.on_background = self._take_background
        self._title = ""
        """The terminal's title as it was last set."""

    def report_start(self, text: str) -> None:
        """Show what the start of a session waits for, if that takes long."""
        self._start, self._start_began = clean_display_text(text), monotonic()
        self.screen.status = self._start_lines
        self.starting.set()

    def _start_lines(self, columns: int) -> list[str]:
        seconds = monotonic() - self._start_began
        if seconds < QUIET_SECONDS:
            return []
        look = self.screen.theme
        queued = (cut_line(clean_display_text(one), columns - 4) for one in self.waiting)
        return [
            render_waiting(self._start, seconds, look, columns),
            *(look.mark(f"  … {one}", "quiet") for one in queued),
        ]

    def attach_session(self, session: LiveSession) -> None:
        """Attach the session that the screen shows."""
        if self.options.cleared and self._session is not None:
            self.page.show_mark(f"cleared; the conversation before: /resume {self._session.id[:8]}")
        self._session, self.over, self.next = session, False, None
        self.starting = anyio.Event()
        known, notices = commands.compose_commands(self.options, taken=RESERVED_NAMES)
        self._own = slash.to_slash_commands(known)
        self.page = Transcript(self.screen, session.runtime.agent.tools.by_name)
        self.screen.status = self.page.status_lines
        for notice in dict.fromkeys((*session.runtime.notices, *notices)):
            if notice not in self._told:
                self.page.show_note(notice)
        self._told.update(session.runtime.notices, notices)
        self.refresh_status()
        self.show_title()

    def change_folder(self, options: Options) -> bool:
        """Change to the folder of the next session; return whether it is another one."""
        self.options, folder = options, os.path.realpath(options.cwd or os.getcwd())
        if folder == os.path.realpath(os.getcwd()):
            return False
        os.chdir(folder)
        self.screen.buffer.completer = keys.InputCompleter(
            folder, self._complete_command, self._mcp_resources
        )
        self.page.show_note(f"in {folder}")
        return True

    def refresh_status(self) -> None:
        """Refresh the footer from the session."""
        if self._session is not None:
            self._standing = read_footer_status(self._session)
            self.screen.frame_role = footer.choose_frame_role(self._standing.mode)
            self.page.dollars = self._session.runtime.agent.session.dollars - self._before
            self.screen.refresh()
            if self.program is not None:
                self.program.request_update()

    def _footer_lines(self, columns: int) -> list[str]:
        look, vim = self.screen.theme, self.screen.vim_mode
        if self.program is not None and vim != self._keys:
            self._keys = vim
            self.program.request_update()
        own = self.program.render_rows(look, columns) if self.program is not None else []
        return [*own, footer.render_footer(self._standing, look, columns)]

    @property
    def session(self) -> LiveSession:
        """The current session."""
        assert self._session is not None
        return self._session

    @property
    def is_busy(self) -> bool:
        """True while a turn or another long command runs."""
        return bool(self.page.began)

    def submit(self, text: str, *, when: Literal["next", "after"]) -> None:
        """Take a line of input: steer the running turn with it, or queue it."""
        prompt = not text.startswith(("/", "!", "#"))
        command = find_slash_command(self, text) if self.is_busy else None
        if command is not None and command.when == "ever":
            self._ask.send_nowait(text)
        elif self.is_busy and when == "next" and prompt:
            self._steer_turn(text)
        else:
            self.waiting.append(text)
            self.page.queued = tuple(self.waiting) if self.is_busy else ()
            self.stirred.set()
        self.screen.refresh()

    def _steer_turn(self, text: str) -> None:
        try:
            said = User(self.prompt_content(text))
        except UserError as fault:
            self.page.show_note(str(fault), tone="warn")
            return
        self.page.pending.append(text)
        self.session.runtime.agent.turn.inbox.append(said)

    def interrupt(self) -> None:
        """Stop the running turn and the running shell command."""
        self.session.stop()
        if self.errand is not None:
            self.errand.cancel()

    def handle_key(self, what: keys.KeyAction) -> None:
        """Run the action of a key."""
        match what:
            case "leave":
                self.switch_to(None)
            case "rewind":
                self.submit("/rewind", when="after")
            case "expand":
                if not self.dialogs.show_rest():
                    self.page.expand_result()
            case "mode":
                self._cycle_mode()
            case "image":
                self.submit("/paste", when="after")

    def _cycle_mode(self) -> None:
        if self._session is None:
            return
        guard = self._session.runtime.agent.permissions.guard
        modes = [mode for mode in CYCLED_MODES if mode not in guard.barred]
        after = modes.index(guard.mode) + 1 if guard.mode in modes else 0
        mode = modes[after % len(modes)]
        self._session.enter(mode)
        self.refresh_status()
        self.dialogs.answer_by_mode(mode)

    @property
    def commands(self) -> Mapping[str, SlashCommand]:
        """All slash commands, built-in and custom."""
        return {**SLASH_COMMANDS, **self._own}

    @property
    def columns(self) -> int:
        """The width available for an answer."""
        return self.screen.columns - 3

    async def pick_session(self, picker: SessionPicker) -> SessionSummary | None:
        """Let the user choose a session."""
        menu = SessionMenu(picker, lambda: self.screen.rows)
        await self.screen.run_menu(menu)
        return menu.selection

    async def pick_option(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Let the user choose one of the options; the pointer starts at the current one."""
        clean = [(clean_display_text(text), clean_display_text(note)) for text, note in options]
        now = next((at for at, (text, _) in enumerate(clean) if text.endswith(CURRENT_MARK)), 0)
        menu = PickerMenu(clean_display_text(title), clean, lambda: self.screen.rows, at=now)
        found = await self.screen.run_menu(menu)
        return found[0] if found else None

    def set_input(self, text: str) -> None:
        """Put text on the input line."""
        self.screen.buffer.text = text
        self.screen.buffer.cursor_position = len(text)

    def switch_to(self, options: Options | None) -> None:
        """Leave this session for another one, or exit."""
        self.over, self.next = True, options
        if self._session is not None:
            self._session.stop()
        self.stirred.set()

    def set_theme(self, name: str) -> None:
        """Change the theme."""
        self.screen.theme = theme.choose_theme(name, os.environ, background=self._background)
        self._theme = name
        self.screen.refresh()

    async def ask_secret(self, label: str) -> str | None:
        """Ask for a line that is shown as stars."""
        return await self.screen.ask_text(label, masked=True)

    def show_diff(self, diff: str) -> None:
        """Show a unified diff in colour, each file under its name."""
        look, columns = self.screen.theme, self.screen.columns
        for heading, body in _split_diff(diff):
            rows = parse_unified_rows(body, heading)
            lines = render_diff_rows(rows[:MAX_DIFF_LINES], look, columns)
            rest = len(rows) - MAX_DIFF_LINES
            more = [f"    {look.mark(f'… {rest:,} more lines', 'quiet')}"] if rest > 0 else []
            title = look.mark(cut_line(clean_display_text(heading), columns - 3), "strong")
            self.screen.show_lines("", f"  {title}", *lines, *more)

    def insert_input(self, text: str) -> None:
        """Insert text at the cursor of the input line."""
        self.screen.buffer.insert_text(text)

    def copy_text(self, text: str) -> None:
        """Put text on the clipboard: of the terminal, and of the desktop where it has one."""
        self.screen.send_control(clipboard.encode_clipboard_sequence(text))
        clipboard.copy_if_possible(text)

    def toggle_vim(self) -> bool:
        """Switch the vi keys on or off."""
        return self.screen.toggle_vim()

    def _take_background(self, reply: str) -> None:
        """Suit the colours to the terminal's background, as it has told it."""
        self._background = theme.read_background_reply(reply)
        if self._theme == theme.AUTO_THEME:
            self.set_theme(self._theme)

    def show_title(self, state: Literal["", "✳ ", "? "] = "") -> None:
        """Set the terminal's title to what the session is about and what it does."""
        if not self._taste.title or self._session is None:
            return
        named = self._session.runtime.agent.session.state.get("name", "") or self.page.topic
        title = f"{state}{named or os.path.basename(os.getcwd())}"
        if title != self._title:
            first = "" if self._title else notify.SAVE_TITLE
            self._title = title
            self.screen.send_control(first + notify.render_title(title))

    def restore_title(self) -> None:
        """Give the terminal back the title that it had."""
        if self._title:
            self.screen.send_control(notify.RESTORE_TITLE)

    def notify_person(self, text: str) -> None:
        """Tell the person something, if they seem to look elsewhere."""
        if monotonic() - self.screen.last_key >= notify.MIN_AWAY_SECONDS:
            told = notify.render_notification(text, self._taste.notify, os.environ)
            self.screen.send_control(told)

    def _complete_command(self, name: str | None, word: str) -> Iterable[tuple[str, str]]:
        return complete_slash_line(self, name, word) if self._session is not None else ()

    def _mcp_resources(self) -> list[str]:
        return (
            list_resource_uris(self.session.runtime.mcp_servers)
            if self._session is not None
            else []
        )

    def line(self, text: str) -> None:
        """Show lines of text, for the trust question."""
        self.page.show_paragraph(text)

    async def read(self, prompt: str) -> str | None:
        """Ask whether to trust the folder."""
        self.line(prompt.partition("[")[0])
        picked = await self.screen.pick_options(
            (MenuOption("y", "yes"), MenuOption("n", "no, work without them"))
        )
        return None if picked is None else "no" if picked[0] else "yes"

    def prompt_content(self, text: str) -> tuple[TextOrMedia, ...]:
        """Return the prompt's text with the images that it names."""
        agent = self.session.runtime.agent
        return attach_named_images(text, agent.world.blobs, folder=agent.world.root)

    def begin_turn(self) -> None:
        """Mark the start of a turn."""
        self.page.begin_turn()
        self.show_title("✳ ")
        self._before = self.session.runtime.agent.session.dollars

    def end_turn(self, *, stopped: bool) -> None:
        """Mark the end of a turn; if it was stopped, unsent input returns to the input line."""
        inbox = self.session.runtime.agent.turn.inbox
        unheard = [extract_text(one.content) for one in inbox if one.origin == "human"]
        # After a stop the user wants to decide anew: nothing queued may start another turn.
        if stopped and (unheard or self.waiting):
            for one in [one for one in inbox if one.origin == "human"]:
                inbox.remove(one)
            back = [*unheard, *self.waiting, self.screen.buffer.text]
            self.waiting.clear()
            self.set_input("\n".join(part for part in back if part))
        self.page.end_turn(find_inspector_address(self.session))
        self.show_title()
        self.notify_person(f"{self.page.topic or 'Travois'}: {'stopped' if stopped else 'done'}")
        self.refresh_status()


GIT_FILE_HEADING = re.compile(r"diff --git a/.+ b/(.+)")
DIFF_HEADER_STARTS = ("index ", "new file ", "deleted file ", "old mode", "new mode", "similarity ")


def _split_diff(diff: str) -> Iterator[tuple[str, str]]:
    """Yield a heading and the lines of each file of a diff, without git's further headers."""
    heading, body = "", list[str]()
    for line in diff.split("\n"):
        if line.startswith(DIFF_HEADER_STARTS):
            continue
        if line[:1] in ("+", "-", " ", "@", "\\", ""):
            body.append(line)
            continue
        if heading:
            yield heading, "\n".join(body)
        found = GIT_FILE_HEADING.fullmatch(line)
        heading, body = found[1] if found else line, []
    if heading:
        yield heading, "\n".join(body)
