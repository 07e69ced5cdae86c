"""JSON that other agents wrote, read without believing it: what has another shape is absent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

Json = dict[str, object]
LONGEST_LINE = 1 << 25
HALF = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
"""One half of a character that takes two escapes."""


def lines(path: Path) -> Iterator[Json]:
    """The JSON objects of a file, one per line; torn, damaged and monstrous lines are left out."""
    with path.open("rb", buffering=1 << 20) as file:
        while line := file.readline(LONGEST_LINE):
            if not line.endswith(b"\n") and len(line) == LONGEST_LINE:
                _skip(file)
            elif (record := decode(line)) is not None:
                yield record


def _skip(file: BinaryIO) -> None:
    """Go to the end of a line without keeping it."""
    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
        pass


def decode(data: bytes | str) -> Json | None:
    """A JSON object; None if it is anything else.

    Agents that cut texts sometimes cut a character in two: what is left of it is replaced.
    """
    try:
        found = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raw = data.encode(errors="replace") if isinstance(data, str) else data
        whole = HALF.sub(rb"\\ufffd", raw)
        return decode(whole) if whole != raw else None
    return cast("Json", found) if isinstance(found, dict) else None


def inner(record: Json, *keys: str) -> Json:
    """An object inside; an empty one if there is none."""
    for key in keys:
        found = record.get(key)
        if not isinstance(found, dict):
            return {}
        record = cast("Json", found)
    return record


def string(record: Json, key: str) -> str:
    """A text inside; an empty one if there is none."""
    found = record.get(key)
    return found if isinstance(found, str) else ""


def objects(record: Json, key: str) -> list[Json]:
    """The objects of a list inside."""
    found = record.get(key)
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("Json", one) for one in listed if isinstance(one, dict)]


def texts(content: object) -> str:
    """The words of a content that is a text, or a list of texts or of blocks that have one."""
    if isinstance(content, str):
        return content
    listed = cast("list[object]", content) if isinstance(content, list) else []
    found = (
        one if isinstance(one, str) else string(cast("Json", one), "text")
        for one in listed
        if isinstance(one, str | dict)
    )
    return "\n".join(text for text in found if text)


def number(record: Json, key: str) -> int:
    """A count inside; zero if there is none."""
    found = record.get(key)
    return found if isinstance(found, int) else 0


def moment(value: object) -> float:
    """Seconds since 1970, from a text or from milliseconds; zero if that cannot be told."""
    if isinstance(value, int | float):
        return value / 1000
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else 0.0
    except ValueError:
        return 0.0


def encoded(args: object) -> str:
    """The arguments of a call as JSON text."""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()
