"""Command lines read generously: whatever could be a command in them counts as one."""

from __future__ import annotations

import re
from functools import lru_cache

SEPARATORS = str.maketrans(dict.fromkeys(";&|<>$`(){},\n\r\t\v\f", " "))
QUOTES = str.maketrans(dict.fromkeys("'\"\\"))
BREAKS = re.compile(r"[;&|()`\n\r]|\$\(|<<?<?|>>?")


def mentions(what: str, command: str) -> bool:
    """Whether what the rule names stands anywhere in the command, however quoted or chained."""
    if like(what, command):
        return True
    wanted = _flat(f"{what[:-2]} *" if what.endswith(":*") else what)
    pattern = f"* {wanted}" + ("" if wanted.endswith("*") else " *")
    words = _flat(command)
    bare = " ".join(word.rpartition("/")[2] or word for word in words.split(" "))
    return bool(wanted) and any(like(pattern, f" {text} ") for text in (words, bare))


def segments(command: str) -> list[list[str]]:
    """The words between anything that could end a command, without their quotes."""
    joined = command.replace("\\\n", " ")
    parts = (part.translate(QUOTES).split() for part in BREAKS.split(joined))
    return [part for part in parts if part]


def words(command: str) -> list[str]:
    """Everything in the command that could be one word."""
    return _flat(command).split()


@lru_cache(maxsize=512)
def _flat(command: str) -> str:
    """The words of a command with nothing but single spaces between them."""
    joined = command.replace("\\\n", "").translate(QUOTES).translate(SEPARATORS)
    return " ".join(joined.casefold().split())


def like(pattern: str, text: str) -> bool:
    """Whether the text fits; only the star is special, because the rest is part of commands."""
    if "*" not in pattern:
        return pattern == text
    return bool(_compiled(pattern).fullmatch(text))


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    runs = re.split(r"\*+", pattern)
    return re.compile(".*".join(re.escape(run) for run in runs), re.DOTALL)
