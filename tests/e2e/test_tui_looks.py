"""Whole screens at three widths, dark and light: results, a failure, a diff and the frame."""

from __future__ import annotations

import re

import pytest

from tests.e2e.glass import Glass, steady, use
from tests.e2e.program import Program
from travois.tui.theme import find_nearest_number, find_table_colour, resolve_theme
from travois.version import __version__

SCRIPT = [
    {
        "say": [
            {"text": "I **fix** it."},
            use("Read", file_path="a.py"),
        ]
    },
    {
        "say": [
            use("Edit", file_path="a.py", old_string="price / count", new_string="price"),
        ]
    },
    {
        "say": [
            use("Bash", command="seq 12; echo 'ValueError: bad price'; exit 3"),
        ]
    },
    {"say": "Done."},
]
SCREENS = {
    42: """
  Travois VERSION  ~/work

❯ fix the price

  I fix it.
  ✓ Read a.py  2 lines

  ✓ Edit a.py  +1 -1
    1   def cost(price, count):
    2 -     return price / count
    2 +     return price

  ✗ $ seq 12; echo 'ValueError: …  exit 3
    7
    8
    9
    10
    11
    12
    ValueError: bad price
    Ctrl-O: 6 more lines

  Done.

╭───────────────────────────────────────
│ ❯ Describe a task, or / for commands
╰───────────────────────────────────────
  bypass · claude-opus-5-5 · ╌╌╌╌╌╌╌╌ 0%""",
    80: """
  Travois VERSION  ~/work

❯ fix the price

  I fix it.
  ✓ Read a.py  2 lines

  ✓ Edit a.py  +1 -1
    1   def cost(price, count):
    2 -     return price / count
    2 +     return price

  ✗ $ seq 12; echo 'ValueError: bad price'; exit 3  exit 3
    7
    8
    9
    10
    11
    12
    ValueError: bad price
    Ctrl-O: 6 more lines

  Done.

╭───────────────────────────────────────
│ ❯ Describe a task, or / for commands
╰───────────────────────────────────────
  bypass · claude-opus-5-5 · ╌╌╌╌╌╌╌╌ 0% · $COST · cache 5 min""",
    120: """
  Travois VERSION  ~/work

❯ fix the price

  I fix it.
  ✓ Read a.py  2 lines

  ✓ Edit a.py  +1 -1
    1   def cost(price, count):                               1   def cost(price, count):
    2 -     return price / count                              2 +     return price

  ✗ $ seq 12; echo 'ValueError: bad price'; exit 3  exit 3
    7
    8
    9
    10
    11
    12
    ValueError: bad price
    Ctrl-O: 6 more lines

  Done.

╭───────────────────────────────────────
│ ❯ Describe a task, or / for commands
╰───────────────────────────────────────
  bypass · claude-opus-5-5 · ╌╌╌╌╌╌╌╌ 0% · $COST · cache 5 min · ? for shortcuts""",
}
CLEAR_BACKGROUND = {"dark": "15;0", "light": "0;15"}


def colour(code: str) -> str:
    """A colour of a theme as the screen has it."""
    return "".join(f"{int(part):02x}" for part in code.split(";")[2:])


def live_colour(code: str) -> str:
    """The same as the live region draws it, with 256 colours."""
    red, green, blue = (int(part) for part in code.split(";")[2:])
    nearest = find_table_colour(find_nearest_number((red, green, blue)))
    return "".join(f"{part:02x}" for part in nearest)


def screen(glass: Glass) -> str:
    return re.sub(r"\$\d+\.\d+", "$COST", steady(glass.text)).replace(__version__, "VERSION")


@pytest.mark.parametrize("base", ["dark", "light"])
@pytest.mark.parametrize("columns", [42, 80, 120])
def test_a_screen_looks_as_it_should(program: Program, columns: int, base: str) -> None:
    if program.is_limited:
        pytest.skip("the whole screen is compared, and a limited sandbox adds a line to it")
    (program.folder / "a.py").write_text("def cost(price, count):\n    return price / count\n")
    looks = {"COLORTERM": "truecolor", "COLORFGBG": CLEAR_BACKGROUND[base]}
    with program.served(SCRIPT):
        words = (*program.model, "--permission-mode", "bypass")
        glass = Glass(program, *words, columns=columns, rows=36, **looks)
        glass.ready()
        glass.type("fix the price\r")
        glass.until("Done.", "0%")
        glass.still()
        assert screen(glass) == SCREENS[columns]
        theme = resolve_theme(base, looks)
        rows = {line.strip(): y for y, line in enumerate(glass.lines)}
        removed = next(y for line, y in rows.items() if line.startswith("2 -"))
        why = next(y for line, y in rows.items() if line == "ValueError: bad price")
        buffer = glass.screen.buffer
        at = glass.lines[removed].index("return")
        assert buffer[removed][at].bg == colour(theme.codes["removed"])
        assert buffer[removed][at].fg == colour(theme.codes["keyword"])
        gone = glass.lines[removed].index("/ count")
        assert buffer[removed][gone].bg == colour(theme.codes["removed-word"])
        assert buffer[why][4].fg == colour(theme.codes["bad"])
        frame = next(y for y, line in enumerate(glass.lines) if line.startswith("╭"))
        assert buffer[frame][0].fg == live_colour(theme.codes["bad"])
        assert glass.leave() == 0


@pytest.mark.parametrize(
    ("reply", "base"),
    [("rgb:ffff/ffff/ffff", "light"), ("rgb:1111/1111/1111", "dark")],
)
def test_the_terminal_is_asked_for_its_background(program: Program, reply: str, base: str) -> None:
    looks = {"COLORTERM": "truecolor"}
    with program.served([{"say": "Some `code` here."}]):
        glass = Glass(program, *program.model, **looks)
        glass.ready()
        assert "\x1b]11;?\x1b\\" in glass.raw
        answer = f"\x1b]11;{reply}\x1b\\"
        for piece in (answer[:3], answer[3:12], answer[12:]):
            glass.type(piece)
            glass.pump(0.05)
        glass.type("go\r")
        glass.until("Some code here.", "cache")
        glass.still()
        y = next(n for n, line in enumerate(glass.lines) if "Some code" in line)
        at = glass.lines[y].index("code")
        theme = resolve_theme(base, looks)
        assert glass.screen.buffer[y][at].fg == live_colour(theme.codes["accent"])
        assert "❯ go" in glass.text
        assert glass.leave() == 0
