"""`travois mail`: write to other sessions, and see what waits for them."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator

import anyio

from travois.agents.mailbox import Mailbox, members, teams
from travois.compose.mail import post
from travois.sessions import catalog as sessions
from travois.sessions.home import Home, locate
from travois.terminal.tables import Commands, ago, clean, command, say, table

MORE = """\
Addresses are session:ID (the beginning of the id is enough) and TEAM:NAME. A session is in a
team by its setting mail.address, as in --settings '{"mail": {"address": "crew:ada"}}'.
Who runs sees a message at the next step; for all others it waits.
"""


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "mail", what="write to other sessions", more=MORE)
    inner = top.add_subparsers(required=True)
    send = command(inner, "send", what="leave a message for a session or a member of a team")
    send.add_argument("to", metavar="TO", help="session:ID or TEAM:NAME")
    send.add_argument("text", metavar="TEXT")
    send.set_defaults(run=run_send)
    command(inner, "list", what="list what lies in mailboxes").set_defaults(run=run_list)


def run_send(args: Namespace) -> int:
    """Leave a message, and say what becomes of it."""

    async def main() -> str:
        return await post(locate(os.environ), args.to, args.text, sender="shell")

    say(anyio.run(main))
    return 0


def run_list(args: Namespace) -> int:
    """List all mailboxes with mail in them."""
    rows = [row for address, box in _boxes(locate(os.environ)) for row in _rows(address, box)]
    say(table([("FOR", "FROM", "SENT", "MESSAGE"), *rows]) if rows else "No mail waits.")
    return 0


def _boxes(home: Home) -> Iterator[tuple[str, Mailbox]]:
    for team in teams(home):
        for name in members(home, team):
            yield f"{team}:{name}", Mailbox(home.mail / team / name)
    for folder in sessions.folders(home):
        yield f"session:{folder.name[:8]}", Mailbox(folder / "mail")


def _rows(address: str, box: Mailbox) -> Iterator[tuple[str, ...]]:
    while letters := box.take():
        for letter in letters:
            sent, text = ago(time.time() - letter.at), clean(letter.text, lines="show")
            yield address, clean(letter.sender), sent, text
