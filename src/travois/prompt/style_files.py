"""Output style files; those of a project apply only where it is trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from travois.compat.foreign_agent import CLAUDE
from travois.prompt.instruction_files import chain, exactly, markdown, plain_text
from travois.prompt.style_text import Style, parse
from travois.skills.skill_files import Places

FOLDER = "output-styles"
BUILT_IN = Path(__file__).parent / "styles"


def styles(places: Places) -> tuple[dict[str, Style], tuple[str, ...]]:
    """Load all styles by case-folded name, the nearest first; return them and notices."""
    found, notices = dict[str, Style](), list[str]()
    for folder, prefix in _folders(places):
        for path in sorted(markdown(folder, set())):
            try:
                text = plain_text(os.path.realpath(path), opener=exactly)
            except OSError as error:
                notices.append(f"{path} is ignored: {error.strerror or error}")
                continue
            origin = "built-in" if folder == str(BUILT_IN) else path
            style = parse(os.path.basename(path).removesuffix(".md"), text, origin=origin)
            forced = style.forced and bool(prefix)
            style = replace(style, name=prefix + style.name, forced=forced)
            found.setdefault(style.name.casefold(), style)
    return found, tuple(notices)


def _folders(places: Places) -> Iterator[tuple[str, str]]:
    """Yield the folders of styles, each with the prefix of its names."""
    yield str(places.etc / "claude-code/.claude" / FOLDER), ""
    if places.trusted and "project" in places.levels:
        for folder in reversed(chain(places.cwd, places.root)):
            for name in (".travois", CLAUDE.folder):
                yield os.path.join(folder, name, FOLDER), ""
    if "user" in places.levels:
        yield str(places.home.path / FOLDER), ""
        yield from ((path, "") for path in CLAUDE.home_paths(places.environ, FOLDER))
    for plugin in places.plugins:
        yield from ((folder, f"{plugin.name}:") for folder in plugin.styles)
    yield str(BUILT_IN), ""
