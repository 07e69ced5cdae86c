"""`travois skills`: list the skills of a folder, and what is wrong with their files."""

from __future__ import annotations

import os
from argparse import Namespace

import msgspec

from travois.compose.options import Options
from travois.compose.session import load_workspace
from travois.compose.skills import compose_skills
from travois.skills.command_text import CustomCommand
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_line,
    print_warning,
)

SKILLS_HELP = """\
Skills are folders with a SKILL.md (docs/skills.md). One that deviates from the open format
(agentskills.io) is used all the same; other agents may refuse it.
"""


class ListedSkill(msgspec.Struct, frozen=True):
    """A skill as the command lists it."""

    name: str
    description: str
    origin: str
    flaws: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


def register_skills(commands: CommandParsers) -> None:
    """Add the `travois skills` command."""
    what = "list the skills of this folder, and what is wrong with their files"
    top = add_command(commands, "skills", what=what, more=SKILLS_HELP)
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_skills)


def run_skills(args: Namespace) -> int:
    """List the skills that apply in this folder; files that are not skills become warnings."""
    options = Options(cwd=os.getcwd())
    found = compose_skills(*load_workspace(options), options).load_always()
    listed = [_list_skill(one) for one in found.skills if one.is_skill]
    for notice in found.ignored:
        print_warning(notice)
    if args.json:
        print_line(msgspec.json.encode(listed).decode())
        return 0
    rows = [(one.name, _describe_format(one), one.origin) for one in listed]
    cells = [tuple(escape_controls(cell, lines="show") for cell in row) for row in rows]
    print_line(format_table([("SKILL", "FORMAT", "FILE"), *cells]) if cells else "No skills.")
    return 0


def _list_skill(skill: CustomCommand) -> ListedSkill:
    return ListedSkill(skill.name, skill.description, skill.origin, skill.flaws, skill.extensions)


def _describe_format(skill: ListedSkill) -> str:
    """Describe how a skill's file stands to the format."""
    if skill.flaws:
        return "; ".join(skill.flaws)
    if skill.extensions:
        return f"valid; other agents may ignore {', '.join(skill.extensions)}"
    return "valid"
