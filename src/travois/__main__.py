"""`travois` and `python -m travois`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

GC_THRESHOLD = 20_000
"""The objects allocated before a garbage collection: what a start loads is not garbage."""


def main() -> int:
    """Start the program; `--version` imports nothing else."""
    try:
        return _run_program()
    except KeyboardInterrupt:
        return 130


def _run_program() -> int:
    """Print the version, or draw the first prompt and run the command line."""
    _open_streams()
    if sys.argv[1:] in (["--version"], ["-v"]):
        from travois.version import __version__

        sys.stdout.write(f"{__version__} (Travois)\n")
        return 0
    import gc

    gc.set_threshold(GC_THRESHOLD)
    from travois.tui import start

    if start.is_interactive_start(sys.argv[1:], os.environ):
        start.paint_first_prompt(os.environ)
    from signal import SIG_DFL, SIGINT, signal

    before = signal(SIGINT, SIG_DFL)  # an exception amid imports breaks what is half made
    from travois.cli.main import run_command_line

    signal(SIGINT, before)
    return run_command_line(sys.argv[1:])


def _open_streams() -> None:
    """Make sure that writing cannot fail: replace closed streams and odd characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open as long as we live
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # pyright: ignore[reportUnknownMemberType] - its buffer has no type


if __name__ == "__main__":
    sys.exit(main())
