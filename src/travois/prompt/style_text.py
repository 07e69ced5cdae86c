"""Output styles: text that changes how the model speaks and works.

Model sees: the text of one style at the end of the system text.
Tokens: those of its file.
Cache: part of the head; another style counts from the next session on.
"""

from __future__ import annotations

import msgspec

from travois.files import front_matter
from travois.skills.command_text import TRUE_WORDS, join_front_matter_value

DEFAULT_STYLE = "default"
CODING_SECTIONS = ("How to work\n", "Speaking\n")
"""Beginnings of the sections of our system prompt that a style may replace."""


class OutputStyle(msgspec.Struct, frozen=True):
    """One output style, and whether it keeps the coding instructions."""

    name: str
    text: str
    description: str = ""
    coding: bool = False
    forced: bool = False
    """True if the style applies wherever its plugin does."""
    origin: str = ""


def parse_style(name: str, text: str, *, origin: str) -> OutputStyle:
    """Parse a style file."""
    head = front_matter.parse_front_matter(text)
    values = {key: join_front_matter_value(value).strip() for key, value in head.values.items()}
    return OutputStyle(
        name=values.get("name") or name,
        text=head.body.strip() if head.values else text.strip(),
        description=values.get("description", ""),
        coding=values.get("keep-coding-instructions", "").lower() in TRUE_WORDS,
        forced=values.get("force-for-plugin", "").lower() in TRUE_WORDS,
        origin=origin,
    )


def render_user_preferences(*, language: str = "", commit: str = "", pr: str = "") -> str:
    """Render the user's language and attribution preferences for the end of the system prompt."""
    told = (
        f"Answer in {language}, whatever language files and tools use." if language else "",
        f"End every commit message with:\n{commit}" if commit else "",
        f"End every pull request description with:\n{pr}" if pr else "",
    )
    return "\n\n".join(filter(None, told))


def apply_style(system: str, style: OutputStyle) -> str:
    """Apply a style to a system prompt."""
    parts = system.split("\n\n")
    kept = (
        parts if style.coding else [part for part in parts if not part.startswith(CODING_SECTIONS)]
    )
    return "\n\n".join((*kept, style.text))
