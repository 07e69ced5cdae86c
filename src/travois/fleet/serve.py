"""Serving a fleet worker in the foreground: the loop, signals, health checks, and its end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn

from travois.core.errors import UserError
from travois.fleet.live_table import LiveTable
from travois.fleet.report import describe_totals
from travois.fleet.store import DatabaseDown, FleetStore
from travois.fleet.worker import TICK_SECONDS, FleetWorker, WorkerOptions
from travois.terminal import print_line, print_warning

ADOPT_SECONDS = 2.0
SHOW_SECONDS = 1.0
FAILED_EXIT_CODE = 1


class StopSignal:
    """The request to stop the worker; a second one ends the process at once."""

    def __init__(self) -> None:
        self.number = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        if self.number:
            os._exit(128 + number)  # its runs end, as their parent is gone
        self.number = number


def run_tasks(store: FleetStore, options: WorkerOptions) -> NoReturn:
    """Run a fleet worker on this machine until every task has ended, then exit."""
    worker = FleetWorker(store, options)
    stop, table = StopSignal(), LiveTable()
    worker.start_working()

    def show_fleet_progress() -> bool:
        rows = store.list_tasks()
        table.show_fleet(rows, worker.running(), store.list_paused_keys())
        return all(row.is_final for row in rows)

    with table.screen():
        is_over = _work_until(worker, stop, show_fleet_progress)
    if not is_over:
        print_warning("stopping; what runs can go on later (again: stop at once)")
    code = _leave_fleet(worker, stop)
    rows = store.list_tasks()
    print_line(describe_totals(rows))
    if stop.number:
        print_line("Stopped. `travois fleet run` goes on where it was.")
    elif any(row.state != "done" for row in rows):
        print_line("`travois fleet ls` shows why; `travois fleet retry ID` tries again.")
        code = FAILED_EXIT_CODE
    _exit_now(code)


def run_worker(store: FleetStore, options: WorkerOptions, *, health: int, grace: float) -> NoReturn:
    """Run a fleet worker until a signal, then exit. A lost lease restarts it."""
    worker = FleetWorker(store, options)
    stop = StopSignal()
    worker.start_working()
    if health:
        _serve_health(worker, health)
    print_line(
        f"worker {worker.id} takes {options.slots} tasks at once from {store.database.shown}"
    )
    sys.stdout.flush()
    _work_until(worker, stop, lambda: False)
    code = _leave_fleet(worker, stop, patience=grace)
    _exit_now(code)


def _work_until(worker: FleetWorker, stop: StopSignal, is_over: Callable[[], bool]) -> bool:
    """Run the fleet worker's loop until a signal or the last task; return whether all ended."""
    adopted, shown, over = 0.0, 0.0, False
    while not stop.number:
        now = time.monotonic()
        if worker.is_lost:
            _start_anew(worker)
        worker.feed_queue()
        if now - adopted >= ADOPT_SECONDS:
            worker.adopt_orphaned_tasks()
            worker.submit_scheduled_tasks()
            adopted = now
        if now - shown >= SHOW_SECONDS:
            shown = now
            with suppress(DatabaseDown):
                over = is_over()
            if over:
                return True
        time.sleep(TICK_SECONDS)
    return False


def _leave_fleet(worker: FleetWorker, stop: StopSignal, *, patience: float = 0.0) -> int:
    worker.give_back_tasks(patience=patience)
    return 128 + stop.number if stop.number == signal.SIGINT else 0


def _start_anew(worker: FleetWorker) -> None:
    """Replace this process by a new fleet worker: the lost one's workflows must not go on."""
    worker.starter.close()
    print_warning("this worker lost its lease; starting anew")
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "travois", *sys.argv[1:]])  # noqa: S606


def _exit_now(code: int) -> NoReturn:
    """Exit though workflows that the fleet worker gave back still wait in its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _serve_health(worker: FleetWorker, port: int) -> None:
    """Serve a fleet worker's `/healthz` (it runs) and `/readyz` (it holds its lease)."""

    class HealthPage(BaseHTTPRequestHandler):
        """The answers."""

        def do_GET(self) -> None:
            """Answer a probe."""
            known = self.path in ("/healthz", "/readyz")
            is_ready = not worker.is_lost and (self.path == "/healthz" or worker.has_lease())
            code = 404 if not known else 200 if is_ready else 503
            body = b"ok\n" if code == 200 else b"no\n"
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: a probe comes every few seconds."""

    try:
        server = ThreadingHTTPServer(("", port), HealthPage)
    except OSError as error:
        raise UserError(f"Port {port} cannot be listened on", why=str(error)) from None
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
