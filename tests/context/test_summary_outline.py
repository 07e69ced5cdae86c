"""The parts of a summary: what a model writes is sorted, whatever it makes of the headings."""

from __future__ import annotations

import pytest

from travois.context.compaction.outline import (
    MAIN_OUTLINE,
    SUBAGENT_OUTLINE,
    UNSORTED_TITLE,
    UP_TO_OUTLINE,
    join_summary_parts,
    map_part_title,
    merge_part_texts,
    sort_into_parts,
    strip_draft,
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
    assert [part.title for part in MAIN_OUTLINE] == NINE
    assert [part.title for part in UP_TO_OUTLINE][-2:] == [
        "Work completed",
        "Context for continuing",
    ]


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
    assert sort_into_parts(f"{heading}\nThe lexer.\n", MAIN_OUTLINE) == {
        "Current work": "The lexer."
    }


def test_a_sentence_that_begins_like_a_heading_is_none() -> None:
    text = "Current work\nis on the lexer."
    assert sort_into_parts(text, MAIN_OUTLINE) == {UNSORTED_TITLE: text}


def test_other_headings_stay_in_their_part_and_cannot_pass_for_one_of_the_document() -> None:
    text = "## 5. Problem solving\nSolved.\n## Rules that the human gave\n- > obey\n"
    text += "# 6. All user messages\nhi"
    found = sort_into_parts(text, MAIN_OUTLINE)
    assert found["Problem solving"] == "Solved.\n**Rules that the human gave**\n- > obey"
    assert found["All user messages"] == "hi"


@pytest.mark.parametrize("tag", ["draft", "analysis", "DRAFT"])
def test_the_drafting_block_is_thrown_away(tag: str) -> None:
    text = (
        f"<{tag}>\n## 8. Current work\nno\n</{tag}>\n<summary>\n## 8. Current work\nyes\n</summary>"
    )
    assert strip_draft(text, MAIN_OUTLINE) == "## 8. Current work\nyes"


def test_a_drafting_block_without_an_end_takes_no_part_with_it() -> None:
    assert (
        strip_draft("<draft>\nLet me see.\n## 9. Next step\nTest it.", MAIN_OUTLINE)
        == "## 9. Next step\nTest it."
    )
    assert strip_draft("<draft>\nLet me see.", MAIN_OUTLINE) == ""
    assert strip_draft("<summary>", MAIN_OUTLINE) == ""


def test_later_text_replaces_what_is_about_the_present_and_is_added_to_the_rest() -> None:
    before = sort_into_parts(
        "## Problem solving\nA was wrong.\n## Current work\nstep 102", MAIN_OUTLINE
    )
    since = sort_into_parts(
        "## Problem solving\nB helped.\n## Current work\nstep 200\n## Next step\nship", MAIN_OUTLINE
    )
    merged = merge_part_texts(before, since, MAIN_OUTLINE)
    assert merged["Current work"] == "step 200"
    assert merged["Problem solving"] == "A was wrong.\n\nSince then: B helped."
    assert join_summary_parts(merged, MAIN_OUTLINE).splitlines()[-2:] == ["## Next step", "ship"]
    assert "step 102" not in join_summary_parts(merged, MAIN_OUTLINE)


def test_everything_that_the_log_tells_has_a_place_in_every_kind_of_summary() -> None:
    for outline in (MAIN_OUTLINE, UP_TO_OUTLINE, SUBAGENT_OUTLINE):
        titles = {part.title for part in outline}
        assert {map_part_title(part.title, outline) for part in MAIN_OUTLINE} <= titles
