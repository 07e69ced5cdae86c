"""The SQLite file with the snapshots of one project: deduplicated, bounded, crash-safe."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from errno import EIO, ENOSPC
from hashlib import blake2b
from pathlib import Path

import msgspec

from travois.sessions import blobs
from travois.snapshots.git_objects import HeldObjects
from travois.snapshots.tree import Snapshot, SnapshotNode, SnapshotRoot, is_git_blob

PIECE_BYTES = 8 << 20
"""The bytes of a file that are stored as one piece."""
MIN_PACKED_BYTES = 128
"""Contents up to this size are not compressed."""
DATABASE_TIMEOUT_SECONDS = 120.0
"""Seconds to wait for another session that takes a snapshot."""
MAX_PENDING_BYTES = 16 << 20
"""The bytes that may wait in memory before they are written."""
SNAPSHOT_TABLES = """
pragma auto_vacuum = full;
create table if not exists piece (name blob primary key, packed int, content blob);
create table if not exists snapshot (name text primary key, at real, why text, roots blob);
create table if not exists folder (path blob primary key, seen blob) without rowid;
"""


class SeenFolder(msgspec.Struct, array_like=True):
    """A folder's last scan: a mark for the state of each name, and the resulting nodes."""

    marks: dict[bytes, int]
    leaves: tuple[SnapshotNode, ...]
    folders: tuple[SnapshotNode, ...]
    node: SnapshotNode
    """The folder itself."""

    @property
    def is_complete(self) -> bool:
        """True if all files in it are covered."""
        inner = (max(folder.size, 1) for folder in self.folders if folder.has_holes)
        return self.node.size == sum(inner)


class SnapshotsDropped(Exception):
    """Another session removed old snapshots during a scan: stored contents may be gone."""


class SnapshotDatabase:
    """An open snapshot database, for one thread.

    New contents wait in memory and are written in short transactions, so that a long scan blocks no
    other session. They count once `save_snapshot` has written the snapshot that needs them.
    """

    def __init__(self, base: sqlite3.Connection, packs: Path) -> None:
        self._base = base
        self.objects = HeldObjects(packs)
        """The contents that git holds too."""
        self._pieces: dict[bytes, tuple[int, bytes]] = {}
        self._weight = 0

    def put(self, content: bytes, *, packed: bool = True) -> bytes:
        """Store these bytes, compressed if that is worth it; return their name."""
        name = hash_content(content)
        if name in self._pieces:
            return name
        if not packed or not self._has_piece(name):  # uncompressed ones are small: no need to look
            small = (
                zlib.compress(content, 1) if packed and len(content) > MIN_PACKED_BYTES else content
            )
            shorter = len(small) < len(content)
            self._pieces[name] = (int(shorter), small if shorter else content)
            self._weight += len(self._pieces[name][1])
            if self._weight > MAX_PENDING_BYTES:
                self.write_pending()
        return name

    def _has_piece(self, name: bytes) -> bool:
        found = self._base.execute("select 1 from piece where name = ?", (name,))
        return found.fetchone() is not None

    def write_pending(self) -> None:
        """Write the contents that wait in memory."""
        rows = [(name, *piece) for name, piece in self._pieces.items()]
        with self._transaction():
            self._base.executemany("insert or ignore into piece values (?, ?, ?)", rows)
        self._pieces, self._weight = {}, 0

    def save_snapshot(self, snapshot: Snapshot | None, *, age: int) -> None:
        """Write everything that waits, and add the snapshot.

        Raises `SnapshotsDropped` if contents that existed before the scan may be gone since.
        """
        with self._transaction():
            if self.read_generation() != age:
                raise SnapshotsDropped
            rows = [(name, *piece) for name, piece in self._pieces.items()]
            self._base.executemany("insert or ignore into piece values (?, ?, ?)", rows)
            if snapshot is not None:
                self.add_snapshot(snapshot)
        self._pieces, self._weight = {}, 0

    def save_seen(self, folders: dict[bytes, SeenFolder], *, age: int) -> None:
        """Store the folders' last scans, so that the next session need not read them."""
        encode = msgspec.msgpack.Encoder().encode
        rows = [(path, encode(seen)) for path, seen in folders.items()]
        with self._transaction():
            if self.read_generation() == age:
                self._base.executemany("insert or replace into folder values (?, ?)", rows)

    @contextmanager
    def block_pruning(self) -> Generator[None]:
        """Keep other sessions from removing anything for a while."""
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Generator[None]:
        # A transaction that only later becomes a writer fails at once if another session writes.
        self._base.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._base.execute("rollback")
            raise
        self._base.execute("commit")

    def get(self, name: bytes) -> bytes:
        """Return the bytes of that name; raises KeyError."""
        if is_git_blob(name):
            return self.objects.read_blob(name[1:])
        if name in self._pieces:
            packed, content = self._pieces[name]
            return zlib.decompress(content) if packed else content
        found = self._base.execute("select packed, content from piece where name = ?", (name,))
        row: tuple[int, bytes] | None = found.fetchone()
        if row is None:
            raise KeyError(name.hex())
        return zlib.decompress(row[1]) if row[0] else row[1]

    def listing(self, name: bytes) -> tuple[SnapshotNode, ...]:
        """Return the nodes in a folder."""
        return msgspec.msgpack.decode(self.get(name), type=tuple[SnapshotNode, ...])

    def load_seen(self) -> dict[bytes, SeenFolder]:
        """Return the last scans of all folders."""
        rows: Iterable[tuple[bytes, bytes]] = self._base.execute("select path, seen from folder")
        decoder = msgspec.msgpack.Decoder(SeenFolder)
        return {path: decoder.decode(seen) for path, seen in rows}

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a snapshot."""
        roots = msgspec.msgpack.encode(snapshot.roots)
        row = (snapshot.name, snapshot.at, snapshot.why, roots)
        self._base.execute("insert into snapshot values (?, ?, ?, ?)", row)

    def find(self, name: str) -> Snapshot | None:
        """Return the snapshot of that name; None if there is none."""
        where = "select * from snapshot where name = ?"
        return next(map(_decode_snapshot, self._base.execute(where, (name,))), None)

    def newest(self, limit: int = -1) -> Iterator[Snapshot]:
        """Yield the snapshots, the newest first."""
        where = "select * from snapshot order by rowid desc limit ?"
        yield from map(_decode_snapshot, self._base.execute(where, (limit,)).fetchall())

    def size(self) -> int:
        """Return the bytes taken, without what git has too."""
        pages, free, page = (
            self._base.execute(f"pragma {what}").fetchone()[0]
            for what in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * page + self.objects.size()

    def prune(self, *, limit: int, count: int) -> int:
        """Remove the oldest snapshots where there are too many; return how many were removed."""
        (held,) = self._base.execute("select count(*) from snapshot").fetchone()
        if held <= count and self.size() <= limit:
            return 0
        with self._transaction():
            gone, live = self._choose_dropped(room=limit * 3 // 4, count=count * 9 // 10)
            self._base.executemany("delete from snapshot where name = ?", gone)
            self._base.execute("create temp table live (name blob primary key) without rowid")
            self._base.executemany("insert or ignore into live values (?)", ((n,) for n in live))
            self._base.execute("delete from piece where name not in (select name from live)")
            self._base.execute("drop table live")
            # Recorded scans may refer to removed pieces; the new number tells other sessions so.
            self._base.execute("delete from folder")
            self._base.execute(f"pragma user_version = {_random_generation()}")
            self.objects.drop_unused(live)
        return len(gone)

    def read_generation(self) -> int:
        """Return a number that changes whenever a removal may have invalidated earlier scans."""
        (found,) = self._base.execute("pragma user_version").fetchone()
        return found

    def _choose_dropped(self, *, room: int, count: int) -> tuple[list[tuple[str]], set[bytes]]:
        """Return the snapshots to remove, and the pieces of those that stay: always the newest."""
        gone: list[tuple[str]] = []
        live: set[bytes] = set()
        for number, snapshot in enumerate(self.newest()):
            fresh = set[bytes]() if gone else self._find_new_pieces(snapshot, live)
            room -= sum(map(self._piece_length, fresh))
            if gone or (number and (room < 0 or number >= count)):
                gone.append((snapshot.name,))
            else:
                live |= fresh
        return gone, live

    def _find_new_pieces(self, snapshot: Snapshot, live: set[bytes]) -> set[bytes]:
        """Return the pieces of a snapshot that are not yet among the live ones."""
        waiting = [root.node for root in snapshot.roots if root.node is not None]
        reached: set[bytes] = set()
        while waiting:
            node = waiting.pop()
            for name in node.parts if not node.is_link else ():
                if name not in live and name not in reached:
                    reached.add(name)
                    waiting += self.listing(name) if node.is_folder else ()
        return reached

    def _piece_length(self, name: bytes) -> int:
        found = self._base.execute("select length(content) from piece where name = ?", (name,))
        row: tuple[int] | None = found.fetchone()
        return row[0] if row else 0


@contextmanager
def open_snapshot_database(path: Path) -> Generator[SnapshotDatabase]:
    """Open the snapshot database of a project. Raises OSError."""
    try:
        blobs.make_folders(path.parent)
        with closing(
            sqlite3.connect(path, timeout=DATABASE_TIMEOUT_SECONDS, isolation_level=None)
        ) as base:
            _prepare_database(base, path)
            database = SnapshotDatabase(base, path.with_suffix(".packs"))
            with closing(database.objects):
                yield database
    except sqlite3.Error as error:
        number = ENOSPC if "full" in str(error) else EIO
        raise OSError(number, f"snapshots: {error}", str(path)) from error


def _prepare_database(base: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new snapshot database and give it a generation."""
    base.execute("pragma cache_size = -65536")
    if base.execute("pragma user_version").fetchone()[0]:
        return
    path.chmod(0o600)
    base.executescript(SNAPSHOT_TABLES)
    base.execute("begin immediate")
    if not base.execute("pragma user_version").fetchone()[0]:
        base.execute(f"pragma user_version = {_random_generation()}")
    base.execute("commit")


def _random_generation() -> int:
    return 1 + int.from_bytes(os.urandom(3))


def hash_content(content: bytes) -> bytes:
    """Return the hash that names stored content in the snapshot database."""
    return blake2b(content, digest_size=20).digest()


def _decode_snapshot(row: tuple[str, float, str, bytes]) -> Snapshot:
    name, at, why, roots = row
    return Snapshot(name, at, why, msgspec.msgpack.decode(roots, type=tuple[SnapshotRoot, ...]))
