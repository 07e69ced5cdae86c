"""Whom a wish is for: the words decide, in wordings that nobody listed."""

from __future__ import annotations

import pytest

from travois.memory.compare_drafts import find_wish_scope, parse_scope_words

EVERYWHERE = """
always use bun, in all my projects
remember that I use tabs in every repo
Across projects I prefer pnpm
across all of my repositories, sign commits
whichever project I'm in, answer in German
no matter which repo, never force-push
not just in this project: always write tests first
wherever I work, use uv
remember for all future projects: use ruff
in any codebase I touch, keep functions short
regardless of the project, use British spelling
In my projects we never use semicolons
This is a global rule: never amend commits
merk dir: in allen meinen Projekten nur bun
recuerda: en todos mis proyectos usa pnpm
dans tous mes projets, utilise uv
remember globally that I like short answers
I want tabs everywhere
for every single repo of mine, use conventional commits
Everywhere I code, use 4 spaces
use bun in this project and all my other projects
that applies to all projects, not only this one
in each project I work on, run the linter first
"""
HERE = """
in this repo always use npm
we use UTC everywhere in this project
only here: use tabs
in this project, unlike my other ones, use yarn
not in all my projects, just this one
Here, we deploy on Tuesdays
for each project in this monorepo, run nx
in unserem Projekt nur bun
always use bun here
all projects in the solution target net8
in the current repository, tests live in spec/
"""
UNSAID = """
always use bun
never install packages globally
we use UTC everywhere
run tests before each commit
check that every project file exists
here is what I want: always use bun
use tabs everywhere
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("text", lines(EVERYWHERE))
def test_words_about_all_projects_mean_the_person(text: str) -> None:
    assert parse_scope_words(text) == "user"


@pytest.mark.parametrize("text", lines(HERE))
def test_words_about_this_place_mean_the_project(text: str) -> None:
    assert parse_scope_words(text) == "project"


@pytest.mark.parametrize("text", lines(UNSAID))
def test_words_about_neither_leave_it_open(text: str) -> None:
    assert parse_scope_words(text) is None


def test_the_words_of_the_wish_count_before_those_around_it() -> None:
    sentence = "In this project use pnpm, but in all my other projects always use bun"
    assert find_wish_scope("in all my other projects always use bun", sentence) == "user"
    assert find_wish_scope("In this project use pnpm", sentence) == "project"


def test_what_is_said_next_about_it_counts_and_other_talk_does_not() -> None:
    wish = "Always use bun."
    assert find_wish_scope(wish, wish, after="That goes for all my projects. Now go on.") == "user"
    assert find_wish_scope(wish, wish, after="How many of all my projects build today?") is None


def test_a_line_above_a_list_speaks_for_it() -> None:
    text = "Rules for all my projects:\n- always use bun\n- never push on Fridays\n\nFix the test."
    assert find_wish_scope("never push on Fridays", "never push on Fridays", message=text) == "user"
    assert find_wish_scope("Fix the test.", "Fix the test.", message=text) is None
