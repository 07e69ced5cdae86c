"""Which problems an edit has brought, and how the model is told of them.

Model sees: with the result of an edit, the errors that are new, each in two lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from travois.core.display_text import escape_invisible, escape_path
from travois.lsp.protocol import Diagnostic, character_to_column, split_document_lines

MAX_PROBLEMS = 8
MAX_MESSAGE_CHARS = 240
MAX_CODE_LINE_CHARS = 120


class FileProblems(msgspec.Struct, frozen=True):
    """The new problems of one file, and its text."""

    path: str
    text: str
    problems: tuple[Diagnostic, ...]


def find_new_problems(
    before: Sequence[Diagnostic], after: Sequence[Diagnostic], *, old: str, new: str
) -> tuple[Diagnostic, ...]:
    """Return the problems of a text that its former version did not have.

    The same problem in a line of the same words is an old one, wherever the line is; so is the same
    problem in a changed line, if there are no more of them than before.
    """
    left, fresh = Counter(_key_with_line(one, old) for one in before), list[Diagnostic]()
    for problem in after:
        key = _key_with_line(problem, new)
        if left[key]:
            left[key] -= 1
        else:
            fresh.append(problem)
    spare = Counter[tuple[object, str]]()
    for (kind, _), count in left.items():
        spare[kind] += count
    found = list[Diagnostic]()
    for problem in fresh:
        if spare[_key(problem)]:
            spare[_key(problem)] -= 1
        else:
            found.append(problem)
    return tuple(found)


def _key(problem: Diagnostic) -> tuple[object, str]:
    return problem.code, problem.message


def _key_with_line(problem: Diagnostic, text: str) -> tuple[tuple[object, str], str]:
    return _key(problem), line_of_text(text, problem.range.start.line).strip()


def line_of_text(text: str, number: int) -> str:
    """Return a line of a text, counted from 0; empty if there is none."""
    lines = split_document_lines(text)
    return lines[number] if 0 <= number < len(lines) else ""


def render_new_problems(
    found: Sequence[FileProblems], *, server: str, name: Callable[[str], str], since: str
) -> str:
    """Describe the problems that an edit brought, in a few lines; empty if there are none."""
    rows = [(one, problem) for one in found for problem in one.problems]
    if not rows:
        return ""
    count = f"{len(rows)} new error{'s' if len(rows) > 1 else ''}"
    lines = [f"{count} since {since} ({server}):"]
    for one, problem in rows[:MAX_PROBLEMS]:
        lines += _render_problem(name(one.path), one.text, problem)
    if len(rows) > MAX_PROBLEMS:
        lines.append(f"... and {len(rows) - MAX_PROBLEMS} more")
    return "\n".join(lines)


def _render_problem(name: str, text: str, problem: Diagnostic) -> tuple[str, ...]:
    """Return the lines that tell of one problem: where, what, and the code."""
    start = problem.range.start
    line = line_of_text(text, start.line)
    column = character_to_column(line, start.character) + 1
    message = escape_invisible(" ".join(problem.message.split()))
    if len(message) > MAX_MESSAGE_CHARS:
        message = f"{message[:MAX_MESSAGE_CHARS]}..."
    code = "" if problem.code is None else f" ({problem.code})"
    head = f"{escape_path(name)}:{start.line + 1}:{column}: {message}{code}"
    return (head, f"    {shorten_code_line(line)}") if line.strip() else (head,)


def shorten_code_line(line: str) -> str:
    """Return a line of code without indentation, and no longer than a result can show."""
    text = escape_invisible(line.strip())
    return f"{text[:MAX_CODE_LINE_CHARS]}..." if len(text) > MAX_CODE_LINE_CHARS else text
