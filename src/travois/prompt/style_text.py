"""Output styles: how the model should speak, and what it is besides a coder.

Model sees: the text of one style at the end of the system text.
Tokens: those of its file.
Cache: part of the head; another style counts from the next session on.
"""

from __future__ import annotations

import msgspec

from travois.files import front_matter as front
from travois.skills.command_text import YES, said

DEFAULT = "default"
CODING = ("How to work\n", "Speaking\n")
"""How the parts of our system text begin that a style may take the place of."""


class Style(msgspec.Struct, frozen=True):
    """One style, and whether it keeps what we say of coding and speaking."""

    name: str
    text: str
    description: str = ""
    coding: bool = False
    forced: bool = False
    """Whether it holds wherever its plugin does."""
    origin: str = ""


def parse(name: str, text: str, *, origin: str) -> Style:
    """A style from its file."""
    head = front.read(text)
    values = {key: said(value).strip() for key, value in head.values.items()}
    return Style(
        name=values.get("name") or name,
        text=head.body.strip() if head.values else text.strip(),
        description=values.get("description", ""),
        coding=values.get("keep-coding-instructions", "").lower() in YES,
        forced=values.get("force-for-plugin", "").lower() in YES,
        origin=origin,
    )


def wishes(*, language: str = "", commit: str = "", pr: str = "") -> str:
    """What the user wants of every session, for the end of the system text; empty if nothing."""
    told = (
        f"Answer in {language}, whatever language files and tools speak." if language else "",
        f"End every commit message with:\n{commit}" if commit else "",
        f"End the text of every pull request with:\n{pr}" if pr else "",
    )
    return "\n\n".join(filter(None, told))


def styled(system: str, style: Style) -> str:
    """A system text in a style."""
    parts = system.split("\n\n")
    kept = parts if style.coding else [part for part in parts if not part.startswith(CODING)]
    return "\n\n".join((*kept, style.text))
