"""Skills: instructions for one kind of work that the model loads when needed.

Model sees: a line for each in a note, later for those that changed; the text of one that is used.
Tokens: a hundredth of the window for the list; after a compaction 5,000 each, 25,000 in all.
Cache: never moves the prefix; the list stands in notes, a text in the result that brought it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat

import msgspec
from msgspec.structs import replace

from travois.core.content import Text
from travois.core.facts import User
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem
from travois.files import front_matter
from travois.prompt.environment import NONE, plain
from travois.prompt.instruction_text import fits
from travois.skills.command_text import Custom, read

OPENING = "<skills>\n"
CLOSING = "\n</skills>"
INTRO = "Skills that you can use with the Skill tool where their line fits the task:"
SHARE = 0.01
"""The part of the window that the list may take, if nobody says otherwise."""
WIDTHS = (1_536, 600, 300, 150, 80, 40, 0)
"""Characters of a summary; fewer where there are many skills."""
NAME = re.compile(r"[^\W_][\w.-]{0,63}")
HEADING = re.compile(r"^(#.*|[-=*_]{3,})$", re.MULTILINE)


class Known(msgspec.Struct, frozen=True):
    """The available skills in order of precedence, and notices about others."""

    skills: tuple[Custom, ...] = ()
    notices: tuple[str, ...] = ()
    share: float = SHARE
    """The part of the window that the list may take."""


def parse(text: str, *, origin: str, prefix: str = "") -> Custom:
    """Parse a SKILL.md; a missing name or description is taken from its folder or text."""
    told = read(text, origin=origin)
    folder = os.path.basename(os.path.dirname(origin))
    name = told.name if NAME.fullmatch(told.name) else folder.replace(" ", "-")
    return replace(
        told,
        name=f"{prefix}{name}",
        description=told.description or _paragraph(told.body),
        first=0,
        paths=_globs(front_matter.parse_front_matter(text).values.get("paths", ())),
    )


def about(skill: Custom) -> str:
    """Summarise a skill in one line of limited length."""
    text = " ".join(f"{skill.description} {skill.when}"[: 2 * WIDTHS[0]].split())
    return plain(_cut(text, WIDTHS[0]))


def baseline(skills: Sequence[Custom], room: int) -> str:
    """Render the skill list within a token limit; empty if there are no skills."""
    return _note(_lines(skills, room), INTRO)


def updated(skills: Sequence[Custom], items: Iterable[ViewItem], room: int) -> str:
    """Render the changes since the skills that the conversation shows; empty if none."""
    told = _told(items)
    if not told:
        return baseline(skills, room)
    whole = {plain(skill.name): about(skill) for skill in skills}
    lines = _lines(skills, room)
    fresh = {name: line for name, line in lines.items() if not _knows(told.get(name), whole[name])}
    gone = {name: NONE for name, line in told.items() if name not in whole and line != NONE}
    return _note(fresh | gone, "Skills that changed:")


def awake(skills: Iterable[Custom], paths: Iterable[str], base: str) -> tuple[str, ...]:
    """Return the names of the skills whose patterns match some of these files."""
    local = [os.path.relpath(path, base) for path in paths]
    return tuple(
        skill.name
        for skill in skills
        if any(fits(glob, path) for glob in skill.paths for path in local)
    )


def shown(skill: Custom, body: str) -> str:
    """Render a skill's text with the folder of its files."""
    folder = os.path.dirname(skill.origin)
    head = f'<skill name="{plain(skill.name)}" folder="{plain(folder)}">'
    return f"{head}\n{body}\n</skill>"


def _lines(skills: Sequence[Custom], room: int) -> dict[str, str]:
    """Return a line for each skill, shortened until all fit; of too many, the first ones."""
    whole = [(plain(one.name), about(one)) for one in sorted(skills, key=lambda one: one.name)]
    count = len(whole)
    for width in chain(WIDTHS, repeat(0)):
        lines = {name: _cut(line, width) for name, line in whole[:count]}
        if not lines or estimate_tokens(_note(lines, INTRO)) <= room:
            return lines
        count = count if width else count * 3 // 4
    raise AssertionError


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def _knows(line: str | None, whole: str) -> bool:
    """Return whether a line shown earlier still says this, or its beginning."""
    if line is None:
        return False
    return line == whole or (line.endswith("…") and whole.startswith(line[:-1]))


def _note(lines: Mapping[str, str], intro: str) -> str:
    body = "\n".join(f"- {name}: {line}" for name, line in lines.items())
    return f"{OPENING}{intro}\n{body}{CLOSING}" if lines else ""


def _told(items: Iterable[ViewItem]) -> dict[str, str]:
    """Return the last shown line of each skill, by name."""
    told: dict[str, str] = {}
    for item in items:
        if not isinstance(item.fact, User) or item.fact.origin != "note":
            continue
        for block in item.fact.content:
            if isinstance(block, Text) and block.text.startswith(OPENING):
                lines = block.text.removesuffix(CLOSING).splitlines()
                parts = (line[2:].partition(": ") for line in lines if line.startswith("- "))
                told.update((name, line) for name, _, line in parts)
    return told


def _paragraph(body: str) -> str:
    """Return the first paragraph that is not a heading."""
    parts = (" ".join(HEADING.sub("", part).split()) for part in body.split("\n\n"))
    return next(filter(None, parts), "")


def _globs(value: front_matter.FrontMatterValue) -> tuple[str, ...]:
    listed = front_matter.split_on_commas(value) if isinstance(value, str) else value
    return tuple(glob for word in listed if (glob := word.strip("'\"")))
