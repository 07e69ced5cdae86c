"""What the model should know that can change: told once at the start, later at the tail.

Model sees: a note before the first prompt; before later ones a line for each thing that changed.
Tokens: about 80, and 20 for each change.
Cache: never moves the prefix; nothing volatile stands in the system text.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.core.content import Text
from travois.core.facts import User
from travois.core.view import Item

OPENING, CLOSING = "<environment>\n", "\n</environment>"
NONE = "(none)"
PLANNING = "plan; only look, change nothing, then put a plan to the user with ExitPlanMode"


class Surroundings(msgspec.Struct, frozen=True):
    """Where a session stands."""

    cwd: str
    platform: str
    date: str
    branch: str = ""
    folders: tuple[str, ...] = ()
    planning: bool = False
    """Whether nothing may be changed before a plan is agreed to."""
    old_tmp: str = ""
    """Where files are that were made in /tmp while it was private to the session."""

    @property
    def lines(self) -> dict[str, str]:
        """What is told, by its name."""
        return {
            "Folder": plain(self.cwd),
            "Platform": plain(self.platform),
            "Date": plain(self.date),
            "Git branch": plain(self.branch),
            "More folders you may work in": plain(", ".join(self.folders)),
            "Mode": PLANNING if self.planning else "",
            "What you made in /tmp before is in": plain(self.old_tmp),
        }


def baseline(around: Surroundings) -> User:
    """The note that opens a conversation."""
    return _note({name: value for name, value in around.lines.items() if value})


def updated(around: Surroundings, items: Iterable[Item]) -> User | None:
    """A note on what is no longer as the conversation says; none if all is."""
    told = _told(items)
    changed = {
        name: value or NONE
        for name, value in around.lines.items()
        if value != told.get(name, "").replace(NONE, "")
    }
    return _note(changed) if changed else None


def plain(line: str) -> str:
    """A line that stays one and closes nothing, whatever names the workspace brought along."""
    return "".join(c if c.isprintable() and c not in "<>" else f"\\x{ord(c):x}" for c in line)


def _note(lines: dict[str, str]) -> User:
    body = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return User((Text(f"{OPENING}{body}{CLOSING}"),), origin="note")


def _told(items: Iterable[Item]) -> dict[str, str]:
    """What was told last, by its name: our own notes, in which nobody else can have a line."""
    told: dict[str, str] = {}
    for item in items:
        if not isinstance(item.fact, User) or item.fact.origin != "note":
            continue
        for block in item.fact.content:
            if isinstance(block, Text) and block.text.startswith(OPENING):
                lines = block.text.removeprefix(OPENING).removesuffix(CLOSING).splitlines()
                told.update((n, v) for n, _, v in (line.partition(": ") for line in lines))
    return told
