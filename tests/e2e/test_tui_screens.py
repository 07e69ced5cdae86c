"""Golden screens: thinking, questions, pickers and diffs at three widths, dark and light.

`TRAVOIS_WRITE_SCREENS=1 pytest tests/e2e/test_tui_screens.py` writes them anew; look at the diff.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from tests.e2e.glass import Glass, steady, use
from tests.e2e.program import Program
from tests.e2e.test_tui_looks import CLEAR_BACKGROUND, colour
from travois.tui.theme import resolve_theme
from travois.version import __version__

SCREENS = Path(__file__).parent / "screens"
THOUGHT = "The price is a sum.\nIt should be rounded once, at the end, and not for each item."
CHECK = "print('E   AssertionError: 3 != 4')\nprint('2 failed, 1 passed')\nraise SystemExit(1)\n"
SCRIPT = [
    {"when": {"last_text": "think"}, "say": [{"thinking": THOUGHT}, {"text": "Round once."}]},
    {
        "when": {"last_text": "change"},
        "say": [
            use("Edit", file_path="a.py", old_string="price / count", new_string="price"),
            use("Bash", command="python3 check.py"),
            use("Bash", command="git fetch nowhere"),
            use("Bash", command="rm -rf out && git push --force"),
        ],
    },
    {"say": "Changed."},
]


class Scenes:
    """The screens of one run, by name."""

    def __init__(self, glass: Glass) -> None:
        self.glass = glass
        self.seen: dict[str, str] = {}

    def take(self, name: str, *words: str) -> None:
        """Wait for these words, then keep what stands on the screen."""
        self.glass.until(*words)
        self.glass.still()
        text = re.sub(r"\$\d+\.\d+", "$COST", steady(self.glass.text))
        text = re.sub(r"\d+\.\dk (?:tokens|…)", "TOKENS", text)
        text = re.sub(r"Thought(?: for \d+ s)?: The p.*(?=  Ctrl-O)", "Thought: SAID", text)
        text = re.sub(r"cache \d+ (?:min|s)", "cache TIME", text)
        lines = (line.rstrip() for line in text.split("\n"))
        self.seen[name] = "\n".join(line for line in lines if line != "  · TIME")

    def answer(self, key: str) -> None:
        """Press a key of a menu, which takes none right after it came."""
        time.sleep(0.5)
        self.glass.type(key)


@pytest.mark.parametrize(
    ("columns", "base"),
    [
        *((42, "light"), (80, "dark"), (120, "light")),
        *(
            pytest.param(columns, base, marks=pytest.mark.full)
            for columns, base in ((42, "dark"), (80, "light"), (120, "dark"))
        ),
    ],
)
def test_screens_look_as_they_should(program: Program, columns: int, base: str) -> None:
    if program.is_limited:
        pytest.skip("whole screens are compared, and a limited sandbox adds lines to questions")
    (program.folder / "a.py").write_text("def cost(price, count):\n    return price / count\n")
    (program.folder / "check.py").write_text(CHECK)
    (program.folder / "out").mkdir()
    looks = {"COLORTERM": "truecolor", "COLORFGBG": CLEAR_BACKGROUND[base]}
    with program.served(SCRIPT):
        glass = Glass(program, *program.model, columns=columns, rows=40, **looks)
        glass.ready()
        scenes = Scenes(glass)
        glass.type("think\r")
        scenes.take("thinking collapsed", "Round once.", "cache" if columns > 42 else "0%")
        codes = resolve_theme(base, looks).codes
        assert shown_colour(glass, "Thought") == colour(codes["quiet"])
        glass.type("\x0f")
        scenes.take("thinking expanded", "not for each item")
        glass.type("\x0cchange\r")
        scenes.take("edit question", "Edit a.py?", "tell it why")
        scenes.answer("y")
        scenes.take("failed test and shell question", "git fetch nowhere", "exit 1", "tell it why")
        assert shown_colour(glass, "AssertionError: 3 != 4") == colour(codes["bad"])
        scenes.answer("y")
        scenes.take("dangerous question", "DANGER", "tell it why")
        assert shown_colour(glass, "DANGER") == colour(codes["bad"])
        scenes.answer("n")
        glass.until("why, or")
        glass.type("not now\r")
        glass.until("Changed.")
        glass.type("\x0c/mode\r")
        scenes.take("picker", "Which permission mode?")
        scenes.answer("4")
        glass.until("The mode is auto.")
        assert glass.leave() == 0
    compare(scenes.seen, SCREENS / f"{columns}.txt")


def shown_colour(glass: Glass, word: str) -> str:
    """The colour in which a word stands on the screen."""
    y = next(y for y, line in enumerate(glass.lines) if word in line)
    return str(glass.screen.buffer[y][glass.lines[y].index(word)].fg)


def compare(seen: dict[str, str], path: Path) -> None:
    """Compare screens with those that are kept, or keep them."""
    told = "\n".join(f"=== {name}\n{text}\n" for name, text in seen.items())
    told = told.replace(__version__, "VERSION")
    if os.environ.get("TRAVOIS_WRITE_SCREENS"):
        path.write_text(told)
    assert told == path.read_text()
