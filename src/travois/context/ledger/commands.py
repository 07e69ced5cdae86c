"""Commands that were run, as they were written: their flags and paths are used again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from travois.context.ledger.checks import verifies
from travois.context.ledger.extractors import Act
from travois.context.ledger.shell import parts

LAST = 40
LOOKS = frozenset(("cd", "cat", "ls", "pwd", "echo", "printf", "head", "tail", "wc", "sed", "nl"))
WORDS = frozenset(("for", "do", "done", "if", "then", "else", "fi", "while", "case", "esac"))
SILENT = frozenset(("true", "false", "exit", "test", "[", "sleep"))
"""Programs that only show files or text, and words of the shell that tell nothing alone."""


class Command(msgspec.Struct, frozen=True):
    """One command line, without what it was combined with, and whether it failed last."""

    text: str
    failed: bool = False


def commands(acts: Iterable[Act]) -> tuple[Command, ...]:
    """Return the last distinct ones, newest first; checks have a list of their own."""
    found: dict[str, Command] = {}
    for act in acts:
        if act.kind != "shell" or act.refused is not None:
            continue
        for part in parts(act.command):
            text = " ".join(part.text.split())
            if not text or text.startswith("-"):  # an option that a substitution left over
                continue
            if text.split(" ")[0] not in LOOKS | WORDS | SILENT and not verifies(part):
                found.pop(text, None)
                found[text] = Command(text, act.error)
    return tuple(reversed(found.values()))[:LAST]
