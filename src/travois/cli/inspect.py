"""`travois inspect`: a page on this machine to look inside a session."""

from __future__ import annotations

import os
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from travois.commands.context import picked
from travois.commands.sessions import here
from travois.core.errors import Fault
from travois.inspector.api import Shelf
from travois.terminal.tables import Commands, command, say

MORE = """\
The page shows every request and what the model saw in it, what filled the window, what the cache
read and missed and why, what it cost, what compactions took away, decisions, hooks and agents. It
follows a session that is open elsewhere. Nothing leaves this machine and nothing can be changed.

It ends with Ctrl-C. Over SSH, forward the port: ssh -L 8123:127.0.0.1:8123 HOST, with --port 8123.
"""


def register_inspect(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "inspect", what="look inside a session in the browser", more=MORE)
    about = "id, beginning of an id, or name; default: the last one of this folder"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument("--port", type=int, default=0, metavar="N", help="default: any that is free")
    top.add_argument("--no-open", action="store_true", help="only print the address")
    top.add_argument("--json", action="store_true", help="what the page is made of, as JSON")
    top.set_defaults(run=run_inspect)


def run_inspect(args: Namespace) -> int:
    """Show one session, or all if there is none here."""
    session = _session(args.session)
    if args.json:
        question = "overview" if session else "sessions"
        told = Shelf(here()[0]).answer(question, {"session": session})
        say(msgspec.json.encode(told).decode())
        return 0
    try:
        from travois.inspector import server
    except ImportError as error:
        raise Fault(
            "The page needs packages that are not installed",
            why=f"there is no {error.name}",
            fix="pip install 'travois[web]'",
        ) from error
    home, _ = here()
    keys, goal = server.cut(), f"#session={quote(session)}" if session else ""
    with server.listen(args.port) as door:
        port = door.getsockname()[1]
        place = f"http://127.0.0.1:{port}/{keys.path}/enter?token="
        say(f"{place}{keys.printed}{goal}\nCtrl-C ends it.")
        sys.stdout.flush()
        if not args.no_open and has_screen(os.environ):
            webbrowser.open(f"{place}{keys.opened}{goal}")
        server.serve(server.page(home, keys, port=port), door)
    return 0


def has_screen(environ: Mapping[str, str]) -> bool:
    """Whether a browser that we start would be seen by whoever sits here."""
    if any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY")):
        return False
    return sys.platform == "darwin" or bool(
        environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    )


def _session(text: str) -> str:
    """The session that was named; else the last one of this folder, if there is one."""
    try:
        return picked(text)[1].id
    except Fault:
        if text:
            raise
        return ""
