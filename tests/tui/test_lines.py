"""The lines that say how things stand, at any width."""

from __future__ import annotations

from travois.core.tasks import Task
from travois.diff_rows import build_diff_rows
from travois.tools.diff import compare_texts
from travois.tui import agent_progress, diff_view, footer, transcript
from travois.tui.agent_progress import SpinnerState
from travois.tui.footer import FooterStatus
from travois.tui.keys import Pastes
from travois.tui.layout import display_width, wrap_words
from travois.tui.menu import Menu, MenuOption
from travois.tui.start import is_interactive_start
from travois.tui.theme import resolve_theme

NONE = resolve_theme("none", {})
BARE = resolve_theme("auto", {"NO_COLOR": "1"})
FULL = FooterStatus(
    "anthropic/claude-opus-5-5", "plan", "main", used=70, warm=260, tasks=2, dollars=1.25
)


def plain(line: str) -> str:
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[2m"):
        line = line.replace(code, "")
    return line


def test_the_footer_leaves_out_what_has_no_room() -> None:
    whole = (
        "  plan · claude-opus-5-5 · main · ━━━━━━╌╌ 70% · $1.25 · cache 4 min · 2 tasks"
        " · ? for shortcuts"
    )
    assert plain(footer.render_footer(FULL, BARE, 100)) == whole
    assert (
        plain(footer.render_footer(FULL, BARE, 60))
        == "  plan · claude-opus-5-5 · main · ━━━━━━╌╌ 70% · 2 tasks"
    )
    assert plain(footer.render_footer(FULL, BARE, 40)) == "  plan · ━━━━━━╌╌ 70% · 2 tasks"


def test_the_spinner_leaves_out_what_has_no_room() -> None:
    work = SpinnerState("Writing", 75.0, 3_200, 456, 0.0123)
    shown = plain(agent_progress.render_spinner(work, BARE, 80))
    assert shown[2:] in [
        f"{turn} Writing  1:15 min · ↑ 3.2k ↓ 456 · $0.0123 · Esc stops"
        for turn in agent_progress.SPINNER_FRAMES
    ]
    assert all(
        display_width(agent_progress.render_spinner(work, BARE, columns)) <= columns
        for columns in range(24, 80)
    )


def test_a_change_is_shown_with_the_numbers_of_its_lines() -> None:
    change = compare_texts("a.py", "one\ntwo\nthree\n", "one\n2\nthree\nfour\n")
    rows = diff_view.render_diff_rows(build_diff_rows(change), NONE, 40)
    assert [plain(line) for line in rows] == [
        "    1   one",
        "    2 - two",
        "    2 + 2",
        "    3   three",
        "    4 + four",
    ]
    assert plain(diff_view.format_line_counts([change], NONE)) == "+2 -1"


def test_a_long_list_is_shown_where_the_work_is() -> None:
    done = [Task(content=f"done {n}", status="completed") for n in range(10)]
    list_ = (
        *done,
        Task(content="this", status="in_progress"),
        *(Task(content=f"later {n}", status="pending") for n in range(10)),
    )
    shown = [plain(line) for line in transcript.render_todos(list_, NONE, 40, most=5)]
    assert shown == [
        "  ✓ done 8",
        "  ✓ done 9",
        "  ▸ this",
        "    later 0",
        "    later 1",
        "    … 16 more",
    ]


def test_a_key_counts_only_after_a_pause() -> None:
    menu = Menu((MenuOption("y", "yes"), MenuOption("n", "no")))
    assert [menu.is_armed(), menu.is_armed()] == [False, False]
    menu._heard -= 1
    assert [menu.is_armed(), menu.is_armed()] == [True, True]
    assert not menu.press("x")
    assert menu.press("N") and menu.answer == [1]


def test_several_are_marked_before_they_are_taken() -> None:
    menu = Menu((MenuOption("1", "a"), MenuOption("2", "b"), MenuOption("0", "done")), several=True)
    menu.press("1")
    menu.press("2")
    menu.press("1")
    assert not menu.done.is_set()
    menu.press("0")
    assert menu.answer == [1]


def test_a_long_paste_is_shown_by_its_size_and_sent_whole() -> None:
    pastes = Pastes()
    text = "x" * 1_000_000
    assert pastes.shorten("short\r\none") == "short\none"
    assert [pastes.shorten(text), pastes.shorten(text)] == ["[pasted 1.0 MB]", "[pasted 1.0 MB, 2]"]
    assert pastes.expand("see [pasted 1.0 MB] twice") == f"see {text} twice"


def test_only_words_that_surely_begin_a_conversation_paint_early() -> None:
    assert not any(is_interactive_start(argv, {"TERM": "dumb"}) for argv in ([], ["-c"]))
    assert not any(
        is_interactive_start(argv, {"TERM": "xterm"})
        for argv in (["-p", "x"], ["-cp"], ["--help"], ["sessions"], ["fix it"], ["--plain"])
    )


def test_prose_is_folded_between_words_and_loses_nothing() -> None:
    assert wrap_words("one two three four", 9) == ["one two", "three", "four"]
    assert wrap_words("first line\nsecond, which is longer", 12) == [
        "first line",
        "second,",
        "which is",
        "longer",
    ]
    assert wrap_words("extraordinarily long", 10) == ["extraordin", "arily", "long"]
    assert wrap_words("", 10) == [""]
