"""A time is understood as a person would who hears it on a Friday, 16 June 2023."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from travois.search.times import TimeSpan, find_time_span

NOW = datetime(2023, 6, 16, 15, 30, tzinfo=UTC).timestamp()


def days(first: str, end: str) -> TimeSpan:
    return TimeSpan(
        *(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in (first, end))
    )


@pytest.mark.parametrize(
    ("text", "first", "end"),
    [
        ("what broke on 2022-11-05?", "2022-11-05", "2022-11-06"),
        ("what broke at 2022-11-05T13:54:16Z?", "2022-11-05", "2022-11-06"),
        ("what broke on 5 November 2022?", "2022-11-05", "2022-11-06"),
        ("what broke on the 5th of Nov, 2022?", "2022-11-05", "2022-11-06"),
        ("what broke on November 5th, 2022?", "2022-11-05", "2022-11-06"),
        ("what broke on May 3?", "2023-05-03", "2023-05-04"),
        ("what broke on August 3?", "2022-08-03", "2022-08-04"),
        ("what broke in March 2021?", "2021-03-01", "2021-04-01"),
        ("what broke on 31 June 2022?", "2022-06-01", "2022-07-02"),
        ("what broke in May?", "2023-05-01", "2023-06-01"),
        ("what broke last December?", "2022-12-01", "2023-01-01"),
        ("what broke in 2020?", "2020-01-01", "2021-01-01"),
        ("what broke yesterday?", "2023-06-15", "2023-06-16"),
        ("what broke today?", "2023-06-16", "2023-06-17"),
        ("what broke two weeks ago?", "2023-05-30", "2023-06-06"),
        ("what broke 10 days ago?", "2023-06-06", "2023-06-07"),
        ("what broke last week?", "2023-06-02", "2023-06-16"),
    ],
)
def test_a_time_in_a_text_is_understood(text: str, first: str, end: str) -> None:
    assert find_time_span(text, now=NOW) == days(first, end)


@pytest.mark.parametrize(
    "text",
    ["", "it may break", "we march on", "port 8080", "99999 years"],
)
def test_what_speaks_of_no_time_has_none(text: str) -> None:
    assert find_time_span(text, now=NOW) is None


def test_a_time_outside_a_span_is_some_seconds_away() -> None:
    span = days("2023-05-03", "2023-05-04")
    assert [span.distance(at) for at in (span.start - 60, span.start, span.end, span.end + 5)] == [
        *(60, 0, 0, 5)
    ]
