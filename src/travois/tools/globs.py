"""Glob patterns as ripgrep reads them, as regular expressions over relative paths.

We match by ourselves because ripgrep lets its own `--glob` override .gitignore.
"""

from __future__ import annotations

import re

SPLIT = re.compile(r"[,\s]+(?![^{}]*\})")
TOKEN = re.compile(r"\*\*/|\*+|\[[!^]?\]?[^\]/]*\]|\\.|.", re.DOTALL)


def split(patterns: str) -> list[str]:
    """Several patterns in one word, parted by commas or spaces outside braces."""
    return [pattern for pattern in SPLIT.split(patterns) if pattern]


def compiled(pattern: str) -> re.Pattern[str]:
    """What a path must match in full; a pattern without a slash matches in every folder."""
    pattern = pattern.removeprefix("./").lstrip("/") if "/" in pattern else f"**/{pattern}"
    pattern = re.sub(r"(\*\*/)+", "**/", pattern)
    braces = _balanced(pattern)
    depth, parts = 0, list[str]()
    for token in TOKEN.findall(pattern):
        if braces and token in "{}":
            depth += 1 if token == "{" else -1
            parts.append("(?:" if token == "{" else ")")
        elif depth and token == ",":
            parts.append("|")
        else:
            parts.append(_translated(token))
    return re.compile("".join(parts), re.DOTALL)


def basename(pattern: str) -> str:
    """The part of a pattern that speaks of a file's own name; empty if that cannot be said."""
    name = pattern.rpartition("/")[2]
    return name if _balanced(name) and "**" not in name else ""


def _translated(token: str) -> str:
    if token == "**/":
        return "(?:[^/]+/)*"
    if token.startswith("*"):
        return ".*" if len(token) > 1 else "[^/]*"
    if token == "?":
        return "[^/]"
    if token[0] == "[" and len(token) > 2:
        negated = token[1] in "!^"
        inside = re.sub(r"([\\\[\]^&|~])", r"\\\1", token[1 + negated : -1])
        return f"[^/{inside}]" if negated else f"[{inside}]"
    return re.escape(token[1:] if token[0] == "\\" and len(token) == 2 else token)


def _balanced(pattern: str) -> bool:
    depth = 0
    for char in pattern:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0
