"""The first frame of the terminal app, drawn before slow imports."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from travois.version import __version__

PROMPT_MARK = "❯ "
FIRST_FRAME = f"\x1b[2m╭{'─' * 30}\n│\x1b[0m "
DUMB_TERMINALS = ("", "dumb", "unknown", "cons25", "emacs")


def can_run_screen(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal app can start: input and output move a cursor."""
    if environ.get("TERM", "") in DUMB_TERMINALS:
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def is_interactive_start(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether the arguments certainly start the terminal app, before parsing."""
    if argv and not argv[0].startswith("-"):
        return False
    short = (word for word in argv if word.startswith("-") and not word.startswith("--"))
    # Wrong guesses are cheap one way only: a header printed into `--print` output would corrupt it.
    other = {"--print", "--plain", "--help", "--version", "--bg", "--background"}.intersection(argv)
    return not other and not any({*"phv"} & {*word} for word in short) and can_run_screen(environ)


def paint_first_prompt(environ: Mapping[str, str]) -> None:
    """Print the header and a prompt; input typed meanwhile waits in the terminal."""
    sys.stdout.write(f"\n{render_header(environ)}\n\n{FIRST_FRAME}{PROMPT_MARK}")
    sys.stdout.flush()


def erase_first_prompt() -> None:
    """Erase the first prompt, to be replaced by the live region."""
    sys.stdout.write("\r\x1b[2A\x1b[J")
    sys.stdout.flush()


def render_header(environ: Mapping[str, str]) -> str:
    """Render the header of the first frame: version and folder."""
    home = environ.get("HOME", "")
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    if home and folder.startswith(home.rstrip("/") + "/"):
        folder = "~" + folder[len(home.rstrip("/")) :]
    plain = "".join(char if char.isprintable() else "?" for char in folder)
    return f"  \x1b[1mTravois\x1b[0m \x1b[2m{__version__}  {plain}\x1b[0m"
