"""Choosing the front end: full screen, plain lines, or print mode."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from travois.commands.flags import options_from_args
from travois.compose.session import load_workspace
from travois.lazy_imports import lazy_imports
from travois.tui import line_mode, start

with lazy_imports():
    from travois.headless import print_mode
    from travois.tui import app


def start_conversation(args: Namespace) -> int:
    """Start an interactive front end for a session; return the exit code."""
    if not sys.stdin.isatty():
        return print_mode.run_headless(args)
    if args.plain or not start.can_run_screen(os.environ):
        return line_mode.run_line_mode(args)
    if not start.is_interactive_start(sys.argv[1:], os.environ):
        start.paint_first_prompt(os.environ)
    try:
        return _start_full_screen(args)
    except BaseException:
        start.erase_first_prompt()
        raise


def _start_full_screen(args: Namespace) -> int:
    """Start the full-screen app, or line mode if the settings ask for plain output."""
    options = options_from_args(args)
    taste = load_workspace(options)[1].settings.tui
    if taste.plain:
        start.erase_first_prompt()
        return line_mode.run_line_mode(args)
    return app.run_terminal_app(args.prompt or "", options, taste)
