"""Notes: when they are due, what is asked for, what they cost, and what of them is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.context.session_memory import plan as notes
from travois.context.session_memory.plan import (
    NotesBudget,
    NotesProgress,
    UpdatePace,
    are_notes_worthwhile,
    build_notes_prompt,
    describe_oversize_notes,
    fit_notes,
    has_no_notes,
    is_update_due,
    replace_sections,
    split_sections,
)
from travois.core.models import Price

PROMPTS = Path(notes.__file__).parents[1] / "prompts"
TEMPLATE = (PROMPTS / "notes.md").read_text("utf-8")
PACE = UpdatePace(first=50, growth=25, last=10)
BUDGET = NotesBudget()


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (NotesProgress(49, left=99, first=True, calls=99), False),
        (NotesProgress(50, left=99, first=True, calls=10), True),
        (NotesProgress(50, left=99, first=True, calls=9), False),
        (NotesProgress(50, left=99, first=True, paused=True), True),
        (NotesProgress(24, left=99, calls=99, paused=True), False),
        (NotesProgress(25, left=99, calls=10), True),
        (NotesProgress(25, left=99, calls=9), False),
        (NotesProgress(5, left=10), True),
        (NotesProgress(4, left=10, calls=99, paused=True), False),
    ],
)
def test_notes_are_due_when_it_has_grown_and_the_moment_is_good(
    progress: NotesProgress, expected: bool
) -> None:
    assert is_update_due(progress, PACE) is expected


@pytest.mark.parametrize("room", [4_000, 12_000, 40_000, 147_000, 950_000])
def test_thresholds_follow_the_room(room: int) -> None:
    pace = UpdatePace.for_room(room)
    assert 0 < pace.last < pace.growth < pace.first < room


def test_the_template_has_ten_sections() -> None:
    assert list(split_sections(TEMPLATE)) == [
        "# Title",
        "# Current state",
        "# Task",
        "# Files and functions",
        "# Workflow",
        "# Errors and corrections",
        "# How the system works",
        "# Learnings",
        "# Key results",
        "# Worklog",
    ]
    assert has_no_notes(TEMPLATE, template=TEMPLATE)
    assert has_no_notes(" \n", template=TEMPLATE)
    assert not has_no_notes(
        TEMPLATE.replace("(a few words", "Parser (a few words"), template=TEMPLATE
    )


def asked(held: str, instructions: str = "Edit {{notesPath}} with {{editTool}}:") -> str:
    return build_notes_prompt(
        held,
        template=TEMPLATE,
        instructions=instructions,
        path="/s/notes.md",
        tool="replace",
        budget=BUDGET,
    )


def test_variables_are_filled_in_and_the_notes_always_stand_in_the_request() -> None:
    assert asked("") == f"Edit /s/notes.md with replace:\n\n{TEMPLATE.strip()}"
    assert asked("# Title\nX", "<{{currentNotes}}> {{other}}") == "<# Title\nX> {{other}}"


def test_what_notes_say_is_no_variable() -> None:
    assert asked("# Title\n{{notesPath}}", "{{currentNotes}}") == "# Title\n{{notesPath}}"


def test_our_prompts_name_the_variables() -> None:
    update = (PROMPTS / "notes-update.md").read_text("utf-8")
    assert all(f"{{{{{name}}}}}" in update for name in ("currentNotes", "notesPath", "editTool"))
    assert "{{currentNotes}}" in (PROMPTS / "notes-text.md").read_text("utf-8")


def test_a_request_says_what_is_too_long() -> None:
    long = "word " * (BUDGET.section_tokens + 500)
    one = asked(f"# Title\n{long}")
    assert f"Too long, shorten to {BUDGET.section_tokens:,} tokens each: # Title (" in one
    assert "as a whole" not in one
    many = "\n".join(f"# S{n}\n{long}" for n in range(7))
    assert f"bring them below {BUDGET.whole:,} tokens" in describe_oversize_notes(many, BUDGET)[-1]


def test_each_section_is_cut_to_its_bounds_and_says_where_the_rest_is() -> None:
    text = "# A\nshort\n\n# B\n" + "a line of words\n" * 5_000
    shown = fit_notes(text, path="/s/notes.md", budget=BUDGET)
    assert shown.startswith("# A\nshort\n\n# B\na line of words\n")
    assert shown.endswith("a line of words\n(more in /s/notes.md)")
    assert len(shown) < BUDGET.section_tokens * 3 + 100


def test_sections_that_are_only_a_hint_are_not_shown() -> None:
    text = "# A\n(what is done)\n\n# B\nThe lexer.\n\n# C\n"
    assert fit_notes(text, path="/s", budget=BUDGET) == "# B\nThe lexer."


def test_what_stands_before_the_headings_is_kept() -> None:
    assert split_sections("hello\n# A\nx") == {"hello": "hello", "# A": "# A\nx"}
    assert split_sections("no headings") == {"no headings": "no headings"}


def test_sections_of_a_text_take_the_place_of_those_that_the_notes_have() -> None:
    held = "# A\nold\n\n# B\nstays\n"
    assert (
        replace_sections(held, "Sure:\n# A\nnew\n# X\nno such section")
        == "# A\nnew\n\n# B\nstays\n"
    )
    assert split_sections(replace_sections(held, "I cannot do that.")) == split_sections(held)


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        (Price(input=4, output=20, read=0.2, write=5), True),
        (Price(input=3, output=15, read=0.3, write=3.75), True),
        (Price(input=2, output=6, read=0.5), True),
        (Price(input=0.15, output=0.6, read=0.075), False),
        (Price(input=1, output=5), False),
        (Price(), False),
    ],
)
def test_notes_are_worth_it_where_reading_the_cache_is_cheap(price: Price, expected: bool) -> None:
    assert are_notes_worthwhile(price, limit=167_000, head=20_000) is expected
