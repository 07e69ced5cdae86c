"""`travois trust`: let what a folder brings with it hold, or no longer."""

from __future__ import annotations

import os
from argparse import Namespace

from travois.cli.trust_prompt import told
from travois.core.display_text import visible
from travois.core.errors import Fault
from travois.sessions.home import locate
from travois.sessions.project import identify
from travois.settings import trust
from travois.settings.load import load
from travois.settings.schema import Loaded
from travois.terminal.tables import Commands, command, say, table

MORE = """\
Settings that come with a folder (.travois, .claude) may tighten at once. What they want beyond
that (hooks, variables, allow rules, more folders, a model) holds once you trust the folder with
it. Trust is bound to what was shown: whatever changes later is asked about again. It covers the
whole repository and its worktrees. Files that a trusted hook or MCP server reaches beyond the
programs that it names (imports, scripts of package.json, Makefiles) are told when they changed.
"""


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "trust", what="trust a folder with its own settings", more=MORE)
    top.add_argument("folder", nargs="?", default=".", metavar="DIR", help="default: this one")
    top.add_argument("--revoke", action="store_true", help="trust it no longer")
    top.add_argument(
        "--changed", action="store_true", help="list files behind trusted commands that changed"
    )
    top.add_argument("--list", action="store_true", help="list trusted folders")
    top.set_defaults(run=run_trust)


def run_trust(args: Namespace) -> int:
    """Trust a folder, or not; exit code 1 if there was nothing to revoke."""
    home = locate(os.environ)
    if args.list:
        found = [(str(len(each.agreed)), each.path) for each in trust.known(home) if each.trusted]
        say(table([("SETTINGS", "FOLDER"), *found]) if found else "No folder is trusted.")
        return 0
    folder = os.path.realpath(args.folder)
    if args.revoke:
        gone, root = trust.revoke(home.prepare(), trust.root(folder)), trust.root(folder)
        say(
            f"{visible(root)} is no longer trusted."
            if gone
            else f"{visible(root)} was not trusted."
        )
        return 0 if gone else 1
    if not os.path.isdir(folder):
        raise Fault(f"{args.folder} is not a folder")
    home.prepare()
    loaded = load(home, identify(home, folder).root, cwd=folder, environ=os.environ)
    if loaded.trust != "trusted" and loaded.wanted and not args.changed:
        say(told(home, loaded))
    if args.changed:
        return _list_changes(loaded)
    trust.trust(home, loaded.root, loaded.wanted, places=loaded.places)
    say(f"{visible(loaded.root)} is trusted.")
    return 0


def _list_changes(loaded: Loaded) -> int:
    """List what trusted commands reach that changed; exit code 1 if there is any."""
    for line, files in loaded.changed.items():
        say(visible(line))
        for file in files:
            say(f"  {visible(file)}")
    if not loaded.changed:
        say("Nothing that trusted commands reach has changed.")
    return 1 if loaded.changed else 0
