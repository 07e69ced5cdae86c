"""One text for another in a file's text: what it means, and why it may not be done."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from travois.ports.tool import Refusal
from travois.tools.match import Found, Match, apart, find, replaced
from travois.tools.text import Splice, ending_near, endings, flatten, line_number

NAMED = 20
NUMBERED = re.compile(r"\s*\d+\t")


class Change(msgspec.Struct, frozen=True):
    """A text to look for, and the one to put in its place."""

    old_string: str
    new_string: str
    replace_all: bool = False


class Plan(msgspec.Struct, frozen=True):
    """Which parts of a text become what, and how alike they were to what was sought."""

    splices: tuple[Splice, ...]
    how: Literal["exact", "folded", "lines"] = "exact"


def plan(text: str, change: Change, *, forgiving: bool) -> Plan:
    """How to make this change; raises `Refusal` where it is not clear what is meant."""
    if change.old_string == change.new_string:
        raise Refusal("old_string and new_string are the same; there is nothing to change.")
    if not change.old_string:
        return _fill(text, change)
    if flatten(change.old_string).text == flatten(change.new_string).text:
        return _line_ends(text, change)
    found = find(text, change.old_string)
    if not found.matches or not (forgiving or found.how == "exact"):
        from travois.tools.nearest import nearest

        numbered = " Leave out the line numbers." if NUMBERED.match(change.old_string) else ""
        advice = nearest(text, change.old_string)
        raise Refusal(f"old_string is not in the file.{numbered} {advice}")
    return Plan(_splices(text, change, _chosen(text, change, found)), found.how)


def _fill(text: str, change: Change) -> Plan:
    if text:
        raise Refusal(
            "old_string is empty, which only fits an empty or missing file. "
            "Quote the text to replace, or use Write to replace everything."
        )
    return Plan((Splice(0, 0, change.new_string),))


def _line_ends(text: str, change: Change) -> Plan:
    """A change of nothing but line ends is meant to the letter."""
    matches, at = list[Match](), text.find(change.old_string)
    while at >= 0:
        matches.append(Match(at, at + len(change.old_string)))
        at = text.find(change.old_string, matches[-1].end)
    if not matches:
        raise Refusal("old_string is not in the file with these line ends.")
    chosen = _chosen(text, change, Found(tuple(matches), "exact"))
    return Plan(tuple(Splice(match.start, match.end, change.new_string) for match in chosen))


def _chosen(text: str, change: Change, found: Found) -> list[Match]:
    if len(found.matches) == 1:
        return list(found.matches)
    if change.replace_all and found.how == "exact":
        return apart(found.matches)
    numbers = [line_number(text, match.start) for match in found.matches[:NAMED]]
    places = ", ".join(map(str, numbers)) + (", ..." if len(found.matches) > NAMED else "")
    if found.how == "exact":
        advice = "Add lines around it to say which one is meant, or set replace_all."
        raise Refusal(f"old_string is there {len(found.matches)} times (lines {places}). {advice}")
    raise Refusal(
        f"old_string is not in the file to the letter, and {len(found.matches)} places are like "
        f"it (lines {places}). Quote the one that is meant exactly, with lines around it."
    )


def _splices(text: str, change: Change, matches: list[Match]) -> tuple[Splice, ...]:
    kinds = endings(text) or ["\n"]
    made = list[Splice]()
    for match in matches:
        ending = kinds[0]
        if len(kinds) > 1:
            ending = ending_near(text, match.start, match.end, usual=kinds[0])
        new = replaced(text, match, old=change.old_string, new=change.new_string, ending=ending)
        if new is None:
            raise Refusal(
                "old_string fits only with less indentation, and new_string has a line with too "
                "little of it. Quote the file's own indentation in both."
            )
        made.append(Splice(match.start, match.end, new))
    return tuple(made)
