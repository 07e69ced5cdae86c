"""What stands in a file closest to a text that is not in it."""

from __future__ import annotations

import re

from travois.tools.match import FOLD
from travois.tools.text import lines, shown

LINES = 50_000
CHARACTERS = 2_000_000
"""How much of a file is searched: advice must not take longer than reading the file again."""
WINDOW = 12
WIDTH = 200
ALIKE = 0.4
ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u00a0\u00ad\u200b-\u200f\u2028\u2029\u2060\ufeff]")


def nearest(text: str, needle: str) -> str:
    """The lines most like the needle, and the first difference, with odd characters escaped."""
    there, wanted = lines(text[:CHARACTERS])[:LINES], lines(needle)
    index = max(range(len(wanted)), key=lambda i: len(wanted[i].strip()), default=-1)
    best = _closest(there, wanted[index]) if index >= 0 else -1
    if best < 0:
        return "Nothing in the file is like it."
    top = max(best - index, 0)
    block = there[top : top + min(len(wanted), WINDOW)]
    rows = (f"{top + i + 1}\t{_visible(line)}" for i, line in enumerate(block))
    difference = _difference(wanted, there, top)
    return "\n".join(("The nearest lines (odd characters escaped):", *rows, difference)).rstrip()


def _closest(there: list[str], sought: str) -> int:
    """The number of the line that shares most with the one sought; -1 if none shares much."""
    wanted = _triples(sought)
    best, score = -1, ALIKE
    for index, line in enumerate(there):
        if not len(sought) <= 4 * len(line) + 8 or not len(line) <= 4 * len(sought) + 8:
            continue
        found = _triples(line)
        alike = 2 * len(wanted & found) / (len(wanted) + len(found))
        if alike > score:
            best, score = index, alike
    return best


def _triples(line: str) -> set[str]:
    """Its runs of three characters, blind to case, blanks and typography."""
    plain = f" {''.join(line.translate(FOLD).lower().split())} "
    return {plain[i : i + 3] for i in range(max(len(plain) - 2, 1))}


def _difference(wanted: list[str], there: list[str], top: int) -> str:
    pairs = zip(wanted, there[top : top + len(wanted)], strict=False)
    for number, (yours, theirs) in enumerate(pairs, top + 1):
        if yours != theirs:
            says, has = _visible(yours), _visible(theirs)
            return f"First difference, line {number}: you wrote `{says}`, the file has `{has}`."
    return ""


def _visible(line: str) -> str:
    """The line with tabs, odd characters and blanks at its end escaped, and cut if long."""
    body = line.rstrip(" ")
    ends = body.replace("\t", "\\t") + "\\x20" * min(len(line) - len(body), 8)
    plain = ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", shown(ends))
    return plain if len(plain) <= WIDTH else plain[:WIDTH] + "…"
