"""`travois trust`, and the question whether to trust a folder, with what would be trusted."""

from __future__ import annotations

import os
import termios
from argparse import Namespace
from contextlib import suppress
from typing import Protocol

from travois.core.display_text import escape_invisible
from travois.core.errors import UserError
from travois.sessions.home import TravoisHome, identify_project, locate_home
from travois.settings import trust
from travois.settings.load import load_settings
from travois.settings.schema import LoadedSettings
from travois.terminal import (
    CommandParsers,
    add_command,
    add_json_flag,
    check_json_flag,
    print_line,
    print_table,
)

FIRST_TRUST_REASON = "has settings that run programs or grant permissions"
CHANGED_TRUST_REASON = "has new settings that you have not trusted yet"
TRUST_QUESTION = "Trust this folder? [y]es / no (continue without these settings): "


TRUST_HELP = """\
A folder's own settings (.travois, .claude) can always restrict. Anything beyond that (hooks,
variables, allow rules, more folders, a model) applies only once you trust the folder. Trust covers
exactly what was shown: later changes are asked about again. It covers the whole repository and its
worktrees. You are notified when files behind a trusted hook or MCP server change (imports,
package.json scripts, Makefiles).
"""


class LineReader(Protocol):
    """A terminal that can show lines and ask for one."""

    def line(self, text: str) -> None:
        """Show a line."""
        ...

    async def read(self, prompt: str) -> str | None:
        """Ask for a line; None when they leave."""
        ...


async def ask_for_trust(home: TravoisHome, loaded: LoadedSettings, reader: LineReader) -> None:
    """Ask whether to trust what a folder asks for, unless answered before; save the answer."""
    if loaded.trust in ("trusted", "refused") or not loaded.wanted:
        return
    reader.line(describe_trust_request(home, loaded))
    _discard_typed_input()
    answer = await reader.read(TRUST_QUESTION)
    if answer is None:
        return
    if answer.strip().lower() in ("y", "yes"):
        trust.trust_folder(home, loaded.root, loaded.wanted, places=loaded.places)
    else:
        trust.refuse_requests(home, loaded.root, loaded.wanted)


def describe_trust_request(home: TravoisHome, loaded: LoadedSettings) -> str:
    """Describe everything that trusting a folder would allow, a line each."""
    agreed = trust.list_agreed_digests(home, loaded.root)
    fresh = [text for text in loaded.wanted if trust.digest_request(text) not in agreed]
    what = CHANGED_TRUST_REASON if loaded.trust == "changed" else FIRST_TRUST_REASON
    return "\n".join(
        (
            f"{escape_invisible(loaded.root)} {what}:",
            *(f"  {escape_invisible(text)}" for text in fresh),
        )
    )


def _discard_typed_input() -> None:
    """Discard input typed before the trust question was visible: it is no answer."""
    with suppress(termios.error):
        termios.tcflush(0, termios.TCIFLUSH)


def register_trust(commands: CommandParsers) -> None:
    """Add the `travois trust` command."""
    top = add_command(
        commands,
        "trust",
        what="trust a folder's own settings, or revoke that trust",
        more=TRUST_HELP,
    )
    top.add_argument("folder", nargs="?", default=".", metavar="DIR", help="default: this folder")
    top.add_argument("--revoke", action="store_true", help="revoke trust")
    top.add_argument(
        "--changed", action="store_true", help="list changed files behind trusted commands"
    )
    top.add_argument("--list", action="store_true", help="list trusted folders")
    add_json_flag(top, "with --list: print a JSON array")
    top.set_defaults(run=run_trust)


def run_trust(args: Namespace) -> int:
    """Trust a folder or revoke its trust; exit code 1 if there was nothing to revoke."""
    check_json_flag(args, is_listing=args.list)
    home = locate_home(os.environ)
    if args.list:
        found = [
            (str(len(each.agreed)), each.path)
            for each in trust.list_folder_trust(home)
            if each.trusted
        ]
        heads = ("SETTINGS", "FOLDER")
        print_table(heads, found, none="No trusted folders.", as_json=args.json)
        return 0
    folder = os.path.realpath(args.folder)
    if args.revoke:
        gone, root = (
            trust.revoke_trust(home.prepare(), trust.trust_root(folder)),
            trust.trust_root(folder),
        )
        print_line(
            f"{escape_invisible(root)} is no longer trusted."
            if gone
            else f"{escape_invisible(root)} was not trusted."
        )
        return 0 if gone else 1
    if not os.path.isdir(folder):
        raise UserError(f"{args.folder} is not a folder")
    home.prepare()
    loaded = load_settings(
        home, identify_project(home, folder).root, cwd=folder, environ=os.environ
    )
    if loaded.trust != "trusted" and loaded.wanted and not args.changed:
        print_line(describe_trust_request(home, loaded))
    if args.changed:
        return _list_changed_files(loaded)
    trust.trust_folder(home, loaded.root, loaded.wanted, places=loaded.places)
    print_line(f"{escape_invisible(loaded.root)} is trusted.")
    return 0


def _list_changed_files(loaded: LoadedSettings) -> int:
    """List changed files that trusted commands use; exit code 1 if there are any."""
    for line, files in loaded.changed.items():
        print_line(escape_invisible(line))
        for file in files:
            print_line(f"  {escape_invisible(file)}")
    if not loaded.changed:
        print_line("No files behind trusted commands have changed.")
    return 1 if loaded.changed else 0
