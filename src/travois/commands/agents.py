"""`travois agents`: list agent types, and watch the subagents of a session."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import msgspec

from travois.agents.activity import describe_activity
from travois.agents.agent_files import load_agent_types
from travois.agents.mailbox import Mailbox
from travois.commands.export import render_part
from travois.commands.sessions import locate_home_and_project, warn_skipped_lines
from travois.compose.dreaming import DREAM_KIND, DREAM_LABEL, list_dream_folders, read_dream_status
from travois.compose.mail import STOP_SENDER
from travois.compose.options import Options
from travois.compose.session import load_workspace
from travois.core.cache_audit import SessionSpending
from travois.core.content import extract_calls
from travois.core.errors import UserError
from travois.core.facts import Assistant, Changed, Entry, Finished, Spawned
from travois.presentation import document_parts
from travois.sessions import lock
from travois.sessions.catalog import find_newest_session, find_session
from travois.sessions.log_file import LOG_FILE_NAME, DamagedPlace, read_entries
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_age,
    format_table,
    print_json,
    print_json_list,
    print_line,
    print_warning,
)

AGENTS_FOLDER_NAME = "agents"
AGENTS_HELP = """\
  travois agents                     subagents of the last session of this folder, as a tree
  travois agents SESSION             of another session: id, id prefix or name
  travois agents show ID [SESSION]   show what a subagent said and did
  travois agents tell ID TEXT        send a message to a subagent of the last session
  travois agents stop ID             stop a subagent at its next step; it reports what it has
  travois agents types               list agent types and the files that define them
"""
MIN_SHOWN_DOLLARS = 0.0005
"""Less than this many dollars is not shown."""


class AgentRow(msgspec.Struct, frozen=True):
    """One agent as its log tells of it."""

    id: str
    parent: str
    depth: int
    kind: str
    what: str
    name: str
    state: str
    tool: str
    """The last one it used."""
    doing: str
    tokens: int
    dollars: float
    started: float
    updated: float


class AgentLog(msgspec.Struct, frozen=True):
    """The log of one agent: its entries, spending, and the subagents it started."""

    entries: list[Entry]
    spent: SessionSpending
    spawned: dict[str, Spawned]
    finished: dict[str, str]


def register_agents(commands: CommandParsers) -> None:
    """Add the `travois agents` command."""
    what = "list agent types, and watch the subagents of a session"
    top = add_command(commands, "agents", what=what, more=AGENTS_HELP)
    top.add_argument(
        "words", nargs="*", metavar="...", help="a session, or show, tell, stop, types"
    )
    top.add_argument(
        "--json", action="store_true", help="print a JSON array; with show, one JSON entry per line"
    )
    top.set_defaults(run=run_agents)


def run_agents(args: Namespace) -> int:
    """Show, message or stop subagents for `travois agents`, as its arguments say."""
    match args.words:
        case []:
            return show_agent_tree("", json=args.json)
        case ["types"]:
            return show_agent_types(json=args.json)
        case ["show", id]:
            return show_agent(id, "", json=args.json)
        case ["show", id, session]:
            return show_agent(id, session, json=args.json)
        case ["tell", id, text]:
            return send_to_agent(id, text, sender="the user", json=args.json)
        case ["stop", id]:
            return send_to_agent(id, "", sender=STOP_SENDER, json=args.json)
        case [session]:
            return show_agent_tree(session, json=args.json)
        case _:
            raise UserError(
                "Invalid arguments for `travois agents`", fix="See `travois agents --help`."
            )


def send_to_agent(id: str, text: str, *, sender: str, json: bool) -> int:
    """Send a message or a stop request to a subagent of the last session of this folder."""
    folder = find_agent_folder(_find_session_folder(""), id)
    Mailbox(folder / "mail").put(sender, text)
    if json:
        print_json({"agent": id, "sent": "stop" if sender == STOP_SENDER else "message"})
    else:
        print_line(f"{id} receives it at its next step.")
    return 0


def show_agent_tree(session: str, *, json: bool) -> int:
    """Print the agents of a session, each below the one that started it."""
    skipped: list[DamagedPlace] = []
    folder = _find_session_folder(session)
    rows = [*iterate_agent_rows(folder, skipped), *_consolidation_rows(folder, skipped)]
    if json:
        print_json_list(rows)
    elif rows:
        print_line(format_table([AGENT_TABLE_HEADING, *map(_agent_row_cells, rows)], right=(3, 4)))
    else:
        print_line("This session has no subagents.")
    warn_skipped_lines(skipped)
    return 0


def show_agent(id: str, session: str, *, json: bool) -> int:
    """Print what a subagent said and did, without what a fork inherited."""
    skipped: list[DamagedPlace] = []
    told = read_entries(
        find_agent_folder(_find_session_folder(session), id) / LOG_FILE_NAME, skipped
    )
    if json:
        for entry in told:
            print_line(msgspec.json.encode(entry).decode())
    else:
        for part in document_parts(told):
            print_line(render_part(part))
    warn_skipped_lines(skipped)
    return 0


def show_agent_types(*, json: bool) -> int:
    """Print the agent types that can be started in this folder."""
    place, loaded = load_workspace(Options())
    trusted = loaded.trust == "trusted"
    found, notices = load_agent_types(place.home, place.project.root, place.cwd, trusted=trusted)
    if json:
        print_json_list(found)
    else:
        rows = [(k.name, k.origin, escape_controls(k.description, lines="show")) for k in found]
        print_line(format_table([("TYPE", "FROM", "FOR"), *rows]))
    for notice in notices:
        print_warning(notice)
    return 0


def iterate_agent_rows(session: Path, skipped: list[DamagedPlace]) -> Iterator[AgentRow]:
    """Yield the agents below a session, each before those that it started itself."""
    alive = lock.find_lock_holder(session) is not None
    yield from _rows_below(
        session, _read_agent_log(session, SessionSpending(), skipped), skipped, alive=alive
    )


def _consolidation_rows(session: Path, skipped: list[DamagedPlace]) -> Iterator[AgentRow]:
    """Yield the last consolidation of a session's project."""
    for path in list_dream_folders(_consolidation_folder(session))[:1]:
        night = read_dream_status(path)
        parent = AgentLog(
            [], SessionSpending(), {path.name: Spawned(path.name, DREAM_KIND, DREAM_LABEL)}, {}
        )
        parent.finished[path.name] = night.state
        row = _build_agent_row(
            path.name,
            _read_agent_log(path, SessionSpending(), skipped),
            parent,
            above="",
            depth=0,
            alive=False,
        )
        yield msgspec.structs.replace(row, doing=f"{night.stage}: {night.phase}")


def _consolidation_folder(session: Path) -> Path:
    """Return the folder with the consolidation logs of a session's project."""
    return session.parents[2] / "dreams" / session.parent.name


def _rows_below(
    folder: Path, parent: AgentLog, skipped: list[DamagedPlace], *, alive: bool, depth: int = 0
) -> Iterator[AgentRow]:
    """Yield a row for each subagent below a session or subagent, parents first."""
    order = {id: number for number, id in enumerate(parent.spawned)}
    for path in sorted(
        _agent_folders_in(folder), key=lambda path: (order.get(path.name, 0), path.name)
    ):
        told = _read_agent_log(path, parent.spent, skipped)
        above = folder.name if depth else ""
        yield _build_agent_row(path.name, told, parent, above=above, depth=depth, alive=alive)
        yield from _rows_below(path, told, skipped, alive=alive, depth=depth + 1)


def _build_agent_row(
    id: str, log: AgentLog, parent: AgentLog, *, above: str, depth: int, alive: bool
) -> AgentRow:
    """Build a subagent's row for `travois agents` from its own log and its parent's."""
    born = parent.spawned.get(id, Spawned(id, "?", ""))
    facts = [entry.fact for entry in log.entries]
    used = [
        c.name for fact in facts if isinstance(fact, Assistant) for c in extract_calls(fact.content)
    ]
    names = [f.value for f in facts if isinstance(f, Changed) and f.what == "name"]
    usage = log.spent.usage
    return AgentRow(
        id=id,
        parent=above,
        depth=depth,
        kind=born.kind,
        what=born.what,
        name=names[-1] if names else "",
        state=parent.finished.get(id) or ("running" if alive else "lost"),
        tool=used[-1] if used else "",
        doing=describe_activity(log.entries),
        tokens=usage.prompt + usage.output,
        dollars=log.spent.dollars,
        started=log.entries[0].at if log.entries else 0.0,
        updated=log.entries[-1].at if log.entries else 0.0,
    )


def _read_agent_log(
    folder: Path, spending: SessionSpending, skipped: list[DamagedPlace]
) -> AgentLog:
    """Read a subagent's log. A fork pays its parent's prices until it has a head of its own."""
    told = AgentLog(
        [*read_entries(folder / LOG_FILE_NAME, skipped)],
        SessionSpending(prices=spending.prices),
        {},
        {},
    )
    total = told.spent
    for entry in told.entries:
        total = total.after_entry(entry)
        if isinstance(entry.fact, Spawned):
            told.spawned[entry.fact.id] = entry.fact
        elif isinstance(entry.fact, Finished):
            told.finished[entry.fact.id] = entry.fact.outcome
    return msgspec.structs.replace(told, spent=total)


def _agent_folders_in(folder: Path) -> list[Path]:
    """List the folders of the subagents directly below a session or subagent."""
    try:
        return [
            path
            for path in (folder / AGENTS_FOLDER_NAME).iterdir()
            if (path / LOG_FILE_NAME).is_file()
        ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _find_session_folder(text: str) -> Path:
    """Find the folder of the named session, else of the newest one of this folder."""
    home, project = locate_home_and_project()
    if text:
        found = find_session(home, text, project=project)
    else:
        found = find_newest_session(home, project, cwd=os.path.realpath(os.getcwd()))
    return home.session_folder(found.project, found.id)


def find_agent_folder(folder: Path, id: str) -> Path:
    """Find the folder of a subagent of this session, at any depth."""
    waiting = _agent_folders_in(folder)
    while waiting:
        path = waiting.pop()
        if path.name == id:
            return path
        waiting += _agent_folders_in(path)
    if (_consolidation_folder(folder) / id / LOG_FILE_NAME).is_file():
        return _consolidation_folder(folder) / id
    raise UserError(
        f"Session {folder.name} has no agent {id!r}", fix="`travois agents` lists them."
    )


AGENT_TABLE_HEADING = (
    "AGENT",
    "TYPE",
    "STATE",
    "TOKENS",
    "COST",
    "STARTED",
    "LAST TOOL",
    "DOING",
    "TASK",
)


def _agent_row_cells(row: AgentRow) -> tuple[str, ...]:
    """Format a subagent's row for the table of `travois agents`."""
    label = f"{row.id} ({row.name})" if row.name else row.id
    return (
        f"{'  ' * row.depth}{escape_controls(label, lines='show')}",
        escape_controls(row.kind, lines="show"),
        escape_controls(row.state, lines="show"),
        f"{row.tokens:,}",
        f"${row.dollars:.3f}" if row.dollars >= MIN_SHOWN_DOLLARS else "",
        format_age(time.time() - row.started),
        escape_controls(row.tool, lines="show"),
        row.doing,
        escape_controls(row.what, lines="show"),
    )
