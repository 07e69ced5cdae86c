"""How somebody who looks elsewhere is told."""

from __future__ import annotations

import pytest

from travois.tui.notify import BELL, NotifyWay, render_notification, render_title

ITERM = {"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}


@pytest.mark.parametrize(
    ("way", "environ", "sent"),
    [
        ("auto", {"TERM": "xterm-256color"}, BELL),
        ("auto", ITERM, "\x1b]9;a, b\x07"),
        ("auto", {"TERM": "foot"}, "\x1b]777;notify;Travois;a, b\x07"),
        ("bell", ITERM, BELL),
        ("off", ITERM, ""),
        ("osc9", {**ITERM, "TMUX": "1"}, "\x1bPtmux;\x1b\x1b]9;a, b\x07\x1b\\"),
    ],
)
def test_the_way_is_chosen_or_what_the_terminal_understands(
    way: NotifyWay, environ: dict[str, str], sent: str
) -> None:
    assert render_notification("a; b", way, environ) == sent


def test_a_title_cannot_end_its_sequence_or_begin_another() -> None:
    shown = render_title("a\x07\x1b]0;evil\x07b\n" + "x" * 200)
    assert shown.count("\x07") == 1
    assert shown.count("\x1b") == 1
    assert len(shown) < 80
