"""Commands of the user's own, beside ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial

from travois.compose import commands as custom
from travois.core.content import Text
from travois.skills.command_text import Custom
from travois.terminal.tables import clean
from travois.tui.slash import Command, Desk, Prompt


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
