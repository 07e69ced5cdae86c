"""`travois` and `python -m travois`."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

START_GC_THRESHOLD = 100_000
"""The objects allocated before a garbage collection: what a start loads is not garbage."""


def main() -> int:
    """Run the program, here or in a warm server, and end the process."""
    if not {"-p", "--print"}.isdisjoint(sys.argv):
        from travois.version import __version__
        from travois.warm_client import run_warm

        code = run_warm(sys.argv[1:], __version__)
        if code is not None:
            return code
    return run_here()


def run_here() -> int:
    """Run the program in this process, and end it."""
    try:
        code = run_program()
    except KeyboardInterrupt:
        code = 130
    _exit_quickly(code)
    return code


def _exit_quickly(code: int) -> None:
    """End the process without taking the interpreter apart, which takes longer than most of a run.

    Nothing is lost by that: files are closed by those who opened them, threads are waited for, and
    what was registered for the end runs. What cannot be written is left to the ordinary way.
    """
    if threading := sys.modules.get("threading"):
        # Idle workers of a thread pool end only when its own end function wakes them, so waiting
        # for the threads one by one could wait forever.
        threading._shutdown()
    import atexit

    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - there is no other name for it
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        return
    os._exit(code)


def run_program() -> int:
    """Print the version, or draw the first prompt and run the command line.

    `--version` imports nothing else.
    """
    _open_streams()
    if sys.argv[1:] in (["--version"], ["-v"]):
        from travois.version import __version__

        sys.stdout.write(f"{__version__} (Travois)\n")
        return 0
    import gc

    gc.set_threshold(START_GC_THRESHOLD)
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
