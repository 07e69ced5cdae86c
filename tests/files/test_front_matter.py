"""Front matter as people write it, and what is wrong with it by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.files.front_matter import FrontMatter, parse_front_matter, split_on_commas


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("k: plain words", "plain words"),
        ("k: Use it when: a test fails", "Use it when: a test fails"),
        ("k: fixes #12 well # a comment", "fixes #12 well"),
        ('k: "a \\"b\\"\\n# c" # d', 'a "b"\n# c'),
        ("k: 'it''s'", "it's"),
        ("k: it's, isn't", "it's, isn't"),
        ("k: one\n  two\n\n  three", "one two three"),
        ("k:\n  below", "below"),
        ("k: [a, 'b, c', \"d\", e(f,g)] # h", ("a", "b, c", "d", "e(f,g)")),
        ("k: [a,\n  b]", ("a", "b")),
        ("k: []", ()),
        ("k:\n  - a # x\n  # y\n  - 'b'\n  - c\n    d", ("a", "b", "c d")),
        ("k:\n- a\n- b", ("a", "b")),
        ("k: |\n  a\n    b\n\n  c", "a\n  b\n\nc"),
        ("k: >-\n  a\n  b\n\n  c", "a b\nc"),
        ("k: yes", "yes"),
        ("k: 1.5", "1.5"),
        ("k:\n  inner:\n    - deep", "inner: - deep"),
    ],
)
def test_values_are_texts_and_lists(lines: str, value: object) -> None:
    for text in (
        f"---\n{lines}\n---\n\nBody.\n",
        f"---\n{lines}\n---\nBody.".replace("\n", "\r\n"),
    ):
        assert parse_front_matter(text) == FrontMatter({"k": value}, {"k": 2}, "Body.")  # type: ignore[dict-item]


@pytest.mark.parametrize("nothing", ["", "~", "null", "# comment", '""'])
def test_nothing_is_no_value(nothing: str) -> None:
    assert parse_front_matter(f"---\nk: {nothing}\n---\n").values == {}


def test_keys_have_lines_and_what_follows_is_the_body() -> None:
    text = "---\n# about\nname: a\n\ntools:\n  - b\nmodel: c\n---\n---\nname: d\n"
    values = {"name": "a", "tools": ("b",), "model": "c"}
    lines = {"name": 3, "tools": 5, "model": 7}
    assert parse_front_matter(text) == FrontMatter(values, lines, "---\nname: d")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "flaws"),
    [
        ("name: a\n", ((1, "the front matter is missing; put it between two lines with ---"),)),
        ("---\nname: a\n", ((1, "the front matter is not closed; add a line with --- below it"),)),
        (f"---\nk: {'x' * 70_000}\n---\n", (
            (1, "the front matter is longer than 65,536 characters; shorten it"),
        )),
        ("---\nname:a\nb: [c\nb: d\nwords\n---\n", (
            (2, "this line is not `key: value`; indent it or fix it"),
            (3, "b is a list without a closing ]; add it"),
            (4, "b appears twice; remove one"),
            (5, "this line is not `key: value`; indent it or fix it"),
        )),
        ('---\na: "b" c\nd: "\\q"\n---\n', (
            (2, "a has unbalanced quotes; close them at the end of the value"),
            (3, "d has an invalid escape; write \\\\ for a backslash"),
        )),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_line(text: str, flaws: tuple[tuple[int, str], ...]) -> None:
    assert parse_front_matter(text).flaws == flaws


@given(st.text(alphabet="ab:-# '\"[]{},\\|>\n\t", max_size=60))
def test_no_text_is_too_strange_to_be_read(text: str) -> None:
    found = parse_front_matter(f"---\n{text}\n---\nBody.")
    assert set(found.values) <= set(found.lines)


def test_commas_part_what_is_in_no_quotes_or_brackets() -> None:
    assert split_on_commas("a, b/{c,d} , 'e, f', g(h,i), , j'k, l") == (
        "a", "b/{c,d}", "'e, f'", "g(h,i)", "j'k", "l",
    )  # fmt: skip
