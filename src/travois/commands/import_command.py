"""`travois import`: import settings, memories and sessions from another agent."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from travois.commands.sessions import locate_home_and_project
from travois.compat.sessions import SESSION_SOURCES
from travois.core.errors import UserError
from travois.importing.plan import IMPORT_PARTS, ImportPart, ImportPlan
from travois.importing.run import (
    IMPORT_PLANNERS,
    ImportPreview,
    ImportRequest,
    ImportResult,
    format_session_count,
    import_agent_data,
    preview_import,
)
from travois.importing.sessions import recognize_session_file
from travois.sessions.home import Project, TravoisHome
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_table,
    print_line,
    print_warning,
    style_text,
)

IMPORT_HELP = """\
examples:
  travois import                        list the agents found here, and what they store
  travois import claude --dry-run       show what would be imported; nothing is written
  travois import claude                 show the same, then ask
  travois import codex --only sessions,mcp --yes
  travois import opencode --here        only sessions of this project
  travois import talk.jsonl             import one recorded session

The other agent's files are only read. Your own settings and files are not overwritten, secrets are
not copied, and sessions are imported only once. docs/import.md lists what carries over.
"""
MAX_KEPT_ROWS = 8
"""The number of kept items of one kind to list."""


def register_import(commands: CommandParsers) -> None:
    """Add the `travois import` command."""
    top = add_command(
        commands,
        "import",
        what="import settings, memories and sessions from another agent",
        more=IMPORT_HELP,
    )
    add = top.add_argument
    add("sources", nargs="*", metavar="AGENT|FILE", help=", ".join(IMPORT_PLANNERS))
    add("--dry-run", action="store_true", help="show what would be imported")
    add("--only", default="", metavar="LIST", help=f"import only these: {', '.join(IMPORT_PARTS)}")
    add("--session", default="", metavar="ID", help="only this session of the other agent")
    add("--here", action="store_true", help="only sessions of this project")
    add("--yes", action="store_true", help="do not ask")
    add("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_import)


def run_import(args: Namespace) -> int:
    """Import, or preview the import; exit code 1 if a session could not be read."""
    home, project = locate_home_and_project()
    if not args.sources:
        return _list_importable_agents(home, args)
    failed = 0
    for wish in _import_requests(args, project):
        outlook = preview_import(home, project, request=wish, progress=_show_import_progress)
        if args.json:
            print_line(_import_plan_json(outlook))
        else:
            _show_import_plan(outlook, every=args.dry_run)
        if not args.dry_run and outlook.has_work and _confirm_import(args, outlook):
            done = import_agent_data(
                home.prepare(),
                project,
                outlook=outlook,
                progress=_show_import_progress,
                complain=_warn_cleaned,
            )
            failed += done.failed
            print_line(msgspec.json.encode(done).decode()) if args.json else _show_import_result(
                done
            )
    return 1 if failed else 0


def _list_importable_agents(home: TravoisHome, args: Namespace) -> int:
    """Print the agents on this machine that `travois import` can import from."""
    found: list[tuple[str, int, int]] = []
    for agent, plan in IMPORT_PLANNERS.items():
        luggage, count = (
            ImportPlan(home),
            sum(1 for _ in SESSION_SOURCES[agent].find_sessions(os.environ)),
        )
        try:
            plan(luggage, os.environ)
        except UserError as fault:
            _warn_cleaned(str(fault))
        if count or luggage.lines:
            found.append((agent, count, len(luggage.lines)))
    if args.json:
        told = [{"agent": agent, "sessions": count, "things": more} for agent, count, more in found]
        print_line(msgspec.json.encode(told).decode())
        return 0
    rows = [(one, f"{count:,}", str(more), f"travois import {one}") for one, count, more in found]
    head = ("AGENT", "SESSIONS", "SETTINGS AND FILES", "NEXT")
    print_line(
        format_table([head, *rows], right=(1, 2)) if rows else "No other agent was found here."
    )
    return 0


def _import_requests(args: Namespace, project: Project) -> Iterator[ImportRequest]:
    """Yield an import request for each agent or session file that was named."""
    strange = [one for one in filter(None, args.only.split(",")) if one.strip() not in IMPORT_PARTS]
    if strange:
        raise UserError(
            f"Cannot import {strange[0]!r}", fix=f"--only takes: {', '.join(IMPORT_PARTS)}"
        )
    named = ["sessions"] if args.session else [one.strip() for one in args.only.split(",")]
    only: tuple[ImportPart, ...] = tuple(
        part for part in IMPORT_PARTS if part in named or not (args.only or args.session)
    )
    for source in args.sources:
        where = project if args.here else None
        if source in IMPORT_PLANNERS:
            there = SESSION_SOURCES[source].find_sessions(os.environ) if "sessions" in only else ()
            found = tuple(one for one in there if args.session in one.path.stem)
            yield ImportRequest(source, found, only, where)
        elif os.path.isfile(source) or os.path.isdir(source):
            yield ImportRequest("", (recognize_session_file(Path(source)),), ("sessions",))
        else:
            fix = f"Name one of {', '.join(IMPORT_PLANNERS)}, or the file of a session."
            raise UserError(f"{source} is neither an agent nor a file", fix=fix)


def _show_import_plan(outlook: ImportPreview, *, every: bool) -> None:
    """Show the import plan as a table; translated and skipped items are always listed."""
    rows = [("WHAT", "NAME", "HOW", "WHERE, OR WHY NOT")]
    plain = Counter[ImportPart]()
    for line in sorted(outlook.lines, key=lambda line: IMPORT_PARTS.index(line.part)):
        plain[line.part] += line.fate == "kept"
        if every or line.fate != "kept" or plain[line.part] <= MAX_KEPT_ROWS:
            told = " - ".join(filter(None, (line.where, line.why)))
            rows.append((line.part, _clean_line(line.name), line.fate, _clean_line(told)))
    if not every:
        more = (
            (part, number - MAX_KEPT_ROWS)
            for part, number in plain.items()
            if number > MAX_KEPT_ROWS
        )
        rows += [(part, f"{number} more", "kept", "") for part, number in more]
    print_line(format_table(rows) if rows[1:] else "Nothing to import.")
    if rows[1:]:
        count = Counter(line.fate for line in outlook.lines)
        what = " · ".join(f"{number} {fate}" for fate, number in count.items())
        print_line(f"\n{what}" + ("" if outlook.has_work else "; everything is already here"))


def _clean_line(text: str) -> str:
    return escape_controls(text, lines="show")


def _confirm_import(args: Namespace, outlook: ImportPreview) -> bool:
    """Ask before importing settings, memories and sessions, unless --yes is given."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(
            "Cannot ask: standard input is not a terminal",
            fix="Use --yes, or --dry-run to preview.",
        )
    things = [format_session_count(len(outlook.new_sessions))] if outlook.new_sessions else []
    things += [f"{outlook.memories:,} memories"] if outlook.memories else []
    things += [f"{len(outlook.luggage.copies):,} files"] if outlook.luggage.copies else []
    sys.stdout.write(f"\nImport {', '.join(things)}? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show_import_result(result: ImportResult) -> None:
    """Print how many files, memories and sessions were imported, and how to undo it."""
    if result.kept:
        print_line(
            f"Wrote {result.files} files; {result.kept} lists them and holds the old versions."
        )
    if result.undo:
        print_line(f"Memories imported. Undo: travois memory undo {result.undo}")
    if result.imported:
        go_on = style_text(f"travois --resume {result.imported[-1]}", "bold")
        count = format_session_count(len(result.imported))
        print_line(f"Imported: {count}. Resume the last one with {go_on}")


def _warn_cleaned(why: str) -> None:
    print_warning(_clean_line(why))


def _show_import_progress(text: str) -> None:
    """Show the progress of an import on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")


def _import_plan_json(outlook: ImportPreview) -> str:
    """Build the JSON preview of an import."""
    told = {
        "agent": outlook.wish.agent,
        "things": outlook.lines,
        "sessions": [
            {
                "id": one.id,
                "path": str(one.found.path),
                "title": one.title,
                "cwd": one.cwd,
                "turns": one.turns,
                "known": one.known,
            }
            for one in outlook.sessions
        ],
    }
    return msgspec.json.encode(told).decode()
