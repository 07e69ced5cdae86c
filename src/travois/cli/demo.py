"""`travois demo`: a session without a key, played by the lab."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import FrameType

import anyio
import msgspec

from travois.compose.options import Options
from travois.settings.schema import TuiSettings
from travois.terminal import CommandParsers, add_command, print_line
from travois.tui import start
from travois.tui.app import run_terminal_app
from travois.tui.line_mode import run_line_sessions
from travois_lab import server
from travois_lab.demo import account, scratch
from travois_lab.demo.guide import Tour
from travois_lab.demo.lines import Guided
from travois_lab.demo.tour import Pace, pace, script

DEMO_HELP = """\
The real program in a scratch repository: real tools, a permission question, a compaction, a memory
saved and recalled, and the inspector. Only the model is scripted. It needs no key and no network,
and changes none of your files. Enter continues, Ctrl-C exits.

  travois demo --auto              play by itself, for recordings and CI
  travois demo --auto --speed 4    four times as fast
"""


def register_demo(commands: CommandParsers) -> None:
    """Add the `travois demo` command."""
    top = add_command(
        commands, "demo", what="a one-minute tour: no key, no network", more=DEMO_HELP
    )
    top.add_argument("--auto", action="store_true", help="play by itself")
    top.add_argument(
        "--speed", type=_parse_speed, default=1.0, metavar="N", help="play N times as fast"
    )
    top.add_argument("--plain", action="store_true", help="plain lines")
    top.add_argument("--keep", action="store_true", help="keep the scratch repository")
    top.set_defaults(run=run_demo)


def run_demo(args: Namespace) -> int:
    """Run the demo and print its report."""
    own = pace(args.speed) if args.auto or not sys.stdin.isatty() else None
    with _demo_folder(keep=args.keep) as folder:
        shop = scratch.move_into(folder)
        with server(script(args.speed), time="real", models=scratch.MODELS) as api:
            given = msgspec.json.encode(scratch.settings(api.url)).decode()
            options = Options(cwd=str(shop), model=scratch.MODEL, settings=given)
            code, finished = _give_tour(options, own, plain=args.plain)
            _exit_on_signals()
            if finished:
                account.give(api, own)
            else:
                print_line(f"You left the tour. None of your files were changed.\n\n{account.NEXT}")
            return code


def _give_tour(options: Options, pace: Pace | None, *, plain: bool) -> tuple[int, bool]:
    """Run the demo session; return the exit code and whether it ran to the end."""
    if plain or not start.can_run_screen(os.environ):
        guided = Guided(pace)
        anyio.run(run_line_sessions, options, guided)
        return 0, guided.finished
    start.paint_first_prompt(os.environ)
    tour = Tour(pace)
    return run_terminal_app("", options, TuiSettings(), guide=tour), tour.finished


@contextmanager
def _demo_folder(*, keep: bool) -> Generator[Path]:
    """Create a folder for the demo, and remove it afterwards unless it is kept."""
    folder, environ = Path(mkdtemp(prefix="travois-demo-")).resolve(), dict(os.environ)
    _exit_on_signals()
    try:
        yield folder
    finally:
        os.chdir(folder.parent)
        os.environ.update(environ)
        if keep:
            print_line(f"\nThe scratch repository is kept in {folder}")
        else:
            rmtree(folder, ignore_errors=True)


def _exit_on_signals() -> None:
    """Exit on signals, so that the demo folder is removed."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _parse_speed(text: str) -> float:
    """Parse the speed at which the demo plays, from 0.1 to 1000."""
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise ArgumentTypeError("a number from 0.1 to 1000")
    return speed
