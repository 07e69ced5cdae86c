"""`travois fleet`: many unattended tasks, on one machine or many."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from travois.core.errors import UserError
from travois.fleet.task import DATABASE_VARIABLE
from travois.lazy_imports import lazy_imports
from travois.sessions.home import locate_home
from travois.terminal import CommandParsers, add_command

with lazy_imports():
    from travois.files import installation
    from travois.fleet import command_sandbox, manage, serve, store, task, worker
    from travois.process import parent_watch

FLEET_PACKAGES = ("dbos", "psycopg", "sqlalchemy", "yaml")
FLEET_HELP = """\
  travois fleet run tasks.jsonl --workers 4    run all tasks on this machine
  travois fleet run                            go on where it was stopped
  travois fleet ls                             show tasks, states and cost
  travois fleet results --format md            show what came of them

A task is a line of JSON: {"id": "fix-1", "repo": "~/src/app", "prompt": "Fix the failing test"}.
Its result is a branch travois/ID that is pushed to its repository. For many machines, put the queue
into Postgres (--db URL or TRAVOIS_FLEET_DB): `fleet migrate` once, `fleet submit` anywhere, and
`fleet worker` on each machine. docs/fleet.md is a five-minute introduction.
"""
Handler = Callable[[Namespace], int]


class FleetParsers(Protocol):
    """The subparsers of `travois fleet`."""

    def add_parser(
        self,
        name: str,
        *,
        help: str = "",  # noqa: A002 - argparse calls it so
        description: str = "",
    ) -> ArgumentParser:
        """Add one subcommand."""
        ...


def register_fleet(commands: CommandParsers) -> None:
    """Add the `travois fleet` command."""
    top = add_command(
        commands, "fleet", what="run many tasks unattended, on one machine or many", more=FLEET_HELP
    )
    inner: FleetParsers = top.add_subparsers(required=True, metavar="COMMAND")
    _add_working_commands(inner)
    _add_task_commands(inner)
    _add_result_commands(inner)


def add_queue_command(
    inner: FleetParsers, name: str, what: str, handler: Handler
) -> ArgumentParser:
    """Add a subcommand that works on a fleet's database."""
    parser = inner.add_parser(name, help=what, description=what[:1].upper() + what[1:] + ".")
    about = f"the queue: postgresql://… (default: {DATABASE_VARIABLE}, or a file in Travois' home)"
    parser.add_argument("--db", default="", metavar="URL", help=about)
    parser.set_defaults(run=partial(_run_with_packages, handler))
    return parser


def _add_working_commands(inner: FleetParsers) -> None:
    run = add_queue_command(
        inner, "run", "submit tasks, if any, and work until all have ended", run_fleet
    )
    run.add_argument("file", nargs="?", default="", help="tasks as JSONL or YAML; - for stdin")
    _add_worker_flags(run, "--workers")
    add_template_flags(run)
    _add_budget_flag(run)
    worker = add_queue_command(
        inner, "worker", "take tasks from the queue until stopped", run_worker_command
    )
    _add_worker_flags(worker, "--slots")
    what = "answer /healthz and /readyz on this port"
    worker.add_argument("--health", type=int, default=0, metavar="PORT", help=what)
    what = "on SIGTERM, let tasks end for so long before they are given back"
    worker.add_argument("--grace", type=float, default=0.0, metavar="SECONDS", help=what)
    what = "how long after a worker died its tasks are adopted (default: 45)"
    worker.add_argument("--lease", type=float, default=0.0, metavar="SECONDS", help=what)
    add_queue_command(inner, "migrate", "create or update the tables of the queue", run_migrate)
    command = inner.add_parser("command")  # of the worker's own: not in the help
    command.add_argument("--lease", required=True)
    command.add_argument("line")
    command.set_defaults(run=run_task_command)


def _add_worker_flags(parser: ArgumentParser, slots: str) -> None:
    count = partial(parser.add_argument, type=_parse_worker_count, default=2, metavar="N")
    count(slots, dest="slots", help="tasks at once")
    what = "run setup and check commands of tasks outside the sandbox"
    flag = partial(parser.add_argument, dest="sandbox_commands", action="store_false")
    flag("--unsandboxed-commands", help=what)


def _add_task_commands(inner: FleetParsers) -> None:
    submit = add_queue_command(
        inner, "submit", "queue tasks; ids that are there already are skipped", run_submit
    )
    submit.add_argument("file", nargs="?", default="", help="tasks as JSONL or YAML; - for stdin")
    add_template_flags(submit)
    _add_budget_flag(submit)
    cancel = add_queue_command(inner, "cancel", "cancel tasks", run_cancel)
    cancel.add_argument("ids", nargs="+", metavar="ID")
    retry = add_queue_command(
        inner, "retry", "queue ended tasks again; they go on where they were", run_retry
    )
    retry.add_argument("ids", nargs="*", metavar="ID")
    retry.add_argument("--failed", action="store_true", help="all that did not end with done")
    retry.add_argument("--fresh", action="store_true", help="from scratch, in a new session")


def add_template_flags(parser: ArgumentParser) -> None:
    """Add the flags for one task per repository."""
    add = parser.add_argument
    add("--repos", default="", metavar="FILE", help="one task per line: REPOSITORY [REF]")
    add("--prompt-file", default="", metavar="FILE", help="the prompt of --repos")
    add("--model", default="", metavar="NAME", help="the model of --repos")
    add("--check", default="", metavar="COMMAND", help="with --repos: has to succeed in the clone")
    add("--setup", default="", metavar="COMMAND", help="with --repos: runs in the clone first")
    add("--key", default="", metavar="VARIABLE", help="with --repos: holds the provider key")
    what = "let N runs of each task compete; its check picks"
    add("--best-of", type=_parse_worker_count, default=0, metavar="N", help=what)


def _add_budget_flag(parser: ArgumentParser) -> None:
    what = "the most that the whole fleet may spend; 0 for no limit"
    parser.add_argument("--max-usd", type=float, default=None, metavar="USD", help=what)


def _add_result_commands(inner: FleetParsers) -> None:
    listing = add_queue_command(inner, "ls", "list tasks", run_ls)
    listing.add_argument("--state", action="append", default=[], help="only tasks in this state")
    listing.add_argument("--json", action="store_true", help="as JSON")
    show = add_queue_command(inner, "show", "show a task and its result", run_show)
    show.add_argument("id", metavar="ID")
    show.add_argument("--patch", action="store_true", help="only the patch")
    show.add_argument("--json", action="store_true", help="as JSON")
    logs = add_queue_command(
        inner, "logs", "print what a task's runs said, as stream-json", run_logs
    )
    logs.add_argument("id", metavar="ID")
    results = add_queue_command(inner, "results", "print all results", run_results)
    results.add_argument("--format", default="md", choices=("json", "csv", "md"))
    export = add_queue_command(
        inner, "export", "write results, patches and logs to a folder", run_export
    )
    export.add_argument("folder", metavar="DIR")


def run_fleet(args: Namespace) -> int:
    """Submit tasks and work until all have ended."""
    queue = open_queue_store(args)
    if tasks := read_named_tasks(args):
        manage.queue_tasks(queue, tasks, max_usd=args.max_usd)
    elif args.max_usd is not None:
        queue.submit_tasks((), max_usd=args.max_usd)
    return serve.run_tasks(queue, _read_worker_options(args, worker.LeaseTimes()))


def run_worker_command(args: Namespace) -> int:
    """Work until stopped."""
    times = worker.LeaseTimes(args.lease) if args.lease else worker.LeaseTimes()
    return serve.run_worker(
        open_queue_store(args),
        _read_worker_options(args, times),
        health=args.health,
        grace=args.grace,
    )


def _read_worker_options(args: Namespace, lease: worker.LeaseTimes) -> worker.WorkerOptions:
    return worker.WorkerOptions(
        slots=args.slots,
        folder=_fleet_folder(args),
        home=locate_home(os.environ).prepare().path,
        lease=lease,
        is_sandboxed=args.sandbox_commands,
    )


def run_task_command(args: Namespace) -> int:
    """Run a task's command in the sandbox, until its worker ends or loses its lease."""
    parent_watch.watch_parent_and_lease(parent=True, lease=args.lease)
    return command_sandbox.run_in_sandbox(args.line)


def run_migrate(args: Namespace) -> int:
    """Create or update the tables."""
    manage.migrate_database(_find_database(args))
    return 0


def run_submit(args: Namespace) -> int:
    """Queue tasks."""
    tasks = read_named_tasks(args)
    if not tasks:
        raise UserError("No tasks were given", fix="Name a file, or --repos and --prompt-file.")
    manage.queue_tasks(open_queue_store(args), tasks, max_usd=args.max_usd)
    return 0


def run_cancel(args: Namespace) -> int:
    """Cancel tasks."""
    manage.cancel_tasks(open_queue_store(args), args.ids)
    return 0


def run_retry(args: Namespace) -> int:
    """Queue ended tasks again."""
    if not args.ids and not args.failed:
        raise UserError("No tasks were named", fix="Give ids, or --failed.")
    manage.retry_tasks(open_queue_store(args), args.ids, failed=args.failed, fresh=args.fresh)
    return 0


def run_ls(args: Namespace) -> int:
    """List tasks."""
    manage.print_tasks(open_queue_store(args), states=args.state, json=args.json)
    return 0


def run_show(args: Namespace) -> int:
    """Show one task."""
    part = "patch" if args.patch else ""
    manage.show_task(open_queue_store(args), args.id, part=part, json=args.json)
    return 0


def run_logs(args: Namespace) -> int:
    """Print a task's log."""
    manage.print_task_log(open_queue_store(args), args.id, _fleet_folder(args))
    return 0


def run_results(args: Namespace) -> int:
    """Print all results."""
    manage.print_results(open_queue_store(args), args.format)
    return 0


def run_export(args: Namespace) -> int:
    """Write all results to a folder."""
    manage.export_results(open_queue_store(args), Path(args.folder))
    return 0


def _run_with_packages(handler: Handler, args: Namespace) -> int:
    """Run a command; say which extra to install if its packages are missing."""
    try:
        return handler(args)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in FLEET_PACKAGES:
            raise
        raise UserError(
            "The fleet needs packages that are not installed",
            why=f"{error.name} is missing",
            fix=installation.extra_command("fleet"),
        ) from None


def read_named_tasks(args: Namespace) -> tuple[task.FleetTask, ...]:
    """Read the tasks that a command line names; none if it names none."""
    if bool(args.repos) != bool(args.prompt_file) or (args.file and args.repos):
        raise UserError("Tasks are a file, or --repos with --prompt-file", fix="Give one of them.")
    if args.repos:
        template = task.FleetTask(
            prompt="", repo="", model=args.model, check=args.check, setup=args.setup, key=args.key,
            best_of=args.best_of or 1,
        )  # fmt: skip
        return manage.read_template(args.repos, args.prompt_file, template)
    if not args.file:
        return ()
    return manage.read_task_file(args.file, best_of=args.best_of)


def _fleet_folder(args: Namespace) -> Path:
    home = locate_home(os.environ).prepare().path
    return task.locate_fleet_folder(home, args.db or os.environ.get(DATABASE_VARIABLE, ""))


def _find_database(args: Namespace) -> store.Database:
    return store.locate_database(
        args.db or os.environ.get(DATABASE_VARIABLE, ""), _fleet_folder(args)
    )


def open_queue_store(args: Namespace) -> store.FleetStore:
    """Open the queue that a command line names."""
    return manage.open_store(_find_database(args))


def _parse_worker_count(text: str) -> int:
    """Parse a number of workers or runs."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to 256")
    return int(text)
