"""`travois demo`: a tour of a minute, with real tools and a scripted model."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from travois.compose.options import Options
from travois.terminal.tables import Commands, command, say

if TYPE_CHECKING:
    from travois.app.demo.tour import Pace

MORE = """\
The real program in a scratch repository: real tools, a real question, a real compaction, a memory
kept and recalled, and the page to look inside. Only the model is an actor with a script. It needs
no key and no network, and touches nothing of yours. Enter goes on, Ctrl-C leaves.

  travois demo --auto              plays by itself, for recordings and builds
  travois demo --auto --speed 4    four times as fast
"""


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "demo", what="a tour of a minute: no key, no network", more=MORE)
    top.add_argument("--auto", action="store_true", help="play by itself")
    top.add_argument("--speed", type=_speed, default=1.0, metavar="N", help="so many times as fast")
    top.add_argument("--plain", action="store_true", help="lines only")
    top.add_argument("--keep", action="store_true", help="leave the scratch repository there")
    top.set_defaults(run=run_demo)


def run_demo(args: Namespace) -> int:
    """Give the tour, then the account of it."""
    from travois.app.demo import account, scratch
    from travois.app.demo.tour import pace, script
    from travois.lab import server

    own = pace(args.speed) if args.auto or not sys.stdin.isatty() else None
    with _folder(keep=args.keep) as folder:
        shop = scratch.move_into(folder)
        with server(script(args.speed), time="real", models=scratch.MODELS) as api:
            given = msgspec.json.encode(scratch.settings(api.url)).decode()
            options = Options(cwd=str(shop), model=scratch.MODEL, settings=given)
            code, finished = _tour(options, own, plain=args.plain)
            _heed_signals()
            if finished:
                account.give(api, own)
            else:
                say(f"You left the tour. Nothing of yours was touched.\n\n{account.NEXT}")
            return code


def _tour(options: Options, pace: Pace | None, *, plain: bool) -> tuple[int, bool]:
    """The exit code, and whether it went on to the end."""
    from travois.tui import start

    if plain or not start.able(os.environ):
        import anyio

        from travois.app.demo.lines import Guided
        from travois.tui.line_mode import converse

        guided = Guided(pace)
        anyio.run(converse, options, guided)
        return 0, guided.finished
    start.paint(os.environ)
    from travois.app.demo.guide import Tour
    from travois.settings.schema import Tui
    from travois.tui.app import talk

    tour = Tour(pace)
    return talk("", options, Tui(), guide=tour), tour.finished


@contextmanager
def _folder(*, keep: bool) -> Generator[Path]:
    """A folder that is gone afterwards, unless it is to be kept."""
    from shutil import rmtree
    from tempfile import mkdtemp

    folder, environ = Path(mkdtemp(prefix="travois-demo-")).resolve(), dict(os.environ)
    _heed_signals()
    try:
        yield folder
    finally:
        os.chdir(folder.parent)
        os.environ.update(environ)
        if keep:
            say(f"\nThe scratch repository stays in {folder}")
        else:
            rmtree(folder, ignore_errors=True)


def _heed_signals() -> None:
    """Let nobody end us before the folder is gone."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0.1 <= speed <= 1000:
        raise ArgumentTypeError("a number from 0.1 to 1000")
    return speed
