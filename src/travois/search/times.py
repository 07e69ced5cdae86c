"""Which time a text speaks of: "on 7 May 2023", "last March", "two weeks ago", "yesterday"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}
MONTH = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in MONTHS)})\b\.?"
DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
YEAR = r"(?P<year>(?:19|20)\d\d)\b"


class Span(msgspec.Struct, frozen=True):
    """From a time to a time, in seconds since 1970."""

    start: float
    end: float

    def distance(self, at: float) -> float:
        """How many seconds a time lies outside."""
        return max(self.start - at, at - self.end, 0.0)


Reading = Callable[[re.Match[str], datetime], Span]


def spoken(text: str, *, now: float) -> Span | None:
    """The time that a text speaks of, as it is understood at a time."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for pattern, reading in READINGS:
        for found in pattern.finditer(text):
            try:
                return reading(found, today)
            except (ValueError, OverflowError):  # there is no 31 June, nor a year 0
                continue
    return None


def _days(start: datetime, count: int) -> Span:
    return Span(start.timestamp(), (start + timedelta(count)).timestamp())


def _date(found: re.Match[str], today: datetime) -> Span:
    """A day, with or without its year."""
    month, day = _month(found["month"]), int(found["day"])
    if found["year"]:
        return _days(datetime(int(found["year"]), month, day, tzinfo=UTC), 1)
    start = datetime(today.year, month, day, tzinfo=UTC)
    return _days(start if start <= today else start.replace(year=today.year - 1), 1)


def _whole_month(found: re.Match[str], today: datetime) -> Span:
    """A month of a year, or else the latest one of that name."""
    month = _month(found["month"])
    year = int(found["year"] or today.year - (month > today.month))
    return _days(datetime(year, month, 1, tzinfo=UTC), 31)


def _year(found: re.Match[str], today: datetime) -> Span:
    return _days(datetime(int(found["year"]), 1, 1, tzinfo=UTC), 366)


def _ago(found: re.Match[str], today: datetime) -> Span:
    """Some units before today: two weeks ago is any day of a week around then."""
    word, unit = found["count"].lower(), UNITS[found["unit"].lower()]
    count = COUNTED.index(word) if word in COUNTED else 1 if word in ("a", "an") else int(word)
    return _days(today - timedelta(count * unit + unit // 2), unit)


def _last(found: re.Match[str], today: datetime) -> Span:
    unit = UNITS[found["unit"].lower()]
    return _days(
        today - timedelta(2 * unit if found["which"].lower() == "last" else unit), 2 * unit
    )


def _near(found: re.Match[str], today: datetime) -> Span:
    return _days(today - timedelta(found[0].lower() == "yesterday"), 1)


def _month(name: str) -> int:
    if name.isdecimal():
        return int(name)
    return next(at for at, month in enumerate(MONTHS, 1) if month.startswith(name[:3].lower()))


READINGS: tuple[tuple[re.Pattern[str], Reading], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reading)
    for pattern, reading in (
        (r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _date),
        (rf"\b{DAY}(?: of)? {MONTH}(?:,? {YEAR})?", _date),
        (rf"\b{MONTH} {DAY}(?:,? {YEAR})?", _date),
        (rf"\b{MONTH},?(?: of)? {YEAR}", _whole_month),
        (rf"\b(?:in|last|since|during|this) {MONTH}(?P<year>)", _whole_month),
        (rf"\b{YEAR}", _year),
        (
            rf"\b(?P<count>\d{{1,3}}|an?|{'|'.join(COUNTED)}) (?P<unit>{'|'.join(UNITS)})s? ago",
            _ago,
        ),
        (rf"\b(?P<which>last|this) (?P<unit>{'|'.join(UNITS)})\b", _last),
        (r"\b(?:yesterday|today)\b", _near),
    )
)
"""The more exact a reading is, the earlier it stands."""
