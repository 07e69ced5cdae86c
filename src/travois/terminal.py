"""Output for terminals and pipes (tables, JSON, warnings), and hangups of a closed terminal."""

from __future__ import annotations

import os
import signal
import sys
import termios
from argparse import ArgumentParser, HelpFormatter, Namespace, RawDescriptionHelpFormatter
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Protocol
from unicodedata import combining, east_asian_width

import msgspec

from travois.core.display_text import CONTROL_TABLE, clean_for_stream, replace_invisible
from travois.core.errors import UserError
from travois.permissions.secrets import Secrets, collect_secrets, registered_secrets


def hold_hangups() -> None:
    """Block hangup signals (SIGHUP) until their handling is chosen."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def ignore_hangups() -> None:
    """Ignore hangup signals (SIGHUP) from now on."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


ANSI_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
SIZE_UNITS = ("B", "kB", "MB", "GB", "TB")
TIME_SPANS = ((365 * 86400, "y"), (30 * 86400, "mo"), (86400, "d"), (3600, "h"), (60, "min"))
VISIBLE_CONTROLS: dict[int, str | int | None] = {
    **CONTROL_TABLE,
    **{code: 0x2400 + code for code in range(32)},
}
"""Characters that move the cursor, colour the screen or turn text around, made visible."""


class OutputCapture(msgspec.Struct, frozen=True):
    """A capture of printed lines, and the width of their display."""

    columns: int
    lines: list[str]


OUTPUT_CAPTURE: ContextVar[OutputCapture | None] = ContextVar("EAR", default=None)


@contextmanager
def capture_lines(columns: int) -> Generator[list[str]]:
    """Capture terminal output lines instead of printing them."""
    lines = list[str]()
    token = OUTPUT_CAPTURE.set(OutputCapture(columns, lines))
    try:
        yield lines
    finally:
        OUTPUT_CAPTURE.reset(token)


class CommandParsers(Protocol):
    """The subparsers object of argparse."""

    def add_parser(
        self,
        name: str,
        *,
        help: str,  # noqa: A002 - argparse calls it so
        description: str,
        epilog: str,
        formatter_class: type[HelpFormatter],
    ) -> ArgumentParser:
        """Add one command."""
        ...


def add_command(
    commands: CommandParsers, name: str, *, what: str, more: str = ""
) -> ArgumentParser:
    """Add one command with its --help: a summary line, and more below its options."""
    sentence = what[:1].upper() + what[1:] + "."
    return commands.add_parser(
        name,
        help=what,
        description=sentence,
        epilog=more,
        formatter_class=RawDescriptionHelpFormatter,
    )


@contextmanager
def hide_typing() -> Generator[None]:
    """Turn off the terminal's echo while the user types, as for a key."""
    try:
        before = termios.tcgetattr(0)
    except termios.error:
        yield
        return
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def redact_secrets(text: str) -> str:
    """Return a text without the values that settings and the environment keep secret."""
    return registered_secrets().redact(_environment_secrets().redact(text))


@cache
def _environment_secrets() -> Secrets:
    return collect_secrets(os.environ.items())


def print_line(text: str = "") -> None:
    """Print lines to standard output, with secrets redacted."""
    text = redact_secrets(text)
    if (ear := OUTPUT_CAPTURE.get()) is not None:
        ear.lines.append(text)
        return
    sys.stdout.write((replace_invisible(text) if sys.stdout.isatty() else text) + "\n")


def print_json(value: object) -> None:
    """Print one JSON value on a line of its own."""
    print_line(msgspec.json.encode(value).decode())


def print_json_list(rows: Iterable[object]) -> None:
    """Print one JSON array with a value on each line; `[]` for none."""
    print_line("[" + ",\n ".join(msgspec.json.encode(row).decode() for row in rows) + "]")


def print_warning(text: str) -> None:
    """Print a warning to standard error, with secrets redacted."""
    text = redact_secrets(text)
    if (ear := OUTPUT_CAPTURE.get()) is not None:
        ear.lines.append(text)
        return
    sys.stderr.write(clean_for_stream(f"travois: {text}\n", sys.stderr))


def style_text(text: str, style: str) -> str:
    """Return a text in a terminal style, if styles are enabled."""
    dull = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if dull or OUTPUT_CAPTURE.get() is not None or not sys.stdout.isatty():
        return text
    return f"\x1b[{ANSI_STYLES[style]}m{text}\x1b[0m"


def escape_controls(text: str, *, lines: str = "keep") -> str:
    """Return a text with terminal control characters made visible."""
    shown = text.translate(
        VISIBLE_CONTROLS if lines != "keep" else {**VISIBLE_CONTROLS, 10: 10, 9: 9, 13: None}
    )
    return shown.encode("utf-8", "replace").decode()


def format_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Format aligned columns; the first row is the heading, the last column is cut to fit."""
    widths = [max(map(_display_width, column)) for column in zip(*rows, strict=True)]
    room = _terminal_columns() - sum(widths[:-1]) - 2 * (len(widths) - 1)
    lines: list[str] = []
    for number, row in enumerate(rows):
        cells = [_pad_cell(cell, widths[i], right=i in right) for i, cell in enumerate(row[:-1])]
        line = "  ".join([*cells, _cut_to_width(row[-1], max(room, 20))]).rstrip()
        lines.append(line if number else style_text(line, "dim"))
    return "\n".join(lines)


def print_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, none: str, as_json: bool
) -> None:
    """Print rows as a table or, as JSON, as an array of objects named by the heads."""
    if as_json:
        names = [head.lower() for head in heads]
        print_json_list(dict(zip(names, row, strict=True)) for row in rows)
        return
    print_line(format_table([heads, *rows]) if rows else none)


def add_json_flag(parser: ArgumentParser, what: str = "print a JSON array") -> None:
    """Add the flag that makes a command print its data as JSON."""
    parser.add_argument("--json", action="store_true", help=what)


def check_json_flag(args: Namespace, *, is_listing: bool) -> None:
    """Refuse --json where a command changes something instead of printing data."""
    if args.json and not is_listing:
        raise UserError("--json needs --list here", fix="Add --list, or omit --json.")


def format_size(size: int) -> str:
    """Format a number of bytes for terminal output."""
    value, unit = float(size), 0
    while value >= 1000 and unit < len(SIZE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return (
        f"{value:.0f} {SIZE_UNITS[unit]}"
        if value >= 10 or not unit
        else f"{value:.1f} {SIZE_UNITS[unit]}"
    )


def format_age(seconds: float) -> str:
    """Format a time span for terminal output."""
    for length, name in TIME_SPANS:
        if seconds >= length:
            return f"{int(seconds // length)} {name} ago"
    return "just now"


def _terminal_columns() -> int:
    """Return the width of the terminal for tables; practically unlimited for a pipe."""
    if (ear := OUTPUT_CAPTURE.get()) is not None:
        return ear.columns
    if not sys.stdout.isatty():
        return 10_000
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except OSError:
        return 80


def _display_width(text: str) -> int:
    """Return the number of terminal columns that a text takes; wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _pad_cell(text: str, width: int, *, right: bool) -> str:
    space = " " * (width - _display_width(text))
    return space + text if right else text + space


def _cut_to_width(text: str, room: int) -> str:
    """Cut a table cell to a number of terminal columns, ending with an ellipsis."""
    if _display_width(text) <= room:
        return text
    while _display_width(text) >= room:
        text = text[:-1]
    return text + "…"
