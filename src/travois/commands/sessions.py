"""`travois sessions`: list, show, export, rename and prune."""

from __future__ import annotations

import os
import sys
import time
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

import msgspec

from travois.commands.export import SessionDocument, describe_document, export_session, render_part
from travois.commands.sessions_diff import show_diff
from travois.core.errors import UserError
from travois.core.facts import Changed
from travois.presentation import document_parts
from travois.sessions import blobs, catalog, lock
from travois.sessions.blobs import BlobStore
from travois.sessions.catalog import SessionSummary, find_session, list_sessions
from travois.sessions.home import (
    Project,
    TravoisHome,
    identify_project,
    locate_home,
)
from travois.sessions.log_file import DamagedPlace, SessionLog, read_history
from travois.settings.load import load_settings
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_age,
    format_size,
    format_table,
    print_json_list,
    print_line,
    print_warning,
    redact_secrets,
    style_text,
)

SESSIONS_HELP = """\
examples:
  travois sessions                      list sessions of this project, newest first
  travois sessions show 3f2a            show a conversation
  travois sessions diff 3f2a 91bc       compare two sessions
  travois sessions export 3f2a --format html -o talk.html
  travois sessions prune --older-than 90d --dry-run

Name a session by its id, an id prefix, or its name. Sessions stay with a project when its folder is
moved; --all lists those of every project.
"""
SESSIONS_DIFF_HELP = """\
If one is a fork of the other, or both are forks of a third, only what follows the fork is compared:
prompts, tool calls, tokens, cost, outcome, and changed files.
"""
SESSIONS_PRUNE_HELP = """\
Sessions move to the trash folder of your Travois home, and can be moved back; only --empty-trash
deletes them. Open sessions, and sessions that a fork depends on, are kept.
"""
AGE_UNIT_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def register_sessions(commands: CommandParsers) -> None:
    """Add the `travois sessions` command and its subcommands."""
    top = add_command(
        commands,
        "sessions",
        what="list, show, compare, export, rename and prune sessions",
        more=SESSIONS_HELP,
    )
    _add_list_flags(top, default=False)
    top.set_defaults(run=run_sessions_list)
    below = top.add_subparsers(metavar="command", title="commands")
    listing = add_command(below, "list", what="list sessions, newest first (the default)")
    _add_list_flags(listing, default=SUPPRESS)
    listing.set_defaults(run=run_sessions_list)
    show = _add_session_command(
        below, "show", what="print a conversation; long results are shortened"
    )
    _add_json_flag(show, "print log entries, one JSON object per line")
    show.set_defaults(run=run_sessions_show)
    document = _add_session_command(below, "export", what="export a conversation as a document")
    kinds = ("markdown", "json", "html", "claude")
    document.add_argument("--format", choices=kinds, default="markdown", help="default: markdown")
    document.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="default: standard output"
    )
    document.set_defaults(run=run_sessions_export)
    rename = _add_session_command(below, "rename", what="name a session, for --resume")
    rename.add_argument("name", metavar="NAME", help="the new name")
    rename.set_defaults(run=run_sessions_rename)
    _add_diff_flags(
        add_command(below, "diff", what="compare two sessions", more=SESSIONS_DIFF_HELP)
    )
    usage = add_command(below, "du", what="show disk usage")
    _add_json_flag(usage, "as JSON")
    usage.set_defaults(run=run_sessions_du)
    _add_prune_flags(
        add_command(below, "prune", what="move old sessions to the trash", more=SESSIONS_PRUNE_HELP)
    )


def _add_list_flags(parser: ArgumentParser, *, default: object) -> None:
    """Add the flags of `travois sessions list`."""
    add = parser.add_argument
    add("--all", action="store_true", default=default, help="sessions of every project")
    add("--json", action="store_true", default=default, help="print a JSON array")


def _add_json_flag(parser: ArgumentParser, what: str) -> None:
    """Add --json to a sessions subcommand without resetting the parent parser's value."""
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help=what)


def _add_session_command(commands: CommandParsers, name: str, *, what: str) -> ArgumentParser:
    """Add a subcommand of `travois sessions` that takes the id of a session."""
    parser = add_command(commands, name, what=what)
    parser.add_argument("session", metavar="ID", help="session id, id prefix or name")
    return parser


def _add_diff_flags(parser: ArgumentParser) -> None:
    """Add the arguments of `travois sessions diff`."""
    parser.add_argument("a", metavar="A", help="session id, id prefix or name")
    parser.add_argument("b", metavar="B", help="the other session")
    what = "show a diff of files that differ, from A to B"
    parser.add_argument("--patch", action="store_true", help=what)
    _add_json_flag(parser, "as JSON")
    parser.set_defaults(run=run_sessions_diff)


def _add_prune_flags(parser: ArgumentParser) -> None:
    """Add the flags of `travois sessions prune`."""
    add = parser.add_argument
    add("--older-than", type=_parse_age, metavar="AGE", help="unused for this long: 12h, 30d, 8w")
    add("--keep", type=int, default=0, metavar="N", help="always keep the newest N")
    add("--all", action="store_true", default=SUPPRESS, help="sessions of every project")
    add("--dry-run", action="store_true", help="show what would happen")
    add("--empty-trash", action="store_true", help="permanently delete everything in the trash")
    parser.set_defaults(run=run_sessions_prune)


def _parse_age(text: str) -> float:
    """Parse an age such as 30d to seconds, for pruning sessions."""
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in AGE_UNIT_SECONDS:
        raise ArgumentTypeError(f"{text!r} is not an age such as 12h, 30d or 8w")
    return int(number) * AGE_UNIT_SECONDS[unit]


# --- what they do --------------------------------------------------------------------------------


def run_sessions_list(args: Namespace) -> int:
    """List sessions."""
    home, project = locate_home_and_project()
    found = list_sessions(home, None if args.all else project.keys)
    if args.json:
        print_json_list(found)
        return 0
    if not found:
        print_line("This project has no sessions yet." if not args.all else "No sessions yet.")
        print_line("`travois` starts one; `travois sessions --all` lists all projects.")
        return 0
    print_line(
        format_table(
            [
                _session_table_heading(everywhere=args.all),
                *_session_rows(home, found, everywhere=args.all),
            ],
            right=(1, 2),
        )
    )
    return 0


def run_sessions_show(args: Namespace) -> int:
    """Print the conversation of a session."""
    home, project = locate_home_and_project()
    summary = find_session(home, args.session, project=project)
    skipped: list[DamagedPlace] = []
    entries = read_history(home.session_folder(summary.project, summary.id), skipped)
    if args.json:
        for entry in entries:
            print_line(msgspec.json.encode(entry).decode())
    else:
        print_line(style_text(escape_controls(summary.title), "bold"))
        print_line(escape_controls(describe_document(SessionDocument(summary, []))))
        for part in document_parts(entries):
            print_line(render_part(part))
    warn_skipped_lines(skipped)
    return 0


def run_sessions_export(args: Namespace) -> int:
    """Export a session to a file or standard output."""
    home, project = locate_home_and_project()
    summary = find_session(home, args.session, project=project)
    cwd = os.path.realpath(os.getcwd())
    load_settings(home, cwd, cwd=cwd, environ=os.environ)  # registers what settings keep secret
    skipped: list[DamagedPlace] = []
    entries = list(read_history(home.session_folder(summary.project, summary.id), skipped))
    document = SessionDocument(summary, entries, tuple(skipped))
    text = redact_secrets(export_session(document, args.format, fetch=BlobStore(home.blobs).get))
    warn_skipped_lines(skipped)
    data = text.encode("utf-8", "replace")
    if args.output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return 0
    path = Path(args.output)
    try:
        blobs.replace_file(path, data)
    except OSError as error:
        raise blobs.make_storage_error("Cannot write the document", error, path=path) from error
    print_line(f"{path} ({format_size(len(data))})")
    return 0


def run_sessions_diff(args: Namespace) -> int:
    """Compare two sessions."""
    home, project = locate_home_and_project()
    skipped: list[DamagedPlace] = []
    show_diff(args, home, project, skipped=skipped)
    warn_skipped_lines(skipped)
    return 0


def run_sessions_rename(args: Namespace) -> int:
    """Rename a session."""
    home, project = locate_home_and_project()
    name = " ".join(args.name.split())
    if not name:
        raise UserError("A name cannot be empty")
    summary = find_session(home, args.session, project=project)
    with SessionLog.open(home.session_folder(summary.project, summary.id)) as log:
        log.append(Changed("name", name))
        log.sync()
    print_line(f"Renamed {summary.id} to {escape_controls(name)}.")
    return 0


def run_sessions_du(args: Namespace) -> int:
    """Print the disk usage of sessions."""
    home, _ = locate_home_and_project()
    found = list_sessions(home)
    sizes = {s.id: catalog.session_size(home, s) for s in found}
    whole = {
        "sessions": sum(sizes.values()),
        "blobs": catalog.folder_size(home.blobs),
        "trash": catalog.folder_size(home.trash),
    }
    if args.json:
        print_line(msgspec.json.encode({"home": str(home.path), **whole, "each": sizes}).decode())
        return 0
    largest = sorted(found, key=lambda summary: -sizes[summary.id])[:10]
    rows = [
        (s.id[:8], format_size(sizes[s.id]), escape_controls(s.title, lines="show"))
        for s in largest
    ]
    if rows:
        print_line(format_table([("ID", "SIZE", "LARGEST SESSIONS"), *rows], right=(1,)))
        print_line()
    total = ", ".join(f"{name} {format_size(size)}" for name, size in whole.items())
    print_line(f"{home.path}: {total} ({len(found)} sessions)")
    return 0


def run_sessions_prune(args: Namespace) -> int:
    """Move old sessions to the trash, or empty the trash."""
    home, project = locate_home_and_project()
    if args.older_than is None and not args.empty_trash:
        raise UserError(
            "Specify which sessions to prune",
            fix="For example: travois sessions prune --older-than 30d --dry-run",
        )
    if args.older_than is not None:
        _prune_sessions(home, project, args)
    if args.empty_trash:
        _empty_trash(home, dry=args.dry_run)
    return 0


def _prune_sessions(home: TravoisHome, project: Project, args: Namespace) -> None:
    """Move sessions that were unused for long to the trash, and list those kept."""
    everything = list_sessions(home)
    here = [s for s in everything if args.all or s.project in project.keys]
    plan = catalog.plan_pruning(
        here, everything, before=time.time() - args.older_than, keep=args.keep
    )
    freed = 0
    for summary in plan.doomed:
        freed += _discard_session(home, summary, dry=args.dry_run)
    for kept in plan.kept:
        print_line(f"kept   {kept.summary.id[:8]}  {kept.because}")
    verb = "would be moved" if args.dry_run else "moved"
    print_line(f"{format_size(freed)} {verb} to the trash: {home.trash}")


def _discard_session(home: TravoisHome, summary: SessionSummary, *, dry: bool) -> int:
    """Move one session to the trash; return its size, or zero if it must stay."""
    folder = home.session_folder(summary.project, summary.id)
    size = catalog.session_size(home, summary)
    if lock.find_lock_holder(folder) is not None:
        print_line(f"kept   {summary.id[:8]}  it is open")
        return 0
    if not dry:
        catalog.trash_session(home, summary)
    old = format_age(time.time() - summary.updated)
    title = escape_controls(summary.title, lines="show")[:60]
    done = "would move" if dry else "trashed"
    print_line(f"{done}  {summary.id[:8]}  {format_size(size)}, {old}  {title}")
    return size


def _empty_trash(home: TravoisHome, *, dry: bool) -> None:
    """Delete the sessions in the trash for good, or only print their size."""
    if dry:
        print_line(f"{format_size(catalog.folder_size(home.trash))} in the trash would be deleted.")
        return
    print_line(f"{format_size(catalog.empty_trash(home, now=time.time()))} permanently deleted.")


# --- what they share -----------------------------------------------------------------------------


def locate_home_and_project() -> tuple[TravoisHome, Project]:
    """Return Travois's home folder, and the project of the current folder."""
    home = locate_home(os.environ)
    return home, identify_project(home, os.getcwd())


def warn_skipped_lines(skipped: list[DamagedPlace]) -> None:
    """Warn about the lines of a session log that could not be read."""
    for bad in skipped[:10]:
        print_warning(f"{bad.file}: skipped line {bad.line} (byte {bad.offset}): {bad.reason}")
    if len(skipped) > 10:
        print_warning(f"and {len(skipped) - 10} more damaged lines")


def _session_table_heading(*, everywhere: bool) -> tuple[str, ...]:
    return ("ID", "TURNS", "SIZE", "UPDATED", *(("FOLDER",) if everywhere else ()), "SESSION")


def _session_rows(
    home: TravoisHome, found: list[SessionSummary], *, everywhere: bool
) -> list[tuple[str, ...]]:
    """Build the rows of a table of sessions; `everywhere` adds their folders."""
    length = _id_length([summary.id for summary in found])
    return [
        (
            summary.id[:length],
            str(summary.turns),
            format_size(summary.size),
            format_age(time.time() - summary.updated) if summary.updated else "?",
            *((_shorten_home(summary.cwd),) if everywhere else ()),
            _session_title(home, summary),
        )
        for summary in found
    ]


def _id_length(ids: list[str]) -> int:
    """Return how many characters of a session ID distinguish all sessions."""
    length = 8
    while len({id[:length] for id in ids}) < len(set(ids)):
        length += 1
    return length


def _shorten_home(cwd: str) -> str:
    """Return a session's folder with ~ for the home."""
    person = os.environ.get("HOME", "")
    inside = person and (cwd + "/").startswith(person + "/")
    return escape_controls("~" + cwd[len(person) :] if inside else cwd, lines="show")


def _session_title(home: TravoisHome, summary: SessionSummary) -> str:
    """Return a session's title for tables, marked if it is open, damaged or a fork."""
    marks = [f"! {summary.trouble}"] if summary.trouble else []
    if lock.find_lock_holder(home.session_folder(summary.project, summary.id)) is not None:
        marks = ["open"]  # a line that is being written only looks torn
    if summary.parent:
        marks.append(f"fork of {summary.parent[:8]}")
    note = style_text(f" [{', '.join(marks)}]", "yellow") if marks else ""
    return escape_controls(summary.title, lines="show") + note
