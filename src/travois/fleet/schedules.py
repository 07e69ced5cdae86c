"""Schedules: tasks that are submitted at each time of a cron expression, once for each time.

Every worker looks for schedules whose time has come. The one that moves a schedule to its next time
submits its tasks in the same transaction, so that each time counts once, whoever is killed when.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from zoneinfo import ZoneInfo

import msgspec
import sqlalchemy as sa
from croniter import CroniterBadDateError, CroniterError, croniter

from travois.core.errors import UserError
from travois.fleet.store import SCHEDULES, FleetStore, lock_fleet
from travois.fleet.task import TASK_ID_PATTERN, FleetTask
from travois.terminal import print_line, print_table

CRON_FIELDS = 5
CRON_FIX = 'minute hour day month weekday: "0 3 * * *" is every day at 3:00, or @daily'


class Schedule(msgspec.Struct, frozen=True):
    """Tasks, and when they are submitted."""

    id: str
    cron: str
    timezone: str
    tasks: str
    """The tasks as JSON; their ids are the ends of those that are submitted."""
    due: float
    """The next time that counts."""
    fired: float = 0.0
    """The last time that counted; 0 if there was none."""

    def build_tasks(self) -> tuple[FleetTask, ...]:
        """Build the tasks of the due time, which have the same ids whoever builds them."""
        tasks = msgspec.json.decode(self.tasks, type=tuple[FleetTask, ...])
        stamp = datetime.fromtimestamp(self.due, UTC).strftime("%Y%m%dT%H%MZ")
        return tuple(
            msgspec.structs.replace(task, id=f"{self.id}-{task.id}-{stamp}") for task in tasks
        )


def find_next_time(cron: str, timezone: str, after: float) -> float:
    """Return the next time of a cron expression; raises `UserError` if it is not one."""
    if len(cron.split()) != CRON_FIELDS and not cron.startswith("@"):
        raise UserError(f"{cron!r} is not a schedule", why="it has not five fields", fix=CRON_FIX)
    start = datetime.fromtimestamp(after, _find_timezone(timezone))
    try:
        return croniter(cron, start).get_next(float)
    except CroniterBadDateError:
        raise UserError(f"{cron!r} is never due", fix=CRON_FIX) from None
    except CroniterError as error:
        raise UserError(f"{cron!r} is not a schedule", why=str(error), fix=CRON_FIX) from None


def _find_timezone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UserError(f"{name!r} is not a time zone", fix="Such as Europe/Berlin.") from None


def add_schedule(
    store: FleetStore, cron: str, tasks: Sequence[FleetTask], *, id: str = "", timezone: str = "UTC"
) -> None:
    """Add a schedule and print when it is due; the same one again changes nothing."""
    cron, spec = " ".join(cron.split()), msgspec.json.encode(tasks).decode()
    text = "\0".join((cron, timezone, spec)).encode()
    id = id or f"s-{blake2b(text, digest_size=3).hexdigest()}"
    with store.open_transaction() as connection:
        lock_fleet(connection)
        due = find_next_time(cron, timezone, store.read_clock(connection))
        made = Schedule(id, cron, timezone, spec, due)
        _check_task_ids(made)
        found = connection.execute(sa.select(SCHEDULES).where(SCHEDULES.c.id == id)).one_or_none()
        if found is not None and (found.cron, found.timezone, found.tasks) != _identify(made):
            raise UserError(
                f"Schedule {id!r} exists already and is a different one",
                fix=f"Use another --id, or remove it first: travois schedule rm {id}",
            )
        if found is None:
            connection.execute(SCHEDULES.insert().values(**msgspec.structs.asdict(made)))
    count = f"{len(tasks)} task{'s' * (len(tasks) != 1)}"
    known = " was there already" if found is not None else ""
    print_line(f"schedule {id}{known}: {count}, next at {_format_time(made.due, timezone)}")
    if not store.list_workers("alive"):
        print_line("No worker runs: `travois fleet worker` submits and runs what is due.")


def _identify(schedule: Schedule) -> tuple[str, str, str]:
    """Return what has to be equal if two schedules are the same."""
    return schedule.cron, schedule.timezone, schedule.tasks


def _check_task_ids(schedule: Schedule) -> None:
    """Raise `UserError` unless the ids of the tasks to be submitted can be names of branches."""
    for task in schedule.build_tasks():
        if not TASK_ID_PATTERN.fullmatch(task.id):
            raise UserError(
                f"The task's id would be {task.id!r}",
                why="an id has up to 64 letters, digits, dots, - and _",
                fix="Give the schedule a short --id, or the task a shorter id.",
            )


def list_schedules(store: FleetStore) -> tuple[Schedule, ...]:
    """Return all schedules, the next one first."""
    with store.open_reading() as connection:
        return _read_schedules(connection, sa.select(SCHEDULES))


def print_schedules(store: FleetStore, *, as_json: bool) -> None:
    """Print all schedules."""
    rows = [
        (
            row.id,
            row.cron,
            _format_time(row.due, row.timezone),
            _format_time(row.fired, row.timezone) if row.fired else "never",
            ", ".join(task.id for task in msgspec.json.decode(row.tasks, type=list[FleetTask])),
        )
        for row in list_schedules(store)
    ]
    none = 'No schedules. `travois schedule add "0 3 * * *" tasks.jsonl` adds one.'
    heads = ("SCHEDULE", "WHEN", "NEXT", "LAST", "TASKS")
    print_table(heads, rows, none=none, as_json=as_json)


def remove_schedules(store: FleetStore, ids: Sequence[str]) -> None:
    """Remove schedules, all or none; tasks that were submitted stay."""
    with store.open_transaction() as connection:
        for id in ids:
            if not connection.execute(SCHEDULES.delete().where(SCHEDULES.c.id == id)).rowcount:
                raise UserError(
                    f"There is no schedule {id!r}; nothing was removed",
                    fix="`travois schedule ls` lists them.",
                )
    print_line(f"{len(ids)} schedule{'s' * (len(ids) != 1)} removed; submitted tasks stay")


def submit_due_schedules(store: FleetStore) -> int:
    """Submit the tasks of all schedules whose time has come; return how many tasks.

    Times that were missed while no worker ran count once, together.
    """
    added = 0
    with store.open_transaction() as connection:
        now = store.read_clock(connection)
        query = sa.select(SCHEDULES).where(SCHEDULES.c.due <= now)
        for schedule in _read_schedules(connection, query):
            following = find_next_time(schedule.cron, schedule.timezone, now)
            mine = sa.and_(SCHEDULES.c.id == schedule.id, SCHEDULES.c.due == schedule.due)
            moved = SCHEDULES.update().where(mine).values(due=following, fired=schedule.due)
            if connection.execute(moved).rowcount:
                tasks = schedule.build_tasks()
                known = store.read_specs(connection, [task.id for task in tasks])
                added += store.insert_new_tasks(connection, tasks, known=known)
    return added


def _read_schedules(
    connection: sa.Connection, query: sa.Select[tuple[object, ...]]
) -> tuple[Schedule, ...]:
    rows = connection.execute(query.order_by(SCHEDULES.c.due, SCHEDULES.c.id))
    return tuple(msgspec.convert(row, Schedule, from_attributes=True) for row in rows)


def _format_time(at: float, timezone: str) -> str:
    return f"{datetime.fromtimestamp(at, ZoneInfo(timezone)):%Y-%m-%d %H:%M} {timezone}"
