"""Looking at JSON from servers that promise nothing: what has the wrong shape counts as absent."""

from __future__ import annotations

from typing import Any, cast


def table(value: object) -> dict[str, Any]:
    """An object, or an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def rows(value: object) -> list[Any]:
    """A list, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string(value: object) -> str:
    """A string, or an empty one."""
    return value if isinstance(value, str) else ""


def number(counts: dict[str, Any], name: str) -> int:
    """A count among others, or zero."""
    value = counts.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0
