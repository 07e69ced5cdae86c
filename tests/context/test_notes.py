"""Notes: when they are due, what is asked for, and what of them is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.context import notes
from travois.context.notes import EACH, WHOLE, Progress, blank, due, fitted, request, sections

PROMPTS = Path(notes.__file__).parent / "prompts"
TEMPLATE = (PROMPTS / "notes.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        (Progress(29_999, calls=99), False),
        (Progress(30_000, calls=99), True),
        (Progress(30_000, calls=3), False),
        (Progress(30_000, paused=True), True),
        (Progress(54_000, noted=30_000, calls=99), False),
        (Progress(55_000, noted=30_000, calls=10), True),
        (Progress(20_000, noted=60_000, calls=99, paused=True), False),
    ],
)
def test_notes_are_due_when_it_has_grown_and_the_moment_is_good(
    progress: Progress, expected: bool
) -> None:
    assert due(progress) is expected


def test_the_template_has_ten_sections() -> None:
    assert list(sections(TEMPLATE)) == [
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
    assert blank(TEMPLATE, template=TEMPLATE)
    assert blank(" \n", template=TEMPLATE)
    assert not blank(TEMPLATE.replace("(a few words", "Parser (a few words"), template=TEMPLATE)


def test_the_first_request_gives_the_template_and_a_later_one_the_notes() -> None:
    assert request("", template=TEMPLATE, instructions="Do.") == f"Do.\n\n{TEMPLATE.strip()}"
    assert request("# Title\nX", template=TEMPLATE, instructions="Do.") == "Do.\n\n# Title\nX"


def test_a_request_says_what_is_too_long() -> None:
    long = "word " * (EACH + 500)
    asked = request(f"# Title\n{long}", template="", instructions="Do.")
    assert f"Too long, shorten to {EACH:,} tokens each: # Title (" in asked
    many = "\n".join(f"# S{n}\n{long}" for n in range(WHOLE // EACH + 1))
    assert f"bring it below {WHOLE:,} tokens" in request(many, template="", instructions="Do.")


def test_each_section_is_cut_to_its_bounds_and_says_where_the_rest_is() -> None:
    text = "# A\nshort\n\n# B\n" + "a line of words\n" * 5_000
    shown = fitted(text, path="/s/notes.md")
    assert shown.startswith("# A\nshort\n\n# B\na line of words\n")
    assert shown.endswith("a line of words\n(more in /s/notes.md)")
    assert len(shown) < EACH * 3 + 100


def test_what_stands_before_the_headings_is_kept() -> None:
    assert sections("hello\n# A\nx") == {"hello": "hello", "# A": "# A\nx"}
    assert sections("no headings") == {"no headings": "no headings"}
