"""`travois config`: settings and where each comes from."""

from __future__ import annotations

import os
from argparse import Namespace

import msgspec

from travois.compose import explain
from travois.compose.open_session import Workspace
from travois.core.errors import UserError
from travois.permissions.secrets import mask_text, mask_value
from travois.sessions.home import identify_project, locate_home
from travois.settings.load import load_settings
from travois.settings.schema import Json, LoadedSettings
from travois.settings.validate import NAME_KEYED_GROUPS, find_nearest_word, flatten_settings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_line,
    print_warning,
)

CONFIG_HELP = """\
Sources in order of precedence; later ones win, but a deny rule from any source stays in force:
  defaults
  settings.json in your Travois home     user settings; before them ~/.claude/settings.json
  .travois/settings.json                 project settings; until trusted they can only restrict
  .travois/settings.local.json           the same, not committed
  --settings FILE or JSON                for one run
  TRAVOIS_MODEL, TRAVOIS_MAX_TURNS, ...  the environment
  flags                                  the command line
  /etc/travois/settings.json             for this machine
Each source also reads the file in .claude (or /etc/claude-code), and before it those of Codex
(.codex/config.toml) and opencode (opencode.json); the Travois file wins. `explain` also covers
instructions, agents, commands, skills, outputStyles, mcpServers and rules, or one of them as in
skills.NAME.
"""


def register_config(commands: CommandParsers) -> None:
    """Add the `travois config` command and its subcommands."""
    top = add_command(
        commands, "config", what="show settings, and which file each comes from", more=CONFIG_HELP
    )
    below = top.add_subparsers(metavar="command", title="commands", required=True)
    parser = add_command(below, "explain", what="print settings with their values and sources")
    parser.add_argument(
        "key", nargs="?", default="", metavar="KEY", help="for example timeouts.idle"
    )
    parser.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run_config_explain)


def run_config_explain(args: Namespace) -> int:
    """Print settings and their origins."""
    home = locate_home(os.environ)
    cwd = os.path.realpath(os.getcwd())
    root = identify_project(home, cwd).root
    loaded = load_settings(home, root, cwd=cwd, environ=os.environ, given=args.settings)
    if args.key.partition(".")[0] in explain.PART_LISTERS:
        return _explain_setting_part(
            args, Workspace(home, identify_project(home, cwd), cwd), loaded
        )
    values = {key: mask_value(key, value) for key, value in find_settings(loaded, args.key).items()}
    for notice in loaded.notices:
        print_warning(mask_text(notice))
    if args.json:
        told = {
            key: {"value": value, "origin": find_setting_origin(key, loaded)}
            for key, value in values.items()
        }
        print_line(msgspec.json.encode(told).decode())
    else:
        print_line(render_settings_table(values, loaded))
    return 0


def _explain_setting_part(args: Namespace, workspace: Workspace, loaded: LoadedSettings) -> int:
    """Print skills, rules and other parts that are not settings, with their origins."""
    told = {
        key: explain.EffectivePart(mask_text(one.value), one.origin)
        for key, one in explain.list_effective_parts(workspace, loaded).items()
    }
    fitting = {k: v for k, v in told.items() if args.key in (k, k.partition(".")[0])}
    if not fitting and "." in args.key:
        near = find_nearest_word(args.key, told)
        hint = f"Did you mean {near}?" if near else "`travois config explain` lists all."
        raise UserError(f"Unknown name {args.key!r}", fix=hint)
    if args.json:
        print_line(msgspec.json.encode(fitting).decode())
    else:
        rows = [
            (k, escape_controls(one.value, lines="show"), one.origin) for k, one in fitting.items()
        ]
        print_line(format_table([("NAME", "WHAT", "DECIDED BY"), *rows]))
    return 0


def find_settings(loaded: LoadedSettings, key: str) -> Json:
    """Find settings by key for `travois config`: this one, those below it, or all."""
    values = flatten_settings(loaded.settings) | {
        f"hooks.{event}": tree[event] for _, tree in loaded.hooks for event in tree
    }
    tables = (group.removesuffix(".") for group in (*NAME_KEYED_GROUPS, "hooks."))
    values |= {table: {} for table in tables if not any(n.startswith(f"{table}.") for n in values)}
    fitting = {
        name: value
        for name, value in values.items()
        if key in ("", name) or name.startswith(f"{key}.")
    }
    if not fitting:
        near = find_nearest_word(key, values)
        hint = f"Did you mean {near}?" if near else "`travois config explain` lists all."
        raise UserError(f"Unknown setting {key!r}", fix=hint)
    return fitting


def render_settings_table(values: Json, loaded: LoadedSettings) -> str:
    """Format settings as a table with their origins."""
    rows = [row for key in values for row in _setting_rows(key, values[key], loaded)]
    return format_table([("SETTING", "VALUE", "DECIDED BY"), *rows])


def _setting_rows(key: str, value: object, loaded: LoadedSettings) -> list[tuple[str, str, str]]:
    """Return the table rows of a settings value: one, or one for each item of a list."""
    if isinstance(value, list | tuple) and value and not key.startswith("hooks."):
        items = msgspec.convert(value, tuple[str, ...])
        return [
            (key, escape_controls(item, lines="show"), loaded.origin(key, item)) for item in items
        ]
    return [
        (
            key,
            escape_controls(msgspec.json.encode(value).decode()),
            find_setting_origin(key, loaded),
        )
    ]


def find_setting_origin(key: str, loaded: LoadedSettings) -> str:
    """Return the file or flag that decided a setting; for hooks, all files that have some."""
    event = key.removeprefix("hooks.")
    named = [where for where, tree in loaded.hooks if event != key and event in tree]
    return ", ".join(named) or loaded.origin(key)
