"""The last distinct errors, each by its headline."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from travois.context.ledger.checks import FAILS, LOOKS, exit_code, hides_status
from travois.context.ledger.extractors import Act
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
WRAPPER = re.compile(
    r"\A(?:[A-Z][a-z]+(?: [A-Za-z]+){0,4}: ?[^\n]{0,80}\n|Process [^\n]{0,80}\n){1,6}?Output:\n"
)
"""Lines that other agents put before what a command printed: its id, its time, its exit code."""


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
        if line := headline(printed(act.text)) or _otherwise(act):
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


def printed(text: str) -> str:
    """What a command printed, without what a harness put before it."""
    return WRAPPER.sub("", text, count=1)


def _otherwise(act: Act) -> str:
    """What to say of a failure that no line explains; nothing if the code was an answer."""
    lines = [" ".join(line.split()) for line in printed(act.text)[-2_000:].splitlines()]
    last = next((line for line in reversed(lines) if len(line) >= 15), "")
    if act.kind != "shell":
        return last
    if all(LOOKS.match(part.text) for part in parts(act.command)):
        return ""  # `grep` found nothing, `diff` found something
    code = exit_code(act)
    return f"exit code {code}: {last}".removesuffix(": ") if code else last


def _during(act: Act) -> str:
    if act.kind != "shell":
        return f"{act.name} {act.path}".strip()
    ran = [part.text for part in parts(act.command) if not part.text.startswith("cd ")]
    return ran[0] if ran else act.name
