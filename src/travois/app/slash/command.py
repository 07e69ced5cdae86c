"""What can be typed at the prompt besides prompts: a word after a slash."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from travois.app.options import Options
from travois.app.sdk import Session
from travois.kernel.faults import Fault

NOTE = re.compile(r"#[ \t]*([^\W\d].*)")
"""A line that is to be remembered, and is no prompt; `#12` is one."""
WORD = re.compile(r"/([a-z][a-z0-9:_-]*)(?:\s+(.*))?", re.DOTALL)


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

    async def pick(self, title: str, options: Sequence[tuple[str, str]]) -> int | None:
        """Let the person choose one of some things, each with a remark; None if they do not."""
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


class Command(msgspec.Struct, frozen=True):
    """One command: how it is written, what it does, and who does it."""

    usage: str
    what: str
    run: Callable[[Desk, str], Awaitable[str]]
    """Gets what was typed after its name; gives the answer, or nothing to show."""
    complete: Callable[[Desk], Iterable[str]] = lambda desk: ()
    """The words that may follow it."""


async def obey(desk: Desk, line: str) -> str | None:
    """Do what a line says and give the answer; none if it is a prompt."""
    note = NOTE.fullmatch(line.strip())
    found = WORD.fullmatch(f"/memory add {note[1]}" if note else line.strip())
    if found is None:
        return None
    known = desk.commands.get(found[1])
    if known is None:
        return f"There is no command /{found[1]}; /help lists those that there are."
    try:
        return await known.run(desk, (found[2] or "").strip())
    except Fault as fault:
        return str(fault)


def offers(desk: Desk, name: str | None, word: str) -> Iterable[tuple[str, str]]:
    """The commands that begin with a word; for a named one, the words that may follow it."""
    if name is None:
        return [(n, one.what) for n, one in desk.commands.items() if n.startswith(word)]
    known = desk.commands.get(name)
    return [(text, "") for text in (known.complete(desk) if known else ()) if text.startswith(word)]
