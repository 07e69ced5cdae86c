"""How a SKILL.md stands to the open format."""

from __future__ import annotations

import pytest

from travois.skills.skill_format import find_extensions, find_skill_flaws
from travois.skills.skills import LoadedSkills, parse_skill

GOOD = "---\nname: ship\ndescription: Ships it. Use it on release days.\n---\nRun make.\n"


def test_a_skill_in_the_format_has_no_flaws() -> None:
    more = "license: MIT\nallowed-tools: Bash(make:*)\nmetadata:\n  author: me\n---"
    text = GOOD.replace("---\nRun", f"{more}\nRun")
    assert find_skill_flaws(text, "ship") == find_skill_flaws(GOOD, "ship") == ()


@pytest.mark.parametrize(
    ("head", "flaw"),
    [
        ("description: Ships.", "the name is missing"),
        ("name: Ship\ndescription: Ships.", "the name Ship has capital letters"),
        ("name: ship\nversion: 1\ndescription: x", "unknown field version"),
        ("name: ship", "the description is missing"),
        ("name: ship\ndescription: Use when: asked", "description contains `: `"),
        ("name: ship\ndescription: " + "x" * 1025, "has 1,025 characters; 1,024 are allowed"),
        ("name: ship--it\ndescription: x", "two in a row"),
        ("name: ship_it\ndescription: x", "characters other than letters"),
        ("name: other\ndescription: x", "differs from the folder's, ship"),
    ],
)
def test_each_flaw_is_named(head: str, flaw: str) -> None:
    assert flaw in "; ".join(find_skill_flaws(f"---\n{head}\n---\nRun.\n", "ship"))


def test_a_file_without_front_matter_says_so() -> None:
    (flaw,) = find_skill_flaws("Run make.\n", "ship")
    assert flaw.startswith("the front matter is missing")


def test_fields_that_only_some_agents_know_are_no_flaws() -> None:
    text = GOOD.replace("---\nRun", "model: opus\n---\nRun")
    assert (find_skill_flaws(text, "ship"), find_extensions(text)) == ((), ("model",))


def test_a_start_names_few_skills_with_flaws_and_counts_the_rest() -> None:
    skills = tuple(parse_skill("Run.", origin=f"/p/s{n}/SKILL.md") for n in range(7))
    first, *_, last = LoadedSkills(skills).notices
    assert first == (
        "skill s0: the front matter is missing; put it between two lines with --- (/p/s0/SKILL.md)"
    )
    assert last == "2 more skills deviate from the format; see `travois skills`"
