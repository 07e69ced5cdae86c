"""Themes: legible at every depth of colours, chosen by the terminal's background, kept in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from travois.core.errors import UserError
from travois.tui import theme
from travois.tui.theme import (
    Theme,
    find_nearest_number,
    find_table_colour,
    list_themes,
    luminance,
    resolve_theme,
)

SHIPPED = [name for name in list_themes() if name not in ("auto", "none")]
BACKGROUNDS = {"dark": [(0, 0, 0), (40, 44, 52)], "light": [(255, 255, 255), (253, 246, 227)]}
"""The darkest and the brightest terminal that each kind of theme is for."""
MIN_CONTRAST = 4.5
"""WCAG 2, level AA, for text."""
MIN_FRAME_CONTRAST = 3.0
"""The same for lines and other things that are not text."""
SYNTAX = ("keyword", "string", "number", "name", "type", "comment")
RICH = {"COLORTERM": "truecolor", "TERM": "xterm-256color"}
TABLE = {"TERM": "xterm-256color"}


def colour(chosen: Theme, role: str) -> tuple[int, int, int]:
    parts = [int(part) for part in chosen.codes[role].split(";")[1:]]
    return find_table_colour(parts[1]) if parts[0] == 5 else (parts[1], parts[2], parts[3])


def contrast(one: tuple[int, int, int], two: tuple[int, int, int]) -> float:
    dark, bright = sorted((luminance(one), luminance(two)))
    return (bright + 0.05) / (dark + 0.05)


def test_contrast_is_measured_as_wcag_defines_it() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((118, 118, 118), (255, 255, 255)) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("environ", [RICH, TABLE])
def test_all_text_is_legible_on_every_ground(name: str, environ: dict[str, str]) -> None:
    chosen = resolve_theme(name, environ)
    words = ("accent", "good", "bad", "warn", "quiet", *SYNTAX)
    pairs = [
        *((role, ground) for role in words for ground in BACKGROUNDS[chosen.base]),
        *(
            (role, colour(chosen, ground))
            for role in ("text", *SYNTAX)
            for ground in ("added", "removed")
        ),
        *(("text", colour(chosen, ground)) for ground in ("added-word", "removed-word")),
    ]
    poor = {
        (role, ground, round(size, 2))
        for role, ground in pairs
        if (size := contrast(colour(chosen, role), ground)) < MIN_CONTRAST
    }
    assert poor == set()
    near = {role: find_table_colour(find_nearest_number(colour(chosen, role))) for role in words}
    assert [
        role
        for role, shown in near.items()
        for ground in BACKGROUNDS[chosen.base]
        if contrast(shown, ground) < MIN_CONTRAST
    ] == []
    frames = [contrast(colour(chosen, "frame"), one) for one in BACKGROUNDS[chosen.base]]
    assert min(frames) >= MIN_FRAME_CONTRAST


@pytest.mark.parametrize("name", SHIPPED)
def test_what_was_added_and_removed_can_be_told_apart(name: str) -> None:
    chosen = resolve_theme(name, TABLE)
    grounds = {chosen.codes[role] for role in theme.GROUND_ROLES}
    assert len(grounds) == 4


@pytest.mark.parametrize(
    ("environ", "depth"),
    [
        ({"COLORTERM": "truecolor", "TERM": "tmux-256color"}, 24),
        ({"TERM": "xterm-256color"}, 8),
        ({"TERM": "xterm"}, 4),
        ({"NO_COLOR": "1", "COLORTERM": "truecolor"}, 0),
    ],
)
def test_as_many_colours_are_used_as_the_terminal_has(environ: dict[str, str], depth: int) -> None:
    assert resolve_theme("auto", environ).depth == depth


@pytest.mark.parametrize(
    ("reply", "base"),
    [
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "light"),
        ("\x1b]11;rgb:fd/f6/e3\x07", "light"),
        ("\x1b]11;rgb:1e1e/1e1e/2e2e\x07", "dark"),
        ("\x1b]11;rgba:0000/0000/0000/ffff\x07", "dark"),
        ("no colour", "dark"),
    ],
)
def test_the_background_that_the_terminal_names_decides(reply: str, base: str) -> None:
    background = theme.read_background_reply(reply)
    assert resolve_theme("auto", RICH, background=background).base == base
    assert resolve_theme("light", RICH, background=background).base == "light"


def test_without_an_answer_the_environment_decides() -> None:
    assert resolve_theme("auto", {**RICH, "COLORFGBG": "0;15"}).base == "light"
    assert resolve_theme("auto", {**RICH, "COLORFGBG": "15;0"}).base == "dark"
    seen = resolve_theme("auto", {**RICH, "COLORFGBG": "0;15"}, background=(0, 0, 0))
    assert seen.base == "dark"


def test_a_theme_of_ones_own_names_only_what_is_different(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"base": "light", "colors": {"accent": "#112233"}}')
    mine = resolve_theme("mine", RICH, folders=(tmp_path,))
    light = resolve_theme("light", RICH)
    assert mine.codes == {**light.codes, "accent": "38;2;17;34;51"}
    assert "mine" in list_themes((tmp_path,))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "input data was truncated"),
        ('{"base": "dark", "colors": {"accent": "blue"}}', "colors.accent: 'blue'"),
        ('{"base": "dark", "colors": {"acent": "#112233"}}', "colors.acent"),
        ('{"base": "dark", "colours": {}}', "colours"),
    ],
)
def test_a_theme_with_a_mistake_says_which(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(UserError) as caught:
        resolve_theme("mine", RICH, folders=(tmp_path,))
    assert why.lower() in str(caught.value).lower()


def test_an_unknown_theme_is_told_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="auto, dark, dark-colorblind, light"):
        resolve_theme("../secrets", RICH, folders=(tmp_path,))
