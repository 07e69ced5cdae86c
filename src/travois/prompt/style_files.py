"""Output styles on disk; those of a project count only where it is trusted."""

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
    """All styles by name, in any case, the nearest first; and what is wrong with files."""
    found, notices = dict[str, Style](), list[str]()
    for folder, prefix in _folders(places):
        for path in sorted(markdown(folder, set())):
            try:
                text = plain_text(os.path.realpath(path), opener=exactly)
            except OSError as error:
                notices.append(f"{path} is left out: {error.strerror or error}")
                continue
            origin = "built-in" if folder == str(BUILT_IN) else path
            style = parse(os.path.basename(path).removesuffix(".md"), text, origin=origin)
            forced = style.forced and bool(prefix)
            style = replace(style, name=prefix + style.name, forced=forced)
            found.setdefault(style.name.casefold(), style)
    return found, tuple(notices)


def _folders(places: Places) -> Iterator[tuple[str, str]]:
    """Folders of styles, each with what stands before the names in it."""
    yield str(places.etc / "claude-code/.claude" / FOLDER), ""
    if places.trusted and "project" in places.levels:
        for folder in reversed(chain(places.cwd, places.root)):
            for name in (".travois", CLAUDE.folder):
                yield os.path.join(folder, name, FOLDER), ""
    if "user" in places.levels:
        yield str(places.home.path / FOLDER), ""
        yield from ((path, "") for path in CLAUDE.within_home(places.environ, FOLDER))
    for plugin in places.plugins:
        yield from ((folder, f"{plugin.name}:") for folder in plugin.styles)
    yield str(BUILT_IN), ""
