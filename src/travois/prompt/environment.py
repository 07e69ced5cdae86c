"""The environment note: changeable facts, shown at the start and updated later.

Model sees: a note before the first prompt; before later ones a line for each thing that changed.
Tokens: about 80, and 20 for each change.
Cache: never moves the prefix; nothing volatile stands in the system text.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.core.content import Text
from travois.core.facts import User
from travois.core.view import ViewItem

OPENING = "<environment>\n"
CLOSING = "\n</environment>"
NONE = "(none)"
PLANNING = "plan; read only, change nothing, then present a plan to the user with ExitPlanMode"


class Surroundings(msgspec.Struct, frozen=True):
    """The folder, platform, date and mode of a session."""

    cwd: str
    platform: str
    date: str
    branch: str = ""
    folders: tuple[str, ...] = ()
    planning: bool = False
    """True in plan mode, in which nothing may be changed."""
    old_tmp: str = ""
    """The folder with files from the time when /tmp was private to the session."""

    @property
    def lines(self) -> dict[str, str]:
        """Return the lines of the note, by label."""
        return {
            "Folder": plain(self.cwd),
            "Platform": plain(self.platform),
            "Date": plain(self.date),
            "Git branch": plain(self.branch),
            "Additional folders you may work in": plain(", ".join(self.folders)),
            "Mode": PLANNING if self.planning else "",
            "Files you made in /tmp before are in": plain(self.old_tmp),
        }


def baseline(around: Surroundings) -> User:
    """Render the note that opens a conversation."""
    return _note({name: value for name, value in around.lines.items() if value})


def updated(around: Surroundings, items: Iterable[ViewItem]) -> User | None:
    """Render a note about what changed since the conversation; None if nothing did."""
    told = _told(items)
    changed = {
        name: value or NONE
        for name, value in around.lines.items()
        if value != told.get(name, "").replace(NONE, "")
    }
    return _note(changed) if changed else None


def plain(line: str) -> str:
    """Escape control characters and angle brackets, so that a line stays one line of text."""
    return "".join(c if c.isprintable() and c not in "<>" else f"\\x{ord(c):x}" for c in line)


def _note(lines: dict[str, str]) -> User:
    body = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return User((Text(f"{OPENING}{body}{CLOSING}"),), origin="note")


def _told(items: Iterable[ViewItem]) -> dict[str, str]:
    """Return the last value of each label in our own notes, where no one else can add lines."""
    told: dict[str, str] = {}
    for item in items:
        if not isinstance(item.fact, User) or item.fact.origin != "note":
            continue
        for block in item.fact.content:
            if isinstance(block, Text) and block.text.startswith(OPENING):
                lines = block.text.removeprefix(OPENING).removesuffix(CLOSING).splitlines()
                told.update((n, v) for n, _, v in (line.partition(": ") for line in lines))
    return told
