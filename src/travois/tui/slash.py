"""What can be typed at the prompt besides prompts: a word after a slash."""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from travois.compose import commands as custom
from travois.compose.options import Options
from travois.core.content import Shown, Text
from travois.core.errors import Fault
from travois.sdk import Session
from travois.settings.validate import nearest
from travois.skills.command_text import TYPED, Custom
from travois.terminal.tables import clean, overheard

if TYPE_CHECKING:
    from travois.compose.session_picker import Shelf
    from travois.sessions.catalog import Summary


NOTE = re.compile(r"#[ \t]*([^\W\d].*)")
"""A line that is to be remembered, and is no prompt; `#12` is one."""


class Desk(Protocol):
    """Where a command was typed, and what it can do there besides giving an answer."""

    @property
    def session(self) -> Session:
        """The conversation."""
        ...

    @property
    def options(self) -> Options:
        """What it was begun with."""
        ...

    @property
    def commands(self) -> Mapping[str, Command]:
        """All commands that there are here."""
        ...

    @property
    def columns(self) -> int:
        """How wide an answer may be."""
        ...

    async def pick(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Let the person choose one of some things, each with a remark; None if they do not."""
        ...

    async def browse(self, shelf: Shelf) -> Summary | None:
        """Let the person choose a session; None if they do not."""
        ...

    def type(self, text: str) -> None:
        """Put words where the person types, for them to change and send."""
        ...

    def turn_to(self, options: Options | None) -> None:
        """Leave this conversation, for another one or for good."""
        ...

    def dress(self, theme: str) -> None:
        """Use other colours; raises `Fault` if there are none of that name."""
        ...


class Prompt(msgspec.Struct, frozen=True):
    """What is to be said to the model in place of a command."""

    content: tuple[Shown, ...]


class Command(msgspec.Struct, frozen=True):
    """One command: how it is written, what it does, and who does it."""

    usage: str
    what: str
    run: Callable[[Desk, str], Awaitable[str | Prompt]]
    """Gets what was typed after its name; gives the answer, or nothing to show."""
    complete: Callable[[Desk], Iterable[str]] = lambda desk: ()
    """The words that may follow it."""
    when: Literal["idle", "ever", "long"] = "idle"
    """Whether it may run beside a turn, waits for its end, or takes its time as well."""


def named(desk: Desk, line: str) -> Command | None:
    """The command that a line begins with."""
    found = TYPED.fullmatch(line.strip())
    return desk.commands.get(found[1]) if found else None


async def obey(desk: Desk, line: str) -> str | Prompt | None:
    """Do what a line says and give the answer, or what to say; none if it is a prompt itself."""
    note = NOTE.fullmatch(line.strip())
    found = TYPED.fullmatch(f"/memory add {note[1]}" if note else line.strip())
    if found is None:
        return None
    known = desk.commands.get(found[1])
    if known is None and found[1].startswith("mcp__"):
        return await _lent(desk, line.strip())
    if known is None:
        near = nearest(found[1], desk.commands)
        meant = f"did you mean /{near}?" if near else "/help lists those that there are."
        return f"There is no command /{found[1]}; {meant}"
    try:
        with overheard(desk.columns):
            return await known.run(desk, (found[2] or "").strip())
    except Fault as fault:
        return str(fault)


async def _lent(desk: Desk, line: str) -> str | Prompt:
    """What a server has ready in place of a command."""
    try:
        return Prompt(await custom.said(desk.session, {}, (Text(line),)))
    except Fault as fault:
        return str(fault)


def offers(desk: Desk, name: str | None, word: str) -> Iterable[tuple[str, str]]:
    """The commands that begin with a word; for a named one, the words that may follow it."""
    if name is None:
        return [(n, one.what) for n, one in desk.commands.items() if n.startswith(word)]
    known = desk.commands.get(name)
    return [(text, "") for text in (known.complete(desk) if known else ()) if text.startswith(word)]


# Commands of the user's own, beside ours.


async def _say(one: Custom, desk: Desk, typed: str) -> Prompt:
    line = Text(f"/{one.name} {typed}".strip())
    return Prompt(await custom.said(desk.session, {one.name: one}, (line,)))


def commands(known: Mapping[str, Custom]) -> dict[str, Command]:
    """Each with its hint, what it is for, and the file that it is from."""
    return {
        name: Command(
            clean(f"/{name} {one.hint}".strip(), lines="show"),
            clean(f"{one.description} ({_near(one.origin)})", lines="show"),
            partial(_say, one),
        )
        for name, one in known.items()
    }


def _near(path: str) -> str:
    """A path as people say it: from here, or from their home."""
    for folder, name in ((os.getcwd(), ""), (os.path.expanduser("~"), "~/")):
        if path.startswith(f"{folder}/"):
            return name + path[len(folder) + 1 :]
    return path
