"""The tour as data: what there is, what is typed, what to look at, and what the model says."""

from __future__ import annotations

from typing import Any

import msgspec

LABEL = "scripted model: nothing leaves this machine"


class Step(msgspec.Struct, frozen=True):
    """One thing to type, and what to look at in it."""

    title: str
    about: str
    typed: str

    def taken(self, said: str) -> bool:
        """Whether somebody said it, a prompt perhaps with words of their own around it."""
        return said == self.typed if self.typed.startswith("/") else self.typed in said


class Pace(msgspec.Struct, frozen=True):
    """How fast the tour plays by itself, in seconds: for a character, and for an answer."""

    reading: float
    typing: float
    deciding: float


STEPS = (
    Step(
        "Say it once",
        "This is the real Travois in a scratch repository; only the model is scripted. Tell it how "
        "you work. It saves what matters later to a plain file and shows the diff.",
        "Remember: test changes in this shop with python3 -m unittest.",
    ),
    Step(
        "Start over",
        "A new conversation starts with an empty context window. Whatever it knows about the last "
        "one comes from memory.",
        "/clear",
    ),
    Step(
        "Ask",
        "Reading and searching in this folder need no approval.",
        "Some orders crash at checkout. Find out why from the logs and the code.",
    ),
    Step(
        "Change",
        "Changing a file needs your approval. You see the diff and decide. Then the test runs that "
        "you named in the first conversation.",
        "Fix it, and test it.",
    ),
    Step(
        "Make room",
        "Context windows fill up. A summary replaces older messages, and you get a receipt.",
        "/compact",
    ),
    Step(
        "Look it up",
        "The full logs are no longer in the window. They are saved to files that the model can "
        "search.",
        "Which orders were they?",
    ),
    Step("Done", "Press Enter once more for a summary and the inspector.", "/quit"),
)

CART = '''\
"""What a cart costs."""


def total(prices: list[float], discount: float = 0.0) -> float:
    """The sum of all prices, less a discount in per cent of their mean."""
    mean = sum(prices) / len(prices)
    return sum(prices) - mean * discount / 100
'''
CHECKOUT = '''\
"""From a cart to an order."""

from cart import total


def order(prices: list[float]) -> str:
    """One line for the invoice."""
    return f"{len(prices)} items, {total(prices):.2f}"
'''
TEST = """\
import unittest

from checkout import order


class Checkout(unittest.TestCase):
    def test_an_empty_cart_costs_nothing(self):
        self.assertEqual(order([]), "0 items, 0.00")

    def test_two_items(self):
        self.assertEqual(order([1.0, 2.0]), "2 items, 3.00")
"""
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday")
LINES = 160
CRASHES = (37, 81, 12, 144, 60)
"""The line of each day on which an order crashed."""


def _number(day: int, line: int) -> int:
    return 4000 + 1000 * day + 7 * line


def _log(day: int) -> str:
    """A day at the shop."""
    lines: list[str] = []
    for line in range(LINES):
        number = _number(day, line)
        paid = f"{line % 9 + 1} items, paid, parcel {number * 31 % 9973}"
        outcome = "ZeroDivisionError in total()" if line == CRASHES[day] else paid
        lines.append(f"{line // 10 + 6:02}:{line * 6 % 60:02} POST /checkout {number} {outcome}")
    return "\n".join(lines) + "\n"


FILES = {
    "cart.py": CART,
    "checkout.py": CHECKOUT,
    "test_checkout.py": TEST,
    **{f"logs/{name}.log": _log(day) for day, name in enumerate(DAYS)},
}


FOUND = """\
Orders with an **empty cart** crash: `total` divides by the number of prices (`cart.py:6`). There \
was one each day.
"""
DONE = """\
An empty cart now costs nothing, and both tests pass. I ran them **as you told me in the first \
conversation**: that came from memory.
"""
UNKNOWN = "Fixed. I do not know how changes are tested here."
SUMMARY = """\
The user wants checkout to survive empty carts: `total` in cart.py divides by the number of \
prices. Changes are tested with `python3 -m unittest`.
"""
ORDERS = [str(_number(day, line)) for day, line in enumerate(CRASHES)]
NAMED = f"{', '.join(ORDERS[:-1])} and {ORDERS[-1]}: found in the saved logs."
STOPPED = "Then I will not change it. Press Enter to continue the tour."
LOST = "I follow a script, and this is not in it. Press Enter to continue the tour."


def _use(name: str, **args: str) -> dict[str, Any]:
    return {"tool_use": {"name": name, "input": args}}


def pace(speed: float) -> Pace:
    """The pace at which everything takes about a minute, or so many times faster."""
    return Pace(reading=0.03 / speed, typing=0.03 / speed, deciding=2 / speed)


def script(speed: float) -> list[dict[str, Any]]:
    """What the model says to what, streamed as models do, or so many times faster."""
    remember, _, ask, change, _, which, _ = (step.typed for step in STEPS)
    wish = remember.partition(": ")[2]
    looked = [
        {"text": "I'll read the logs and find the code that computes totals."},
        *(_use("Read", file_path=f"logs/{day}.log") for day in DAYS),
        _use("Grep", pattern="total", glob="*.py", output_mode="content"),
    ]
    mended = _use(
        "Edit",
        file_path="cart.py",
        old_string="mean = sum(prices) / len(prices)",
        new_string="mean = sum(prices) / len(prices) if prices else 0.0",
    )

    def heard(text: str) -> dict[str, Any]:
        return {"last_text": text}

    def saw(tool: str, regex: str = "") -> dict[str, Any]:
        return {"tool_result": {"name": tool, "regex": regex, "is_error": False}}

    turns: list[tuple[dict[str, Any], object]] = [
        (heard("This is the harness"), SUMMARY),
        (heard(remember), [_use("Remember", text=wish, type="feedback")]),
        (saw("Remember"), "I will."),
        (heard(ask), looked),
        (saw("Grep"), [_use("Read", file_path="cart.py")]),
        (saw("Read"), FOUND),
        (heard(change), [mended]),
        (saw("Edit") | {"text": wish}, [_use("Bash", command="python3 -m unittest")]),
        (saw("Edit"), UNKNOWN),
        (saw("Bash", "\nOK"), DONE),
        (heard(which), [_use("Recall", query="ZeroDivisionError")]),
        (saw("Recall", "(?s)" + "".join(f"(?=.*{one})" for one in ORDERS)), NAMED),
        ({"tool_result": {"is_error": True}}, STOPPED),
        ({}, LOST),
    ]
    flow = {"by": "token", "delay_ms": 12 / speed}
    return [{"when": when, "say": say, "chunks": flow, "repeat": True} for when, say in turns]
