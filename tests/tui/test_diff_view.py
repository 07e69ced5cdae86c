"""Diffs as lines of a terminal: at any width, nothing lost, and what changed easy to see."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.diff_rows import DiffRow, Span, build_diff_rows, build_text_rows, render_diff_html
from travois.tools.diff import compare_texts
from travois.tui.diff_view import render_change, render_unified_diff
from travois.tui.layout import STYLE_PATTERN, display_width
from travois.tui.theme import Theme, resolve_theme

NONE = resolve_theme("none", {})
DARK = resolve_theme("dark", {"COLORTERM": "truecolor"})
LIGHT = resolve_theme("light", {"TERM": "xterm-256color"})
FEW = resolve_theme("dark", {"TERM": "xterm"})
THEMES = (NONE, DARK, LIGHT, FEW)
OLD = "import os\n\ndef total(prices):\n    # all of them\n    return sum(prices) / 2\n"
NEW = "import os\n\ndef total(prices):\n    # all of them\n    return sum(prices) / 3\n"


def plain(line: str) -> str:
    return STYLE_PATTERN.sub("", line)


def render(before: str | None, after: str, theme: Theme = NONE, columns: int = 80) -> list[str]:
    return render_change("a.py", before, after, theme=theme, columns=columns)


def test_narrow_screens_show_one_column_and_wide_ones_two() -> None:
    assert [plain(line) for line in render(OLD, NEW, columns=80)] == [
        "    2",
        "    3   def total(prices):",
        "    4       # all of them",
        "    5 -     return sum(prices) / 2",
        "    5 +     return sum(prices) / 3",
    ]
    wide = [plain(line) for line in render(OLD, NEW, columns=120)]
    assert wide[-1] == (f"{'    5 -     return sum(prices) / 2':62}5 +     return sum(prices) / 3")


def test_the_words_that_changed_are_marked_and_the_code_is_coloured() -> None:
    rows = build_diff_rows(compare_texts("a.py", OLD, NEW))
    assert rows[-2:] == [
        DiffRow(
            "-",
            5,
            0,
            (
                Span("    "),
                Span("return ", "keyword"),
                Span("sum(prices) / "),
                Span("2", "number", is_changed=True),
            ),
        ),
        DiffRow(
            "+",
            0,
            5,
            (
                Span("    "),
                Span("return ", "keyword"),
                Span("sum(prices) / "),
                Span("3", "number", is_changed=True),
            ),
        ),
    ]


def test_lines_with_little_in_common_are_not_marked_word_by_word() -> None:
    rows = build_text_rows("a.txt", "one two three\n", "something else entirely\n")
    assert not any(span.is_changed for row in rows for span in row.spans)


def test_words_are_compared_with_the_line_that_replaces_them() -> None:
    after = "a comment comes first\nreturn the sum of prices\n"
    rows = build_text_rows("a.txt", "return the mean of prices\n", after)
    marked = {row.text: [span.text for span in row.spans if span.is_changed] for row in rows}
    assert marked == {
        "return the mean of prices": ["mean"],
        "a comment comes first": [],
        "return the sum of prices": ["sum"],
    }


def test_parts_far_apart_are_separated() -> None:
    lines = [f"line {n}\n" for n in range(40)]
    after = ["new 0\n", *lines[1:39], "new 39\n"]
    shown = [plain(line) for line in render("".join(lines), "".join(after))]
    assert shown.count("     ⋯") == 1


def test_a_long_change_is_counted() -> None:
    shown = render(None, "x\n" * 100)
    assert len(shown) == 41
    assert plain(shown[-1]) == "    Ctrl-O: 60 more lines"


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: f"{theme.name}{theme.depth}")
def test_a_line_that_is_too_long_is_folded_and_not_cut(theme: Theme) -> None:
    text = "value = " + " + ".join(f"term_{n}" for n in range(30))
    for columns in (42, 80, 120):
        shown = [plain(line) for line in render(None, text, theme, columns)]
        assert all(display_width(line) <= columns for line in shown)
        assert "".join(line[8:] for line in shown).replace(" ", "") == text.replace(" ", "")


def test_a_ground_fills_the_line_and_ends_with_it() -> None:
    added = render(OLD, NEW, DARK)[-1]
    assert f"\x1b[{DARK.codes['added']};" in added
    assert "\x1b[K" in added
    assert added.endswith("\x1b[0m")
    assert "\x1b[K" not in "".join(render(OLD, NEW, FEW))


def test_what_cannot_be_seen_is_written_out() -> None:
    shown = render("a\n", "a\u202eb\x1b[2J\n")
    assert plain(shown[-1]) == r"    1 + a\u202eb\x1b[2J"


def test_a_unified_diff_has_the_numbers_of_its_hunks() -> None:
    diff = "--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new\n@@ -9,2 +9 @@ def f():\n same\n--- x\n"
    shown = render_unified_diff(diff, NONE, 80)
    assert [plain(line) for line in shown] == [
        "     1 - old",
        "     1 + new",
        "     ⋯",
        "     9   same",
        "    10 - -- x",
    ]
    shown = render_unified_diff("--- /dev/null\n+++ b\n+new\n", NONE, 80)
    assert [plain(line) for line in shown] == ["    + new"]


def test_html_is_escaped_and_has_a_class_for_each_look() -> None:
    html = render_diff_html(build_text_rows("a.py", "x = '<b>'\n", "x = '<i>'\n"))
    assert "<b>" not in html
    assert '<tr class="removed"><td>1</td><td></td><td>-</td>' in html
    assert '<mark><span class="s-string">i</span></mark>' in html


TEXTS = st.lists(st.text("ab =('\"#漢\t", max_size=30), max_size=12).map("\n".join)


@given(TEXTS, TEXTS, st.sampled_from((42, 80, 120, 160)), st.sampled_from(THEMES))
def test_every_changed_line_is_shown_whole_at_any_width(
    before: str, after: str, columns: int, theme: Theme
) -> None:
    patch = compare_texts("a.py", before, after)
    rows = build_diff_rows(patch)
    wanted = [line for hunk in patch.structured_patch for line in hunk.lines]
    assert [row.kind + row.text for row in rows if row.kind != "gap"] == [
        line[0] + line[1:].expandtabs(4) for line in wanted
    ]
    shown = render_change("a.py", before, after, theme=theme, columns=columns, most=10_000)
    assert all(display_width(line) <= columns for line in shown)
    letters = "".join(row.text for row in rows if row.kind != " ")
    seen = "".join(plain(line) for line in shown if re.search(r"\d? *[-+] ", plain(line)))
    for char in "ab漢'":
        assert seen.count(char) >= letters.count(char)
