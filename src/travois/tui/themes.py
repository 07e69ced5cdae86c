"""Colours: few, and those that the terminal itself has, so that its own scheme decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from travois.core.errors import Fault

Name = Literal["auto", "dark", "light", "none"]
Role = Literal["accent", "good", "bad", "warn", "quiet", "strong"]
NAMES: tuple[Name, ...] = ("auto", "dark", "light", "none")
RESET = "\x1b[0m"
PLAIN: dict[Role, str] = {"quiet": "2", "strong": "1"}
DARK: dict[Role, str] = {"accent": "36", "good": "32", "bad": "31", "warn": "33", **PLAIN}
LIGHT: dict[Role, str] = {"accent": "34", "good": "32", "bad": "31", "warn": "35", **PLAIN}


class Theme(msgspec.Struct, frozen=True):
    """What each kind of words looks like, as the terminal is told, and how code is coloured."""

    name: Literal["dark", "light", "none"]
    roles: dict[Role, str]

    def mark(self, text: str, role: Role) -> str:
        """The text in a role."""
        code = self.roles.get(role, "")
        return f"\x1b[{code}m{text}{RESET}" if code and text else text

    @property
    def code(self) -> str:
        """The colours of code, by the name that the highlighter knows."""
        return f"ansi_{'light' if self.name == 'light' else 'dark'}"


def named(word: str) -> Name:
    """The name of a theme that somebody typed."""
    for name in NAMES:
        if name == word:
            return name
    raise Fault(f"There is no theme {word!r}", fix=f"Choose one of: {', '.join(NAMES)}.")


def theme(name: Name, environ: Mapping[str, str]) -> Theme:
    """The theme of this name; `NO_COLOR` and what the terminal says of itself decide the rest."""
    if name == "none" or (name == "auto" and environ.get("NO_COLOR")):
        return Theme("none", PLAIN)
    bright = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    if name == "light" or (name == "auto" and bright):
        return Theme("light", LIGHT)
    return Theme("dark", DARK)
