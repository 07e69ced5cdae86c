"""`travois audit`: check that every request of a session can be derived from its log."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from travois.commands.context import derive_request
from travois.commands.sessions import locate_home_and_project, warn_skipped_lines
from travois.core.facts import Entry, Restored, Rewound, Sent
from travois.core.legality import find_send_blocker
from travois.core.view import View, project_view
from travois.providers.encoder import RequestEncoder
from travois.providers.request import PrefixBreak, Request
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import find_session
from travois.sessions.log_file import DamagedPlace, read_history
from travois.terminal import CommandParsers, add_command, print_line

FetchBlob = Callable[[str], bytes]
AUDIT_HELP = """\
What the model sees depends only on the log. For each request in the log, the entries before it are
encoded again, and the parts, digests and size are compared with those sent.
Exit code 0: all requests match. 1: a request differs, or the log is damaged.
"""


def register_audit(commands: CommandParsers) -> None:
    """Add the `travois audit` command."""
    top = add_command(
        commands, "audit", what="check from the log what a session sent", more=AUDIT_HELP
    )
    top.add_argument("session", metavar="ID", help="session id, id prefix or name")
    top.add_argument("--cold", action="store_true", help="rebuild each request from scratch (slow)")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_audit)


def run_audit(args: Namespace) -> int:
    """Check that every request of a session can be derived from its log."""
    home, project = locate_home_and_project()
    summary = find_session(home, args.session, project=project)
    skipped: list[DamagedPlace] = []
    entries = read_history(home.session_folder(summary.project, summary.id), skipped)
    fetch = BlobStore(home.blobs).get
    checked = list((check_requests_from_scratch if args.cold else check_requests)(entries, fetch))
    wrong = [request for request in checked if request.problem]
    if args.json:
        told = {"session": summary.id, "requests": len(checked), "wrong": wrong, "lost": skipped}
        print_line(msgspec.json.encode(told).decode())
    else:
        for request in wrong:
            print_line(f"entry {request.seq}: {request.problem}")
        print_line(f"{len(checked)} requests checked, {len(wrong)} differ from what was sent")
        warn_skipped_lines(skipped)
    return 1 if wrong or skipped else 0


def check_requests(entries: Iterable[Entry], fetch: FetchBlob) -> Iterator[RequestCheck]:
    """Yield each request of a session, from one view and one encoder that grow with it."""
    view, encoder, past = View(), RequestEncoder(fetch), list[Entry]()
    for entry in entries:
        if isinstance(entry.fact, Sent):
            yield RequestCheck(entry.seq, _find_request_problem(view, entry.fact, encoder))
        past.append(entry)
        if isinstance(entry.fact, Rewound | Restored):
            view = project_view(past)
        else:
            view.add(entry)


def check_requests_from_scratch(
    entries: Iterable[Entry], fetch: FetchBlob
) -> Iterator[RequestCheck]:
    """Yield each request of a session, from the entries before it and nothing else."""
    past: list[Entry] = []
    for entry in entries:
        if isinstance(entry.fact, Sent):
            yield RequestCheck(
                entry.seq,
                _find_request_problem(project_view(past), entry.fact, RequestEncoder(fetch)),
            )
        past.append(entry)


def _find_request_problem(view: View, sent: Sent, encoder: RequestEncoder) -> str:
    """Explain why an audited request cannot be derived, or how it differs; else empty."""
    if why := find_send_blocker(view):
        return f"could not have been sent: {why}"
    try:
        return describe_request_difference(derive_request(view, sent, encoder), sent)
    except PrefixBreak as error:
        return str(error)


def describe_request_difference(request: Request, sent: Sent) -> str:
    """Describe how a derived request differs from the one that was sent."""
    again = replace(
        sent,
        pieces=request.pieces,
        chain=request.chain,
        digest=request.digest,
        size=len(request.body),
    )
    return ", ".join(
        f"{name}: sent {was!r}, derived {now!r}"
        for name in sent.__struct_fields__
        if (was := getattr(sent, name)) != (now := getattr(again, name))
    )


class RequestCheck(msgspec.Struct, frozen=True):
    """One request derived again; `problem` is empty if it is what was sent."""

    seq: int
    problem: str
