"""Schedules: each time counts once, over many workers and after a while without any."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.fleet.harness import WORK, Fleet, wait_until
from travois.core.errors import UserError
from travois.fleet.schedules import (
    add_schedule,
    find_next_time,
    list_schedules,
    remove_schedules,
    submit_due_schedules,
)
from travois.fleet.store import FLEET, SCHEDULES, FleetStore, locate_database
from travois.fleet.task import FleetTask

TASKS = (FleetTask(id="t", repo="/x", prompt="p"), FleetTask(id="u", repo="/x", prompt="p"))
DUE = datetime(2025, 11, 19, 3, tzinfo=UTC).timestamp()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetStore]:
    url = ""
    if request.param == "postgres":
        url = request.getfixturevalue("shared_postgres").create_database()
    made = FleetStore(locate_database(url, tmp_path))
    made.create_fleet_tables()
    yield made
    made.close()


def make_due(store: FleetStore, due: float = DUE) -> None:
    """Let the time of all schedules come."""
    with store.open_transaction() as connection:
        connection.execute(SCHEDULES.update().values(due=due))


def test_a_time_that_has_come_counts_once_over_many_workers(store: FleetStore) -> None:
    add_schedule(store, "0 3 * * *", TASKS, id="nightly")
    assert submit_due_schedules(store) == 0
    make_due(store)
    with ThreadPoolExecutor(8) as workers:
        added = list(workers.map(submit_due_schedules, [store] * 24))
    assert sorted(added) == [0] * 23 + [2]
    ids = ["nightly-t-20251119T0300Z", "nightly-u-20251119T0300Z"]
    assert [row.id for row in store.list_tasks()] == ids
    (after,) = list_schedules(store)
    assert after.fired == DUE and after.due > DUE + 86_400  # a year was missed: once for all


def test_a_time_whose_tasks_exist_already_submits_nothing(store: FleetStore) -> None:
    """As after a database was restored to an older state of its schedules."""
    add_schedule(store, "0 3 * * *", TASKS, id="nightly")
    for _ in range(2):
        make_due(store)
        submit_due_schedules(store)
    assert len(store.list_tasks()) == 2


def test_adding_again_changes_nothing_and_another_of_the_same_name_is_refused(
    store: FleetStore,
) -> None:
    add_schedule(store, "0 3 * * *", TASKS, id="nightly")
    add_schedule(store, "0  3 * * *", TASKS, id="nightly")
    with pytest.raises(UserError, match="exists already"):
        add_schedule(store, "0 4 * * *", TASKS, id="nightly")
    add_schedule(store, "0 4 * * *", TASKS)
    assert [row.cron for row in list_schedules(store)].count("0 3 * * *") == 1
    with pytest.raises(UserError, match="no schedule 'none'"):
        remove_schedules(store, ["nightly", "none"])
    assert len(list_schedules(store)) == 2
    remove_schedules(store, ["nightly"])
    assert [row.cron for row in list_schedules(store)] == ["0 4 * * *"]


@pytest.mark.parametrize(
    "cron", ["", "x", "61 * * * *", "* * * * * *", "0 0 31 2 *", "@reboot", "0 3 * * mo"]
)
def test_what_is_no_schedule_is_refused_and_stored_nowhere(store: FleetStore, cron: str) -> None:
    with pytest.raises(UserError):
        add_schedule(store, cron, TASKS)
    with pytest.raises(UserError, match="not a time zone"):
        add_schedule(store, "0 3 * * *", TASKS, timezone="Nowhere/Town")
    with pytest.raises(UserError, match="id would be"):
        add_schedule(store, "0 3 * * *", TASKS, id="n" * 60)
    assert list_schedules(store) == ()


def test_a_time_is_that_of_its_zone() -> None:
    winter, summer = DUE, datetime(2025, 6, 1, tzinfo=UTC).timestamp()
    for after, hour in ((winter, 2), (summer, 1)):
        found = find_next_time("0 3 * * *", "Europe/Berlin", after)
        assert datetime.fromtimestamp(found, UTC).hour == hour


def test_a_database_from_before_schedules_is_migrated(store: FleetStore) -> None:
    store.submit_tasks(TASKS)
    with store.open_transaction() as connection:
        connection.execute(sa.text("DROP TABLE travois_schedules"))
        connection.execute(FLEET.update().values(version=1))
    with pytest.raises(UserError, match="does not fit"):
        store.check_schema_version()
    store.create_fleet_tables()
    store.check_schema_version()
    add_schedule(store, "@daily", TASKS)
    assert len(store.list_tasks()) == 2


def test_workers_run_what_is_due_once(fleet: Fleet) -> None:
    file = fleet.write(fleet.task("t"))
    with fleet.program.served(WORK) as api:
        added = fleet.program.run("schedule", "add", "0 3 * * *", file, "--id", "nightly")
        assert added.code == 0, added.err
        assert "schedule nightly: 1 task, next at" in added.out and "No worker runs" in added.out
        (database,) = fleet.program.home.glob("fleet/local/fleet.db")
        make_due(FleetStore(locate_database(f"sqlite:///{database}", fleet.folder)))
        for _ in range(2):
            fleet.start("worker")
        id = "nightly-t-20251119T0300Z"
        wait_until(lambda: fleet.states().get(id) == "done", what="the scheduled task")
        assert len(api.ledger) == 2
    assert list(fleet.states()) == [id] and fleet.pushes("app", id) == 1
    listed = fleet.program.run("schedule", "ls")
    assert "nightly" in listed.out and "2025-11-19 03:00 UTC" in listed.out
    assert fleet.program.run("schedule", "rm", "nightly").code == 0
    assert "No schedules" in fleet.program.run("schedule", "ls").out
    bad = fleet.program.run("schedule", "add", "0 25 * * *", file)
    assert bad.code == 2 and "'0 25 * * *' is not a schedule" in bad.err
