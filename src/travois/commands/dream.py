"""`travois dream`: consolidate memories, and show past consolidations."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec

from travois.compose.dreaming import (
    DreamStatus,
    ProjectDreams,
    compose_dreaming,
    list_recent_logs,
    read_dream_status,
)
from travois.compose.options import Options
from travois.compose.session import compose_session, load_workspace
from travois.core.errors import UserError
from travois.core.facts import Changed, Entry, Noted
from travois.engine.agent import Agent
from travois.memory.dreaming import lock
from travois.memory.dreaming.consolidate import DreamResult
from travois.ports.world import Event, ToolStarted
from travois.terminal import (
    CommandParsers,
    add_command,
    escape_controls,
    format_age,
    print_json,
    print_json_list,
    print_line,
    print_warning,
    style_text,
)

DREAM_HELP = """\
  travois dream                  show recent consolidations, and when the next one is due
  travois dream --now            consolidate memories now, and show the changes
  travois dream --now --dry-run  only show what would change
  travois dream --stop           stop the running consolidation; memories stay unchanged

A consolidation starts by itself in the background of a terminal session, at most once a day and
after several sessions (settings memory.dream). `travois agents show ID` shows its full log, even
while it runs; `travois memory undo ID` undoes its changes.
"""
MAX_SHOWN_RUNS = 5
STOP_TIMEOUT_SECONDS = 10.0
"""The number of seconds to wait for a stopping consolidation."""


def register_dream(commands: CommandParsers) -> None:
    """Add the `travois dream` command."""
    top = add_command(
        commands, "dream", what="consolidate memories between sessions", more=DREAM_HELP
    )
    what = top.add_mutually_exclusive_group()
    what.add_argument("--now", action="store_true", help="consolidate memories now")
    what.add_argument("--stop", action="store_true", help="stop the running consolidation")
    what.add_argument(
        "--status", action="store_true", help="show recent consolidations (the default)"
    )
    top.add_argument("--dry-run", action="store_true", help="show what --now would change")
    top.add_argument("--rules", action="store_true", help="use rules only, no model")
    top.add_argument("--model", default="", metavar="NAME", help="model to use")
    top.add_argument("--settings", default="", metavar="FILE|JSON", help="extra settings")
    top.add_argument("--json", action="store_true", help="as JSON")
    top.set_defaults(run=run_dream)


def run_dream(args: Namespace) -> int:
    """Start, show or stop a memory consolidation."""
    options = Options(
        cwd=os.getcwd(), model=args.model, settings=args.settings, persist=False, mode="plan"
    )
    nights = compose_dreaming(*load_workspace(options))
    if args.stop:
        return stop_consolidation(nights, json=args.json)
    if not args.now and not args.dry_run:
        return show_consolidations(nights, json=args.json)
    if not nights.folder.is_dir():
        raise UserError("This project has no memories", fix="See `travois memory --help`.")
    shown = nights if args.json else msgspec.structs.replace(nights, tell=show_progress)
    over = anyio.run(_run_consolidation, shown, args, options)
    print_line(
        msgspec.json.encode(over).decode()
        if args.json
        else render_consolidation(over, dry=args.dry_run)
    )
    return 0 if over.state == "completed" else 1


async def _run_consolidation(
    nights: ProjectDreams, args: Namespace, options: Options
) -> DreamResult:
    """Run a memory consolidation now; with --dry-run, in a temporary folder."""
    seen = lock.read_lock_state(nights.folder)
    async with AsyncExitStack() as stack:
        parent = "as asked" if args.rules else await _find_parent_agent(options, stack)
        if args.dry_run:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="travois-"))) / "dream"
            await nights.run_in_folder(parent, folder, manner="show")
            return read_dream_status(folder).dreamt
        mine = nights.claim(seen)
        if mine is None:
            raise UserError(
                "A consolidation is already running or has just finished",
                fix="`travois dream` shows its progress; `travois dream --stop` stops it.",
                code=1,
            )
        return await nights.run(parent, mine)


async def _find_parent_agent(options: Options, stack: AsyncExitStack) -> Agent | str:
    """Return the agent that pays and provides tools; or why no model can be used."""
    try:
        runtime = await compose_session(options)
    except UserError as fault:
        return fault.what
    stack.push_async_callback(runtime.aclose)
    return runtime.agent


def show_progress(event: Event) -> None:
    """Show the progress of a consolidation."""
    match event:
        case Entry(fact=Changed(what="phase", value=phase)):
            print_line(style_text(f"{phase} …", "bold"))
        case Entry(fact=Noted(what="dream", text=text)):
            print_line(f"  {escape_controls(text, lines='show')}")
        case ToolStarted(name=name):
            print_line(style_text(f"  · {name}", "dim"))
        case _:
            pass


def render_consolidation(over: DreamResult, *, dry: bool) -> str:
    """Return the result of a consolidation as text."""
    lines = [escape_controls(over.diff)] if over.diff else []
    lines += (f"- {escape_controls(step, lines='show')}" for step in over.steps)
    lines += (
        f"- needs your decision: {escape_controls(one, lines='show')}" for one in over.proposed
    )
    lines += (f"- rejected: {escape_controls(one, lines='show')}" for one in over.refused)
    if over.alone:
        lines.append(f"Used rules only, no model: {escape_controls(over.alone, lines='show')}.")
    if over.state != "completed":
        lines.append(f"{over.state.capitalize()}: {over.why or 'it was stopped'}. Nothing changed.")
    elif not over.files:
        lines.append("Nothing to consolidate.")
    elif dry:
        lines.append("Nothing was changed. This is what --now would do.")
    else:
        lines.append(f"Changed: {', '.join(over.files)}. Undo: travois memory undo {over.id}")
    return "\n".join(lines)


def show_consolidations(nights: ProjectDreams, *, json: bool) -> int:
    """Print recent consolidations and when the next one is due."""
    found = nights.list_statuses()[:MAX_SHOWN_RUNS]
    if json:
        print_json_list(found)
        return 0
    for one in found:
        print_line(_describe_consolidation(one))
    seen, gates = lock.read_lock_state(nights.folder), nights.gates
    last = format_age(time.time() - seen.last_time) if seen.last_time else "never"
    since = len(list_recent_logs(nights.place, seen.last_time))
    print_line(f"Last consolidation: {last}; {since} sessions since.")
    due = f"Runs automatically after {gates.hours:g} hours and {gates.sessions} sessions."
    print_line(
        due if gates.enabled else "Never runs automatically (memory.dream.enabled is false)."
    )
    return 0


def _describe_consolidation(status: DreamStatus) -> str:
    """Describe a memory consolidation in one line, with the command that undoes it."""
    state = (
        f"{status.state}, {status.stage} ({status.phase})"
        if status.state == "running"
        else status.state
    )
    touched = f"; changed {', '.join(status.dreamt.files)}" if status.dreamt.files else ""
    undo = f"; undo: travois memory undo {status.dreamt.id}" if status.dreamt.id else ""
    why = f": {status.dreamt.why}" if status.dreamt.why else ""
    return escape_controls(
        f"{status.id}  {format_age(time.time() - status.began)}  {state}{why}{touched}{undo}",
        lines="show",
    )


def stop_consolidation(nights: ProjectDreams, *, json: bool = False) -> int:
    """Stop the running consolidation, and wait for its end."""
    running = nights.stop()
    if running is None:
        print_json({"id": None, "state": "none"}) if json else print_line(
            "No consolidation is running."
        )
        return 0
    until = time.monotonic() + STOP_TIMEOUT_SECONDS
    while time.monotonic() < until:
        over = read_dream_status(nights.logs / running.id)
        if over.state != "running":
            same = "; memories are unchanged" if over.state == "killed" else ""
            if json:
                print_json({"id": running.id, "state": over.state})
            else:
                print_line(f"{running.id}: {over.state}{same}.")
            return 0
        time.sleep(0.1)
    if json:
        print_json({"id": running.id, "state": "running"})
    print_warning(f"{running.id} was asked to stop but is still running")
    return 1
