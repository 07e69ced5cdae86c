"""A fleet of several workers on Postgres, and everything that can be killed or frozen."""

from __future__ import annotations

import os
import signal
import socket
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import psycopg
import pytest

from tests.fleet.harness import WORK, Fleet, slow_work, wait_until
from tests.fleet.postgres import Postgres
from tests.processes import processes
from travois.fleet.store import FLEET, FleetStore, locate_database

LEASE = 4.0
IDS = ("t0", "t1", "t2")


def find_descendants(pid: int) -> list[int]:
    """Return the processes that one has started, and those that these have."""
    started = [one.pid for one in processes() if one.parent == pid]
    return [*started, *(found for each in started for found in find_descendants(each))]


def all_done(fleet: Fleet) -> bool:
    return set(fleet.states().values()) == {"done"}


def submit(fleet: Fleet, *ids: str) -> None:
    done = fleet.run("submit", fleet.write(*(fleet.task(id) for id in ids)))
    assert done.code == 0, done.err


def start_worker(fleet: Fleet, *more: str) -> int:
    return fleet.start("worker", "--slots", "2", "--lease", str(LEASE), *more).pid


def find_busy_worker(fleet: Fleet, pids: list[int]) -> int:
    """Wait until one of these workers runs something; return it."""
    busy: list[int] = []

    def find_busy() -> bool:
        parents = {one.pid: one.parent for one in processes()}
        servers = [parents.get(pid, 0) for pid in fleet.runs()]
        above = (*servers, *(parents.get(pid, 0) for pid in servers))
        busy[:] = [pid for pid in above if pid in pids]
        return bool(busy)

    wait_until(find_busy, what="a worker runs something")
    return busy[0]


def test_several_workers_share_the_tasks(cluster: Fleet) -> None:
    with cluster.program.served(WORK) as api:
        submit(cluster, *IDS)
        for _ in range(2):
            start_worker(cluster)
        wait_until(lambda: all_done(cluster), what="all tasks end")
        assert len(api.ledger) == 6
    assert [cluster.pushes("app", id) for id in IDS] == [1, 1, 1]


def test_the_tasks_of_a_killed_worker_are_adopted(cluster: Fleet) -> None:
    with cluster.program.served(slow_work(3.0)) as api:
        submit(cluster, *IDS)
        pids = [start_worker(cluster) for _ in range(2)]
        wait_until(lambda: len(api.ledger) >= 3, what="second requests")
        os.kill(find_busy_worker(cluster, pids), signal.SIGKILL)
        wait_until(lambda: all_done(cluster), what="all tasks end")
        api.append_only()
    assert [cluster.pushes("app", id) for id in IDS] == [1, 1, 1]


def test_a_frozen_worker_neither_appends_nor_pushes_when_it_wakes(cluster: Fleet) -> None:
    with cluster.program.served(slow_work(2.0)) as api:
        submit(cluster, "t")
        first = start_worker(cluster)
        wait_until(lambda: len(api.ledger) == 2 and cluster.runs(), what="the second request")
        os.kill(first, signal.SIGSTOP)
        wait_until(lambda: not cluster.runs(), what="the run ends with the lease")
        start_worker(cluster)
        wait_until(lambda: all_done(cluster), what="the task is adopted")
        asked = len(api.ledger)
        os.kill(first, signal.SIGCONT)
        said = cluster.folder / "output-0.txt"
        wait_until(lambda: "lost its lease" in said.read_text(), what="the worker notices")
        wait_until(lambda: said.read_text().count("takes 2 tasks") == 2, what="it starts anew")
        assert len(api.ledger) == asked
        api.append_only()
        api.no_orphans()
    assert cluster.pushes("app", "t") == 1
    assert all_done(cluster)


def read_stored_sessions(fleet: Fleet) -> list[tuple[object, ...]]:
    """Return what the session store of a fleet on Postgres has, as it is."""
    with psycopg.connect(fleet.url) as connection:
        chunks = "SELECT session, start, md5(data) FROM travois_session_chunks ORDER BY 1, 2"
        return connection.execute(chunks).fetchall()


def test_a_machine_that_was_suspended_neither_appends_nor_pushes(cluster: Fleet) -> None:
    """The worker, its warm server and its run all stop; another machine takes over."""
    with cluster.program.served(slow_work(3.0)) as api:
        submit(cluster, "t")
        first = start_worker(cluster)
        wait_until(lambda: len(api.ledger) == 2 and cluster.runs(), what="the second request")
        frozen = [first, *find_descendants(first)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        cluster.program.extra["TRAVOIS_HOME"] = str(cluster.folder / "home of another machine")
        start_worker(cluster)
        wait_until(lambda: all_done(cluster), what="the task is adopted")
        asked, stored = len(api.ledger), read_stored_sessions(cluster)
        for pid in reversed(frozen):
            os.kill(pid, signal.SIGCONT)
        said = cluster.folder / "output-0.txt"
        wait_until(lambda: said.read_text().count("takes 2 tasks") == 2, what="it starts anew")
        wait_until(lambda: not cluster.runs(), what="its run ends")
        assert (len(api.ledger), read_stored_sessions(cluster)) == (asked, stored)
        api.append_only()
    assert stored and cluster.pushes("app", "t") == 1
    assert all_done(cluster)


SKEWED_CLOCK = """\
import os, time
offset, real = float(os.environ.get("CLOCK_OFFSET", "0")), time.time
time.time = lambda: real() + offset
"""


def test_the_clocks_of_workers_do_not_matter(cluster: Fleet) -> None:
    """One is an hour slow, one an hour fast: neither loses its lease, and a dead one is noticed."""
    patch = cluster.folder / "patch"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(SKEWED_CLOCK)
    with cluster.program.served(slow_work(3.0)) as api:
        submit(cluster, *IDS)
        pids: list[int] = []
        for offset in (-3_600, 3_600):
            cluster.program.extra |= {"PYTHONPATH": str(patch), "CLOCK_OFFSET": str(offset)}
            pids.append(start_worker(cluster))
        wait_until(lambda: len(api.ledger) >= 3, what="second requests")
        os.kill(find_busy_worker(cluster, pids), signal.SIGKILL)
        wait_until(lambda: all_done(cluster), what="all tasks end")
        api.append_only()
        assert len(api.ledger) <= 6 + 2 * 2
    outputs = [cluster.folder / f"output-{number}.txt" for number in range(2)]
    assert not any("lost its lease" in path.read_text() for path in outputs)
    assert [cluster.pushes("app", id) for id in IDS] == [1, 1, 1]


LONG_OUTAGES = [pytest.param(seconds, marks=pytest.mark.full) for seconds in (1.0, 20.0, 120.0)]


@pytest.mark.parametrize("seconds", [0.0, LEASE * 2, *LONG_OUTAGES])
def test_an_outage_of_the_database_loses_nothing(
    fleet: Fleet, postgres: Postgres, seconds: float
) -> None:
    fleet.url = postgres.create_database()
    assert fleet.run("migrate").code == 0
    with fleet.program.served(slow_work(2.0)) as api:
        submit(fleet, *IDS)
        for _ in range(2):
            start_worker(fleet)
        wait_until(lambda: len(api.ledger) >= 4, what="second requests")
        postgres.kill()
        time.sleep(seconds)
        postgres.start()
        wait_until(lambda: all_done(fleet), what="all tasks end")
        api.append_only()
        assert len(api.ledger) <= 6 + 2 * 3
    assert [fleet.pushes("app", id) for id in IDS] == [1, 1, 1]


def test_a_worker_that_is_told_to_stop_gives_its_tasks_back(cluster: Fleet) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with cluster.program.served(slow_work(3.0)) as api:
        submit(cluster, "t")
        first = start_worker(cluster, "--health", str(port))
        wait_until(lambda: len(api.ledger) == 2, what="the second request")
        assert urlopen(f"http://127.0.0.1:{port}/readyz").status == 200
        with pytest.raises(HTTPError):
            urlopen(f"http://127.0.0.1:{port}/")
        os.kill(first, signal.SIGTERM)
        assert cluster.started[0].wait(120) == 0
        start_worker(cluster)
        wait_until(lambda: all_done(cluster), what="the task goes on elsewhere")
        assert len(api.ledger) <= 3
    assert cluster.pushes("app", "t") == 1


def test_a_submitter_that_is_killed_leaves_all_or_nothing(cluster: Fleet) -> None:
    file = cluster.write(*(cluster.task(f"t{n}") for n in range(200)))
    for wait in (0.3, 0.5, 0.7):
        child = cluster.start("submit", file)
        time.sleep(wait)
        child.kill()
        child.wait()
        assert len(cluster.results()) in (0, 200)
    assert cluster.run("submit", file).code == 0
    assert len(cluster.results()) == 200


def test_a_result_is_pushed_by_another_machine(cluster: Fleet) -> None:
    """The worker dies with its disk between the attempt and the push."""
    hook, called = cluster.repo("app") / "hooks" / "pre-receive", cluster.folder / "called"
    hook.write_text(f"#!/bin/sh\ntouch {called}; sleep 2; exit 1\n")
    hook.chmod(0o755)
    with cluster.program.served(WORK) as api:
        submit(cluster, "t")
        first = start_worker(cluster)
        wait_until(called.exists, what="the push")
        os.kill(first, signal.SIGKILL)
        hook.unlink()
        cluster.program.home.rename(cluster.folder / "gone")
        start_worker(cluster)
        wait_until(lambda: all_done(cluster), what="the result is pushed")
        assert len(api.ledger) == 2
    assert cluster.content("app", "t") == "hello\n"


def test_a_session_moves_to_another_machine_with_its_files(cluster: Fleet) -> None:
    """The worker dies with its disk in the middle of a turn."""
    with cluster.program.served(slow_work(3.0)) as api:
        submit(cluster, "t")
        first = start_worker(cluster)
        wait_until(lambda: len(api.ledger) == 2, what="the second request")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not cluster.runs(), what="the run ends with its parent")
        cluster.program.home.rename(cluster.folder / "gone")
        start_worker(cluster)
        wait_until(lambda: all_done(cluster), what="the task goes on elsewhere")
        assert len(api.ledger) == 3
        api.append_only()
        moved = api.ledger[2].usage
        assert moved.read >= 0.95 * moved.prompt
    assert cluster.content("app", "t") == "hello\n"
    assert cluster.pushes("app", "t") == 1


def test_a_database_without_tables_or_of_another_version_is_refused(
    fleet: Fleet, shared_postgres: Postgres
) -> None:
    fleet.url = shared_postgres.create_database()
    for words in (("ls",), ("worker",), ("submit", fleet.write(fleet.task("t")))):
        done = fleet.run(*words)
        assert done.code == 2 and "travois fleet migrate" in done.err, done.err
    assert fleet.run("migrate").code == 0
    assert fleet.run("migrate").code == 0
    assert fleet.run("ls").code == 0
    store = FleetStore(locate_database(fleet.url, fleet.folder))
    with store.open_transaction() as connection:
        connection.execute(FLEET.update().values(version=99))
    store.close()
    done = fleet.run("worker")
    assert done.code == 2 and "Update Travois" in done.err, done.err


def test_an_unreachable_database_is_told_without_its_password(fleet: Fleet) -> None:
    fleet.url = "postgresql://me:hunter2secret@127.0.0.1:1/none"
    done = fleet.run("ls")
    assert done.code == 2 and "cannot be used" in done.err
    assert "hunter2secret" not in done.err + done.out
