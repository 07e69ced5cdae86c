"""Times in a search query: "on 7 May 2023", "last March", "two weeks ago", "yesterday"."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

MONTH_NAMES = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
COUNT_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
)
UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
MONTH_PATTERN = rf"(?P<month>{'|'.join(f'{name[:3]}(?:{name[3:]})?' for name in MONTH_NAMES)})\b\.?"
DAY_PATTERN = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
YEAR_PATTERN = r"(?P<year>(?:19|20)\d\d)\b"


class TimeSpan(msgspec.Struct, frozen=True):
    """A time span, in seconds since 1970."""

    start: float
    end: float

    def distance(self, at: float) -> float:
        """Return how many seconds a time lies outside the span."""
        return max(self.start - at, at - self.end, 0.0)


DateReader = Callable[[re.Match[str], datetime], TimeSpan]


def find_time_span(text: str, *, now: float) -> TimeSpan | None:
    """Find the time span that a search query names, relative to `now`; None if none."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for pattern, reading in DATE_READERS:
        for found in pattern.finditer(text):
            try:
                return reading(found, today)
            except (ValueError, OverflowError):  # there is no 31 June, nor a year 0
                continue
    return None


def _span_of_days(start: datetime, count: int) -> TimeSpan:
    return TimeSpan(start.timestamp(), (start + timedelta(count)).timestamp())


def _read_date(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read a day in a search query, with or without its year."""
    month, day = _month_number(found["month"]), int(found["day"])
    if found["year"]:
        return _span_of_days(datetime(int(found["year"]), month, day, tzinfo=UTC), 1)
    start = datetime(today.year, month, day, tzinfo=UTC)
    return _span_of_days(start if start <= today else start.replace(year=today.year - 1), 1)


def _read_month(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read a month in a search query, by default the latest one of that name."""
    month = _month_number(found["month"])
    year = int(found["year"] or today.year - (month > today.month))
    return _span_of_days(datetime(year, month, 1, tzinfo=UTC), 31)


def _read_year(found: re.Match[str], today: datetime) -> TimeSpan:
    return _span_of_days(datetime(int(found["year"]), 1, 1, tzinfo=UTC), 366)


def _read_units_ago(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read a time such as "two weeks ago" in a search query as any day around then."""
    word, unit = found["count"].lower(), UNIT_DAYS[found["unit"].lower()]
    count = (
        COUNT_WORDS.index(word) if word in COUNT_WORDS else 1 if word in ("a", "an") else int(word)
    )
    return _span_of_days(today - timedelta(count * unit + unit // 2), unit)


def _read_last_unit(found: re.Match[str], today: datetime) -> TimeSpan:
    """Read "last week" or "this month" in a query as a generous time span."""
    unit = UNIT_DAYS[found["unit"].lower()]
    return _span_of_days(
        today - timedelta(2 * unit if found["which"].lower() == "last" else unit), 2 * unit
    )


def _read_yesterday(found: re.Match[str], today: datetime) -> TimeSpan:
    return _span_of_days(today - timedelta(found[0].lower() == "yesterday"), 1)


def _month_number(name: str) -> int:
    """Return the number of a month in a search query, given as digits or a name."""
    if name.isdecimal():
        return int(name)
    return next(at for at, month in enumerate(MONTH_NAMES, 1) if month.startswith(name[:3].lower()))


DATE_READERS: tuple[tuple[re.Pattern[str], DateReader], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), reading)
    for pattern, reading in (
        (r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)", _read_date),
        (rf"\b{DAY_PATTERN}(?: of)? {MONTH_PATTERN}(?:,? {YEAR_PATTERN})?", _read_date),
        (rf"\b{MONTH_PATTERN} {DAY_PATTERN}(?:,? {YEAR_PATTERN})?", _read_date),
        (rf"\b{MONTH_PATTERN},?(?: of)? {YEAR_PATTERN}", _read_month),
        (rf"\b(?:in|last|since|during|this) {MONTH_PATTERN}(?P<year>)", _read_month),
        (rf"\b{YEAR_PATTERN}", _read_year),
        (
            rf"\b(?P<count>\d{{1,3}}|an?|{'|'.join(COUNT_WORDS)})"
            rf" (?P<unit>{'|'.join(UNIT_DAYS)})s? ago",
            _read_units_ago,
        ),
        (rf"\b(?P<which>last|this) (?P<unit>{'|'.join(UNIT_DAYS)})\b", _read_last_unit),
        (r"\b(?:yesterday|today)\b", _read_yesterday),
    )
)
"""The more exact a reading is, the earlier it stands."""

LATEST_PATTERN = re.compile(
    r"(?i)\b(?:latest|newest|most recent(?:ly)?|currently|current|these days|at the moment)\b"
    rf"|\blast\b(?! (?:{'|'.join((*UNIT_DAYS, 'night', *MONTH_NAMES))})\b)"
)
EARLIEST_PATTERN = re.compile(r"(?i)\b(?:earliest|originally|at first|for the first time)\b")


def find_recency(text: str) -> int:
    """Return 1 for a search query for the latest of its kind, -1 for the earliest, else 0."""
    return bool(LATEST_PATTERN.search(text)) - bool(EARLIEST_PATTERN.search(text))
