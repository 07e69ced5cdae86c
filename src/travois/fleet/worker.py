"""A fleet worker: takes tasks from the queue, keeps its lease, adopts dead workers' tasks.

DBOS owns the threads that run workflows. The lease has a thread of its own, so that nothing slow
delays it; everything else happens in the worker's own loop.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec
from dbos import DBOS, DBOSConfig, SetEnqueueOptions, SetWorkflowID

from travois.core.errors import UserError
from travois.fleet.child import ChildRun, StopReason, write_lease
from travois.fleet.run_process import RunStarter
from travois.fleet.schedules import submit_due_schedules
from travois.fleet.steps import TaskSteps
from travois.fleet.store import DatabaseDown, FleetStore
from travois.fleet.task import MAX_PRIORITY
from travois.fleet.task_command import TaskCommands
from travois.sessions import blobs
from travois.sessions.lock import LockHolder, describe_this_process, is_alive

QUEUE_NAME = "travois"
DBOS_SCHEMA = "travois_dbos"
WORKFLOW_VERSION = "1"
"""Grows when the steps of the workflow change: a workflow ends on the version that began it."""
MAX_RECOVERIES = 1_000
QUEUE_POLL_SECONDS = 0.2
TICK_SECONDS = 0.5
LEASE_SECONDS = 45.0
STOP_GRACE_SECONDS = 25.0


class LeaseTimes(msgspec.Struct, frozen=True):
    """A lease's length, and what follows from it."""

    seconds: float = LEASE_SECONDS

    @property
    def beat(self) -> float:
        """The interval of renewals."""
        return self.seconds / 9

    @property
    def stop(self) -> float:
        """How long after the last renewal the runs are stopped: they need time to end."""
        return self.seconds * 0.6

    @property
    def gap(self) -> float:
        """A silence of all workers that means that the database was away."""
        return self.seconds / 3


class WorkerOptions(msgspec.Struct, frozen=True):
    """The choices of who starts a worker."""

    slots: int
    folder: Path
    """The folder for clones and sessions of tasks."""
    home: Path
    """The Travois home whose settings the runs get."""
    lease: LeaseTimes = LeaseTimes()
    is_sandboxed: bool = True
    """Whether `setup` and `check` run in the sandbox."""


class FleetWorker:
    """A worker of this process. There can be only one: DBOS has one instance per process."""

    def __init__(self, store: FleetStore, options: WorkerOptions) -> None:
        self.id = f"{os.uname().nodename}-{uuid4().hex[:12]}"
        self.slots = options.slots
        self.store = store
        self.is_lost = False
        self._times = options.lease
        self._children: dict[str, ChildRun] = {}
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._renewed = threading.Condition()
        self._until = 0.0
        self._folder = options.folder
        blobs.make_folders(self._folder / "leases")
        self.lease_file = self._folder / "leases" / self.id
        self.starter = RunStarter()
        self.commands = TaskCommands(
            self.starter, self.lease_file, is_sandboxed=options.is_sandboxed
        )
        patient = FleetStore(store.database, is_patient=True)
        self._steps = TaskSteps(patient, self, folder=options.folder, home=options.home)

    # Starting and ending.

    def start_working(self) -> None:
        """Register the worker and start taking tasks."""
        place = msgspec.json.encode(_describe_worker_place()).decode()
        self.store.add_worker(self.id, place=place, slots=self.slots)
        self._extend_lease(time.time())
        self.starter.start_server()
        self._launch_engine()
        threading.Thread(target=self._keep_lease, name="lease", daemon=True).start()

    def _launch_engine(self) -> None:
        """Start DBOS with our workflow and queue."""
        url = self.store.database.url
        config: DBOSConfig = {
            "name": "travois-fleet",
            "system_database_url": url,
            "executor_id": self.id,
            "application_version": WORKFLOW_VERSION,
            "dbos_system_schema": DBOS_SCHEMA,
            "log_level": "WARNING",
            "run_migrations": self.store.database.is_sqlite,
            "sys_db_pool_size": self.slots + 5,
            "notification_listener_polling_interval_sec": 10.0,
            "scheduler_polling_interval_sec": 30.0,
        }
        _log_to_file(self._folder / "worker.log")
        DBOS(config=config)
        self._workflow = _register_workflow(self._steps)
        DBOS.launch()
        DBOS.register_queue(
            QUEUE_NAME,
            worker_concurrency=self.slots,
            polling_interval_sec=QUEUE_POLL_SECONDS,
            on_conflict="always_update",
        )

    def give_back_tasks(self, *, patience: float = 0.0) -> None:
        """Let running tasks end for a while, stop the rest, and give all of them back."""
        self._leaving.set()
        deadline = time.monotonic() + patience
        while self._children and time.monotonic() < deadline:
            time.sleep(0.1)
        self._stop_children("leaving")
        deadline = time.monotonic() + STOP_GRACE_SECONDS
        while self._children and time.monotonic() < deadline:
            time.sleep(0.05)
        self.starter.close()
        with suppress(UserError):
            self.store.set_worker_state(self.id, "left")
        self.lease_file.unlink(missing_ok=True)

    # The lease.

    def _keep_lease(self) -> None:
        """Renew the lease until it is lost; stop the runs while it cannot be renewed."""
        while not self.is_lost:
            began = time.time()
            try:
                self.is_lost = not self.store.renew_lease(self.id, gap=self._times.gap)
            except DatabaseDown:
                pass
            else:
                self._extend_lease(began)
            if self.is_lost or not self.has_lease():
                self._stop_children("lease")
            time.sleep(self._times.beat if self.has_lease() else min(self._times.beat, 1.0))

    def _extend_lease(self, began: float) -> None:
        """Let the runs go on: counted from before the database was asked."""
        if self.is_lost:
            return
        with self._renewed:
            self._until = began + self._times.stop
            write_lease(self.lease_file, self._until)
            self._renewed.notify_all()

    def has_lease(self) -> bool:
        """Return whether the worker may start something."""
        return not self.is_lost and time.time() < self._until

    def wait_for_lease(self) -> None:
        """Return once the worker may start something; never if it is to end."""
        if self._leaving.is_set() or self.is_lost:
            self.stand_down()
        with self._renewed:
            while not self.has_lease():
                self._renewed.wait(1.0)
                if self.is_lost:
                    self.stand_down()

    def stand_down(self) -> None:
        """Block this workflow for ever: an end would be recorded, and it has to go on elsewhere."""
        threading.Event().wait()

    def watch_child(self, id: str, child: ChildRun | None) -> None:
        """Register the run of a task, or that it is over."""
        with self._lock:
            if child is None:
                self._children.pop(id, None)
                return
            self._children[id] = child
        if self._leaving.is_set():
            child.stop("leaving")

    def _stop_children(self, why: StopReason) -> None:
        for child in self.running().values():
            child.stop(why)

    def running(self) -> dict[str, ChildRun]:
        """Return the runs of this worker by their tasks."""
        with self._lock:
            return dict(self._children)

    # The loop.

    def feed_queue(self) -> None:
        """Feed the queue, stop cancelled runs, and adopt what dead workers left."""
        try:
            self._enqueue_due_tasks()
            running = self.running()
            for id in self.store.list_cancelled(list(running)) if running else ():
                running[id].stop("cancelled")
        except DatabaseDown:
            return  # the lease thread sees it, too

    def adopt_orphaned_tasks(self) -> None:
        """Take the leases of dead workers and put their tasks back into the queue."""
        try:
            dead = [
                id for id, place, *_ in self.store.list_workers("alive") if _is_known_dead(place)
            ]
            self.store.expire_leases(self._times.seconds, dead=dead)
            for id, *_ in self.store.list_workers("lost", "left"):
                # The one way to say which executors are dead; idempotent by the row's executor.
                DBOS._recover_pending_workflows([id])  # pyright: ignore[reportPrivateUsage]
                self.store.set_worker_state(id, "gone")
        except DatabaseDown:
            return

    def submit_scheduled_tasks(self) -> None:
        """Submit the tasks of the schedules whose time has come."""
        try:
            submit_due_schedules(self.store)
        except DatabaseDown:
            return

    def _enqueue_due_tasks(self) -> None:
        """Hand tasks over to DBOS; a second time changes nothing, as workflows have ids."""
        rows = self.store.list_due_tasks()
        for row in rows:
            priority = MAX_PRIORITY + 1 - row.task.priority
            with SetWorkflowID(row.workflow_id), SetEnqueueOptions(priority=priority):
                DBOS.enqueue_workflow(QUEUE_NAME, self._workflow, row.id, row.run)
        if rows:
            self.store.mark_enqueued(rows)


def _register_workflow(steps: TaskSteps) -> Callable[[str, int], str]:
    """Register the fleet's workflow with DBOS; a step's result is recorded once it has one."""

    @DBOS.step(name="prepare")
    def run_prepare(id: str, run: int) -> bool:
        return steps.prepare(id, run)

    @DBOS.step(name="attempt")
    def run_attempt(id: str, run: int) -> bool:
        return steps.attempt(id, run)

    @DBOS.step(name="publish")
    def run_publish(id: str, run: int) -> bool:
        return steps.publish(id, run)

    @DBOS.workflow(name="travois-task", max_recovery_attempts=MAX_RECOVERIES)
    def run_task(id: str, run: int) -> str:
        has_ended = False
        try:
            is_published = run_prepare(id, run) and run_attempt(id, run) and run_publish(id, run)
            has_ended = True
        finally:
            if not has_ended:
                steps.record_crash(id, run)
        return "published" if is_published else "not published"

    return run_task


class _Place(msgspec.Struct, frozen=True):
    """A process, and the namespace in which its number means something."""

    process: LockHolder
    namespace: str


def _describe_worker_place() -> _Place:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return _Place(describe_this_process(), namespace)


def _is_known_dead(place: str) -> bool:
    """Return whether a fleet worker is known to be dead: one of this machine and namespace."""
    other, mine = msgspec.json.decode(place, type=_Place), _describe_worker_place()
    same = mine.namespace and other.namespace == mine.namespace
    return bool(same) and not is_alive(other.process)


def _log_to_file(path: Path) -> None:
    """Keep the log of the fleet worker's engine off the terminal."""
    logger = logging.getLogger("dbos")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
