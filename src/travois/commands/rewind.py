"""`travois rewind`: restore files and conversation to an earlier turn."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher, unified_diff

from msgspec.structs import replace

from travois.commands.sessions import locate_home_and_project
from travois.core.errors import UserError
from travois.core.facts import Entry, Opened
from travois.sessions import blobs
from travois.sessions.catalog import SessionSummary, find_newest_session, find_session
from travois.sessions.home import TravoisHome
from travois.sessions.log_file import SessionLog, read_history
from travois.sessions.session import Session
from travois.snapshots import rewind
from travois.snapshots.rewind import RewindPlan
from travois.snapshots.snapshots import NO_SNAPSHOT, Snapshots, list_snapshot_marks, list_turns
from travois.snapshots.tree import PathChange
from travois.terminal import (
    CommandParsers,
    add_command,
    add_json_flag,
    check_json_flag,
    escape_controls,
    format_age,
    print_line,
    print_table,
    print_warning,
)

REWIND_HELP = """\
examples:
  travois rewind                 undo the last turn, after confirmation
  travois rewind --list          list the turns and snapshots to rewind to
  travois rewind --to 2          restore the state at the end of turn 2 (0: the start)
  travois rewind --to 2 --dry-run
  travois rewind --undo          undo the last rewind

Files that you changed since then are listed and kept; --overwrite restores them too. A snapshot is
taken first, so a rewind can be undone. Generated files (node_modules, caches) and files over 64 MB
are covered only if a command was about to destroy them.
"""
MAX_SHOWN_PATHS = 20
MAX_REWIND_DIFF_BYTES = 1 << 20
"""Files over this many bytes are not compared line by line."""


def register_rewind(commands: CommandParsers) -> None:
    """Add the `travois rewind` command."""
    top = add_command(
        commands,
        "rewind",
        what="restore files and conversation to an earlier turn",
        more=REWIND_HELP,
    )
    about = "session id, id prefix or name (default: the last one of this folder)"
    top.add_argument("session", nargs="?", default="", metavar="ID", help=about)
    _add_target_flags(top)
    only = top.add_mutually_exclusive_group()
    only.add_argument("--files-only", action="store_true", help="keep the conversation")
    only.add_argument("--conversation-only", action="store_true", help="keep the files")
    top.add_argument("--dry-run", action="store_true", help="show what would happen")
    top.add_argument("--yes", action="store_true", help="do not ask; keep your own changes")
    top.add_argument("--overwrite", action="store_true", help="also restore files you changed")
    top.set_defaults(run=run_rewind)


def _add_target_flags(top: ArgumentParser) -> None:
    """Add the flags that choose the turn or snapshot to rewind to."""
    group = top.add_mutually_exclusive_group()
    group.add_argument("--to", default="", metavar="N", help="end of turn N, or a snapshot")
    group.add_argument("--undo", action="store_true", help="undo the last rewind")
    group.add_argument("--list", action="store_true", help="list turns and snapshots")
    add_json_flag(top, "with --list: print a JSON array")


def run_rewind(args: Namespace) -> int:
    """Rewind a session, or list the turns and snapshots to choose from."""
    check_json_flag(args, is_listing=args.list)
    home, project = locate_home_and_project()
    summary = (
        find_session(home, args.session, project=project)
        if args.session
        else find_newest_session(home, project, cwd=os.path.realpath(os.getcwd()))
    )
    if args.list:
        _list_rewind_targets(
            list(read_history(home.session_folder(summary.project, summary.id), [])),
            as_json=args.json,
        )
        return 0
    try:
        return _rewind_session(args, home, summary)
    except OSError as error:
        raise blobs.make_storage_error("The rewind is incomplete", error, path=home.path) from error


def _rewind_session(args: Namespace, home: TravoisHome, summary: SessionSummary) -> int:
    """Plan a rewind, show it, ask for confirmation and apply it."""
    with SessionLog.open(home.session_folder(summary.project, summary.id)) as log:
        session = Session(log)
        entries = list(log.read())
        snapshots = _open_snapshots(home, summary, entries)
        way = _narrow_rewind(args, _plan_rewind(args, entries, snapshots))
        _show_rewind_plan(way, snapshots, diffs=args.dry_run)
        if args.dry_run or not _confirm_rewind(args):
            return 0 if args.dry_run else 1
        outcome = rewind.apply_rewind(session, snapshots, way)
    for trouble in outcome.failed:
        print_warning(f"not restored: {escape_controls(trouble, lines='show')}")
    kept = f", {len(way.theirs)} kept" if way.theirs else ""
    print_line(f"{outcome.restored} restored, {outcome.deleted} deleted{kept}.")
    return 1 if outcome.failed else 0


def _open_snapshots(
    home: TravoisHome, summary: SessionSummary, entries: Iterable[Entry]
) -> Snapshots:
    """Open the snapshots of the project that the session to rewind began in."""
    opened = next((e.fact for e in entries if isinstance(e.fact, Opened)), None)
    folder = opened.cwd if opened else summary.cwd
    return Snapshots(
        *(home.path, summary.project), folders=(folder,), tell=print_warning, own=home.folders
    )


def _plan_rewind(args: Namespace, entries: list[Entry], snapshots: Snapshots) -> RewindPlan:
    """Plan a rewind to the turn or snapshot of the flags, or the undo of the last one."""
    if args.undo:
        return rewind.plan_rewind_undo(entries, snapshots)
    if args.to and not args.to.isdecimal():
        return rewind.plan_rewind_to_snapshot(entries, snapshots, name=args.to)
    number = int(args.to) if args.to else len(list_turns(entries)) - 1
    part = "conversation" if args.conversation_only else "all"
    return rewind.plan_rewind_to_turn(entries, snapshots, number=number, part=part)


def _narrow_rewind(args: Namespace, plan: RewindPlan) -> RewindPlan:
    """Limit a rewind to files or conversation, as the flags say."""
    if args.files_only:
        plan = replace(plan, to=0)
    if args.conversation_only:
        plan = replace(plan, here=NO_SNAPSHOT, changes=(), theirs=())
    if args.overwrite:
        plan = replace(plan, changes=(*plan.changes, *plan.theirs), theirs=())
    return plan


def _confirm_rewind(args: Namespace) -> bool:
    """Ask before rewinding files and conversation, unless --yes is given."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(
            "Cannot ask: standard input is not a terminal",
            fix="Use --yes, or --dry-run to preview.",
        )
    sys.stdout.write("Rewind? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _list_rewind_targets(entries: list[Entry], *, as_json: bool) -> None:
    """Print the turns and snapshots of a session that it can be rewound to."""
    found, now = list_snapshot_marks(entries), time.time()
    heads = ("TURN", "WHEN", "SNAPSHOT", "WHAT")
    rows: list[tuple[str, str, str, str]] = []
    for turn in list_turns(entries):
        text = escape_controls(" ".join(turn.text.split())[:200])
        rows.append((str(turn.number), format_age(now - turn.at), "", text))
        after = [t.before for t in list_turns(entries) if t.number == turn.number + 1] or [1 << 62]
        inside = (mark for mark in found if turn.before < mark.seq <= after[0])
        rows += [("", "", mark.name, escape_controls(mark.why, lines="show")) for mark in inside]
    print_table(heads, rows, none="No turns.", as_json=as_json)


def _show_rewind_plan(plan: RewindPlan, snapshots: Snapshots, *, diffs: bool) -> None:
    """Show the plan: the first few paths, or all of them with changed line counts."""
    if plan.to:
        print_line("The conversation is rewound to before that prompt.")
    shown = plan.changes if diffs else plan.changes[:MAX_SHOWN_PATHS]
    for change in shown:
        size = _count_changed_lines(change, snapshots) if diffs else ""
        path = escape_controls(os.fsdecode(change.path), lines="show")
        print_line(f"  {_change_verb(change)}  {path}{size}")
    if len(shown) < len(plan.changes):
        print_line(f"  … and {len(plan.changes) - len(shown)} more")
    if not plan.changes:
        print_line("No files change.")
    if plan.theirs:
        print_warning(
            f"{len(plan.theirs)} paths changed outside the session are kept (see --overwrite):"
        )
        for change in plan.theirs[:MAX_SHOWN_PATHS]:
            print_warning(f"  {escape_controls(os.fsdecode(change.path), lines='show')}")


def _change_verb(change: PathChange) -> str:
    """Return the verb for a file in a rewind's plan: delete, restore or revert."""
    if change.new is None:
        return "delete "
    return "restore" if change.old is None else "revert "


def render_rewind_diff(plan: RewindPlan, snapshots: Snapshots, root: str) -> str:
    """Render what a rewind would change in the files as a unified diff."""
    return "\n".join(
        line for change in plan.changes for line in _diff_change(change, snapshots, root)
    )


def _diff_change(change: PathChange, snapshots: Snapshots, root: str) -> Iterator[str]:
    """Yield the diff of one file in a rewind, or a line that says what happens to it."""
    path = os.fsdecode(change.path).removeprefix(f"{root}/")
    name = escape_controls(path, lines="show")
    yield f"{_change_verb(change).strip()} {name}"
    nodes = (change.old, change.new)
    if any(node and (node.is_folder or node.size > MAX_REWIND_DIFF_BYTES) for node in nodes):
        return
    old, new = (snapshots.read_content(node).decode(errors="replace") for node in nodes)
    if "\0" not in old + new:
        lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
        yield from (line for line in lines if not line.startswith(("---", "+++")))


def _count_changed_lines(change: PathChange, snapshots: Snapshots) -> str:
    """Format how many lines a rewind would add to and remove from a file."""
    nodes = (change.old, change.new)
    if any(
        node is not None and (node.is_folder or node.size > MAX_REWIND_DIFF_BYTES) for node in nodes
    ):
        return ""
    old, new = (snapshots.read_content(node) for node in nodes)
    if b"\0" in old + new:
        return "  (binary)"
    before, after = old.splitlines(), new.splitlines()
    same = sum(b.size for b in SequenceMatcher(None, before, after).get_matching_blocks())
    return f"  +{len(after) - same} -{len(before) - same}"
