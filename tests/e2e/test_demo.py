"""`travois demo`: the tour as a person takes it, and by itself."""

from __future__ import annotations

import re
import signal
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.e2e.glass import Glass
from tests.e2e.program import Program
from tests.e2e.test_terminal import Screen

FAST = ("demo", "--speed", "100")
LABEL = "scripted model: nothing leaves this machine"
RECEIPT = re.compile(r"([\d,]+) tokens → ([\d,]+) planned, ([\d,]+) measured")
PAGE = re.compile(r"http://127\.0\.0\.1:(\d+)(/[\w-]+/enter\?token=[\w-]+)#session=([\w-]+)")


@pytest.fixture
def visitor(program: Program, tmp_path: Path) -> Program:
    """Somebody with a key, whose temporary files are counted."""
    (tmp_path / "temporary").mkdir()
    program.extra |= {"TMPDIR": str(tmp_path / "temporary"), "ANTHROPIC_API_KEY": "sk-mine"}
    return program


def left(visitor: Program) -> list[str]:
    """What is there afterwards that was not before."""
    scratch = Path(visitor.extra["TMPDIR"])
    return [path.name for path in (*scratch.iterdir(), *visitor.folder.iterdir())]


def numbers(told: re.Match[str]) -> list[int]:
    return [int(text.replace(",", "")) for text in told.groups()]


def test_a_person_is_led_from_the_first_word_to_the_page(visitor: Program) -> None:
    glass = Glass(visitor, *FAST, columns=150, rows=40)
    glass.until("1/7", "❯ Remember: test changes", f"{LABEL} · Enter continues, Ctrl-C exits")
    glass.type("\r")
    glass.until("+ test changes in this shop", "2/7", "❯ /clear")
    glass.type("\r")
    glass.until("3/7", "❯ Some orders crash")
    glass.type("\r")
    glass.until("✓ Read logs/friday.log  160 lines", "✓ Search for 'total'", "4/7", "❯ Fix it")
    glass.type("\r")
    asked = glass.until("? Edit", "y  yes", "why: this permission mode asks", LABEL)
    assert "+     mean = sum(prices) / len(prices) if prices else 0.0" in asked
    glass.still()
    glass.type("y")
    glass.until("6 +     mean = sum(prices)")
    while "✓ $ python3 -m unittest" not in (shown := glass.still()):
        if "? Run `python3" in shown and "y  yes" in shown:  # where commands ask
            glass.type("y")
    glass.until("✓ $ python3 -m unittest", "came from memory", "5/7")
    glass.type("\r")
    glass.until("Compacted (manual): 1", "spans saved to disk", "6/7")
    glass.type("\r")
    glass.until("4259, 5567, 6084, 8008 and 8420: found in", "❯ /quit")
    glass.type("\r")
    account = glass.until("11 requests", "as the lab counted", "Press Enter to end")
    receipt, page = RECEIPT.search(account), PAGE.search(account)
    assert receipt and page
    before, planned, measured = numbers(receipt)
    assert before > 2 * measured and abs(planned - measured) < measured / 6
    assert f"Session {page[3]}" in account
    assert opened(int(page[1]), page[2]) == 200
    glass.type("\r")
    assert (glass.end(), left(visitor), visitor.home.exists()) == (0, [], False)


def opened(port: int, path: str) -> int:
    """What the page answers to somebody who comes by its address."""
    door = HTTPConnection("127.0.0.1", port)
    door.request("GET", path)
    entered = door.getresponse()
    entered.read()
    cookie = entered.headers["set-cookie"].partition(";")[0]
    door.request("GET", entered.headers["location"], headers={"cookie": cookie})
    return door.getresponse().status


def test_by_itself_it_needs_nobody_and_leaves_nothing(visitor: Program) -> None:
    done = visitor.run("demo", "--auto", "--speed", "100")
    assert (done.code, done.err) == (0, "")
    assert [line for line in done.out.splitlines() if line.startswith("> ")] == [
        "> Remember: test changes in this shop with python3 -m unittest.",
        "> /clear",
        "> Some orders crash at checkout. Find out why from the logs and the code.",
        "> Fix it, and test it.",
        "> /compact",
        "> Which orders were they?",
        "> /quit",
    ]
    assert done.out.count(LABEL) == 7
    assert "I ran them as you told me in the first conversation" in done.out
    assert "8420: found in" in done.out
    assert RECEIPT.search(done.out) and PAGE.search(done.out)
    assert (left(visitor), visitor.home.exists()) == ([], False)


def test_in_lines_one_may_stray_say_no_and_leave(visitor: Program) -> None:
    screen = Screen(visitor, *FAST, "--plain", "--keep")
    screen.until("Press Enter to send: Remember")
    screen.type("what is the weather? /quit\n")
    screen.until("I follow a script")
    screen.until("Press Enter to send: Remember")
    for step in ("/clear", "Some orders", "Fix it"):
        screen.type("\n")
        screen.until(f"Press Enter to send: {step}")
    screen.type("\n")
    screen.until("Answer: ")
    screen.type("not today\n")
    screen.until("Then I will not change it")
    screen.until("Press Enter to send: /compact")
    screen.child.send_signal(signal.SIGINT)
    screen.until("You left the tour")
    screen.until("is kept in ")
    kept = Path(screen.until("\r\n").strip())
    assert (screen.child.wait(300), kept.name in left(visitor)) == (0, True)
    assert "if prices" not in (kept / "shop" / "cart.py").read_text()
