"""`travois plugins`: the plugins that count here, and what each brings."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator

import msgspec

from travois.sessions.home import locate
from travois.sessions.project import identify
from travois.settings.load import load
from travois.settings.schema import Plugin
from travois.terminal.tables import Commands, clean, command, say, table, warn

MORE = """\
A plugin is a folder with .claude-plugin/plugin.json. They are found in plugins/ of your
Travois home, in .agents/plugins/ of a project that you trust, by the setting `plugins`, and
by --plugin-dir.
"""


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "plugins", what="list the plugins that count here", more=MORE)
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run)


def run(args: Namespace) -> int:
    """Print them."""
    home, cwd = locate(os.environ), os.path.realpath(os.getcwd())
    loaded = load(home, identify(home, cwd).root, cwd=cwd, environ=os.environ)
    for notice in loaded.notices:
        warn(notice)
    if args.json:
        say(msgspec.json.encode(loaded.plugins).decode())
    elif loaded.plugins:
        rows = (
            (one.name, one.version, ", ".join(_brings(one)), one.folder) for one in loaded.plugins
        )
        cells = (tuple(clean(cell, lines="show") for cell in row) for row in rows)
        say(table([("PLUGIN", "VERSION", "BRINGS", "FOLDER"), *cells]))
    else:
        say("There are no plugins here.")
    return 0


def _brings(plugin: Plugin) -> Iterator[str]:
    parts = {
        "skills": plugin.skills,
        "commands": plugin.commands,
        "agents": plugin.agents,
        "output styles": plugin.styles,
        "hooks": plugin.hooks,
        "servers": plugin.servers,
    }
    yield from (name for name, found in parts.items() if found)
