"""The titles of sessions that nobody named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.sessions.titles import MAX_TITLE_CHARS, is_greeting, make_title


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("The total of an empty cart crashes. Fix it.", "The total of an empty cart crashes"),
        ("Hi! Could you please add a dark theme?", "Add a dark theme?"),
        ("please run the tests", "Run the tests"),
        ("hello there you", "hello there you"),
        ("Why did we drop redis?", "Why did we drop redis?"),
        ("Go. Then look at the second file.", "Go. Then look at the second file"),
        ("# Plan\n\nBuild the bridge", "Plan"),
        ("hi", "hi"),
        ("", ""),
    ],
)
def test_a_title_is_what_the_prompt_asks_for(prompt: str, title: str) -> None:
    assert make_title(prompt) == title


def test_a_long_request_is_cut_between_words() -> None:
    title = make_title("move " + "every module of the package " * 9)
    assert len(title) <= MAX_TITLE_CHARS
    assert title.endswith(("…",))
    assert title[:-1] in "move " + "every module of the package " * 9


@pytest.mark.parametrize(
    ("prompt", "greets"),
    [("hi", True), ("Hello there!", True), ("hi, fix it", False), ("history", False)],
)
def test_a_greeting_is_no_request(prompt: str, greets: bool) -> None:
    assert is_greeting(prompt) is greets


@given(st.text())
def test_a_title_is_one_short_line(prompt: str) -> None:
    title = make_title(prompt)
    assert len(title) <= MAX_TITLE_CHARS
    assert "\n" not in title
