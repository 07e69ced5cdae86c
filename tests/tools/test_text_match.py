"""Which place an edit means, and what it says when it cannot tell."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from travois.ports.tool import ToolError
from travois.tools.edit import Change, plan_edit
from travois.tools.text import (
    DecodedText,
    TextEncoding,
    apply_splices,
    line_ending_near,
    line_number,
    split_lines,
)
from travois.tools.text_match import IndentShift, find_indent_shift


def edit(text: str, old: str, new: str, *, everywhere: bool = False, forgiving: bool = True) -> str:
    made = plan_edit(text, Change(old, new, everywhere), forgiving=forgiving)
    return apply_splices(DecodedText(text.encode(), text, TextEncoding("utf-8")), made.splices).text


def how(text: str, old: str, new: str) -> str:
    return plan_edit(text, Change(old, new), forgiving=True).how


def refusal(text: str, old: str, new: str = "new", *, everywhere: bool = False) -> str:
    with pytest.raises(ToolError) as caught:
        edit(text, old, new, everywhere=everywhere)
    return str(caught.value)


def test_an_exact_text_is_replaced() -> None:
    assert edit("a = 1\nb = 2\n", "b = 2", "b = 3") == "a = 1\nb = 3\n"
    assert how("a = 1\nb = 2\n", "b = 2", "b = 3") == "exact"


def test_an_exact_text_wins_over_one_that_is_only_alike() -> None:
    assert edit("it’s\nit's\n", "it's", "it is") == "it’s\nit is\n"


def test_every_place_is_replaced_if_that_is_wanted() -> None:
    assert edit("x y x y x", "x", "long", everywhere=True) == "long y long y long"
    assert edit("aaaa", "aa", "b", everywhere=True) == "bb"


def test_a_text_in_several_places_is_refused_with_their_lines() -> None:
    assert refusal("x = 1\ny\nx = 1\n  x = 1\n", "x = 1") == (
        "old_string occurs 3 times (lines 1, 3, 4). "
        "Include surrounding lines to make it unique, or set replace_all."
    )


def test_places_that_overlap_are_several() -> None:
    assert "2 times (lines 1, 1)" in refusal("aaa", "aa")


def test_places_that_differ_only_in_line_ends_are_several() -> None:
    assert "2 times (lines 1, 3)" in refusal("a\nb\na\r\nb\n", "a\nb")


def test_long_lists_of_places_are_cut() -> None:
    words = refusal("x\n" * 100, "x")
    assert "100 times (lines 1, 2, 3," in words and "20, ...)" in words


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("“quoted” and ‘single’", "\"quoted\" and 'single'"),
        ("a\u00a0b\u2009c\u3000d", "a b c d"),
        ("one – two — three − four", "one - two - three - four"),
    ],
)
def test_typography_is_forgiven_and_kept(there: str, said: str) -> None:
    text = f"before\n{there} old end\nafter\n"
    assert edit(text, f"{said} old end", f"{said} new end") == text.replace("old", "new")
    assert how(text, f"{said} old end", f"{said} new end") == "folded"


def test_typography_is_forgiven_the_other_way_too() -> None:
    assert edit('say("hi") # old\n', "say(“hi”) # old", "say(“hi”) # new") == 'say("hi") # new\n'


def test_blanks_at_line_ends_are_forgiven_and_kept_where_nothing_changes() -> None:
    text = "def f():  \n    a = 1\t\n    b = 2\n"
    changed = edit(text, "def f():\n    a = 1\n    b = 2\n", "def f():\n    a = 1\n    b = 3\n")
    assert changed == "def f():  \n    a = 1\t\n    b = 3\n"


def test_a_line_end_that_the_file_does_not_have_is_forgiven_and_not_added() -> None:
    assert edit("a\nlast line", "last line\n", "final line\n") == "a\nfinal line"


def test_too_little_indentation_is_forgiven_and_mended() -> None:
    text = "class A:\n    def f(self):\n        return 1\n"
    old, new = "def f(self):\n    return 1 ", "def f(self):\n    if x:\n        return 2"
    assert edit(text, old, new) == (
        "class A:\n    def f(self):\n        if x:\n            return 2\n"
    )
    assert how(text, old, new) == "lines"


def test_too_much_indentation_is_forgiven_and_mended() -> None:
    text = "if a:\n    b()\nelse:\n    c()\n"
    old, new = "    if a:\n        b()\n", "    if a:\n        b()\n        d()\n"
    assert edit(text, old, new) == "if a:\n    b()\n    d()\nelse:\n    c()\n"


@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_tabs_and_spaces_are_forgiven_and_mended_both_ways(width: int) -> None:
    pad = " " * width
    tabbed, spaced = "f:\n\tif a:\n\t\tb\n", f"f:\n{pad}if a:\n{pad * 2}b\n"
    assert edit(tabbed, f"{pad}if a:\n{pad * 2}b", f"{pad}if a:\n{pad * 2}b\n{pad * 3}c") == (
        "f:\n\tif a:\n\t\tb\n\t\t\tc\n"
    )
    assert edit(spaced, "\tif a:\n\t\tb", "\tif a:\n\t\tb\n\t\t\tc") == (
        f"f:\n{pad}if a:\n{pad * 2}b\n{pad * 3}c\n"
    )


def test_indentation_that_differs_from_line_to_line_is_not_forgiven() -> None:
    text = "if a:\n    b\n      c\n"
    assert "First difference, line 1" in refusal(text, "  if a:\n    b\n    c")


def test_a_new_text_that_cannot_follow_the_indentation_is_refused() -> None:
    text = "if a:\n    b()\n"
    words = refusal(text, "    if a:\n        b()", "if a:\n    c()")
    assert "too little to remove" in words


def test_what_is_only_alike_must_be_alone() -> None:
    text = "  x = “1”\n    x = “1”\n"
    assert refusal(text, 'x = "1"') == (
        "old_string is not in the file exactly, and 2 places are similar (lines 1, 2). "
        "Quote the one you mean exactly, with surrounding lines."
    )
    assert "2 places are similar" in refusal(text, 'x = "1"', everywhere=True)


@pytest.mark.parametrize("blank", [" ", "\t", "\n\n", "\u00a0"])
def test_blanks_are_never_sought_in_a_forgiving_way(blank: str) -> None:
    assert "not in the file" in refusal("some\u2003text\u2003here", blank)


def test_what_is_not_known_is_not_forgiven() -> None:
    with pytest.raises(ToolError, match="not in the file"):
        edit("say “hi”\n", 'say "hi"', "x", forgiving=False)


def test_line_ends_can_be_changed_on_purpose() -> None:
    assert edit("a\r\nb\r\n", "a\r\n", "a\n") == "a\nb\r\n"
    assert edit("a\r\nb\r\n", "\r\n", "\n", everywhere=True) == "a\nb\n"
    assert "with these line endings" in refusal("a\nb\n", "a\r\n", "a\n")


def test_new_lines_end_as_their_neighbours_do() -> None:
    text = "a\r\nb\r\n" + "c\n" * 50 + "d\r\ne\r\n"
    assert edit(text, "b", "b\nB").startswith("a\r\nb\r\nB\r\nc\n")
    assert edit(text, "d\ne\n", "d\nD\ne\n").endswith("c\nd\r\nD\r\ne\r\n")


def test_the_same_text_twice_is_refused() -> None:
    assert refusal("a", "a", "a") == (
        "old_string and new_string are the same, so there is nothing to change."
    )


def test_nothing_fits_only_into_nothing() -> None:
    assert edit("", "", "content\n") == "content\n"
    assert refusal("x", "", "y") == (
        "old_string is empty, which only works for an empty or missing file. "
        "Quote the text to replace, or use Write to replace the whole file."
    )


def test_a_text_that_is_nowhere_is_refused_with_the_nearest_lines() -> None:
    text = "import os\n\ndef area(width, height):\n\treturn width*height\n\nprint(1)\n"
    assert refusal(text, "def area(width, height):\n    return width * height  # area") == (
        "old_string is not in the file. Most similar lines (odd characters escaped):\n"
        "3\tdef area(width, height):\n"
        "4\t\\treturn width*height\n"
        "First difference, line 4: you wrote `    return width * height  # area`, "
        "the file has `\\treturn width*height`."
    )


def test_odd_characters_in_the_nearest_lines_can_be_seen() -> None:
    words = refusal("total\u00a0= price\u200b * 2   \n", "total = price * 3")
    assert "1\ttotal\\u00a0= price\\u200b * 2\\x20\\x20\\x20" in words


def test_line_numbers_in_the_text_are_remarked_on() -> None:
    assert "not in the file. Omit the line numbers. Most similar" in refusal("abc\n", "1\tabc")


def test_a_text_like_nothing_in_the_file_is_refused_with_that() -> None:
    assert refusal("abc\ndef\n", "zzzzzzzzzz") == (
        "old_string is not in the file. Nothing in the file is similar."
    )


def test_a_large_file_is_searched_for_advice_within_bounds() -> None:
    text = "".join(f"line {number} of a file\n" for number in range(80_000))
    assert "Most similar lines" in refusal(text, "line 77 of a file!")


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(["a", "bb", "", "ccc d"]), min_size=1, max_size=6),
    st.sampled_from(["", "  ", "    ", "\t"]),
    st.sampled_from(["", " ", "\t"]),
)
def test_a_shifted_block_is_found_and_stays_when_its_text_does(
    block: list[str], indent: str, blanks: str
) -> None:
    assume(any(block))
    there = "".join(f"{indent if line else ''}{line}{blanks}\n" for line in block)
    said = "\n".join(block) + "\n"
    text = f"# head\n{there}# tail\n"
    made = edit(text, said, said + "new\n")
    assume(how(text, said, said + "new\n") == "lines")
    assert made == f"# head\n{there}{indent}new\n# tail\n"


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(["", "  ", "    ", "\t", "\t\t", "        "]), min_size=1),
    st.sampled_from(
        [
            IndentShift(more="    "),
            IndentShift(more="\t"),
            IndentShift("\t", "    "),
            IndentShift("  ", "\t"),
        ]
    ),
)
def test_a_shift_between_two_blocks_turns_one_into_the_other(
    old: list[str], by: IndentShift
) -> None:
    new = [by.shift_indent(indent) or "" for indent in old]
    found = find_indent_shift(old, new)
    assert found is not None
    assert [found.shift_indent(indent) for indent in old] == new


def test_lines_and_their_numbers() -> None:
    assert split_lines("a\r\nb\n\nc") == ["a", "b", "", "c"]
    assert split_lines("a\rb\r") == ["a", "b"]
    assert split_lines("a\rb\n") == ["a\rb"]
    assert split_lines("") == []
    assert [line_number("a\nb\nc", index) for index in range(5)] == [1, 1, 2, 2, 3]
    assert line_number("a\rb", 2) == 2


def test_the_line_end_that_fits() -> None:
    text = "a\r\nb\nc"
    assert line_ending_near(text, 0, 1, usual="\n") == "\r\n"
    assert line_ending_near(text, 5, 6, usual="\r\n") == "\n"
    assert line_ending_near("word", 0, 4, usual="\r\n") == "\r\n"
