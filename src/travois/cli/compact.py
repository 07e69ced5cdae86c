"""`travois compact`: set the older part of a conversation aside, all of it or what is named."""

from __future__ import annotations

from argparse import Namespace

import anyio
import msgspec

from travois.cli.context import picked, told
from travois.compose.options import Options
from travois.context.receipts import receipts
from travois.sessions.log_file import history
from travois.terminal.tables import Commands, command, say

MORE = """\
  travois compact                     the last session of this folder
  travois compact 3f2a --focus "the parser"
  travois compact 3f2a --from 120     what was said from entry 120 on; what stands before it stays,
                                      and so does its cache
  travois compact 3f2a --up-to 120    what was said up to entry 120

`travois context --all` shows the numbers. Nothing is lost: each part that gives way is in a file
that the summary names, and `travois context undo` takes it back. A session that is open elsewhere
is refused; type /compact there.
"""


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "compact", what="set the older part of a conversation aside", more=MORE)
    about = "id, beginning of an id, or name; default: the last one of this folder"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument(
        "--focus", default="", metavar="TEXT", help="what the summary is to tell most of"
    )
    part = top.add_mutually_exclusive_group()
    part.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="from entry N")
    part.add_argument(
        "--up-to", dest="last", type=int, default=0, metavar="N", help="up to entry N"
    )
    top.add_argument("--settings", default="", metavar="FILE|JSON", help="as for a run")
    top.add_argument("--json", action="store_true", help="the receipt as JSON")
    top.set_defaults(run=run_compact)


def run_compact(args: Namespace) -> int:
    """Compact one session and print the receipt."""
    home, summary = picked(args.session)
    anyio.run(_compact, args, summary.id)
    one = receipts(list(history(home.session(summary.project, summary.id), [])))[-1]
    say(msgspec.json.encode(one).decode() if args.json else told(one))
    return 0


async def _compact(args: Namespace, id: str) -> None:
    from travois.sdk import Session

    async with Session(Options(resume=id, settings=args.settings)) as session:
        await session.compact(args.focus, first=args.first, last=args.last)
