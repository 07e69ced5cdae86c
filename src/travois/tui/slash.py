"""Slash commands: matching a line to a command, running and completing it."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import anyio.to_thread
import msgspec

from travois.compose import commands as custom
from travois.compose.live_session import LiveSession
from travois.compose.options import Options
from travois.core.content import Text, TextOrMedia
from travois.core.errors import UserError
from travois.settings.validate import find_nearest_word
from travois.skills.command_text import TYPED_COMMAND, CustomCommand
from travois.terminal import CommandParsers, capture_lines, escape_controls

if TYPE_CHECKING:
    from travois.compose.session_picker import SessionPicker
    from travois.sessions.catalog import SessionSummary


MEMORY_NOTE_PATTERN = re.compile(r"#[ \t]*([^\W\d].*)")
"""A line that adds a memory; `#12` is a prompt."""


CURRENT_MARK = " (now)"
"""Ends the option of a list that holds at present."""


class CommandHost(Protocol):
    """The front end in which slash commands run: screen, line mode or editor."""

    @property
    def session(self) -> LiveSession:
        """The current session."""
        ...

    @property
    def options(self) -> Options:
        """The options that the session was started with."""
        ...

    @property
    def commands(self) -> Mapping[str, SlashCommand]:
        """All slash commands that are available here."""
        ...

    @property
    def columns(self) -> int:
        """The width available for an answer."""
        ...

    @property
    def can_choose(self) -> bool:
        """True if a choice can be put to the user."""
        ...

    async def pick_option(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Let the user choose one of the options, each with a note; None if they cancel."""
        ...

    async def pick_session(self, picker: SessionPicker) -> SessionSummary | None:
        """Let the user choose a session; None if they cancel."""
        ...

    def set_input(self, text: str) -> None:
        """Put text on the input line, to be edited and sent."""
        ...

    def switch_to(self, options: Options | None) -> None:
        """Leave this session for another one, or exit."""
        ...

    def set_theme(self, name: str) -> None:
        """Change the theme; raise `UserError` if it is unknown."""
        ...

    async def ask_secret(self, label: str) -> str | None:
        """Ask for a line that is not shown while it is typed; None if the user cancels."""
        ...

    def show_diff(self, diff: str) -> None:
        """Show a unified diff."""
        ...

    def insert_input(self, text: str) -> None:
        """Insert text into the input line."""
        ...

    def copy_text(self, text: str) -> None:
        """Put text on the clipboard; raise `UserError` where there is none."""
        ...

    def toggle_vim(self) -> bool:
        """Switch the vi keys on or off; return whether they are on now."""
        ...


class ScreenlessHost:
    """The answers to slash commands of a host that has no screen of ours."""

    can_choose = False

    async def ask_secret(self, label: str) -> str | None:
        """Return None: nothing can be typed unseen."""
        return None

    def show_diff(self, diff: str) -> None:
        """Show nothing: there is no place for it."""

    def insert_input(self, text: str) -> None:
        """Refuse: the input line is another program's."""
        raise UserError("There is no input line here", fix=f"Type this in your message: {text}")

    def copy_text(self, text: str) -> None:
        """Refuse: the clipboard is another program's."""
        raise UserError("There is no clipboard here", fix="Copy it from the screen.")

    def toggle_vim(self) -> bool:
        """Refuse: the keys are another program's."""
        raise UserError("There are no vi keys here")


class CommandPrompt(msgspec.Struct, frozen=True):
    """Content to send to the model in place of a command."""

    content: tuple[TextOrMedia, ...]


class SlashCommand(msgspec.Struct, frozen=True):
    """A slash command."""

    usage: str
    what: str
    run: Callable[[CommandHost, str], Awaitable[str | CommandPrompt]]
    """Takes the text after the name; returns the answer, or nothing to show."""
    complete: Callable[[CommandHost], Iterable[str]] = lambda desk: ()
    """Returns the words that can follow the name."""
    when: Literal["idle", "ever", "long"] = "idle"
    """When it runs: between turns, at any time, or between turns and taking long."""


async def capture_output(host: CommandHost, run: Callable[[], object]) -> str:
    """Run a slash command's function in a thread and return what it prints."""

    def run_overheard() -> str:
        with capture_lines(host.columns) as lines:
            run()
        return "\n".join(lines)

    return await anyio.to_thread.run_sync(run_overheard)


def parse_command_line(
    register: Callable[[CommandParsers], None], words: Sequence[str]
) -> Namespace:
    """Parse the words of a `travois` command that a slash command runs."""
    top = ArgumentParser(exit_on_error=False)
    register(top.add_subparsers())
    return top.parse_args(words)


def find_slash_command(host: CommandHost, line: str) -> SlashCommand | None:
    """Find the command that a line begins with."""
    found = TYPED_COMMAND.fullmatch(line.strip())
    return host.commands.get(found[1]) if found else None


async def run_slash_line(host: CommandHost, line: str) -> str | CommandPrompt | None:
    """Run a line as a slash command; return its answer or a prompt, None if it is none."""
    note = MEMORY_NOTE_PATTERN.fullmatch(line.strip())
    found = TYPED_COMMAND.fullmatch(f"/memory add {note[1]}" if note else line.strip())
    if found is None:
        return None
    known = host.commands.get(found[1])
    if known is None and found[1].startswith("mcp__"):
        return await _run_mcp_prompt(host, line.strip())
    if known is None:
        near = find_nearest_word(found[1], host.commands)
        meant = f"did you mean /{near}?" if near else "/help lists the commands."
        return f"There is no command /{found[1]}; {meant}"
    try:
        with capture_lines(host.columns):
            return await known.run(host, (found[2] or "").strip())
    except UserError as fault:
        return str(fault)


async def _run_mcp_prompt(host: CommandHost, line: str) -> str | CommandPrompt:
    """Run a prompt of an MCP server (`/mcp__server__prompt`)."""
    try:
        return CommandPrompt(await custom.expand_typed_command(host.session, {}, (Text(line),)))
    except UserError as fault:
        return str(fault)


def complete_slash_line(
    host: CommandHost, name: str | None, word: str
) -> Iterable[tuple[str, str]]:
    """Complete a command's name or, for a named command, its arguments."""
    if name is None:
        return [(n, one.what) for n, one in host.commands.items() if n.startswith(word)]
    known = host.commands.get(name)
    return [(text, "") for text in (known.complete(host) if known else ()) if text.startswith(word)]


# Custom commands.


async def _run_custom_command(one: CustomCommand, host: CommandHost, typed: str) -> CommandPrompt:
    line = Text(f"/{one.name} {typed}".strip())
    return CommandPrompt(await custom.expand_typed_command(host.session, {one.name: one}, (line,)))


def to_slash_commands(known: Mapping[str, CustomCommand]) -> dict[str, SlashCommand]:
    """Wrap custom commands as slash commands, with hint, description and file."""
    return {
        name: SlashCommand(
            escape_controls(f"/{name} {one.hint}".strip(), lines="show"),
            escape_controls(f"{one.description} ({_shorten_origin(one.origin)})", lines="show"),
            partial(_run_custom_command, one),
        )
        for name, one in known.items()
    }


def _shorten_origin(path: str) -> str:
    """Shorten a path, relative to the current folder or to home."""
    for folder, name in ((os.getcwd(), ""), (os.path.expanduser("~"), "~/")):
        if path.startswith(f"{folder}/"):
            return name + path[len(folder) + 1 :]
    return path
