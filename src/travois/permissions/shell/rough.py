"""Rough reading of shell commands for deny rules: anything that could be a command is one."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from travois.core.patterns import compile_lazily

SHELL_SEPARATORS = ";&|<>$`(){},\n\r\t\v\f"
QUOTE_TABLE = str.maketrans(dict.fromkeys("'\"\\"))
QUOTE_BYTES = b"'\"\\"
SEPARATOR_TABLE = bytes.maketrans(SHELL_SEPARATORS.encode(), b" " * len(SHELL_SEPARATORS))
COMMAND_BREAKS = compile_lazily(r"[;&|()`\n\r]|\$\(|<<?<?|>>?")
PROGRAM_FOLDER_PATTERN = "(?:[^ ]*?/)??"
"""The optional folder of a program, matched as short as possible to end early."""


class SoughtWords(msgspec.Struct, frozen=True):
    """The words that a permission rule looks for in a command."""

    words: frozenset[str]
    """Words that must be there as they are."""
    runs: tuple[re.Pattern[str], ...]
    """Patterns that must follow each other; none for a rule that names nothing."""


def command_mentions(what: str, command: str) -> bool:
    """Return whether a deny rule's words occur anywhere in a command, quoted or chained."""
    if matches_star_pattern(what, command):
        return True
    wanted = _split_rule_at_stars(what)
    if not wanted.runs or not command_vocabulary(command) >= wanted.words:
        return False
    text, at = f" {flatten_command(command)} ", 0
    for run in wanted.runs:
        found = run.search(text, at)
        if found is None:
            return False
        at = found.end()
    return True


@lru_cache(maxsize=2048)
def _split_rule_at_stars(what: str) -> SoughtWords:
    """Split a permission rule at its stars, to search a command for the words in order.

    Finding a run as early as possible leaves the most room for the next, so nothing is ever tried
    twice and the time is linear in the text.
    """
    text = flatten_command(f"{what[:-2]} *" if what.endswith(":*") else what)
    if not text.replace("*", " ").split():  # also of control characters that count as blanks
        return SoughtWords(frozenset(), ())
    ended = text if text.endswith("*") else f"{text} "
    runs = [run for run in ended.split("*") if run.strip()]
    patterns = [re.sub(r"\\ (?=.)", f" {PROGRAM_FOLDER_PATTERN}", re.escape(run)) for run in runs]
    if not text.startswith("*"):
        patterns[0] = f"[ /]{patterns[0]}"
    words = (word for word in text.split(" ") if "*" not in word and "/" not in word)
    return SoughtWords(frozenset(words), tuple(map(re.compile, patterns)))


@lru_cache(maxsize=64)
def command_vocabulary(command: str) -> frozenset[str]:
    """Return the words of a command, and the components of those that are paths."""
    return frozenset(flatten_command(command).replace("/", " ").split(" "))


def split_segments(command: str) -> list[list[str]]:
    """Split a command at anything that could end one; return each part's words, unquoted."""
    joined = command.replace("\\\n", " ")
    parts = (part.translate(QUOTE_TABLE).split() for part in COMMAND_BREAKS.split(joined))
    return [part for part in parts if part]


@lru_cache(maxsize=64)
def flatten_command(command: str) -> str:
    """Return the words of a command joined by single spaces, to search it for a rule."""
    text = strip_quotes(command.replace("\\\n", ""), SEPARATOR_TABLE).casefold()
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip(" ")


def strip_quotes(text: str, table: bytes | None = None) -> str:
    """Return a command without quotes and backslashes; `table` may map other ASCII characters.

    Bytes are many times faster than characters where a text is not all ASCII.
    """
    data = text.encode("utf-8", "surrogatepass").translate(table, QUOTE_BYTES)
    return data.decode("utf-8", "surrogatepass")


def matches_star_pattern(pattern: str, text: str) -> bool:
    """Return whether a command matches a rule's pattern; only `*` is special in it.

    Each run is searched for from where the last one ended, so the time is linear in the text.
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
