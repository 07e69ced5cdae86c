"""What the model should know that can change: told once at the start, later at the tail.

Model sees: a note before the first prompt.
Tokens: about 80.
Cache: never moves the prefix; nothing volatile stands in the system text.
"""

from __future__ import annotations

import msgspec

from travois.kernel.blocks import Text
from travois.kernel.facts import User


class Surroundings(msgspec.Struct, frozen=True):
    """Where a session starts."""

    cwd: str
    platform: str
    date: str
    branch: str = ""
    folders: tuple[str, ...] = ()


def baseline(around: Surroundings) -> User:
    """The note that opens a conversation."""
    lines = [f"Folder: {around.cwd}", f"Platform: {around.platform}", f"Date: {around.date}"]
    if around.branch:
        lines.append(f"Git branch: {around.branch}")
    if around.folders:
        lines.append(f"More folders you may work in: {', '.join(around.folders)}")
    body = "\n".join(map(_plain, lines))
    return User((Text(f"<environment>\n{body}\n</environment>"),), origin="note")


def _plain(line: str) -> str:
    """A line that stays one and closes nothing, whatever names the workspace brought along."""
    return "".join(c if c.isprintable() and c not in "<>" else f"\\x{ord(c):x}" for c in line)
