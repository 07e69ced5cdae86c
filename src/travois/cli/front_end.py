"""Which front end a conversation gets: the screen, only lines, or none at all."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from travois.commands.flags import chosen
from travois.compose.session import prepare
from travois.tui import start
from travois.tui.line_mode import talk as talk_in_lines


def talk(args: Namespace) -> int:
    """Talk until the user leaves; returns the exit code."""
    if not sys.stdin.isatty():
        from travois.headless.print_mode import once

        return once(args)
    if args.plain or not start.able(os.environ):
        from travois.tui.line_mode import talk

        return talk(args)
    if not start.early(sys.argv[1:], os.environ):
        start.paint(os.environ)
    try:
        return _on_screen(args)
    except BaseException:
        start.unpaint()
        raise


def _on_screen(args: Namespace) -> int:
    options = chosen(args)
    taste = prepare(options)[1].settings.tui
    if taste.plain:
        start.unpaint()
        return talk_in_lines(args)
    from travois.tui.app import talk

    return talk(args.prompt or "", options, taste)
