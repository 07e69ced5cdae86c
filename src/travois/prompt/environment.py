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

ENVIRONMENT_OPENING = "<environment>\n"
ENVIRONMENT_CLOSING = "\n</environment>"
NO_VALUE = "(none)"
PLAN_MODE_TEXT = (
    "plan; read only, change nothing, then present a plan to the user with ExitPlanMode"
)


class Environment(msgspec.Struct, frozen=True):
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
            "Folder": escape_line(self.cwd),
            "Platform": escape_line(self.platform),
            "Date": escape_line(self.date),
            "Git branch": escape_line(self.branch),
            "Additional folders you may work in": escape_line(", ".join(self.folders)),
            "Mode": PLAN_MODE_TEXT if self.planning else "",
            "Files you made in /tmp before are in": escape_line(self.old_tmp),
        }


def render_environment(environment: Environment) -> User:
    """Render the environment note that opens a conversation."""
    return _build_environment_note(
        {name: value for name, value in environment.lines.items() if value}
    )


def render_environment_update(environment: Environment, items: Iterable[ViewItem]) -> User | None:
    """Render a note on what changed in the environment since; None if nothing did."""
    told = _read_shown_environment(items)
    changed = {
        name: value or NO_VALUE
        for name, value in environment.lines.items()
        if value != told.get(name, "").replace(NO_VALUE, "")
    }
    return _build_environment_note(changed) if changed else None


def escape_line(line: str) -> str:
    """Escape control characters and angle brackets in a line of the environment note."""
    return "".join(c if c.isprintable() and c not in "<>" else f"\\x{ord(c):x}" for c in line)


def _build_environment_note(lines: dict[str, str]) -> User:
    body = "\n".join(f"{name}: {value}" for name, value in lines.items())
    return User((Text(f"{ENVIRONMENT_OPENING}{body}{ENVIRONMENT_CLOSING}"),), origin="note")


def _read_shown_environment(items: Iterable[ViewItem]) -> dict[str, str]:
    """Return the last value of each label in our own environment notes."""
    told: dict[str, str] = {}
    for item in items:
        if not isinstance(item.fact, User) or item.fact.origin != "note":
            continue
        for block in item.fact.content:
            if isinstance(block, Text) and block.text.startswith(ENVIRONMENT_OPENING):
                lines = (
                    block.text.removeprefix(ENVIRONMENT_OPENING)
                    .removesuffix(ENVIRONMENT_CLOSING)
                    .splitlines()
                )
                told.update((n, v) for n, _, v in (line.partition(": ") for line in lines))
    return told
