"""The three steps of a task's workflow: prepare, attempt, publish.

DBOS runs each until its result is recorded; a step may therefore run again, on this machine or on
another, at any point. What a step did is in the fleet's tables and in the task's folder, so that
running it again goes on instead of starting over.
"""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path
from typing import Protocol

from travois.core.errors import UserError
from travois.fleet.child import (
    ChildResult,
    ChildRun,
    build_child_words,
    child_environment,
    read_session_totals,
    session_id,
)
from travois.fleet.rate_reports import RateReports
from travois.fleet.run_process import RunStarter
from travois.fleet.store import FINAL_STATES, FleetStore, TaskRow
from travois.fleet.task import DATABASE_VARIABLE, FleetTask
from travois.fleet.task_command import TaskCommands
from travois.fleet.workspace import Workspace, WorkspaceProblem
from travois.permissions.secrets import (
    Secrets,
    collect_secrets,
    mask_text,
    register_secrets,
    registered_secrets,
)
from travois.providers.catalog import load_catalog
from travois.providers.rate_limits import LIMITS_FILE_VARIABLE
from travois.sessions import blobs

MAX_TRIES = 8
"""How often a task is tried after overload, network failures and lost runs."""
RETRY_SECONDS = (2.0, 5.0, 15.0, 60.0, 120.0, 300.0)
RATE_LIMIT_SECONDS = 15.0
"""How long a key is paused where the provider does not say."""
GIVE_BACK_SECONDS = 5.0
"""A rate limit that lasts longer frees the slot for tasks of other keys."""
BUDGET_WAIT_SECONDS = 5.0
MAX_BUNDLE_BYTES = 64_000_000
MAX_ANSWER_CHARS = 20_000


class WorkerLease(Protocol):
    """The part of a worker that the steps need to know."""

    id: str
    slots: int
    lease_file: Path
    starter: RunStarter
    commands: TaskCommands

    def wait_for_lease(self) -> None:
        """Block while the worker has no lease; for ever if it is to end."""
        ...

    def stand_down(self) -> None:
        """Give the task back: never returns, as the workflow must not end."""
        ...

    def watch_child(self, id: str, child: ChildRun | None) -> None:
        """Register the run of a task, or that it is over."""
        ...


class TaskSteps:
    """The steps, on one worker."""

    def __init__(self, store: FleetStore, lease: WorkerLease, *, folder: Path, home: Path) -> None:
        self._store = store
        self._lease = lease
        self._folder = folder
        self._home = home
        # Keys that tasks name, such as ANTHROPIC_API_KEY_TEAM_B, do not all look like secrets.
        self._provider_names = list_provider_key_names()
        self._keys = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(self._provider_names) and name not in self._provider_names
        }
        register_secrets(self._keys.items())

    def prepare(self, id: str, run: int) -> bool:
        """Clone the repository and run the setup command; return whether to go on."""
        row = self._claim_or_stand_down(id, run)
        if row.is_final or self._is_put_off(row):
            return False
        if row.task.best_of > 1 or row.attempted == run:
            return True
        place = self._open_workspace(row)
        try:
            base = place.prepare_clone(row.task, base=row.base, age=row.age)
        except WorkspaceProblem as problem:
            return self._fail_or_retry(row, problem)
        self._save_or_stand_down(row, base=base, state="running")
        return True

    def attempt(self, id: str, run: int) -> bool:
        """Run the agent until it has finished; return whether there is something to publish."""
        row = self._claim_or_stand_down(id, run)
        if row.is_final or self._is_put_off(row):
            return False
        if row.attempted == run:  # by a worker that was lost before DBOS recorded it
            return bool(row.head)
        if row.task.best_of > 1:
            return self._pick_winner(row)
        if spent := _find_spent_limit(row):
            return self._end_task(row, "limit", spent)
        if wait := self._store.take_request(row):
            return self._wait_for_bucket(row, wait)
        budget = self._store.reserve_budget(row, slots=self._lease.slots)
        if budget is None:
            return self._wait_for_fleet_budget(row)
        if row.state != "running":
            self._save_or_stand_down(row, state="running")
        place = self._open_workspace(row)
        try:
            place.prepare_clone(row.task, base=row.base, age=row.age)
            result = self._run_child(row, place, usd=budget)
            return self._finish_attempt(row, place, result)
        except WorkspaceProblem as problem:
            return self._fail_or_retry(row, problem)
        except OSError as error:
            return self._end_task(row, "failed", f"this machine could not run it: {error}")

    def publish(self, id: str, run: int) -> bool:
        """Push the result, the only effect outside; return whether it is there."""
        row = self._claim_or_stand_down(id, run)
        if row.is_final:
            return row.state == "done"
        task, place = row.task, self._open_workspace(row)
        try:
            if not place.has_commit(row.head):
                bundle = self._store.read_artifact(id, "bundle")
                if bundle is None:
                    raise WorkspaceProblem("The result is lost", why="its worker's disk is gone")
                place.unpack_bundle(task, base=row.base, bundle=bundle)
            self._lease.wait_for_lease()
            if not self._store.is_current_epoch(row):
                return self._end_task(row, "cancelled", "cancelled")
            place.push_result(task, row.head, before=row.published)
        except WorkspaceProblem as problem:
            return self._fail_or_retry(
                row, problem, attempted=row.run + 1
            )  # only to be pushed again
        except OSError as error:
            return self._end_task(row, "failed", f"this machine could not push it: {error}")
        self._save_or_stand_down(row, state="done", published=row.head)
        return True

    def record_crash(self, id: str, run: int) -> None:
        """End a task whose step failed in a way that nothing here provides for."""
        row = self._claim_or_stand_down(id, run)
        if not row.is_final:
            self._end_task(row, "failed", "a bug in Travois; worker.log has the traceback")

    # What the steps share.

    def _claim_or_stand_down(self, id: str, run: int) -> TaskRow:
        """Take the task under the next epoch; give it back if this worker may not."""
        self._lease.wait_for_lease()
        row = self._store.claim_run(id, run, worker=self._lease.id)
        if row is None:
            self._lease.stand_down()
        assert row is not None
        return row

    def _save_or_stand_down(self, row: TaskRow, **values: object) -> None:
        if not self._store.save_task(row, **values):
            self._lease.stand_down()

    def _end_task(self, row: TaskRow, state: str, why: str) -> bool:
        assert state in FINAL_STATES
        self._save_or_stand_down(row, state=state, why=why)
        return False

    def _open_workspace(self, row: TaskRow) -> Workspace:
        return Workspace(
            self._folder / "tasks" / row.id / str(row.fresh),
            self._folder / "mirrors",
            self._lease.commands,
            frozenset((*self._keys, DATABASE_VARIABLE)),
        )

    def _is_put_off(self, row: TaskRow) -> bool:
        """End a cancelled task; put one back whose provider key is paused."""
        if row.cancelled:
            self._end_task(row, "cancelled", "cancelled")
            return True
        pause = self._store.key_pause(row.key)
        if pause:
            later = pause + random.random()  # noqa: S311 - spreads load
            self._postpone_or_stand_down(row, later, waits=row.waits + 1, why="rate limit")
        return pause > 0

    def _postpone_or_stand_down(self, row: TaskRow, delay: float, /, **values: object) -> None:
        if not self._store.postpone_task(row, delay, **values):
            self._lease.stand_down()

    def _fail_or_retry(self, row: TaskRow, problem: UserError, **kept: object) -> bool:
        told = mask_text(f"{problem.what}: {problem.why}" if problem.why else problem.what)
        if isinstance(problem, WorkspaceProblem) and problem.retryable and row.tries < MAX_TRIES:
            self._postpone_or_stand_down(
                row, _pick_retry_delay(row.tries), tries=row.tries + 1, why=told, **kept
            )
            return False
        return self._end_task(row, "failed", told)

    def _wait_for_fleet_budget(self, row: TaskRow) -> bool:
        """Wait while running tasks hold the rest of the fleet's budget; end if it is spent."""
        if self._store.has_reserved_budget():
            self._postpone_or_stand_down(
                row, BUDGET_WAIT_SECONDS, why="waits for the fleet's budget"
            )
            return False
        return self._end_task(row, "limit", "the fleet's budget is spent")

    def _wait_for_bucket(self, row: TaskRow, wait: float) -> bool:
        """Put a task back until its provider key has requests and tokens again."""
        later = wait + random.random()  # noqa: S311 - spreads load
        told = "waits for the rate limit to refill"
        self._postpone_or_stand_down(row, later, waits=row.waits + 1, why=told)
        return False

    # The attempt.

    def _run_child(self, row: TaskRow, workspace: Workspace, *, usd: float) -> ChildResult:
        """Run the agent; again each time it was stopped because the lease could not be renewed."""
        home = workspace.home / "travois"
        self._copy_settings(home)
        environment = workspace.environment(
            child_environment(
                row.task,
                self._key_variables(row.task),
                store=self._store.database.session_store_variables(row.epoch),
            )
        )
        reports = RateReports(workspace.folder / "rate-limits.jsonl")
        environment[LIMITS_FILE_VARIABLE] = str(reports.path)
        while True:
            self._lease.wait_for_lease()
            words = build_child_words(
                row.task,
                session=session_id(row.id, fresh=row.fresh),
                usd=row.cost + usd if usd else 0.0,
                lease=self._lease.lease_file,
            )
            child = ChildRun(self._lease.starter, _known_secrets())
            child.on_rate_limit = partial(self._pause_provider_key, row, child)
            child.on_response = partial(self._fill_buckets, row, reports)
            self._lease.watch_child(row.id, child)
            try:
                result = child.follow_to_end(
                    words,
                    prompt=row.task.prompt,
                    cwd=workspace.clone,
                    env=environment,
                    log=workspace.folder / "log.jsonl",
                )
            finally:
                self._lease.watch_child(row.id, None)
            if result.stopped == "leaving":
                self._lease.stand_down()
            if result.stopped != "lease":
                return result

    def _fill_buckets(self, row: TaskRow, reports: RateReports) -> None:
        """Share what a response said about the limits of its key."""
        if levels := reports.read_levels():
            self._store.fill_buckets(row, levels)

    def _pause_provider_key(self, row: TaskRow, child: ChildRun, seconds: float, why: str) -> None:
        """Let no other task of this key start meanwhile."""
        self._store.pause_key(row.key, seconds, why)
        if seconds >= GIVE_BACK_SECONDS:
            child.stop("rate")

    def _finish_attempt(self, row: TaskRow, workspace: Workspace, result: ChildResult) -> bool:
        """Record what a run used and left, and decide what comes next."""
        totals = read_session_totals(
            workspace.home / "travois", session_id(row.id, fresh=row.fresh)
        )
        used: dict[str, object] = {
            "cost": totals.dollars,
            "input_tokens": totals.usage.context - totals.usage.output,
            "cached_tokens": totals.usage.read,
            "output_tokens": totals.usage.output,
            "seconds": row.seconds + result.seconds,
        }
        if result.stopped == "cancelled":
            self._save_or_stand_down(row, state="cancelled", why="cancelled", **used)
            return False
        if result.stopped == "rate" or (result.outcome == "retryable" and result.is_rate_limit):
            return self._wait_for_rate_limit(row, result, used)
        if result.outcome in ("retryable", "lost", "interrupted") and row.tries < MAX_TRIES:
            delay = _pick_retry_delay(row.tries)
            self._postpone_or_stand_down(row, delay, tries=row.tries + 1, why=result.why, **used)
            return False
        self._save_or_stand_down(row, **used, answer=result.answer[:MAX_ANSWER_CHARS])
        return self._record_attempt(row, workspace, result)

    def _wait_for_rate_limit(
        self, row: TaskRow, result: ChildResult, used: dict[str, object]
    ) -> bool:
        """Put the task back: a rate limit is waiting, not failure."""
        pause = self._store.key_pause(row.key)
        if not pause:
            pause = RATE_LIMIT_SECONDS
            self._store.pause_key(row.key, pause, result.why)
        told = result.why or "rate limit"
        self._postpone_or_stand_down(row, pause, waits=row.waits + 1, why=told, **used)
        return False

    def _record_attempt(self, row: TaskRow, workspace: Workspace, result: ChildResult) -> bool:
        """Commit and check what the agent left; return whether to push it."""
        task, head = row.task, workspace.commit_result(row.task, base=row.base, at=row.created)
        self._store.save_artifact(row.id, "log", (workspace.folder / "log.jsonl").read_bytes())
        if head:
            self._store.save_artifact(row.id, "patch", workspace.diff_result(row.base, head))
            self._save_bundle(row, workspace, head)
        if result.outcome != "done":
            state = result.outcome if result.outcome in ("limit", "refused") else "failed"
            self._save_or_stand_down(row, head=head, attempted=row.run)
            return self._end_task(row, state, result.why)
        code, said = 0, ""
        if task.check:
            code, said = workspace.run_command(task.check)
            self._save_or_stand_down(row, check_code=code, score=_read_score(said))
        self._save_or_stand_down(row, head=head, attempted=row.run)
        if code:
            return self._end_task(
                row, "failed", f"the check failed with exit code {code}: {said[-500:]}"
            )
        if not head or task.publish == "patch" or row.member_of:
            self._save_or_stand_down(row, state="done", why="" if head else "nothing was changed")
            return False
        return True

    def _save_bundle(self, row: TaskRow, workspace: Workspace, head: str) -> None:
        """Store the commits where another machine may have to push them, or pick among them."""
        if self._store.database.is_sqlite and not row.member_of:
            return
        bundle = workspace.bundle_result(row.base, head)
        if len(bundle) <= MAX_BUNDLE_BYTES:
            self._store.save_artifact(row.id, "bundle", bundle)

    def _pick_winner(self, row: TaskRow) -> bool:
        """Take over the result of the best run: the highest score, then the cheapest."""
        members = self._store.list_members(row.id)
        passed = [one for one in members if one.state == "done" and one.head]
        if not passed:
            return self._end_task(row, "failed", f"none of {len(members)} runs passed the check")
        best = min(passed, key=lambda one: (-(one.score or 0.0), one.cost, one.id))
        for name in ("patch", "bundle"):
            if data := self._store.read_artifact(best.id, name):
                self._store.save_artifact(row.id, name, data)
        told = f"{best.id} of {len(members)}, {len(passed)} passed"
        found = {"base": best.base, "head": best.head, "score": best.score, "answer": best.answer}
        self._save_or_stand_down(row, attempted=row.run, why=told, check_code=0, **found)
        if row.task.publish == "patch":
            self._save_or_stand_down(row, state="done")
            return False
        return True

    def _copy_settings(self, home: Path) -> None:
        """Give the run the user's settings; sessions, memories and trust are its own."""
        blobs.make_folders(home)
        mine = self._home / "settings.json"
        if mine.exists():
            blobs.replace_file(home / "settings.json", mine.read_bytes(), sync="whenever")

    def _key_variables(self, task: FleetTask) -> dict[str, str]:
        """Return the provider key that a task names, under the name that its provider reads."""
        if not task.key:
            return {}
        value = os.environ.get(task.key)
        if not value:
            raise WorkspaceProblem(f"This worker has no {task.key}", why="the variable is not set")
        register_secrets([(task.key, value)])
        read = [name for name in self._provider_names if task.key.startswith(name)]
        return {max(read, key=len, default=task.key): value}


def list_provider_key_names() -> tuple[str, ...]:
    """Return the variables for provider keys, which a fleet task's steps need."""
    return tuple(name for served in load_catalog().providers.values() for name in served.key_env)


def _known_secrets() -> Secrets:
    """Return the secrets to remove from a fleet task's logs."""
    known = (*collect_secrets(os.environ.items()).values, *registered_secrets().values)
    return Secrets(known)


def _find_spent_limit(row: TaskRow) -> str:
    """Return the limit that a fleet task's earlier runs have reached; empty if none."""
    if 0 < row.task.max_usd <= row.cost:
        return f"the task's limit of ${row.task.max_usd:g} is spent"
    if 0 < row.task.max_seconds <= row.seconds:
        return f"the task's limit of {row.task.max_seconds:g} seconds is over"
    return ""


def _pick_retry_delay(tries: int) -> float:
    seconds = RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
    return seconds * (0.75 + random.random() / 2)  # noqa: S311 - spreads load


def _read_score(said: str) -> float | None:
    """Return the number that a fleet task's check printed last, to compare passing runs."""
    words = said.split()
    try:
        return float(words[-1]) if words else None
    except ValueError:
        return None
