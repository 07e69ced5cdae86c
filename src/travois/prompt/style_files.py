"""Output style files; those of a project apply only where it is trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE
from travois.prompt.instruction_files import (
    find_markdown_files,
    list_folder_chain,
    open_exact_path,
    read_plain_text,
)
from travois.prompt.style_text import OutputStyle, parse_style
from travois.skills.skill_files import SkillPlaces

STYLES_FOLDER = "output-styles"
BUILT_IN_STYLES = Path(__file__).parent / "styles"


def load_styles(places: SkillPlaces) -> tuple[dict[str, OutputStyle], tuple[str, ...]]:
    """Load all styles by case-folded name, the nearest first; return them and notices."""
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
    """Yield the folders of styles, each with the prefix of its names."""
    yield str(places.etc / "claude-code/.claude" / STYLES_FOLDER), ""
    if places.trusted and "project" in places.levels:
        for folder in reversed(list_folder_chain(places.cwd, places.root)):
            for name in (".travois", CLAUDE.folder):
                yield os.path.join(folder, name, STYLES_FOLDER), ""
    if "user" in places.levels:
        yield str(places.home.path / STYLES_FOLDER), ""
        yield from ((path, "") for path in CLAUDE.home_paths(places.environ, STYLES_FOLDER))
    for plugin in places.plugins:
        yield from ((folder, f"{plugin.name}:") for folder in plugin.styles)
    yield str(BUILT_IN_STYLES), ""
