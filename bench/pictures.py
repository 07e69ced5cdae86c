"""`python -m bench.pictures`: the pictures of the documentation, taken from the real program.

The program runs in a pseudo-terminal against the lab's scripted model; what the terminal shows is
drawn as it is, cell by cell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pyte
from playwright.sync_api import sync_playwright
from tests.e2e.glass import Glass, use
from tests.e2e.program import Program

OUT = Path(__file__).parent.parent / "docs" / "images"
COLUMNS, ROWS = 92, 34
WIDTH, HEIGHT, EDGE = 8.4, 18, 16
NBSP = "\N{NO-BREAK SPACE}"
INK, PAPER = "#d8dee9", "#1d2128"
LIGHT_INK, LIGHT_PAPER = "#23262b", "#ffffff"
COLOURS = {
    "default": INK, "black": "#3b4252", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#d8dee9",
    "brightblack": "#7f8794", "brightred": "#e06c75", "brightgreen": "#98c379",
    "brightbrown": "#e5c07b", "brightblue": "#61afef", "brightmagenta": "#c678dd",
    "brightcyan": "#56b6c2", "brightwhite": "#ffffff",
}  # fmt: skip
CART = """\
def total(prices: list[float]) -> float:
    return sum(prices) / len(prices) * len(prices)
"""
CHECK = """\
from cart import total

def test_an_empty_cart_costs_nothing():
    assert total([]) == 0
"""
ANSWER = """\
`total` divided by the number of prices, which is zero for an empty cart (`cart.py:2`). The \
division cancelled itself out anyway, so I **removed** it:

- an empty cart costs nothing
- all other totals stay the same

The test passes.
"""
WORK = [
    {
        "say": [
            {"text": "I'll look at the code and its test first."},
            use("Read", file_path="cart.py"),
        ]
    },
    {
        "say": [
            use(
                "Edit",
                file_path="cart.py",
                old_string="    return sum(prices) / len(prices) * len(prices)",
                new_string="    return sum(prices)",
            )
        ]
    },
    {
        "say": [
            use(
                "Bash",
                command="python3 -c 'import test_cart as t; t.test_an_empty_cart_costs_nothing()'",
            )
        ]
    },
    {"say": ANSWER},
]
KEEP = [
    {
        "say": [
            use("Remember", text="Tests here never use mocks: real objects only.", type="feedback")
        ]
    },
    {"say": "Got it: real objects, no mocks."},
]
RISK = [
    {
        "say": [
            {"text": "I'll remove the old build first."},
            use("Bash", command="rm -rf build && make all"),
        ]
    }
]


FAILED = [
    {
        "say": [
            {"text": "I'll run the tests."},
            use("Bash", command="python3 -m pytest -q", description="Run the tests"),
        ]
    },
    {
        "say": [
            use("Bash", command="python3 check.py 2>&1 | tail -3", description="Run the checks"),
        ]
    },
    {"say": "The test fails because `total` divides by zero for an empty cart."},
]
LONG = [
    {
        "say": [
            use("Grep", pattern="price", output_mode="content"),
            use("Bash", command="seq -f 'row %g of the report' 1 154"),
        ]
    },
    {"say": "The report has 154 rows."},
]
CHANGE = [
    {"say": [use("Read", file_path="cart.py")]},
    {
        "say": [
            use(
                "Edit",
                file_path="cart.py",
                old_string="    return sum(prices) / len(prices) * len(prices)",
                new_string="    # The mean would be zero for an empty cart.\n    return sum(prices)",
            )
        ]
    },
    {"say": "An empty cart costs nothing now."},
]
SCOUT = [
    {
        "say": [
            {"text": "I'll let an agent look through the code."},
            use("Agent", subagent_type="explore", description="Find uses", prompt="Where is it?"),
        ]
    },
    {"say": [use("Grep", pattern="total", output_mode="content")]},
    {"say": [use("Bash", command="sleep 300")]},
    {"say": "Found."},
]


class Scene(NamedTuple):
    """What the model says, how high the picture is, and what is typed until what is seen."""

    picture: str
    script: list[dict[str, Any]]
    rows: int
    steps: tuple[tuple[str, str], ...]
    columns: int = COLUMNS
    options: tuple[str, ...] = ()
    theme: str = "dark"


BYPASS = ("--permission-mode", "bypass")
EDITS = ("--permission-mode", "accept-edits")
MEND = ("The total of an empty cart crashes. Fix it.\r", "y  yes")
NO_MOCKS = ("Remember: tests here never use mocks, real objects only.\r", "no mocks.")
BUILD = ("Build it from scratch.\r", "y  yes")
SCENES = (
    Scene("terminal.svg", WORK, ROWS, (MEND, ("y", "passes."))),
    Scene("memory.svg", KEEP, 20, (NO_MOCKS,)),
    Scene("question.svg", RISK, 24, (BUILD,)),
    Scene("diff.svg", CHANGE, 24, (("Fix the total.\r", "nothing now"),), 132, EDITS),
    Scene("diff-light.svg", CHANGE, 24, (("Fix the total.\r", "nothing now"),), 92, EDITS, "light"),
    Scene("failed.svg", FAILED, 30, (("Run the tests.\r", "test fails because"),), COLUMNS, BYPASS),
    Scene("output.svg", LONG, 26, (("How long is it?\r", "154 rows."),), COLUMNS, BYPASS),
    Scene("agent.svg", SCOUT, 20, (("Where is the total used?\r", "sleep 300"),), COLUMNS, BYPASS),
)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    for scene in (*(partial(talk, scene=one) for one in SCENES), pick, tour, inspect):
        with tempfile.TemporaryDirectory(prefix="ada-") as folder:
            scene(place(Path(folder)))


def place(folder: Path) -> Program:
    shop = folder / "shop"
    shop.mkdir(parents=True)
    (shop / "cart.py").write_text(CART)
    (shop / "test_cart.py").write_text(CHECK)
    (shop / "check.py").write_text("print(sum([]) / len([]))\n")
    (shop / "build").mkdir()
    (shop / "build" / "shop.o").write_text("")
    subprocess.run(["git", "init", "-q", "-b", "main", str(shop)], check=True)
    return Program(shop, folder / "state")


def talk(program: Program, scene: Scene) -> None:
    """What was typed and waited for, and then the picture."""
    with program.served(scene.script):
        background = "0;15" if scene.theme == "light" else "15;0"
        looks = {"COLORTERM": "truecolor", "COLORFGBG": background}
        words = (*program.model, *scene.options)
        glass = Glass(program, *words, columns=scene.columns, rows=scene.rows, **looks)
        glass.ready()
        for typed, shown in scene.steps:
            glass.type(typed)
            glass.until(shown)
            glass.still()
        draw(glass, scene.picture, light=scene.theme == "light")
        glass.child.terminate(force=True)


def pick(program: Program) -> None:
    """Choosing a session to go on with."""
    prompts = (
        "Why did we drop redis?",
        "Add a dark theme to the settings page",
        "The total of an empty cart crashes. Fix it.",
        "Write release notes for 0.3",
    )
    with program.served([{"say": "Done."}] * len(prompts)):
        for prompt in prompts:
            program.ask(prompt)
        glass = Glass(program, *program.model, "--resume", columns=COLUMNS, rows=20)
        glass.until("redis")
        glass.still()
        draw(glass, "picker.svg")
        glass.child.terminate(force=True)


def tour(program: Program) -> None:
    """The guided tour, at its question."""
    program.extra["TMPDIR"] = str(program.home.parent)
    glass = Glass(program, "demo", columns=COLUMNS, rows=34)
    for step in ("Remember", "/clear", "Some orders", "Fix it"):
        glass.until(f"❯ {step}")
        glass.still()
        glass.type("\r")
    glass.until("y  yes")
    glass.still()
    draw(glass, "demo.svg")
    glass.child.terminate(force=True)


def inspect(program: Program) -> None:
    """The inspector, with the session of the guided tour at its third request."""
    program.extra["TMPDIR"] = str(program.home.parent)
    done = program.run("demo", "--auto", "--speed", "20", "--keep")
    home = Path(done.out.split("is kept in ")[1].strip()) / "home"
    command = (sys.executable, "-m", "travois", "inspect", "--no-open")
    with (
        subprocess.Popen(
            command,
            cwd=home.parent / "shop",
            env={**os.environ, "TRAVOIS_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        ) as served,
        sync_playwright() as play,
        play.chromium.launch(executable_path=shutil.which("chromium")) as browser,
    ):
        assert served.stdout
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(served.stdout.readline().strip())
        page.get_by_text("Fix it, and test it.").wait_for()
        page.screenshot(path=OUT / "inspect-session.png")
        print(OUT / "inspect-session.png")
        served.terminate()


def draw(glass: Glass, name: str, *, light: bool = False) -> None:
    """What stands on the screen, as a picture."""
    ink, paper = (LIGHT_INK, LIGHT_PAPER) if light else (INK, PAPER)
    screen = glass.screen
    filled = max(y for y in range(screen.lines) if screen.display[y].strip()) + 1
    width, height = screen.columns * WIDTH + 2 * EDGE, filled * HEIGHT + 2 * EDGE
    rows = (line for y in range(filled) for line in _row(screen, y, ink=ink, paper=paper))
    (OUT / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'width="{width:.0f}" height="{height}" role="img">'
        f'<rect width="100%" height="100%" rx="8" fill="{paper}"/>'
        '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace" '
        'font-size="14" style="white-space:pre">' + "".join(rows) + "</g></svg>\n"
    )
    print(OUT / name)


def _row(screen: pyte.Screen, y: int, *, ink: str, paper: str) -> Iterator[str]:
    """One row: runs of cells that look the same."""
    own = paper, ink
    cells = [(x, screen.buffer[y][x]) for x in range(screen.columns)]
    for look, run in groupby(cells, lambda cell: cell[1]._replace(data="")):
        held = list(run)
        whole = "".join(cell.data for _, cell in held)
        text = whole.strip()
        x, top = EDGE + held[0][0] * WIDTH, EDGE + y * HEIGHT
        start = x + (len(whole) - len(whole.lstrip())) * WIDTH
        paper, ink = _colour(look.bg, own[0]), _colour(look.fg, own[1])
        if look.reverse:
            ink, paper = paper, ink
        if paper != own[0]:
            yield f'<rect x="{x:.1f}" y="{top}" width="{len(held) * WIDTH:.1f}" height="{HEIGHT}" fill="{paper}"/>'
        if text:
            style = (' font-weight="bold"' if look.bold else "") + (
                ' font-style="italic"' if look.italics else ""
            )
            yield (
                f'<text x="{start:.1f}" y="{top + 13}" fill="{ink}"{style} '
                f'textLength="{len(text) * WIDTH:.1f}">{escape(text.replace(" ", NBSP))}</text>'
            )


def _colour(name: str, plain: str) -> str:
    if name == "default":
        return plain
    return COLOURS.get(name, f"#{name}")


if __name__ == "__main__":
    main()
