"""The interfaces of skills, and the session state that they use."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Protocol

import msgspec
from msgspec.structs import replace

from travois.core.content import Text
from travois.core.facts import Changed, User
from travois.core.patterns import compile_lazily
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem
from travois.files import front_matter
from travois.prompt.environment import NO_VALUE, escape_line
from travois.prompt.instruction_text import matches_scope_pattern
from travois.skills.command_text import CustomCommand, parse_prompt_file
from travois.skills.skill_format import MISSING_NAME, find_extensions, find_skill_flaws

SKILLS_OPENING = "<skills>\n"
SKILLS_CLOSING = "\n</skills>"
SKILLS_INTRO = "Skills that you can use with the Skill tool where their line fits the task:"
SKILL_LIST_SHARE = 0.01
"""The part of the window that the list may take, if nobody says otherwise."""
SUMMARY_WIDTHS = (1_536, 600, 300, 150, 80, 40, 0)
"""Characters of a summary; fewer where there are many skills."""
MAX_FLAW_NOTICES = 5
"""Skills with flaws that are named at the start, at most."""
SKILL_NAME = compile_lazily(r"[^\W_][\w.-]{0,63}")
HEADING_LINE = compile_lazily(r"^(#.*|[-=*_]{3,})$", re.MULTILINE)


class LoadedSkills(msgspec.Struct, frozen=True):
    """The available skills in order of precedence, and notices about other files."""

    skills: tuple[CustomCommand, ...] = ()
    ignored: tuple[str, ...] = ()
    """Notices about files that are not used."""
    share: float = SKILL_LIST_SHARE
    """The part of the window that the list may take."""

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user should hear at the start: ignored files, and skills with flaws.

        Claude Code's skills need no name of their own, so only `travois skills` says that one is
        missing.
        """
        flawed = [one for one in self.skills if {*one.flaws} - {MISSING_NAME}]
        told = (
            f"skill {one.name}: {'; '.join(one.flaws)} ({one.origin})"
            for one in flawed[:MAX_FLAW_NOTICES]
        )
        more = len(flawed) - MAX_FLAW_NOTICES
        rest = (f"{more} more skills deviate from the format; see `travois skills`",)
        return (*self.ignored, *told, *(rest if more > 0 else ()))


def parse_skill(text: str, *, origin: str, prefix: str = "") -> CustomCommand:
    """Parse a SKILL.md; a missing name or description is taken from its folder or text."""
    told = parse_prompt_file(text, origin=origin)
    folder = os.path.basename(os.path.dirname(origin))
    name = told.name if SKILL_NAME.fullmatch(told.name) else folder.replace(" ", "-")
    return replace(
        told,
        name=f"{prefix}{name}",
        description=told.description or _find_first_paragraph(told.body),
        first=0,
        is_skill=True,
        flaws=find_skill_flaws(text, folder),
        extensions=find_extensions(text),
        paths=_split_globs(front_matter.parse_front_matter(text).values.get("paths", ())),
    )


def summarise_skill(skill: CustomCommand) -> str:
    """Summarise a skill in one line of limited length."""
    text = " ".join(f"{skill.description} {skill.when}"[: 2 * SUMMARY_WIDTHS[0]].split())
    return escape_line(_cut_line(text, SUMMARY_WIDTHS[0]))


def render_skill_list(skills: Sequence[CustomCommand], room: int) -> str:
    """Render the skill list within a token limit; empty if there are no skills."""
    return _build_skill_note(_fit_skill_lines(skills, room), SKILLS_INTRO)


def render_skill_changes(
    skills: Sequence[CustomCommand], items: Iterable[ViewItem], room: int
) -> str:
    """Render the changes since the skills that the conversation shows; empty if none."""
    told = _read_shown_skills(items)
    if not told:
        return render_skill_list(skills, room)
    whole = {escape_line(skill.name): summarise_skill(skill) for skill in skills}
    lines = _fit_skill_lines(skills, room)
    fresh = {
        name: line for name, line in lines.items() if not _line_covers(told.get(name), whole[name])
    }
    gone = {name: NO_VALUE for name, line in told.items() if name not in whole and line != NO_VALUE}
    return _build_skill_note(fresh | gone, "Skills that changed:")


def match_skills(
    skills: Iterable[CustomCommand], paths: Iterable[str], base: str
) -> tuple[str, ...]:
    """Return the names of the skills whose patterns match some of these files."""
    local = [os.path.relpath(path, base) for path in paths]
    return tuple(
        skill.name
        for skill in skills
        if any(matches_scope_pattern(glob, path) for glob in skill.paths for path in local)
    )


def render_skill(skill: CustomCommand, body: str) -> str:
    """Render a skill's text with the folder of its files."""
    folder = os.path.dirname(skill.origin)
    head = f'<skill name="{escape_line(skill.name)}" folder="{escape_line(folder)}">'
    return f"{head}\n{body}\n</skill>"


def _fit_skill_lines(skills: Sequence[CustomCommand], room: int) -> dict[str, str]:
    """Return a line for each skill, shortened until all fit; if too many, the first ones."""
    whole = [
        (escape_line(one.name), summarise_skill(one))
        for one in sorted(skills, key=lambda one: one.name)
    ]
    count = len(whole)
    for width in chain(SUMMARY_WIDTHS, repeat(0)):
        lines = {name: _cut_line(line, width) for name, line in whole[:count]}
        if not lines or estimate_tokens(_build_skill_note(lines, SKILLS_INTRO)) <= room:
            return lines
        count = count if width else count * 3 // 4
    raise AssertionError


def _cut_line(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)].rstrip() + "…"


def _line_covers(line: str | None, whole: str) -> bool:
    """Return whether a skill's line shown earlier still contains this one, or its beginning."""
    if line is None:
        return False
    return line == whole or (line.endswith("…") and whole.startswith(line[:-1]))


def _build_skill_note(lines: Mapping[str, str], intro: str) -> str:
    body = "\n".join(f"- {name}: {line}" for name, line in lines.items())
    return f"{SKILLS_OPENING}{intro}\n{body}{SKILLS_CLOSING}" if lines else ""


def _read_shown_skills(items: Iterable[ViewItem]) -> dict[str, str]:
    """Return the last shown line of each skill, by name."""
    told: dict[str, str] = {}
    for item in items:
        if not isinstance(item.fact, User) or item.fact.origin != "note":
            continue
        for block in item.fact.content:
            if isinstance(block, Text) and block.text.startswith(SKILLS_OPENING):
                lines = block.text.removesuffix(SKILLS_CLOSING).splitlines()
                parts = (line[2:].partition(": ") for line in lines if line.startswith("- "))
                told.update((name, line) for name, _, line in parts)
    return told


def _find_first_paragraph(body: str) -> str:
    """Return a skill text's first paragraph that is not a heading."""
    parts = (" ".join(HEADING_LINE.sub("", part).split()) for part in body.split("\n\n"))
    return next(filter(None, parts), "")


def _split_globs(value: front_matter.FrontMatterValue) -> tuple[str, ...]:
    listed = front_matter.split_on_commas(value) if isinstance(value, str) else value
    return tuple(glob for word in listed if (glob := word.strip("'\"")))


SKILL_STATE_PREFIX = "skill:"
"""State of a session: what each skill said when it was used last, by name."""
SKILL_FOLDER_STATE_PREFIX = "skills:"
"""State of a session: folders whose skills count since something in them was touched."""
ACTIVE_SKILL_STATE_PREFIX = "awake:"
"""State of a session: skills that are about files which were worked with, by name."""
REQUESTED_SKILL_STATE = "skill asked for"
"""State of a session: the skill that the person wants the model to use."""


class Skills(Protocol):
    """The skills on disk, in their current state."""

    def load_always(self, near: Collection[str] = ()) -> LoadedSkills:
        """Load the skills that apply here, and those of the folders in `near`."""
        ...

    def load_for_paths(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the folders below this one that have skills and contain these files."""
        ...


class SkillResult(msgspec.Struct, frozen=True):
    """The outcome of a skill: text for the model and state changes."""

    text: str
    error: bool = False
    changes: tuple[Changed, ...] = ()


class SkillRunner(Protocol):
    """The interface through which a tool uses skills."""

    async def use(self, name: str, args: str, *, call: str) -> SkillResult:
        """Use a skill; raise `ToolError` if it is unknown or only for the user."""
        ...
