"""The last distinct errors, each by its headline."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from travois.context.ledger.acts import Act
from travois.context.ledger.checks import FAILS, LOOKS, exit_code, hides_status
from travois.context.ledger.shell import parts

LAST = 15
LONGEST = 160
ERROR = re.compile(
    r"(?i)\b(?:panic:|fatal\b|fail(?:ed|ure)?\b|cannot |undefined\b|not found\b|no such file|"
    r"denied\b|exit code [1-9]|\w*(?:error|exception)\b)"
)
FINE = re.compile(
    r"(?i)\W*(?:\(pass\)|pass(?:ed)?\b|ok\b|✓|✔|√)|.*\b(?:0|no) (?:fail(?:ed|ures?)?|errors?)\b"
)
"""How lines begin or read that speak of errors because there were none."""
NUMBERS = re.compile(r"[\d:.]+")


class Trouble(msgspec.Struct, frozen=True):
    """An error: its first telling line, and what was being done."""

    headline: str
    during: str
    seq: int = 0


def errors(acts: Iterable[Act]) -> tuple[Trouble, ...]:
    """The last distinct ones, newest first."""
    found: dict[str, Trouble] = {}
    for act in acts:
        if act.refused is not None or not has_failed(act):
            continue
        if line := headline(act.text) or _first(act.text):
            key = NUMBERS.sub("#", line)[:80]
            found.pop(key, None)
            found[key] = Trouble(line[:LONGEST], _during(act), act.seq)
    return tuple(reversed(found.values()))[:LAST]


def has_failed(act: Act) -> bool:
    """Whether a call failed.

    What a command printed tells it only where its exit code cannot: words such as `error` stand in
    most source files, and to show one is no error.
    """
    if act.error or act.kind != "shell":
        return act.error
    code = exit_code(act)
    if code or (code == 0 and not hides_status(act.command)):
        return bool(code)
    looks = all(LOOKS.match(part.text) for part in parts(act.command))
    return not looks and bool(FAILS.search(act.text))


def headline(text: str) -> str:
    """The first line that tells of an error; empty if none does."""
    at = 0
    while found := ERROR.search(text, at):
        start = text.rfind("\n", 0, found.start()) + 1
        end = text.find("\n", found.end())
        line = " ".join(text[start : end if end >= 0 else len(text)].split())
        if len(line) >= 15 and not FINE.match(line):
            return line
        at = end if end >= 0 else len(text)
    return ""


def _first(text: str) -> str:
    lines = (" ".join(line.split()) for line in text[:2_000].splitlines())
    return next((line for line in lines if len(line) >= 15), "")


def _during(act: Act) -> str:
    if act.kind != "shell":
        return f"{act.name} {act.path}".strip()
    ran = [part.text for part in parts(act.command) if not part.text.startswith("cd ")]
    return ran[0] if ran else act.name
