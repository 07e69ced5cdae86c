"""The first thing on the screen: before anything that takes time is imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from travois.version import __version__

PROMPT = "❯ "
DUMB = ("", "dumb", "unknown", "cons25", "emacs")


def able(environ: Mapping[str, str]) -> bool:
    """Whether there is a person before a terminal that can move its cursor."""
    if environ.get("TERM", "") in DUMB:
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def early(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether these words surely ask for a conversation, so that nobody need read them first."""
    if argv and not argv[0].startswith("-"):
        return False
    short = (word for word in argv if word.startswith("-") and not word.startswith("--"))
    other = {"--print", "--plain", "--help", "--version", "--bg", "--background"}.intersection(argv)
    return not other and not any({*"phv"} & {*word} for word in short) and able(environ)


def paint(environ: Mapping[str, str]) -> None:
    """Say hello and show a prompt. What is typed at it meanwhile waits in the terminal."""
    sys.stdout.write(f"\n{header(environ)}\n\n{PROMPT}")
    sys.stdout.flush()


def unpaint() -> None:
    """Take the prompt and the line above it away again, for one that can be edited."""
    sys.stdout.write("\r\x1b[A\x1b[J")
    sys.stdout.flush()


def header(environ: Mapping[str, str]) -> str:
    """Who speaks, and where."""
    home = environ.get("HOME", "")
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    if home and folder.startswith(home.rstrip("/") + "/"):
        folder = "~" + folder[len(home.rstrip("/")) :]
    plain = "".join(char if char.isprintable() else "?" for char in folder)
    return f"  \x1b[1mTravois\x1b[0m \x1b[2m{__version__}  {plain}\x1b[0m"
