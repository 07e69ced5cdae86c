"""Text laid out to a width."""

from __future__ import annotations

import pytest

from travois.tui.layout import wrap_hanging


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("short", ["short"]),
        ("one two three four five", ["one two three", "four five"]),
        ("  - one two three four", ["  - one two", "  three four"]),
        ("/a [N]  one two three", ["/a [N]  one two", "        three"]),
        ("abcdefghijklmnopqrs", ["abcdefghijklmnop", "qrs"]),
    ],
)
def test_what_goes_on_stands_below_its_text(line: str, shown: list[str]) -> None:
    assert wrap_hanging(line, 16) == shown
