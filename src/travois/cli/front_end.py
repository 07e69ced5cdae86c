"""The choice of front end: full screen, plain lines, or print mode."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from travois.commands.flags import chosen
from travois.compose.session import load_workspace
from travois.tui import line_mode, start


def talk(args: Namespace) -> int:
    """Talk until the user leaves; returns the exit code."""
    if not sys.stdin.isatty():
        from travois.headless.print_mode import once

        return once(args)
    if args.plain or not start.able(os.environ):
        return line_mode.talk(args)
    if not start.early(sys.argv[1:], os.environ):
        start.paint(os.environ)
    try:
        return _on_screen(args)
    except BaseException:
        start.unpaint()
        raise


def _on_screen(args: Namespace) -> int:
    options = chosen(args)
    taste = load_workspace(options)[1].settings.tui
    if taste.plain:
        start.unpaint()
        return line_mode.talk(args)
    from travois.tui.app import talk

    return talk(args.prompt or "", options, taste)
