"""`travois mail`: messages to other sessions and teams, and those that wait."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator

import anyio

from travois.agents.mailbox import Mailbox, list_team_members, list_teams
from travois.compose.mail import send_mail
from travois.sessions.catalog import list_session_folders
from travois.sessions.home import TravoisHome, locate_home
from travois.terminal import (
    CommandParsers,
    add_command,
    add_json_flag,
    escape_controls,
    format_age,
    print_line,
    print_table,
)

MAIL_HELP = """\
Addresses are session:ID (an id prefix is enough) and TEAM:NAME. A session joins a team with the
setting mail.address, as in --settings '{"mail": {"address": "crew:ada"}}'.
A running session sees a message at its next step; otherwise the message waits.
"""


def register_mail(commands: CommandParsers) -> None:
    """Add the `travois mail` command."""
    top = add_command(
        commands, "mail", what="send messages to other sessions and teams", more=MAIL_HELP
    )
    inner = top.add_subparsers(required=True)
    send = add_command(inner, "send", what="send a message to a session or a team member")
    send.add_argument("to", metavar="TO", help="session:ID or TEAM:NAME")
    send.add_argument("text", metavar="TEXT")
    send.set_defaults(run=run_mail_send)
    listing = add_command(inner, "list", what="list waiting messages")
    add_json_flag(listing)
    listing.set_defaults(run=run_mail_list)


def run_mail_send(args: Namespace) -> int:
    """Send a message to a session or team member, and print its outcome."""

    async def send_mail_as_shell() -> str:
        return await send_mail(locate_home(os.environ), args.to, args.text, sender="shell")

    print_line(anyio.run(send_mail_as_shell))
    return 0


def run_mail_list(args: Namespace) -> int:
    """List the waiting messages of all mailboxes."""
    rows = [
        row
        for address, box in _iterate_mailboxes(locate_home(os.environ))
        for row in _mail_rows(address, box)
    ]
    heads = ("FOR", "FROM", "SENT", "MESSAGE")
    print_table(heads, rows, none="No messages.", as_json=args.json)
    return 0


def _iterate_mailboxes(home: TravoisHome) -> Iterator[tuple[str, Mailbox]]:
    """Yield every mailbox with its address: those of team members, then of sessions."""
    for team in list_teams(home):
        for name in list_team_members(home, team):
            yield f"{team}:{name}", Mailbox(home.mail / team / name)
    for folder in list_session_folders(home):
        yield f"session:{folder.name[:8]}", Mailbox(folder / "mail")


def _mail_rows(address: str, box: Mailbox) -> Iterator[tuple[str, ...]]:
    """Yield a row for each waiting message of a mailbox, for `travois mail list`."""
    while letters := box.take():
        for letter in letters:
            sent, text = (
                format_age(time.time() - letter.at),
                escape_controls(letter.text, lines="show"),
            )
            yield address, escape_controls(letter.sender), sent, text
