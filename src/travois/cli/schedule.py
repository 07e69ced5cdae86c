"""`travois schedule`: tasks that the fleet runs again and again."""

from __future__ import annotations

from argparse import Namespace

from travois.cli.fleet import (
    FleetParsers,
    add_queue_command,
    add_template_flags,
    open_queue_store,
    read_named_tasks,
)
from travois.core.errors import UserError
from travois.lazy_imports import lazy_imports
from travois.terminal import CommandParsers, add_command, add_json_flag

with lazy_imports():
    from travois.fleet import schedules

SCHEDULE_HELP = """\
  travois schedule add "0 3 * * *" tasks.jsonl            every day at 3:00 UTC
  travois schedule add @weekly tasks.jsonl --id weekly    Sunday at 0:00
  travois schedule ls                                     when each is due
  travois schedule rm weekly                              no more of it

A schedule is five fields: minute, hour, day of the month, month, weekday. The tasks are read now;
changing the file changes nothing. `travois fleet worker` (or `fleet run`, while it runs) submits
and runs what is due.
"""


def register_schedule(commands: CommandParsers) -> None:
    """Add the `travois schedule` command."""
    top = add_command(
        commands,
        "schedule",
        what="submit tasks to the fleet again and again, such as every night",
        more=SCHEDULE_HELP,
    )
    inner: FleetParsers = top.add_subparsers(required=True, metavar="COMMAND")
    add = add_queue_command(inner, "add", "submit tasks at each time of a schedule", run_add)
    add.add_argument("cron", metavar="WHEN", help='such as "0 3 * * *" or @daily')
    add.add_argument("file", nargs="?", default="", help="tasks as JSONL or YAML; - for stdin")
    add.add_argument("--id", default="", metavar="NAME", help="its name (default: a hash of it)")
    add.add_argument("--timezone", default="UTC", metavar="NAME", help="default: UTC")
    add_template_flags(add)
    add_json_flag(add_queue_command(inner, "ls", "list schedules", run_ls))
    remove = add_queue_command(inner, "rm", "remove schedules; submitted tasks stay", run_rm)
    remove.add_argument("ids", nargs="+", metavar="ID")


def run_add(args: Namespace) -> int:
    """Add a schedule."""
    tasks = read_named_tasks(args)
    if not tasks:
        raise UserError("No tasks were given", fix="Name a file, or --repos and --prompt-file.")
    queue = open_queue_store(args)
    schedules.add_schedule(queue, args.cron, tasks, id=args.id, timezone=args.timezone)
    return 0


def run_ls(args: Namespace) -> int:
    """List schedules."""
    schedules.print_schedules(open_queue_store(args), as_json=args.json)
    return 0


def run_rm(args: Namespace) -> int:
    """Remove schedules."""
    schedules.remove_schedules(open_queue_store(args), args.ids)
    return 0
