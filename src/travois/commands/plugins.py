"""`travois plugins`: list the active plugins and what they provide."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator

import msgspec

from travois.sessions.home import identify_project, locate_home
from travois.settings.load import load_settings
from travois.settings.schema import Plugin
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_line,
    print_warning,
)

PLUGINS_HELP = """\
A plugin is a folder with .claude-plugin/plugin.json. Plugins are loaded from plugins/ in your
Travois home, from .agents/plugins/ of a trusted project, from the setting `plugins`, and from
--plugin-dir.
"""


def register_plugins(commands: CommandParsers) -> None:
    """Add the `travois plugins` command."""
    top = add_command(
        commands, "plugins", what="list the active plugins and what they provide", more=PLUGINS_HELP
    )
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_plugins)


def run_plugins(args: Namespace) -> int:
    """List the plugins that apply in this folder."""
    home, cwd = locate_home(os.environ), os.path.realpath(os.getcwd())
    loaded = load_settings(home, identify_project(home, cwd).root, cwd=cwd, environ=os.environ)
    for notice in loaded.notices:
        print_warning(notice)
    if args.json:
        print_line(msgspec.json.encode(loaded.plugins).decode())
    elif loaded.plugins:
        rows = (
            (one.name, one.version, ", ".join(_plugin_parts(one)), one.folder)
            for one in loaded.plugins
        )
        cells = (tuple(escape_controls(cell, lines="show") for cell in row) for row in rows)
        print_line(format_table([("PLUGIN", "VERSION", "PROVIDES", "FOLDER"), *cells]))
    else:
        print_line("No plugins.")
    return 0


def _plugin_parts(plugin: Plugin) -> Iterator[str]:
    """Yield the kinds of things that a plugin provides, such as skills or hooks."""
    parts = {
        "skills": plugin.skills,
        "commands": plugin.commands,
        "agents": plugin.agents,
        "output styles": plugin.styles,
        "hooks": plugin.hooks,
        "MCP servers": plugin.servers,
    }
    yield from (name for name, found in parts.items() if found)
