"""Output styles: text that changes how the model speaks and works.

Model sees: the text of one style at the end of the system text.
Tokens: those of its file.
Cache: part of the head; another style counts from the next session on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE
from travois.files import front_matter
from travois.prompt.instruction_files import (
    find_markdown_files,
    list_folder_chain,
    open_exact_path,
    read_plain_text,
)
from travois.skills.command_text import TRUE_WORDS, join_front_matter_value
from travois.skills.skill_files import SkillPlaces

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
    """Parse an output style file."""
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
    """Apply an output style to a system prompt."""
    parts = system.split("\n\n")
    kept = (
        parts if style.coding else [part for part in parts if not part.startswith(CODING_SECTIONS)]
    )
    return "\n\n".join((*kept, style.text))


STYLES_FOLDER = "output-styles"
BUILT_IN_STYLES = Path(__file__).parent / "styles"


def load_styles(places: SkillPlaces) -> tuple[dict[str, OutputStyle], tuple[str, ...]]:
    """Load all output styles by case-folded name, the nearest first; return them and notices."""
    found, notices = dict[str, OutputStyle](), list[str]()
    for folder, prefix in _list_style_folders(places):
        for path in sorted(find_markdown_files(folder, set())):
            try:
                text = read_plain_text(os.path.realpath(path), opener=open_exact_path)
            except OSError as error:
                notices.append(f"{path} is ignored: {error.strerror or error}")
                continue
            origin = "built-in" if folder == str(BUILT_IN_STYLES) else path
            style = parse_style(os.path.basename(path).removesuffix(".md"), text, origin=origin)
            forced = style.forced and bool(prefix)
            style = replace(style, name=prefix + style.name, forced=forced)
            found.setdefault(style.name.casefold(), style)
    return found, tuple(notices)


def _list_style_folders(places: SkillPlaces) -> Iterator[tuple[str, str]]:
    """Yield the folders of output styles, each with the prefix of its names."""
    yield str(places.etc / "claude-code/.claude" / STYLES_FOLDER), ""
    if places.trusted and "project" in places.levels:
        for folder in reversed(list_folder_chain(places.cwd, places.root)):
            for name in (".travois", CLAUDE.folder):
                yield os.path.join(folder, name, STYLES_FOLDER), ""
    if "user" in places.levels:
        yield str(places.home.config / STYLES_FOLDER), ""
        yield from ((path, "") for path in CLAUDE.home_paths(places.environ, STYLES_FOLDER))
    for plugin in places.plugins:
        yield from ((folder, f"{plugin.name}:") for folder in plugin.styles)
    yield str(BUILT_IN_STYLES), ""
