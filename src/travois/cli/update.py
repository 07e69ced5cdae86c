"""`travois update` and `travois uninstall`: the commands for the way Travois was installed."""

from __future__ import annotations

import os
import subprocess
from argparse import Namespace
from pathlib import Path

from travois.core.errors import UserError
from travois.files.installation import find_installation
from travois.sessions.catalog import folder_size
from travois.sessions.home import TravoisHome, locate_home
from travois.terminal import CommandParsers, add_command, format_size, print_json, print_line
from travois.version import __version__

UPDATE_HELP = """\
Without --run nothing is changed, and nothing is asked over the network.
"""
UNINSTALL_HELP = """\
Prints the files that Travois keeps and the commands that remove them. It removes nothing itself,
with or without --dry-run.
"""


def register_update(commands: CommandParsers) -> None:
    """Add the `travois update` command."""
    what = "show how to update Travois, or do it"
    top = add_command(commands, "update", what=what, more=UPDATE_HELP)
    top.add_argument("--run", dest="is_run", action="store_true", help="run the command")
    top.add_argument("--json", action="store_true", help="print a JSON object")
    top.set_defaults(run=run_update)


def run_update(args: Namespace) -> int:
    """Show the command that updates this installation, or run it."""
    found = find_installation()
    command = found.update_command()
    if args.is_run:
        return subprocess.run(command, shell=True, check=False).returncode  # noqa: S602 - our own
    if args.json:
        print_json({"version": __version__, "installed": found.kind, "command": command})
        return 0
    print_line(f"Travois {__version__}, installed with {found.kind}. To update:\n  {command}")
    return 0


def register_uninstall(commands: CommandParsers) -> None:
    """Add the `travois uninstall` command."""
    what = "show what Travois has on this machine, and how to remove it"
    top = add_command(commands, "uninstall", what=what, more=UNINSTALL_HELP)
    top.add_argument("--dry-run", action="store_true", help="only show it (always so)")
    top.add_argument("--json", action="store_true", help="print a JSON object")
    top.set_defaults(run=run_uninstall)


def run_uninstall(args: Namespace) -> int:
    """Show the folders of Travois with their sizes, and the commands that remove everything."""
    command = find_installation().remove_command()
    try:
        sizes = _measure_folders(locate_home(os.environ))
    except UserError:
        sizes = {}
    if args.json:
        print_json({"command": command, "folders": sizes})
        return 0
    print_line(f"The program:\n  {command}\nIts files:")
    for folder, size in sizes.items():
        print_line(f"  rm -r {folder}   # {format_size(size)}")
    print_line("Projects may have a folder .travois of their own. Nothing has been removed.")
    return 0


def _measure_folders(home: TravoisHome) -> dict[str, int]:
    """Return the folders of the home that exist, with their sizes in bytes."""
    return {each: folder_size(Path(each)) for each in home.folders if os.path.isdir(each)}
