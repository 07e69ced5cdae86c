"""A session store in PostgreSQL. Each change is one transaction that locks the session's row."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from threading import RLock
from typing import LiteralString

import psycopg

from travois.ports.session_store import OffsetTaken, StaleEpoch, StoredSession, StoreUnavailable

SCHEMA_LOCK = 7_206_157
"""The advisory lock under which the tables are created."""
CONNECT_SECONDS = 5
SCHEMA: LiteralString = """
CREATE TABLE IF NOT EXISTS travois_sessions (
  id text PRIMARY KEY, project text NOT NULL DEFAULT '', epoch bigint NOT NULL DEFAULT 0,
  updated timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS travois_session_chunks (
  session text NOT NULL REFERENCES travois_sessions ON DELETE CASCADE,
  file text NOT NULL, start bigint NOT NULL, size bigint NOT NULL, data bytea NOT NULL,
  PRIMARY KEY (session, file, start));
CREATE TABLE IF NOT EXISTS travois_session_files (
  session text NOT NULL REFERENCES travois_sessions ON DELETE CASCADE,
  file text NOT NULL, data bytea NOT NULL, PRIMARY KEY (session, file));
CREATE TABLE IF NOT EXISTS travois_session_blobs (name text PRIMARY KEY, data bytea NOT NULL);
"""


class PostgresStore:
    """Tables in a database; they are created with the first use."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection | None = None
        self._lock = RLock()

    def claim_session(self, session: StoredSession) -> int:
        """Claim a session under the given epoch, or the next one."""
        with self._run_transaction() as cursor:
            cursor.execute(
                "INSERT INTO travois_sessions (id) VALUES (%s) ON CONFLICT DO NOTHING",
                (session.id,),
            )
            known = _select_epoch_for_update(cursor, session.id)
            epoch = session.epoch or known + 1
            if epoch < known:
                raise StaleEpoch(f"epoch {epoch} is over: the session was claimed under {known}")
            cursor.execute(
                "UPDATE travois_sessions SET epoch = %s, updated = now(),"
                " project = coalesce(nullif(%s, ''), project) WHERE id = %s",
                (epoch, session.project, session.id),
            )
        return epoch

    def append_log(self, session: str, file: str, data: bytes, *, offset: int, epoch: int) -> None:
        """Append to a log that ends at `offset`."""
        with self._run_transaction() as cursor:
            _lock_claimed_session(cursor, session, epoch)
            size = _log_size(cursor, session, file)
            if size != offset:
                known = _select_log(cursor, session, file, offset=offset)
                if offset > size or known[: len(data)] != data:
                    raise OffsetTaken(f"{file} has {size} bytes")
                return
            cursor.execute(
                "INSERT INTO travois_session_chunks VALUES (%s, %s, %s, %s, %s)",
                (session, file, offset, len(data), data),
            )
            cursor.execute("UPDATE travois_sessions SET updated = now() WHERE id = %s", (session,))

    def put_file(self, session: str, file: str, data: bytes, *, epoch: int) -> None:
        """Replace a file."""
        with self._run_transaction() as cursor:
            _lock_claimed_session(cursor, session, epoch)
            cursor.execute(
                "INSERT INTO travois_session_files VALUES (%s, %s, %s)"
                " ON CONFLICT (session, file) DO UPDATE SET data = excluded.data",
                (session, file, data),
            )

    def list_stored_logs(self, session: str) -> dict[str, int]:
        """Return the logs of a session with their sizes."""
        with self._run_transaction() as cursor:
            cursor.execute(
                "SELECT file, max(start + size) FROM travois_session_chunks"
                " WHERE session = %s GROUP BY file",
                (session,),
            )
            return {file: int(size) for file, size in cursor.fetchall()}

    def list_stored_files(self, session: str) -> tuple[str, ...]:
        """Return the other files of a session."""
        with self._run_transaction() as cursor:
            cursor.execute(
                "SELECT file FROM travois_session_files WHERE session = %s ORDER BY file",
                (session,),
            )
            return tuple(file for (file,) in cursor.fetchall())

    def read_stored_log(self, session: str, file: str, *, offset: int = 0) -> bytes:
        """Return a log from an offset."""
        with self._run_transaction() as cursor:
            if not _log_size(cursor, session, file):
                raise KeyError(file)
            return _select_log(cursor, session, file, offset=offset)

    def read_stored_file(self, session: str, file: str) -> bytes:
        """Return a file."""
        with self._run_transaction() as cursor:
            cursor.execute(
                "SELECT data FROM travois_session_files WHERE session = %s AND file = %s",
                (session, file),
            )
            return _only_value(cursor, file)

    def put_blob(self, name: str, data: bytes) -> None:
        """Keep bytes under the digest that names them."""
        with self._run_transaction() as cursor:
            cursor.execute(
                "INSERT INTO travois_session_blobs VALUES (%s, %s) ON CONFLICT DO NOTHING",
                (name, data),
            )

    def get_blob(self, name: str) -> bytes:
        """Return the bytes of a digest."""
        with self._run_transaction() as cursor:
            cursor.execute("SELECT data FROM travois_session_blobs WHERE name = %s", (name,))
            return _only_value(cursor, name)

    def list_stored_sessions(self) -> tuple[StoredSession, ...]:
        """Return all sessions."""
        with self._run_transaction() as cursor:
            cursor.execute(
                "SELECT id, project, epoch, extract(epoch FROM updated) FROM travois_sessions"
            )
            return tuple(
                StoredSession(id, project, int(epoch), float(updated))
                for id, project, epoch, updated in cursor.fetchall()
            )

    @contextmanager
    def _run_transaction(self) -> Generator[psycopg.Cursor]:
        """Run one transaction; a lost connection is opened again by the next one."""
        with self._lock:
            try:
                connection = self._connect_and_prepare()
                with connection.transaction(), connection.cursor() as cursor:
                    yield cursor
            except psycopg.Error as error:
                self._connection = None
                raise StoreUnavailable(
                    "The session store cannot be used",
                    why=str(error).strip().partition("\n")[0],
                    fix="Start the database, or choose another --session-store.",
                ) from error

    def _connect_and_prepare(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            connection = psycopg.connect(
                self._url, autocommit=True, connect_timeout=CONNECT_SECONDS
            )
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
                cursor.execute(SCHEMA)
            self._connection = connection
        return self._connection


def _select_epoch_for_update(cursor: psycopg.Cursor, session: str) -> int:
    """Lock a session's row until the transaction ends; return its epoch, 0 if unknown."""
    cursor.execute("SELECT epoch FROM travois_sessions WHERE id = %s FOR UPDATE", (session,))
    row = cursor.fetchone()
    return int(row[0]) if row else 0


def _lock_claimed_session(cursor: psycopg.Cursor, session: str, epoch: int) -> None:
    known = _select_epoch_for_update(cursor, session)
    if epoch < known:
        raise StaleEpoch(f"epoch {epoch} is over: the session was claimed under {known}")


def _log_size(cursor: psycopg.Cursor, session: str, file: str) -> int:
    cursor.execute(
        "SELECT coalesce(max(start + size), 0) FROM travois_session_chunks"
        " WHERE session = %s AND file = %s",
        (session, file),
    )
    return int(_only_value(cursor, file))


def _select_log(cursor: psycopg.Cursor, session: str, file: str, *, offset: int) -> bytes:
    cursor.execute(
        "SELECT start, data FROM travois_session_chunks"
        " WHERE session = %s AND file = %s AND start + size > %s ORDER BY start",
        (session, file, offset),
    )
    rows = cursor.fetchall()
    whole = b"".join(data for _, data in rows)
    return whole[offset - int(rows[0][0]) :] if rows else b""


def _only_value(cursor: psycopg.Cursor, name: str) -> bytes:
    row = cursor.fetchone()
    if row is None:
        raise KeyError(name)
    return row[0]
