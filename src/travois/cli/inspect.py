"""`travois inspect`: a local web page to inspect a session."""

from __future__ import annotations

import os
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from travois.commands.context import pick_session
from travois.commands.sessions import locate_home_and_project
from travois.core.errors import UserError
from travois.files import installation
from travois.inspector.api import InspectorApi
from travois.terminal import CommandParsers, add_command, print_line

INSPECT_HELP = """\
The page shows every request with what the model saw, what fills the context window, prompt cache
reads and misses with their causes, cost, compactions, permission decisions, hooks and subagents. It
follows a running session live. It is read-only, and nothing leaves this machine.

Stop it with Ctrl-C. Over SSH, use --port 8123 and forward it: ssh -L 8123:127.0.0.1:8123 HOST
"""


def register_inspect(commands: CommandParsers) -> None:
    """Add the `travois inspect` command."""
    top = add_command(
        commands, "inspect", what="inspect a session in the browser", more=INSPECT_HELP
    )
    about = "session id, id prefix or name (default: the last one of this folder)"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    top.add_argument(
        "--port", type=int, default=0, metavar="N", help="port to listen on (default: any free one)"
    )
    top.add_argument(
        "--no-open", action="store_true", help="print the address, do not open the browser"
    )
    top.add_argument("--fleet", action="store_true", help="show the tasks of `travois fleet`")
    top.add_argument("--json", action="store_true", help="print the data of the page as JSON")
    top.set_defaults(run=run_inspect)


def run_inspect(args: Namespace) -> int:
    """Open the inspector on one session, or on all if there is none here."""
    session = "" if args.fleet else _find_session_id(args.session)
    if args.json:
        question = "fleet" if args.fleet else "overview" if session else "sessions"
        told = InspectorApi(locate_home_and_project()[0]).answer_question(
            question, {"session": session}
        )
        print_line(msgspec.json.encode(told).decode())
        return 0
    try:
        from travois.inspector import server
    except ImportError as error:
        raise UserError(
            "The page needs packages that are not installed",
            why=f"{error.name} is missing",
            fix=installation.extra_command("web"),
        ) from error
    home, _ = locate_home_and_project()
    keys, goal = server.create_access_keys(), f"#session={quote(session)}" if session else ""
    goal = "#fleet=all" if args.fleet else goal
    with server.listen_on_loopback(args.port) as door:
        port = door.getsockname()[1]
        place = f"http://127.0.0.1:{port}/{keys.path}/enter?token="
        print_line(f"{place}{keys.printed}{goal}\nPress Ctrl-C to stop.")
        sys.stdout.flush()
        if not args.no_open and has_screen(os.environ):
            webbrowser.open(f"{place}{keys.opened}{goal}")
        server.serve_page(server.create_page_app(home, keys, port=port), door)
    return 0


def has_screen(environ: Mapping[str, str]) -> bool:
    """Return whether the user would see a browser opened for the inspector."""
    if any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY")):
        return False
    return sys.platform == "darwin" or bool(
        environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    )


def _find_session_id(text: str) -> str:
    """Return the session to inspect: the named one, else the last one here; empty if none."""
    try:
        return pick_session(text)[1].id
    except UserError:
        if text:
            raise
        return ""
