"""Bytes in lines that a person can compare."""

from __future__ import annotations

import re

BREAKS = re.compile(
    r'(?<=[,\[{])(?=\{"|"(?:system|tools|messages|content|input|tool_calls|properties|required'
    r'|arguments|function|cache_control|stream|items|anyOf|\w+":\{"(?:description|type))")'
)


def readable(said: str | bytes) -> list[str]:
    """The text cut where JSON values begin; joined, it is the same again."""
    text = said.decode() if isinstance(said, bytes) else said
    lines = BREAKS.split(text)
    assert "".join(lines) == text
    return [part for line in lines for part in _folded(line)]


def _folded(line: str) -> list[str]:
    return [line[at : at + 78] for at in range(0, len(line), 78)]
