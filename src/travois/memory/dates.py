"""Resolve relative dates: `yesterday` becomes the day that it was when the user said it.

Model sees: the day, in the text of a memory.
Tokens: none of its own.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from calendar import day_name
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from msgspec.structs import replace

from travois.memory.memory import Memory

WEEKDAYS = tuple(name.lower() for name in day_name)
DAY_PARTS = ("morning", "afternoon", "evening")
DAY_SHIFTS = {
    "yesterday": -1,
    "last night": -1,
    "today": 0,
    "tonight": 0,
    "tomorrow": 1,
    **{f"yesterday {part}": -1 for part in DAY_PARTS},
    **{f"this {part}": 0 for part in DAY_PARTS},
}
COUNT_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
COUNT_VALUES = {"a": 1, "an": 1, **{word: number for number, word in enumerate(COUNT_WORDS, 1)}}
RELATIVE_DATE_PHRASES = (
    rf"(?:{'|'.join(sorted(DAY_SHIFTS, key=len, reverse=True))})"
    rf"|(?:\d{{1,3}}|{'|'.join(COUNT_VALUES)}) (?:day|week|month|year)s? ago"
    rf"|(?:last|this|next) (?:week|month|year|{'|'.join(WEEKDAYS)})"
)
RELATIVE_DATE_PATTERN = re.compile(
    r"```.*?```|`[^`]*`|\"[^\"\n]*\"|“[^”]*”"
    rf"|(?P<before>\b(?:on|by|until|till|since|from|before|after|of)\s+)?(?<![\w./-])(?P<phrase>{RELATIVE_DATE_PHRASES})\b"
    r"(?!['’]s|-|[./]\w)",
    re.IGNORECASE | re.DOTALL,
)
"""A time told from the day of speaking; what is quoted is passed over."""
HABIT_WORDS = re.compile(
    r"\b(?:always|never|every|each|when|whenever|if|daily|weekly|should|must|use)\b", re.IGNORECASE
)
"""In a sentence with such a word, `today` is whichever day it is then."""
SENTENCE_PATTERN = re.compile(r"[^.!?\n]*(?:[.!?](?!\s)[^.!?\n]*)*[.!?\n]*")


def to_local_date(at: float) -> date:
    """Return a timestamp's local date, to resolve relative dates in a memory."""
    return datetime.fromtimestamp(at, UTC).astimezone().date()


def date_memory(memory: Memory) -> Memory:
    """Resolve the relative dates of a memory from the times of its evidence.

    Preferences (feedback) and pinned memories stay as they were said.
    """
    if memory.type == "feedback" or memory.pinned:
        return memory

    def find_date_said(phrase: str) -> date | None:
        times = (e.at for e in memory.evidence if e.at and phrase.lower() in e.words.lower())
        return next((to_local_date(at) for at in times), None)

    description, body = (
        resolve_relative_dates(memory.description, find_date_said),
        resolve_relative_dates(memory.body, find_date_said),
    )
    return replace(memory, description=description, body=body)


def resolve_relative_dates(text: str, said: Callable[[str], date | None]) -> str:
    """Replace relative dates in a memory's text; `said` gives the day of a phrase."""

    def format_match(found: re.Match[str]) -> str:
        phrase = found["phrase"]
        base = said(phrase) if phrase else None
        if base is None:
            return found[0]
        when = _format_phrase_date(phrase.lower(), base, before=(found["before"] or "").rstrip())
        return when[0].upper() + when[1:] if found[0][0].isupper() else when

    parts = SENTENCE_PATTERN.findall(text)
    return "".join(
        part if HABIT_WORDS.search(part) else RELATIVE_DATE_PATTERN.sub(format_match, part)
        for part in parts
    )


def _format_phrase_date(phrase: str, base: date, *, before: str) -> str:
    """Return the date of a relative phrase with the preposition that it needs."""
    if phrase in DAY_SHIFTS:
        return f"{before or 'on'} {base + timedelta(DAY_SHIFTS[phrase])}"
    if phrase.endswith(" ago"):
        count, unit, _ = phrase.split()
        number = COUNT_VALUES.get(count) or int(count)
        return _format_shifted_date(base, unit.rstrip("s"), -number, before)
    which, unit = phrase.split()
    if unit in WEEKDAYS:
        return _format_weekday(base, which, WEEKDAYS.index(unit), before)
    shift = {"last": -1, "this": 0, "next": 1}[which]
    if unit == "week":
        monday = base + timedelta(7 * shift - base.weekday())
        return f"{before or 'in'} the week of {monday}"
    return _format_shifted_date(base, unit, shift, before)


def _format_shifted_date(base: date, unit: str, number: int, before: str) -> str:
    """Return a relative date this many units away; a month has no day, a year no month."""
    if unit in ("day", "week"):
        return f"{before or 'on'} {base + timedelta(number * (7 if unit == 'week' else 1))}"
    if unit == "year":
        return f"{before or 'in'} {base.year + number}"
    months = base.year * 12 + base.month - 1 + number
    return f"{before or 'in'} {months // 12}-{months % 12 + 1:02}"


def _format_weekday(base: date, which: str, number: int, before: str) -> str:
    """Return a weekday's date; `next` stays relative because it is ambiguous."""
    if which == "next":
        return f"{before or 'on'} the {WEEKDAYS[number].capitalize()} after {base}"
    ahead = (number - base.weekday()) % 7
    shift = ahead if which == "this" else ahead - 7
    return f"{before or 'on'} {base + timedelta(shift)}"
