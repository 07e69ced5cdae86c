"""`travois config`: which settings hold here, and who said so."""

from __future__ import annotations

import os
from argparse import Namespace

import msgspec

from travois.compose import merged
from travois.compose.open_session import Place
from travois.core.errors import Fault
from travois.permissions.masking import mask_text, mask_value
from travois.sessions.home import locate
from travois.sessions.project import identify
from travois.settings.load import load
from travois.settings.schema import Json, Loaded
from travois.settings.validate import flatten, nearest
from travois.terminal.tables import Commands, clean, command, say, table, warn

MORE = """\
Later ones win, but what any of them denies stays denied:
  defaults
  settings.json in your Travois home     yours; before it ~/.claude/settings.json
  .travois/settings.json                 of a workspace; until you trust it, may only tighten
  .travois/settings.local.json           likewise, not to be committed
  --settings FILE or JSON                of one run
  TRAVOIS_MODEL, TRAVOIS_MAX_TURNS, ...  the environment
  flags                                  the command line
  /etc/travois/settings.json             of this machine
Beside each file, the one in .claude (or /etc/claude-code) is read, and before it those of
Codex (.codex/config.toml) and opencode (opencode.json); ours wins. What is no setting is
explained, too: instructions, agents, commands, skills, outputStyles, mcpServers, rules, or
one of them as in skills.NAME.
"""


def register(commands: Commands) -> None:
    """Add the command and those below it."""
    top = command(commands, "config", what="show settings and where they come from", more=MORE)
    below = top.add_subparsers(metavar="command", title="commands", required=True)
    explain = command(
        below, "explain", what="print each setting, its value, and the place that decided it"
    )
    explain.add_argument("key", nargs="?", default="", metavar="KEY", help="as in timeouts.idle")
    explain.add_argument("--settings", default="", metavar="FILE|JSON", help="as for a run")
    explain.add_argument("--json", action="store_true", help="as JSON")
    explain.set_defaults(run=run_explain)


def run_explain(args: Namespace) -> int:
    """Print settings and their origins."""
    home = locate(os.environ)
    cwd = os.path.realpath(os.getcwd())
    root = identify(home, cwd).root
    loaded = load(home, root, cwd=cwd, environ=os.environ, given=args.settings)
    if args.key.partition(".")[0] in merged.PARTS:
        return _explain_part(args, Place(home, identify(home, cwd), cwd), loaded)
    values = {key: mask_value(key, value) for key, value in found(loaded, args.key).items()}
    for notice in loaded.notices:
        warn(mask_text(notice))
    if args.json:
        told = {
            key: {"value": value, "origin": origin(key, loaded)} for key, value in values.items()
        }
        say(msgspec.json.encode(told).decode())
    else:
        say(listing(values, loaded))
    return 0


def _explain_part(args: Namespace, place: Place, loaded: Loaded) -> int:
    """Print what is not a setting: who brings each of it."""
    told = {
        key: merged.Told(mask_text(one.value), one.origin)
        for key, one in merged.parts(place, loaded).items()
    }
    fitting = {k: v for k, v in told.items() if args.key in (k, k.partition(".")[0])}
    if not fitting and "." in args.key:
        near = nearest(args.key, told)
        hint = f"Did you mean {near}?" if near else "`travois config explain` lists all."
        raise Fault(f"There is no {args.key!r}", fix=hint)
    if args.json:
        say(msgspec.json.encode(fitting).decode())
    else:
        rows = [(k, clean(one.value, lines="show"), one.origin) for k, one in fitting.items()]
        say(table([("NAME", "WHAT", "DECIDED BY"), *rows]))
    return 0


def found(loaded: Loaded, key: str) -> Json:
    """The settings of this key, or that begin with it, or all."""
    values = flatten(loaded.settings) | {
        f"hooks.{event}": tree[event] for _, tree in loaded.hooks for event in tree
    }
    fitting = {name: values[name] for name in values if key in ("", name, name.partition(".")[0])}
    if not fitting:
        near = nearest(key, values)
        hint = f"Did you mean {near}?" if near else "`travois config explain` lists all."
        raise Fault(f"There is no setting {key!r}", fix=hint)
    return fitting


def listing(values: Json, loaded: Loaded) -> str:
    """A table of settings with whoever decided them."""
    rows = [row for key in values for row in _rows(key, values[key], loaded)]
    return table([("SETTING", "VALUE", "DECIDED BY"), *rows])


def _rows(key: str, value: object, loaded: Loaded) -> list[tuple[str, str, str]]:
    """One line for a value; for a list one line for each of its items."""
    if isinstance(value, list | tuple) and value and not key.startswith("hooks."):
        items = msgspec.convert(value, tuple[str, ...])
        return [(key, clean(item, lines="show"), loaded.origin(key, item)) for item in items]
    return [(key, clean(msgspec.json.encode(value).decode()), origin(key, loaded))]


def origin(key: str, loaded: Loaded) -> str:
    """The place that decided a setting; for hooks, all places that name some."""
    event = key.removeprefix("hooks.")
    named = [where for where, tree in loaded.hooks if event != key and event in tree]
    return ", ".join(named) or loaded.origin(key)
