"""The fleet's own tables beside those of DBOS: tasks, workers, provider keys; SQLite or Postgres.

Every method is one transaction. Time is the database's, so that the clocks of workers do not
matter. What a worker writes about a task is conditional on the task's epoch, which grows each time
a worker takes it: one that lost its lease can write nothing any more.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import event, exc

from travois.compose.options import STORE_VARIABLE
from travois.compose.session_store import EPOCH_VARIABLE
from travois.core.errors import UserError
from travois.fleet.rate_reports import BucketLevel
from travois.fleet.task import FleetTask
from travois.permissions.secrets import mask_text

SCHEMA_VERSION = 3
TaskState = Literal[
    "queued",
    "enqueued",
    "running",
    "waiting",
    "members",
    "done",
    "failed",
    "limit",
    "refused",
    "cancelled",
]
FINAL_STATES = ("done", "failed", "limit", "refused", "cancelled")
BUSY_TIMEOUT_SECONDS = 30
CONNECT_TIMEOUT_SECONDS = 5
OUTAGE_POLL_SECONDS = 0.5
BEGIN_WRITING = "BEGIN IMMEDIATE"
"""Takes SQLite's write lock: a transaction that reads first would fail once it writes."""
BEGIN_READING = "BEGIN"
LEAST_TOKEN_SHARE = 0.05
"""No run starts with less of a token limit left."""
Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

METADATA = sa.MetaData()
FLEET = sa.Table(
    "travois_fleet",
    METADATA,
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("up_since", sa.Float, nullable=False),
    sa.Column("last_beat", sa.Float, nullable=False),
    sa.Column("max_usd", sa.Float, nullable=False),
)
TASKS = sa.Table(
    "travois_tasks",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False, index=True),
    sa.Column("key", sa.Text, nullable=False, default=""),
    sa.Column("member_of", sa.Text, nullable=False, default="", index=True),
    sa.Column("run", sa.Integer, nullable=False, default=1),
    sa.Column("not_before", sa.Float, nullable=False, default=0.0),
    sa.Column("cancelled", sa.Integer, nullable=False, default=0),
    sa.Column("epoch", sa.Integer, nullable=False, default=0),
    sa.Column("worker", sa.Text, nullable=False, default=""),
    sa.Column("fresh", sa.Integer, nullable=False, default=0),
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    sa.Column("waits", sa.Integer, nullable=False, default=0),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("started", sa.Float, nullable=False, default=0.0),
    sa.Column("ended", sa.Float, nullable=False, default=0.0),
    sa.Column("seconds", sa.Float, nullable=False, default=0.0),
    sa.Column("cost", sa.Float, nullable=False, default=0.0),
    sa.Column("reserved", sa.Float, nullable=False, default=0.0),
    sa.Column("input_tokens", sa.BigInteger, nullable=False, default=0),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False, default=0),
    sa.Column("output_tokens", sa.BigInteger, nullable=False, default=0),
    sa.Column("base", sa.Text, nullable=False, default=""),
    sa.Column("head", sa.Text, nullable=False, default=""),
    sa.Column("attempted", sa.Integer, nullable=False, default=0),
    sa.Column("published", sa.Text, nullable=False, default=""),
    sa.Column("check_code", sa.Integer),
    sa.Column("score", sa.Float),
    sa.Column("why", sa.Text, nullable=False, default=""),
    sa.Column("answer", sa.Text, nullable=False, default=""),
)
ARTIFACTS = sa.Table(
    "travois_artifacts",
    METADATA,
    sa.Column("task", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
WORKERS = sa.Table(
    "travois_workers",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("place", sa.Text, nullable=False),
    sa.Column("slots", sa.Integer, nullable=False),
    sa.Column("state", sa.Text, nullable=False, index=True),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("beat", sa.Float, nullable=False),
)
KEYS = sa.Table(
    "travois_keys",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("paused_until", sa.Float, nullable=False, default=0.0),
    sa.Column("why", sa.Text, nullable=False, default=""),
)
SCHEDULES = sa.Table(
    "travois_schedules",
    METADATA,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("timezone", sa.Text, nullable=False),
    sa.Column("tasks", sa.Text, nullable=False),
    sa.Column("due", sa.Float, nullable=False, index=True),
    sa.Column("fired", sa.Float, nullable=False, default=0.0),
)
BUCKETS = sa.Table(
    "travois_buckets",
    METADATA,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("level", sa.Float, nullable=False),
    sa.Column("most", sa.Float, nullable=False),
    sa.Column("per_second", sa.Float, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)


class TaskRow(msgspec.Struct, frozen=True):
    """A task with everything known about its run."""

    id: str
    spec: str
    state: TaskState
    key: str
    member_of: str
    run: int
    not_before: float
    cancelled: int
    epoch: int
    worker: str
    fresh: int
    """How often the task was started from scratch; each time has a session of its own."""
    tries: int
    waits: int
    created: float
    started: float
    ended: float
    seconds: float
    cost: float
    reserved: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    base: str
    head: str
    attempted: int
    """The run whose attempt has ended; later steps need not repeat it."""
    published: str
    why: str
    answer: str
    check_code: int | None = None
    score: float | None = None
    age: float = 0.0
    """Seconds since it was submitted, by the database's clock; known when it is claimed."""

    @property
    def task(self) -> FleetTask:
        """The task as it was submitted."""
        return msgspec.json.decode(self.spec, type=FleetTask)

    @property
    def workflow_id(self) -> str:
        """The id of the durable workflow of this run."""
        return f"{self.id}#{self.run}"

    @property
    def is_final(self) -> bool:
        """True if nothing more will happen by itself."""
        return self.state in FINAL_STATES


class Database(msgspec.Struct, frozen=True):
    """The address of a fleet's database."""

    url: str

    @property
    def is_sqlite(self) -> bool:
        """True if it is a file of this machine."""
        return self.url.startswith("sqlite:")

    def session_store_variables(self, epoch: int) -> dict[str, str]:
        """Return the variables that keep a task's session in this database, under its epoch.

        A file of this machine needs no copies of what lies beside it. The password has a variable
        of its own, which no command of the agent gets.
        """
        if self.is_sqlite:
            return {}
        url = sa.make_url(self.url)
        secret = {"PGPASSWORD": str(url.password)} if url.password else {}
        bare = sa.URL.create(
            "postgresql", url.username, None, url.host, url.port, url.database, url.query
        )
        address = bare.render_as_string()
        return {**secret, STORE_VARIABLE: address, EPOCH_VARIABLE: str(epoch)}

    @property
    def shown(self) -> str:
        """The address without its password, and without the driver that nobody wrote."""
        url = sa.make_url(self.url)
        return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def locate_database(url: str, folder: Path) -> Database:
    """Return the fleet's database at an address, by default a file in the fleet's folder."""
    if not url:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Database(f"sqlite:///{folder / 'fleet.db'}")
    try:
        found = sa.make_url(url)
    except exc.ArgumentError:
        raise UserError(
            "--db is not a database address", fix="postgresql://user@host/name, or sqlite:////path"
        ) from None
    if found.get_backend_name() not in ("postgresql", "postgres", "sqlite"):
        raise UserError(f"--db: {found.get_backend_name()} is not supported", fix="Use Postgres.")
    name = "sqlite" if found.get_backend_name() == "sqlite" else "postgresql+psycopg"
    return Database(found.set(drivername=name).render_as_string(hide_password=False))


def outlive_outage(
    ask: Callable[Concatenate[FleetStore, Arguments], Answer],
) -> Callable[Concatenate[FleetStore, Arguments], Answer]:
    """Let a method of a patient store wait for a database that is away, and ask again.

    A step must not end because of an outage: DBOS would record that the task failed.
    """

    @wraps(ask)
    def ask_until_answered(
        store: FleetStore, *args: Arguments.args, **named: Arguments.kwargs
    ) -> Answer:
        while True:
            try:
                return ask(store, *args, **named)
            except DatabaseDown:
                if not store.is_patient:
                    raise
            time.sleep(OUTAGE_POLL_SECONDS)

    return ask_until_answered


class FleetStore:
    """The fleet's tables; a patient one waits while the database is away."""

    def __init__(self, database: Database, *, is_patient: bool = False) -> None:
        self.database = database
        self.is_patient = is_patient
        options: dict[str, object] = {"connect_timeout": CONNECT_TIMEOUT_SECONDS}
        if database.is_sqlite:
            options = {"timeout": BUSY_TIMEOUT_SECONDS}
        self._engine = sa.create_engine(
            database.url, connect_args=options, pool_pre_ping=not database.is_sqlite
        )
        if database.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
            self._now = sa.literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Float)
        else:
            self._now = sa.literal_column(
                "extract(epoch from clock_timestamp())::double precision", sa.Float
            )

    def read_clock(self, connection: sa.Connection) -> float:
        """Return the database's time."""
        return connection.execute(sa.select(self._now)).scalar_one()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def open_transaction(self, *, begin: str = BEGIN_WRITING) -> Generator[sa.Connection]:
        """Open a transaction; raises `UserError` if the database cannot be reached."""
        try:
            with self._engine.execution_options(begin=begin).begin() as connection:
                yield connection
        except (exc.OperationalError, exc.InterfaceError) as error:
            raise DatabaseDown(self.database.shown, error) from error

    def open_reading(self) -> AbstractContextManager[sa.Connection]:
        """Open a transaction that only reads: writers do not wait for it."""
        return self.open_transaction(begin=BEGIN_READING)

    # The schema.

    def create_fleet_tables(self) -> None:
        """Create what is missing. Of two at once, the second waits and changes nothing."""
        with self.open_transaction() as connection:
            if not self.database.is_sqlite:
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7482911)"))
            METADATA.create_all(connection)
            version = connection.execute(sa.select(FLEET.c.version)).scalar()
            if version is not None and version < SCHEMA_VERSION:  # what is new are whole tables
                connection.execute(FLEET.update().values(version=SCHEMA_VERSION))
            if version is None:
                row = {"version": SCHEMA_VERSION, "max_usd": 0.0}
                connection.execute(
                    FLEET.insert().values(up_since=self._now, last_beat=self._now, **row)
                )

    def check_schema_version(self) -> None:
        """Raise `UserError` unless the schema is the one that this Travois knows."""
        version = self.read_schema_version()
        if version == SCHEMA_VERSION:
            return
        place = f"{self.database.shown} has {f'schema {version}' if version else 'no fleet schema'}"
        newer = version is not None and version > SCHEMA_VERSION
        raise UserError(
            "The database does not fit this version of Travois",
            why=f"{place}, this version needs {SCHEMA_VERSION}",
            fix="Update Travois on this machine."
            if newer
            else "Run `travois fleet migrate` first.",
        )

    def read_schema_version(self) -> int | None:
        """Return the version of the fleet's tables; None if there are none."""
        try:
            with self.open_reading() as connection:
                return connection.execute(sa.select(FLEET.c.version)).scalar()
        except exc.ProgrammingError:
            return None
        except DatabaseDown as error:
            if "no such table" not in error.why:
                raise
            return None

    # Tasks: what people do with them.

    def submit_tasks(
        self, tasks: Sequence[FleetTask], *, max_usd: float | None = None
    ) -> tuple[int, int]:
        """Queue tasks, all or none; return how many are new and how many were there already."""
        with self.open_transaction() as connection:
            lock_fleet(connection)
            if max_usd is not None:
                connection.execute(FLEET.update().values(max_usd=max_usd))
            known = self.read_specs(connection, [task.id for task in tasks])
            changed = [t.id for t in tasks if known.get(t.id, _encode_task(t)) != _encode_task(t)]
            if changed:
                raise UserError(
                    f"Task {changed[0]!r} exists already and is a different one",
                    why=f"{len(changed)} of {len(tasks)} ids are taken",
                    fix="Nothing was submitted. Use other ids, or `travois fleet retry`.",
                )
            added = self.insert_new_tasks(connection, tasks, known=known)
        return added, len(tasks) - added

    def insert_new_tasks(
        self, connection: sa.Connection, tasks: Sequence[FleetTask], *, known: Container[str]
    ) -> int:
        """Insert the tasks whose ids are not known; return how many."""
        fresh = [task for task in tasks if task.id not in known]
        for row in (row for task in fresh for row in _task_rows(task)):
            connection.execute(TASKS.insert().values(created=self._now, **row))
        return len(fresh)

    def read_specs(self, connection: sa.Connection, ids: Sequence[str]) -> dict[str, str]:
        """Return those of these tasks that exist, as they were submitted."""
        found: dict[str, str] = {}
        for start in range(0, len(ids), 500):
            chosen = TASKS.c.id.in_(ids[start : start + 500])
            rows = connection.execute(sa.select(TASKS.c.id, TASKS.c.spec).where(chosen))
            found.update({row.id: row.spec for row in rows})
        return found

    def list_tasks(self, states: Iterable[str] = ()) -> tuple[TaskRow, ...]:
        """Return the tasks in the order in which they were submitted."""
        query = sa.select(TASKS).order_by(TASKS.c.created, TASKS.c.id)
        if wanted := tuple(states):
            query = query.where(TASKS.c.state.in_(wanted))
        with self.open_reading() as connection:
            return tuple(_to_row(row) for row in connection.execute(query))

    def find_task(self, id: str) -> TaskRow:
        """Return one task, by its id or the only one that begins so; raises `UserError`."""
        escaped = id.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        query = sa.select(TASKS).where(TASKS.c.id.like(f"{escaped}%", escape="\\")).limit(20)
        with self.open_reading() as connection:
            found = [_to_row(row) for row in connection.execute(query)]
        exact = [row for row in found if row.id == id] or found
        if len(exact) == 1:
            return exact[0]
        near = ", ".join(row.id for row in found[:5])
        raise UserError(
            f"{'Several tasks begin' if found else 'No task begins'} with {id!r}",
            fix=near or "`travois fleet ls` lists them.",
        )

    def cancel_task(self, id: str) -> bool:
        """Ask for a task to stop; return whether it was still to end."""
        chosen = sa.and_(sa.or_(TASKS.c.id == id, TASKS.c.member_of == id), _is_still_open())
        idle = TASKS.c.state.in_(("queued", "waiting", "members"))
        with self.open_transaction() as connection:
            asked = connection.execute(TASKS.update().where(chosen).values(cancelled=1)).rowcount
            connection.execute(
                TASKS.update()
                .where(chosen, idle)
                .values(state="cancelled", why="cancelled", ended=self._now)
            )
        return asked > 0

    def retry_task(self, row: TaskRow, *, fresh: bool) -> None:
        """Queue an ended task again: it goes on where it was, or from scratch."""
        values: dict[str, object] = {"state": "members" if row.task.best_of > 1 else "queued"}
        values |= {"cancelled": 0, "tries": 0, "why": "", "not_before": 0.0, "ended": 0.0}
        if fresh:
            values |= {"fresh": row.fresh + 1, "base": "", "head": ""}
        with self.open_transaction() as connection:
            chosen = sa.or_(TASKS.c.id == row.id, TASKS.c.member_of == row.id)
            ended = TASKS.c.state.in_(FINAL_STATES)
            changed = TASKS.update().where(chosen, ended)
            connection.execute(changed.values(run=TASKS.c.run + 1, attempted=0, **values))

    # Tasks: what workers do with them.

    def list_due_tasks(self, limit: int = 1_000) -> tuple[TaskRow, ...]:
        """Return the tasks that the queue lacks: new ones, and waiting ones whose time has come."""
        paused = sa.select(KEYS.c.key).where(KEYS.c.paused_until > self._now)
        members = TASKS.alias("members")
        open_member = sa.exists().where(
            members.c.member_of == TASKS.c.id, members.c.state.notin_(FINAL_STATES)
        )
        due = sa.or_(
            sa.and_(TASKS.c.state.in_(("queued", "waiting")), TASKS.c.not_before <= self._now),
            sa.and_(TASKS.c.state == "members", ~open_member),
        )
        query = sa.select(TASKS).where(due, TASKS.c.key.notin_(paused), TASKS.c.cancelled == 0)
        with self.open_reading() as connection:
            return tuple(
                _to_row(row)
                for row in connection.execute(query.order_by(TASKS.c.created).limit(limit))
            )

    def mark_enqueued(self, rows: Sequence[TaskRow]) -> None:
        """Record that the queue has these runs."""
        with self.open_transaction() as connection:
            for row in rows:
                same = sa.and_(TASKS.c.id == row.id, TASKS.c.run == row.run)
                waiting = TASKS.c.state.in_(("queued", "waiting", "members"))
                connection.execute(TASKS.update().where(same, waiting).values(state="enqueued"))

    @outlive_outage
    def claim_run(self, id: str, run: int, *, worker: str) -> TaskRow | None:
        """Take a task under the next epoch; None if the worker's lease or the run is over."""
        alive = sa.exists().where(WORKERS.c.id == worker, WORKERS.c.state == "alive")
        mine = sa.and_(TASKS.c.id == id, TASKS.c.run == run, alive)
        started = sa.case((TASKS.c.started > 0, TASKS.c.started), else_=self._now)
        values = {"epoch": TASKS.c.epoch + 1, "worker": worker, "started": started}
        with self.open_transaction() as connection:
            changed = TASKS.update().where(mine).values(**values)
            age = (self._now - TASKS.c.created).label("age")
            row = connection.execute(changed.returning(*TASKS.c, age)).one_or_none()
            return None if row is None else _to_row(row)

    @outlive_outage
    def save_task(self, row: TaskRow, /, **values: object) -> bool:
        """Record something about a task, unless another worker has taken it since."""
        same = sa.and_(TASKS.c.id == row.id, TASKS.c.run == row.run, TASKS.c.epoch == row.epoch)
        if values.get("state") in FINAL_STATES:
            values |= {"ended": self._now, "reserved": 0.0}
        with self.open_transaction() as connection:
            return connection.execute(TASKS.update().where(same).values(**values)).rowcount > 0

    @outlive_outage
    def postpone_task(self, row: TaskRow, delay: float, /, **values: object) -> bool:
        """Put a task back for a while: its next run is a workflow of its own."""
        later = {"state": "waiting", "not_before": self._now + delay, "run": row.run + 1}
        return self.save_task(row, reserved=0.0, **later, **values)

    @outlive_outage
    def is_current_epoch(self, row: TaskRow) -> bool:
        """Return whether a task is still under this epoch, and not cancelled."""
        same = sa.and_(TASKS.c.id == row.id, TASKS.c.epoch == row.epoch, TASKS.c.cancelled == 0)
        with self.open_reading() as connection:
            return connection.execute(sa.select(TASKS.c.id).where(same)).one_or_none() is not None

    @outlive_outage
    def has_reserved_budget(self) -> bool:
        """Return whether running tasks hold parts of the fleet's budget."""
        with self.open_reading() as connection:
            held = sa.select(TASKS.c.id).where(TASKS.c.reserved > 0, _is_still_open()).limit(1)
            return connection.execute(held).first() is not None

    @outlive_outage
    def list_members(self, id: str) -> tuple[TaskRow, ...]:
        """Return the runs that compete for a task."""
        query = sa.select(TASKS).where(TASKS.c.member_of == id).order_by(TASKS.c.id)
        with self.open_reading() as connection:
            return tuple(_to_row(row) for row in connection.execute(query))

    def count_states(self) -> dict[str, int]:
        """Return how many tasks are in each state."""
        query = sa.select(TASKS.c.state, sa.func.count()).group_by(TASKS.c.state)
        with self.open_reading() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def list_cancelled(self, ids: Sequence[str]) -> frozenset[str]:
        """Return which of these tasks were cancelled."""
        with self.open_reading() as connection:
            chosen = sa.and_(TASKS.c.id.in_(ids), TASKS.c.cancelled == 1)
            return frozenset(connection.execute(sa.select(TASKS.c.id).where(chosen)).scalars())

    @outlive_outage
    def reserve_budget(self, row: TaskRow, *, slots: int) -> float | None:
        """Reserve what a run may spend; nought means no limit, None that nothing is left.

        A running task holds its whole limit, so that together they cannot exceed the fleet's.
        """
        own = row.task.max_usd - row.cost if row.task.max_usd else 0.0
        with self.open_transaction() as connection:
            most = connection.execute(sa.select(FLEET.c.max_usd)).scalar_one()
            if not most:
                return own
            lock_fleet(connection)  # two workers must not reserve the same money
            others = sa.func.sum(TASKS.c.cost + TASKS.c.reserved)
            held = connection.execute(sa.select(others).where(TASKS.c.id != row.id)).scalar() or 0.0
            left = most - held - row.cost
            if left <= 0:
                return None
            share = min(own or left / max(slots, 1), left)
            connection.execute(TASKS.update().where(TASKS.c.id == row.id).values(reserved=share))
        return share

    # Files of tasks: patches, bundles, logs.

    @outlive_outage
    def save_artifact(self, task: str, name: str, data: bytes) -> None:
        """Store a file of a task."""
        packed = {"data": zlib.compress(data)}
        same = sa.and_(ARTIFACTS.c.task == task, ARTIFACTS.c.name == name)
        with self.open_transaction() as connection:
            if not connection.execute(ARTIFACTS.update().where(same).values(**packed)).rowcount:
                connection.execute(ARTIFACTS.insert().values(task=task, name=name, **packed))

    @outlive_outage
    def read_artifact(self, task: str, name: str) -> bytes | None:
        """Return a file of a task; None if there is none."""
        same = sa.and_(ARTIFACTS.c.task == task, ARTIFACTS.c.name == name)
        with self.open_reading() as connection:
            found = connection.execute(sa.select(ARTIFACTS.c.data).where(same)).scalar()
        return None if found is None else zlib.decompress(found)

    # Provider keys.

    @outlive_outage
    def pause_key(self, key: str, seconds: float, why: str) -> None:
        """Let no task of a provider key start for a while."""
        until = self._now + seconds
        with self.open_transaction() as connection:
            later = sa.case((KEYS.c.paused_until > until, KEYS.c.paused_until), else_=until)
            same = KEYS.update().where(KEYS.c.key == key)
            if not connection.execute(same.values(paused_until=later, why=why)).rowcount:
                connection.execute(KEYS.insert().values(key=key, paused_until=until, why=why))

    @outlive_outage
    def key_pause(self, key: str) -> float:
        """Return for how many more seconds a key is paused."""
        with self.open_reading() as connection:
            left = sa.select(KEYS.c.paused_until - self._now).where(KEYS.c.key == key)
            return max(connection.execute(left).scalar() or 0.0, 0.0)

    def list_paused_keys(self) -> dict[str, float]:
        """Return the paused keys, and for how many more seconds."""
        left = KEYS.c.paused_until - self._now
        with self.open_reading() as connection:
            rows = connection.execute(sa.select(KEYS.c.key, left.label("left")).where(left > 0))
            return {row.key: row.left for row in rows}

    @outlive_outage
    def fill_buckets(self, row: TaskRow, levels: Sequence[BucketLevel]) -> None:
        """Record what a provider said is left for the key and model of a task."""
        with self.open_transaction() as connection:
            for one in levels:
                values = {"level": one.left, "most": one.most, "per_second": one.per_second}
                same = _buckets_of(row) & (BUCKETS.c.kind == one.kind)
                changed = BUCKETS.update().where(same).values(at=self._now, **values)
                if not connection.execute(changed).rowcount:
                    names = {"key": row.key, "model": row.task.model, "kind": one.kind}
                    connection.execute(BUCKETS.insert().values(at=self._now, **names, **values))

    @outlive_outage
    def take_request(self, row: TaskRow) -> float:
        """Take a request from the buckets of a task, or return the seconds until there is one.

        Each other run of the key may ask at any moment, so that one request is left for each.
        """
        mine, since = _buckets_of(row), self._now - BUCKETS.c.at
        level = (BUCKETS.c.level + since * BUCKETS.c.per_second).label("grown")
        others = sa.select(sa.func.count()).where(
            TASKS.c.key == row.key, TASKS.c.state == "running", TASKS.c.id != row.id
        )
        with self.open_transaction() as connection:
            locked = connection.execute(BUCKETS.update().where(mine).values(kind=BUCKETS.c.kind))
            if not locked.rowcount:
                return 0.0
            running = connection.execute(others).scalar_one()
            found = connection.execute(sa.select(BUCKETS, level).where(mine)).all()
            wait = max(_bucket_wait(one.kind, one, running=running) for one in found)
            if wait <= 0:
                taken = sa.case((level > BUCKETS.c.most, BUCKETS.c.most), else_=level) - 1
                requests = BUCKETS.update().where(mine, BUCKETS.c.kind == "requests")
                connection.execute(requests.values(level=taken, at=self._now))
        return max(wait, 0.0)

    # Workers and their leases.

    def add_worker(self, id: str, *, place: str, slots: int) -> None:
        """Register a worker with a fresh lease."""
        row = {"id": id, "place": place, "slots": slots, "state": "alive"}
        with self.open_transaction() as connection:
            connection.execute(WORKERS.insert().values(started=self._now, beat=self._now, **row))

    def renew_lease(self, worker: str, *, gap: float) -> bool:
        """Renew a worker's lease; False if it was taken away.

        A pause of `gap` seconds in which nobody renewed means that the database was away, not that
        all workers died: every lease starts anew then.
        """
        with self.open_transaction() as connection:
            away = self._now - FLEET.c.last_beat > gap
            since = sa.case((away, self._now), else_=FLEET.c.up_since)
            connection.execute(FLEET.update().values(up_since=since, last_beat=self._now))
            mine = sa.and_(WORKERS.c.id == worker, WORKERS.c.state == "alive")
            return (
                connection.execute(WORKERS.update().where(mine).values(beat=self._now)).rowcount > 0
            )

    def expire_leases(self, seconds: float, *, dead: Sequence[str] = ()) -> None:
        """Take the lease of each worker that did not renew it, and of those known to be dead."""
        since = sa.select(FLEET.c.up_since).scalar_subquery()
        seen = sa.case((WORKERS.c.beat > since, WORKERS.c.beat), else_=since)
        late = sa.or_(self._now - seen > seconds, WORKERS.c.id.in_(dead))
        with self.open_transaction() as connection:
            alive = WORKERS.update().where(WORKERS.c.state == "alive", late)
            connection.execute(alive.values(state="lost"))

    def list_workers(self, *states: str) -> tuple[tuple[str, str, int, float], ...]:
        """Return id, place, slots and age of the last beat of the workers in these states."""
        age = (self._now - WORKERS.c.beat).label("age")
        columns = (WORKERS.c.id, WORKERS.c.place, WORKERS.c.slots, age)
        with self.open_reading() as connection:
            rows = connection.execute(sa.select(*columns).where(WORKERS.c.state.in_(states)))
            return tuple((row.id, row.place, row.slots, row.age) for row in rows)

    def set_worker_state(self, worker: str, state: str) -> None:
        """Record that a worker left, or that its tasks were adopted."""
        with self.open_transaction() as connection:
            connection.execute(WORKERS.update().where(WORKERS.c.id == worker).values(state=state))


class DatabaseDown(UserError):
    """The database cannot be reached, or refuses."""

    def __init__(self, shown: str, error: Exception) -> None:
        first = str(getattr(error, "orig", error)).strip().splitlines()
        super().__init__(
            f"The fleet's database {shown} cannot be used",
            why=mask_text(first[0] if first else type(error).__name__),
            fix="Check the address, that the server runs, and that you may connect.",
        )


def lock_fleet(connection: sa.Connection) -> None:
    """Let transactions of other processes that lock the fleet wait for this one."""
    connection.execute(FLEET.update().values(version=FLEET.c.version))


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    """Leave transactions to us: Python's module begins none before it creates a table."""
    connection.isolation_level = None
    # Whoever opens the file first changes its mode. SQLite does not wait for that lock by itself.
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    """Begin a fleet transaction; one that may write has the lock at once, or waits for it."""
    connection.exec_driver_sql(connection.get_execution_options()["begin"])


def _is_still_open() -> sa.ColumnElement[bool]:
    return TASKS.c.state.notin_(FINAL_STATES)


def _buckets_of(row: TaskRow) -> sa.ColumnElement[bool]:
    return sa.and_(BUCKETS.c.key == row.key, BUCKETS.c.model == row.task.model)


def _bucket_wait(kind: str, bucket: sa.Row[tuple[object, ...]], *, running: int) -> float:
    """Return the seconds until a bucket of a provider key has enough for another run."""
    least = min(1.0 + running, bucket.most)
    if kind != "requests":
        least = bucket.most * LEAST_TOKEN_SHARE
    return (least - bucket.grown) / max(bucket.per_second, 1e-6)


def _encode_task(task: FleetTask) -> str:
    return msgspec.json.encode(task).decode()


def _task_rows(task: FleetTask) -> Iterator[dict[str, object]]:
    """Yield the row of a fleet task, and those of the runs that compete for it."""
    competes = task.best_of > 1
    state = "members" if competes else "queued"
    yield {"id": task.id, "spec": _encode_task(task), "key": task.key, "state": state}
    for number in range(1, task.best_of + 1 if competes else 0):
        id = f"{task.id}.{number}"
        member = msgspec.structs.replace(task, id=id, best_of=1)
        spec = _encode_task(member)
        yield {"id": id, "spec": spec, "key": task.key, "state": "queued", "member_of": task.id}


def _to_row(row: sa.Row[tuple[object, ...]]) -> TaskRow:
    return msgspec.convert(row, TaskRow, from_attributes=True)
