"""Markdown that comes in pieces looks like markdown that comes at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from travois.tui.layout import (
    COLOUR_PATTERN,
    clean_display_text,
    cut_line,
    display_width,
    fold_lines,
)
from travois.tui.markdown import MarkdownStream, render_markdown
from travois.tui.theme import resolve_theme

DARK = resolve_theme("dark", {})
TEXT = """# Title

Words with **bold** and `code`, a [link](https://example.org/x) and more words than fit one line.

- one
- two

```python
def f(x: int) -> str:
    return str(x)
```

| a | b |
|---|---|
| 1 | 22 |

The end."""


def streamed(text: str, size: int, *, most: int = 50) -> list[str]:
    stream, done = MarkdownStream(DARK), list[str]()
    for start in range(0, len(text), size):
        stream.feed(text[start : start + size])
        done += stream.take_lines(60, most=most)[0]
    return done + stream.finish(60)


def squeezed(lines: list[str]) -> list[str]:
    return [line for line in (COLOUR_PATTERN.sub("", line).rstrip() for line in lines) if line]


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 60))
def test_pieces_of_any_size_give_the_same_lines(size: int) -> None:
    assert squeezed(streamed(TEXT, size)) == squeezed(render_markdown(TEXT, DARK, 60))


def test_a_block_that_is_higher_than_the_screen_is_finished_from_the_top() -> None:
    code = "```\n" + "".join(f"line {n}\n" for n in range(100)) + "```"
    stream = MarkdownStream(DARK)
    stream.feed(code)
    done, rest = stream.take_lines(60, most=10)
    assert len(rest) == 10
    assert squeezed(done + rest) == [f"    line {n}" for n in range(100)]
    assert stream.finish(60) == rest


def test_nothing_but_colours_is_sent_along_with_words() -> None:
    lines = render_markdown(
        "a\x1b]0;owned\x07b\x9bc \u202ex [t](javascript:x) ![i](http://x/y)", DARK, 60
    )
    rest = COLOUR_PATTERN.sub("", "\n".join(lines))
    assert not any(ord(char) < 32 and char != "\n" for char in rest)
    assert "\x9b" not in rest and "\u202e" not in rest


def test_html_is_shown_as_it_is_written() -> None:
    text = "<div>one</div>\n\nuse <b>bold</b> for ~~it~~\n\n<!-- a remark -->"
    told = squeezed(render_markdown(text, DARK, 60))
    assert told == ["  <div>one</div>", "  use <b>bold</b> for it", "  <!-- a remark -->"]


def test_themes_without_colours_have_none() -> None:
    plain = render_markdown(TEXT, resolve_theme("auto", {"NO_COLOR": "1"}), 60)
    codes = {code for line in plain for code in COLOUR_PATTERN.findall(line)}
    assert codes <= {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[4m", "\x1b[3m", "\x1b[1;2m"}


@given(st.text(alphabet="ab 世界🍵é\n", max_size=80), st.integers(2, 20))
def test_folded_lines_fit_and_lose_nothing(text: str, room: int) -> None:
    lines = fold_lines(text, room)
    assert all(display_width(line) <= room for line in lines)
    assert "".join(lines) == text.replace("\n", "")


def test_colours_go_on_from_line_to_line() -> None:
    assert fold_lines("\x1b[1mabcd\x1b[0mef", 2) == ["\x1b[1mab\x1b[0m", "\x1b[1mcd\x1b[0m", "ef"]


def test_what_is_cut_says_so() -> None:
    assert cut_line("お茶をください", 7) == "お茶を…"
    assert cut_line("short", 7) == "short"
    assert clean_display_text("a\tb\x00\r\nc") == "a   b\N{REPLACEMENT CHARACTER}\nc"


@pytest.mark.parametrize(("before", "after"), [(14, 80), (80, 14), (14, 14)])
def test_no_word_is_lost_when_the_window_changes_its_width(before: int, after: int) -> None:
    stream, words = MarkdownStream(DARK), [f"w{number}" for number in range(200)]
    stream.feed(" ".join(words[:120]))
    done, _ = stream.take_lines(before, most=2)
    stream.feed(" " + " ".join(words[120:]))
    done += stream.finish(after)
    told = COLOUR_PATTERN.sub("", " ".join(done)).split()
    assert list(dict.fromkeys(told)) == words
