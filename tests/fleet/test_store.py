"""The fleet's tables, on SQLite and on Postgres: leases, epochs, budgets, pauses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from travois.core.errors import UserError
from travois.fleet.child import SessionTotals, read_session_totals, session_id
from travois.fleet.manage import open_store
from travois.fleet.rate_reports import BucketLevel
from travois.fleet.store import BUCKETS, FLEET, WORKERS, FleetStore, TaskRow, locate_database
from travois.fleet.task import FleetTask

TASK = FleetTask(id="t", repo="/x", prompt="p")


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FleetStore]:
    url = ""
    if request.param == "postgres":
        url = request.getfixturevalue("shared_postgres").create_database()
    made = FleetStore(locate_database(url, tmp_path))
    made.create_fleet_tables()
    made.add_worker("a", place="", slots=1)
    made.add_worker("b", place="", slots=1)
    yield made
    made.close()


def claim(store: FleetStore, worker: str, id: str = "t", run: int = 1) -> TaskRow:
    row = store.claim_run(id, run, worker=worker)
    assert row is not None
    return row


def age(store: FleetStore, seconds: float, *workers: str) -> None:
    """Let time pass for these workers, and for the database's memory of the last renewal."""
    with store.open_transaction() as connection:
        chosen = WORKERS.c.id.in_(workers)
        connection.execute(WORKERS.update().where(chosen).values(beat=WORKERS.c.beat - seconds))
        past = {"up_since": FLEET.c.up_since - 1_000}
        connection.execute(FLEET.update().values(**past))


def states(store: FleetStore) -> dict[str, str]:
    with store.open_transaction() as connection:
        rows = connection.execute(sa.select(WORKERS.c.id, WORKERS.c.state))
        return {row.id: row.state for row in rows}


def test_a_database_may_be_opened_by_several_at_once(tmp_path: Path) -> None:
    """As by `fleet ls` while `fleet run` starts: of those that create the tables, none fails."""
    database = locate_database("", tmp_path)
    with ThreadPoolExecutor(8) as openers:
        opened = list(openers.map(open_store, [database] * 8))
        added = list(openers.map(lambda store: store.submit_tasks([TASK]), opened))
    assert sorted(added) == [(0, 1)] * 7 + [(1, 0)]
    for store in opened:
        store.close()


def test_submitting_is_idempotent_and_all_or_nothing(store: FleetStore) -> None:
    other = FleetTask(id="u", repo="/x", prompt="p")
    assert store.submit_tasks([TASK]) == (1, 0)
    assert store.submit_tasks([TASK, other]) == (1, 1)
    changed = FleetTask(id="t", repo="/x", prompt="another")
    third = FleetTask(id="v", repo="/x", prompt="p")
    with pytest.raises(UserError, match="exists already"):
        store.submit_tasks([third, changed])
    assert [row.id for row in store.list_tasks()] == ["t", "u"]


def test_an_older_epoch_can_write_nothing(store: FleetStore) -> None:
    store.submit_tasks([TASK])
    old = claim(store, "a")
    new = claim(store, "b")
    assert new.epoch == old.epoch + 1
    assert not store.save_task(old, state="done")
    assert not store.postpone_task(old, 1.0)
    assert not store.is_current_epoch(old) and store.is_current_epoch(new)
    assert store.save_task(new, state="done")
    assert store.find_task("t").state == "done"


def test_a_worker_without_a_lease_can_take_nothing(store: FleetStore) -> None:
    store.submit_tasks([TASK])
    store.set_worker_state("a", "lost")
    assert store.claim_run("t", 1, worker="a") is None
    assert store.claim_run("t", 1, worker="unknown") is None
    assert store.claim_run("t", 2, worker="b") is None


def test_a_lease_that_is_not_renewed_is_lost(store: FleetStore) -> None:
    age(store, 100, "a")
    assert store.renew_lease("b", gap=20)
    store.expire_leases(60)
    assert states(store) == {"a": "lost", "b": "alive"}
    assert not store.renew_lease("a", gap=20)


def test_an_outage_of_the_database_takes_no_lease(store: FleetStore) -> None:
    age(store, 100, "a", "b")
    with store.open_transaction() as connection:
        connection.execute(FLEET.update().values(last_beat=FLEET.c.last_beat - 100))
    assert store.renew_lease("b", gap=20)
    store.expire_leases(60)
    assert states(store) == {"a": "alive", "b": "alive"}


def test_a_task_that_waits_holds_no_run(store: FleetStore) -> None:
    store.submit_tasks([TASK])
    row = claim(store, "a")
    assert store.postpone_task(row, 3_600, tries=1)
    assert store.list_due_tasks() == ()
    assert store.claim_run("t", 1, worker="b") is None
    assert store.find_task("t").run == 2


def test_a_paused_key_holds_back_its_own_tasks_only(store: FleetStore) -> None:
    keyed = FleetTask(id="k", repo="/x", prompt="p", key="KEY_A")
    store.submit_tasks([TASK, keyed])
    store.pause_key("KEY_A", 3_600, "HTTP 429")
    store.pause_key("KEY_A", 1, "HTTP 429")
    assert store.key_pause("KEY_A") > 3_000 and store.key_pause("") == 0
    assert [row.id for row in store.list_due_tasks()] == ["t"]


def let_buckets_refill(store: FleetStore, seconds: float) -> None:
    with store.open_transaction() as connection:
        connection.execute(BUCKETS.update().values(at=BUCKETS.c.at - seconds))


def test_a_run_starts_once_its_key_has_requests_for_it_and_for_those_under_way(
    store: FleetStore,
) -> None:
    tasks = [FleetTask(id=id, repo="/x", prompt="p", key="A") for id in "abc"]
    store.submit_tasks([*tasks, TASK])
    first, second, third = (claim(store, "a", id) for id in "abc")
    assert store.take_request(first) == 0
    store.fill_buckets(first, [BucketLevel("requests", 3, 60, 0.01)])
    assert store.take_request(first) == 0
    store.save_task(first, state="running")
    assert store.take_request(second) == 0
    store.save_task(second, state="running")
    wait = store.take_request(third)
    assert 150 < wait <= 200
    assert store.take_request(claim(store, "a")) == 0
    let_buckets_refill(store, wait)
    assert store.take_request(third) == 0
    let_buckets_refill(store, 1e9)
    assert store.take_request(third) == 0
    with store.open_transaction() as connection:
        assert connection.execute(sa.select(BUCKETS.c.level)).scalar_one() == pytest.approx(59)


def test_a_key_without_tokens_starts_no_run(store: FleetStore) -> None:
    store.submit_tasks([TASK])
    row = claim(store, "a")
    enough = BucketLevel("requests", 50, 50, 1)
    store.fill_buckets(row, [enough, BucketLevel("input tokens", 0, 1_000, 10)])
    assert 4 < store.take_request(row) <= 5
    store.fill_buckets(row, [enough, BucketLevel("input tokens", 500, 1_000, 10)])
    assert store.take_request(row) == 0


def test_a_database_of_the_first_version_is_migrated(store: FleetStore) -> None:
    with store.open_transaction() as connection:
        BUCKETS.drop(connection)
        connection.execute(FLEET.update().values(version=1))
    with pytest.raises(UserError, match="does not fit"):
        store.check_schema_version()
    store.create_fleet_tables()
    store.check_schema_version()
    store.submit_tasks([TASK])
    assert store.take_request(claim(store, "a")) == 0


def test_running_tasks_hold_the_budget_of_the_fleet(store: FleetStore) -> None:
    tasks = [FleetTask(id=id, repo="/x", prompt="p", max_usd=4) for id in "abc"]
    store.submit_tasks(tasks, max_usd=10)
    first, second, third = (claim(store, "a", id) for id in "abc")
    assert store.reserve_budget(first, slots=2) == 4
    assert store.reserve_budget(second, slots=2) == 4
    assert store.reserve_budget(third, slots=2) == pytest.approx(2)
    store.save_task(second, state="done", cost=1.0)
    store.save_task(third, state="limit", cost=2.0)
    assert store.reserve_budget(claim(store, "a", "b"), slots=2) == 3
    store.save_task(first, cost=10.0)
    assert store.reserve_budget(claim(store, "a", "c"), slots=2) is None


def test_a_thousand_tasks_are_listed_with_one_query(store: FleetStore) -> None:
    store.submit_tasks([FleetTask(id=f"t{n}", repo="/x", prompt="p") for n in range(1_000)])
    asked: list[str] = []
    sa.event.listen(store._engine, "before_cursor_execute", lambda *args: asked.append(args[2]))
    began = time.thread_time()
    assert len(store.list_tasks()) == 1_000
    assert sum("SELECT" in one for one in asked) <= 2
    assert time.thread_time() - began < 60


def test_a_session_without_a_log_has_used_nothing(tmp_path: Path) -> None:
    """As a run leaves it that could not reach the session store."""
    session = session_id("t", fresh=0)
    (tmp_path / "sessions" / "project" / str(session)).mkdir(parents=True)
    assert read_session_totals(tmp_path, session) == SessionTotals()
