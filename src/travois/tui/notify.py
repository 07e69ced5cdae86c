"""The terminal's title, and notifications for a person who looks at something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from travois.tui.layout import clean_display_text, cut_line

NotifyWay = Literal["auto", "bell", "osc9", "osc777", "off"]
MIN_AWAY_SECONDS = 10.0
"""Notify only if no key was pressed for this many seconds."""
MAX_TITLE_COLUMNS = 60
BELL = "\x07"
SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
OSC9_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty")
OSC777_TERMS = ("rxvt", "foot")


def render_title(text: str) -> str:
    """Return the sequence that sets the terminal's title."""
    return f"\x1b]2;{cut_line(clean_display_text(text), MAX_TITLE_COLUMNS)}\x07"


def render_notification(text: str, way: NotifyWay, environ: Mapping[str, str]) -> str:
    """Return the sequence that notifies the person; empty if they want none."""
    said = clean_display_text(text).replace("\n", " ").replace(";", ",")
    match _choose_way(environ) if way == "auto" else way:
        case "osc9":
            return _pass_through(f"\x1b]9;{said}\x07", environ)
        case "osc777":
            return _pass_through(f"\x1b]777;notify;Travois;{said}\x07", environ)
        case "bell":
            return BELL
        case _:
            return ""


def _choose_way(environ: Mapping[str, str]) -> NotifyWay:
    """Choose what the terminal is known to understand; every one has a bell."""
    if environ.get("TERM_PROGRAM", "") in OSC9_PROGRAMS or "KITTY_WINDOW_ID" in environ:
        return "osc9"
    return "osc777" if environ.get("TERM", "").startswith(OSC777_TERMS) else "bell"


def _pass_through(sequence: str, environ: Mapping[str, str]) -> str:
    """Wrap a sequence for tmux, which hands it on to the terminal if it may."""
    if "TMUX" not in environ:
        return sequence
    return "\x1bPtmux;{}\x1b\\".format(sequence.replace("\x1b", "\x1b\x1b"))
