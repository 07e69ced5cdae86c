"""Command lines read generously: whatever could be a command in them counts as one."""

from __future__ import annotations

import re
from functools import lru_cache

SEPARATORS = str.maketrans(dict.fromkeys(";&|<>$`(){},\n\r\t\v\f", " "))
QUOTES = str.maketrans(dict.fromkeys("'\"\\"))
FOLDERS = re.compile(r"(?<![^ ])[^ ]*/(?=[^ ])")
BREAKS = re.compile(r"[;&|()`\n\r]|\$\(|<<?<?|>>?")


def mentions(what: str, command: str) -> bool:
    """Whether what the rule names stands anywhere in the command, however quoted or chained."""
    if like(what, command):
        return True
    wanted = flat(f"{what[:-2]} *" if what.endswith(":*") else what)
    if not wanted or any(word not in flat(command) for word in wanted.replace("*", " ").split()):
        return False
    pattern = f"* {wanted}" + ("" if wanted.endswith("*") else " *")
    return any(like(pattern, f" {text} ") for text in (flat(command), _bare(command)))


def segments(command: str) -> list[list[str]]:
    """The words between anything that could end a command, without their quotes."""
    joined = command.replace("\\\n", " ")
    parts = (part.translate(QUOTES).split() for part in BREAKS.split(joined))
    return [part for part in parts if part]


@lru_cache(maxsize=64)
def flat(command: str) -> str:
    """The words of a command with nothing but single spaces between them."""
    joined = command.replace("\\\n", "").translate(QUOTES).translate(SEPARATORS)
    return " ".join(joined.casefold().split())


@lru_cache(maxsize=64)
def _bare(command: str) -> str:
    """The words of a command without the folders of paths."""
    return FOLDERS.sub("", flat(command))


def like(pattern: str, text: str) -> bool:
    """Whether the text fits; only the star is special, because the rest is part of commands.

    Each run is looked for from where the last one ended, so the time is linear in the text.
    """
    if "*" not in pattern:
        return pattern == text
    first, *middle, last = pattern.split("*")
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for run in middle:
        found = text.find(run, at, end)
        if found < 0:
            return False
        at = found + len(run)
    return True
