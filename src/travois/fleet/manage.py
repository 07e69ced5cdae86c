"""Managing a fleet: submitting, listing, cancelling and retrying tasks, exporting results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from travois.core.errors import UserError
from travois.fleet.child import session_id
from travois.fleet.report import (
    TaskResult,
    build_result,
    describe_totals,
    fold_members,
    render_results,
    render_task_list,
)
from travois.fleet.store import SCHEMA_VERSION, Database, FleetStore, TaskRow
from travois.fleet.task import FleetTask, expand_template, load_tasks
from travois.lazy_imports import lazy_imports
from travois.sessions import blobs
from travois.terminal import print_json, print_json_list, print_line, redact_secrets

with lazy_imports():
    import dbos

    from travois.fleet import worker


def open_store(database: Database) -> FleetStore:
    """Open the fleet's tables. A file is migrated at once, a server by `migrate`."""
    store = FleetStore(database)
    if database.is_sqlite and (store.read_schema_version() or 0) < SCHEMA_VERSION:
        store.create_fleet_tables()
    store.check_schema_version()
    return store


def migrate_database(database: Database) -> None:
    """Create or update the tables of the fleet and of its engine."""
    store = FleetStore(database)
    store.create_fleet_tables()
    store.check_schema_version()
    dbos.DBOS.migrate(database.url, schema=worker.DBOS_SCHEMA)
    print_line(f"{database.shown} is ready")


def read_task_file(path: str, *, best_of: int) -> tuple[FleetTask, ...]:
    """Read a fleet's task file; `-` is standard input."""
    piped = path == "-"
    folder = Path.cwd() if piped else Path(path).resolve().parent
    text = sys.stdin.read() if piped else _read_utf8_file(path)
    return load_tasks("standard input" if piped else path, text, folder=folder, best_of=best_of)


def read_template(repos: str, prompt: str, template: FleetTask) -> tuple[FleetTask, ...]:
    """Make a fleet task for each repository of a list, with the prompt of a file."""
    task = msgspec.structs.replace(template, prompt=_read_utf8_file(prompt))
    return expand_template(
        task, _read_utf8_file(repos), path=repos, folder=Path(repos).resolve().parent
    )


def queue_tasks(store: FleetStore, tasks: Sequence[FleetTask], *, max_usd: float | None) -> None:
    """Queue fleet tasks and print how many there are."""
    added, known = store.submit_tasks(tasks, max_usd=max_usd)
    there = f", {known} there already" if known else ""
    print_line(f"{added} task{'s' * (added != 1)} submitted{there}")


def print_tasks(store: FleetStore, *, states: Sequence[str], json: bool) -> None:
    """Print all tasks of the fleet."""
    rows = [row for row in fold_members(store.list_tasks()) if not states or row.state in states]
    if json:
        print_json_list(msgspec.structs.asdict(_build_row_result(row)) for row in rows)
        return
    if rows:
        print_line(render_task_list(rows))
    print_line(describe_totals(rows))


def show_task(store: FleetStore, id: str, *, part: str, json: bool) -> None:
    """Print a fleet task and its result, or its patch."""
    row = store.find_task(id)
    members = store.list_members(row.id)
    if part == "patch":
        sys.stdout.buffer.write(store.read_artifact(row.id, "patch") or b"")
        return
    result = _build_row_result(*fold_members((row, *members)) or (row,))
    if json:
        print_json(result)
        return
    for name, value in msgspec.structs.asdict(result).items():
        if value not in ("", None):
            print_line(f"{name + ':':<15}{value}")
    print_line(f"{'prompt:':<15}{row.task.prompt}")
    for member in members:
        score = "" if member.score is None else f", score {member.score:g}"
        print_line(f"{'run:':<15}{member.id}: {member.state}{score}, ${member.cost:.4f}")


def print_task_log(store: FleetStore, id: str, folder: Path) -> None:
    """Print the output of a fleet task's runs, as `stream-json` lines."""
    row = store.find_task(id)
    here = folder / "tasks" / row.id / str(row.fresh) / "log.jsonl"
    stored = store.read_artifact(row.id, "log") if not here.exists() else here.read_bytes()
    if stored is None:
        raise UserError(f"Task {row.id} has no log here", fix="It is stored when a run ends.")
    sys.stdout.write(redact_secrets(stored.decode(errors="replace")))


def cancel_tasks(store: FleetStore, ids: Sequence[str]) -> None:
    """Cancel fleet tasks."""
    for id in ids:
        row = store.find_task(id)
        told = "cancelled" if store.cancel_task(row.id) else f"is {row.state} already"
        print_line(f"{row.id} {told}")


def retry_tasks(store: FleetStore, ids: Sequence[str], *, failed: bool, fresh: bool) -> None:
    """Queue ended fleet tasks again."""
    states = ("failed", "limit", "refused", "cancelled")
    rows = [store.find_task(id) for id in ids]
    rows += [row for row in store.list_tasks(states) if failed and not row.member_of]
    for row in rows:
        if not row.is_final:
            raise UserError(f"Task {row.id} is still {row.state}", fix="Cancel it first.")
    for row in rows:
        store.retry_task(row, fresh=fresh)
    print_line(f"{len(rows)} task{'s' * (len(rows) != 1)} queued again")


def print_results(store: FleetStore, style: str) -> None:
    """Print the results of all fleet tasks."""
    print_line(render_results(_all_results(store), style))


def export_results(store: FleetStore, folder: Path) -> None:
    """Export a table of all fleet results, and each task's patch and log, to a folder."""
    results = _all_results(store)
    table = redact_secrets(render_results(results, "json")) + "\n"
    try:
        blobs.make_folders(folder)
        (folder / "results.json").write_text(table)
        for name, data in _list_artifacts(store, results):
            (folder / name).write_bytes(data)
    except OSError as error:
        raise UserError(f"{folder} cannot be written", why=str(error)) from None
    print_line(f"{len(results)} results written to {folder}")


def _list_artifacts(
    store: FleetStore, results: Sequence[TaskResult]
) -> Iterator[tuple[str, bytes]]:
    """Yield the patches and logs of fleet tasks with the names of their files."""
    for result in results:
        for name, ending in (("patch", "patch"), ("log", "log.jsonl")):
            if data := store.read_artifact(result.id, name):
                yield f"{result.id}.{ending}", data


def _all_results(store: FleetStore) -> list[TaskResult]:
    return [_build_row_result(row) for row in fold_members(store.list_tasks())]


def _build_row_result(row: TaskRow) -> TaskResult:
    return build_result(row, str(session_id(row.id, fresh=row.fresh)))


def _read_utf8_file(path: str) -> str:
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read", why=str(error)) from None
