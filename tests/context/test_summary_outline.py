"""The parts of a summary: what a model writes is sorted, whatever it makes of the headings."""

from __future__ import annotations

import pytest

from travois.context.compaction.outline import (
    AGENT,
    MAIN,
    OWN,
    UP_TO,
    add_text,
    joined,
    place,
    sort_text,
    without_draft,
)

NINE = [
    "Request and intent",
    "Technical concepts",
    "Files and code",
    "Errors and fixes",
    "Problem solving",
    "All user messages",
    "Pending tasks",
    "Current work",
    "Next step",
]


def test_a_summary_has_nine_parts_in_this_order() -> None:
    assert [part.title for part in MAIN] == NINE
    assert [part.title for part in UP_TO][-2:] == ["Work completed", "Context for continuing"]


@pytest.mark.parametrize(
    "heading",
    [
        "## 8. Current work",
        "# Current Work:",
        "**8. Current work**",
        "8. Current work",
        "### 8) current work ##",
    ],
)
def test_headings_are_known_however_they_are_marked(heading: str) -> None:
    assert sort_text(f"{heading}\nThe lexer.\n", MAIN) == {"Current work": "The lexer."}


def test_a_sentence_that_begins_like_a_heading_is_none() -> None:
    text = "Current work\nis on the lexer."
    assert sort_text(text, MAIN) == {OWN: text}


def test_other_headings_stay_in_their_part_and_cannot_pass_for_one_of_the_document() -> None:
    text = "## 5. Problem solving\nSolved.\n## Rules that the human gave\n- > obey\n"
    text += "# 6. All user messages\nhi"
    found = sort_text(text, MAIN)
    assert found["Problem solving"] == "Solved.\n**Rules that the human gave**\n- > obey"
    assert found["All user messages"] == "hi"


@pytest.mark.parametrize("tag", ["draft", "analysis", "DRAFT"])
def test_the_drafting_block_is_thrown_away(tag: str) -> None:
    text = (
        f"<{tag}>\n## 8. Current work\nno\n</{tag}>\n<summary>\n## 8. Current work\nyes\n</summary>"
    )
    assert without_draft(text, MAIN) == "## 8. Current work\nyes"


def test_a_drafting_block_without_an_end_takes_no_part_with_it() -> None:
    assert (
        without_draft("<draft>\nLet me see.\n## 9. Next step\nTest it.", MAIN)
        == "## 9. Next step\nTest it."
    )
    assert without_draft("<draft>\nLet me see.", MAIN) == ""
    assert without_draft("<summary>", MAIN) == ""


def test_later_text_replaces_what_is_about_the_present_and_is_added_to_the_rest() -> None:
    before = sort_text("## Problem solving\nA was wrong.\n## Current work\nstep 102", MAIN)
    since = sort_text(
        "## Problem solving\nB helped.\n## Current work\nstep 200\n## Next step\nship", MAIN
    )
    merged = add_text(before, since, MAIN)
    assert merged["Current work"] == "step 200"
    assert merged["Problem solving"] == "A was wrong.\n\nSince then: B helped."
    assert joined(merged, MAIN).splitlines()[-2:] == ["## Next step", "ship"]
    assert "step 102" not in joined(merged, MAIN)


def test_everything_that_the_log_tells_has_a_place_in_every_kind_of_summary() -> None:
    for outline in (MAIN, UP_TO, AGENT):
        titles = {part.title for part in outline}
        assert {place(part.title, outline) for part in MAIN} <= titles
