"""`travois audit`: derive every request of a session again, and compare it with what was sent."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from travois.cli.sessions import here, report
from travois.core.facts import Entry, Restored, Rewound, Sent
from travois.core.legality import unsendable
from travois.core.view import View, project
from travois.providers.encoder import Encoder
from travois.providers.ration import rationed
from travois.providers.request import PrefixBreak, Request
from travois.sessions.blobs import Blobs
from travois.sessions.catalog import find
from travois.sessions.log_file import Skipped, history
from travois.terminal.tables import Commands, command, say

Fetch = Callable[[str], bytes]
MORE = """\
What the model sees is a function of the log alone. For each request that the log says was sent, the
entries before it are projected and encoded again, and pieces, digests and size are compared. It
ends with 0 if all agree, with 1 if one does not or if the log is damaged.
"""


class Checked(msgspec.Struct, frozen=True):
    """One request derived again; `problem` is empty if it is what was sent."""

    seq: int
    problem: str


def register(commands: Commands) -> None:
    """Add the command."""
    top = command(commands, "audit", what="prove from its log what a session sent", more=MORE)
    top.add_argument("session", metavar="ID", help="id, beginning of an id, or name")
    top.add_argument("--cold", action="store_true", help="each request from scratch (slow)")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_audit)


def run_audit(args: Namespace) -> int:
    """Check every request of one session."""
    home, project = here()
    summary = find(home, args.session, project=project)
    skipped: list[Skipped] = []
    entries = history(home.session(summary.project, summary.id), skipped)
    fetch = Blobs(home.blobs).get
    checked = list((check_cold if args.cold else check)(entries, fetch))
    wrong = [request for request in checked if request.problem]
    if args.json:
        told = {"session": summary.id, "requests": len(checked), "wrong": wrong, "lost": skipped}
        say(msgspec.json.encode(told).decode())
    else:
        for request in wrong:
            say(f"entry {request.seq}: {request.problem}")
        say(f"{len(checked)} requests derived again, {len(wrong)} differ from what was sent")
        report(skipped)
    return 1 if wrong or skipped else 0


def check(entries: Iterable[Entry], fetch: Fetch) -> Iterator[Checked]:
    """Each request of a session, from one view and one encoder that grow with it."""
    view, encoder, past = View(), Encoder(fetch), list[Entry]()
    for entry in entries:
        if isinstance(entry.fact, Sent):
            yield Checked(entry.seq, _problem(view, entry.fact, encoder))
        past.append(entry)
        if isinstance(entry.fact, Rewound | Restored):
            view = project(past)
        else:
            view.add(entry)


def check_cold(entries: Iterable[Entry], fetch: Fetch) -> Iterator[Checked]:
    """Each request of a session, from the entries before it and nothing else."""
    past: list[Entry] = []
    for entry in entries:
        if isinstance(entry.fact, Sent):
            yield Checked(entry.seq, _problem(project(past), entry.fact, Encoder(fetch)))
        past.append(entry)


def _problem(view: View, sent: Sent, encoder: Encoder) -> str:
    """Why a request could not be derived again, or in what it differs from the one sent."""
    if why := unsendable(view):
        return f"could not have been sent: {why}"
    try:
        return difference(derived(view, sent, encoder), sent)
    except PrefixBreak as error:
        return str(error)


def derived(view: View, sent: Sent, encoder: Encoder) -> Request:
    """The request for this view, of which the log says how long a reply it asked for."""
    return rationed(encoder.request(view), sent.output)


def difference(request: Request, sent: Sent) -> str:
    """In what a derived request differs from the one that was sent."""
    again = replace(
        sent,
        pieces=request.pieces,
        chain=request.chain,
        digest=request.digest,
        size=len(request.body),
    )
    return ", ".join(
        f"{name} {was!r} was sent, {now!r} derived"
        for name in sent.__struct_fields__
        if (was := getattr(sent, name)) != (now := getattr(again, name))
    )
