"""`travois plugins`: what extends Travois here: plugins, and installed Python packages."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import msgspec

from travois.core.errors import UserError
from travois.extensions.entry_points import Package, find_packages, load_entry_point
from travois.sessions.home import TravoisHome, identify_project, locate_home
from travois.settings.edit import add_to_user_setting, remove_from_user_setting
from travois.settings.load import PACKAGES_FILE, load_settings
from travois.settings.schema import LoadedSettings, Plugin
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_json,
    print_line,
    print_warning,
)

PLUGINS_HELP = """\
A plugin is a folder with .claude-plugin/plugin.json. Plugins are loaded from plugins/ in your
Travois home, from .agents/plugins/ of a trusted project, from the setting `plugins`, and from
--plugin-dir.

An installed Python package extends Travois by entry points (docs/sdk.md): tools, hooks, context
layers, model providers and commands. One inside the workspace counts once you trust it
(`travois trust`).
"""
DISABLED_SETTING = "disabledPackages"


def register_plugins(commands: CommandParsers) -> None:
    """Add the `travois plugins` command."""
    top = add_command(
        commands,
        "plugins",
        what="list plugins and packages that extend Travois, and switch packages",
        more=PLUGINS_HELP,
    )
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_plugins)
    actions = top.add_subparsers(title="actions")
    disable = add_command(actions, "disable", what="switch an installed package off, everywhere")
    disable.set_defaults(run=run_disable_package)
    enable = add_command(actions, "enable", what="switch it on again")
    enable.set_defaults(run=run_enable_package)
    for parser in (disable, enable):
        parser.add_argument("package", help="its name, as the list shows it")


def run_plugins(args: Namespace) -> int:
    """List the plugins and packages that apply in this folder."""
    home, loaded = _load_settings_here()
    for notice in loaded.notices:
        print_warning(notice)
    packages = tuple(_describe_packages(home, loaded))
    if args.json:
        print_json((*loaded.plugins, *packages))
        return 0
    if loaded.plugins:
        rows = (
            (one.name, one.version, ", ".join(_plugin_parts(one)), one.folder)
            for one in loaded.plugins
        )
        _print_cells(("PLUGIN", "VERSION", "PROVIDES", "FOLDER"), rows)
    if packages:
        rows = ((one.name, one.version, one.state, one.provides, one.folder) for one in packages)
        _print_cells(("PACKAGE", "VERSION", "STATE", "PROVIDES", "FOLDER"), rows)
    if not loaded.plugins and not packages:
        print_line("No plugins.")
    return 0


def _print_cells(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> None:
    cells = (tuple(escape_controls(cell, lines="show") for cell in row) for row in rows)
    print_line(format_table([head, *cells]))


def _load_settings_here() -> tuple[TravoisHome, LoadedSettings]:
    home, cwd = locate_home(os.environ), os.path.realpath(os.getcwd())
    root = identify_project(home, cwd).root
    return home, load_settings(home, root, cwd=cwd, environ=os.environ)


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


class PackageRow(msgspec.Struct, frozen=True):
    """An installed package as the list shows it."""

    name: str
    version: str
    state: str
    provides: str
    folder: str


def _describe_packages(home: TravoisHome, loaded: LoadedSettings) -> Iterator[PackageRow]:
    """Yield each installed package, and whether it is on."""
    off = {name.lower() for name in loaded.settings.disabled_packages}
    for package in _list_installed(home):
        state = "on" if package in loaded.packages else "needs trust"
        state = "off" if package.name.lower() in off else state
        told = (package.name, package.version, state, package.summary, package.folder)
        yield PackageRow(*told)


def _list_installed(home: TravoisHome) -> tuple[Package, ...]:
    return find_packages(sys.path, cache=home.path / PACKAGES_FILE)


def run_disable_package(args: Namespace) -> int:
    """Switch an installed package off in the user's settings."""
    home = locate_home(os.environ).prepare()
    add_to_user_setting(home, DISABLED_SETTING, _require_package(home, args.package))
    print_line(f"{args.package} is off; `travois plugins enable {args.package}` switches it on")
    return 0


def run_enable_package(args: Namespace) -> int:
    """Switch an installed package on again in the user's settings."""
    home = locate_home(os.environ).prepare()
    remove_from_user_setting(home, DISABLED_SETTING, _require_package(home, args.package))
    print_line(f"{args.package} is on")
    return 0


def _require_package(home: TravoisHome, name: str) -> str:
    """Return the name of an installed package that extends Travois; raise `UserError` if none."""
    known = [package.name for package in _list_installed(home)]
    found = next((one for one in known if one.lower() == name.lower()), "")
    if not found:
        fix = f"Installed here: {', '.join(known) or 'none'}."
        raise UserError(f"No package {name!r} extends Travois", fix=fix)
    return found


# Commands that packages bring.


PackageCommand = Callable[[Sequence[str]], object]


def find_package_command(name: str) -> PackageCommand | None:
    """Find the command of an installed package that may run here; None if there is none."""
    installed = _list_installed(locate_home(os.environ))
    if not any(one.name == name for each in installed for one in each.select_points("commands")):
        return None
    for package in _load_settings_here()[1].packages:
        for point in package.select_points("commands"):
            if point.name == name:
                return cast("PackageCommand", load_entry_point(package, point))
    return None
