"""The snapshots of one project in one file: contents once each, bounded, whole after any crash."""

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

from travois.store.snapshot.node import Node, Root, Snapshot

PIECE = 8 << 20
"""How many bytes of a file are kept as one."""
TINY = 128
"""What is not worth packing."""
PATIENCE = 120.0
"""How many seconds to wait for another session that takes a snapshot."""
TABLES = """
pragma auto_vacuum = full;
pragma cache_size = -65536;
create table if not exists piece (name blob primary key, packed int, content blob);
create table if not exists snapshot (name text primary key, at real, why text, roots blob);
create table if not exists folder (path blob primary key, seen blob) without rowid;
"""


class Seen(msgspec.Struct, array_like=True):
    """A folder as it was last time: a mark of the state of each name, and what was made of it."""

    marks: dict[bytes, int]
    leaves: tuple[Node, ...]
    folders: tuple[Node, ...]
    node: Node
    """The folder itself."""

    @property
    def settled(self) -> bool:
        """Whether all files in it are covered."""
        inner = (max(folder.size, 1) for folder in self.folders if folder.holes)
        return self.node.size == sum(inner)


class Shelf:
    """An open file of snapshots, for one thread."""

    def __init__(self, base: sqlite3.Connection, packs: Path) -> None:
        self._base = base
        self._packs = packs
        """Packs of git, by links that keep them when git lets go of them."""

    def put(self, content: bytes) -> bytes:
        """Keep these bytes; returns their name."""
        name = named(content)
        known = self._base.execute("select 1 from piece where name = ?", (name,))
        if known.fetchone() is None:
            packed = zlib.compress(content, 1) if len(content) > TINY else content
            shorter = len(packed) < len(content)
            row = (name, int(shorter), packed if shorter else content)
            self._base.execute("insert into piece values (?, ?, ?)", row)
        return name

    def get(self, name: bytes) -> bytes:
        """The bytes of that name; raises KeyError."""
        found = self._base.execute("select packed, content from piece where name = ?", (name,))
        row: tuple[int, bytes] | None = found.fetchone()
        if row is None:
            raise KeyError(name.hex())
        return zlib.decompress(row[1]) if row[0] else row[1]

    def listing(self, name: bytes) -> tuple[Node, ...]:
        """The nodes in a folder."""
        return msgspec.msgpack.decode(self.get(name), type=tuple[Node, ...])

    def link(self, path: bytes, name: bytes) -> bool:
        """Hold on to a file that never changes; false if that takes a copy."""
        kept = self.pack(name)
        try:
            self._packs.mkdir(mode=0o700, exist_ok=True)
            os.link(path, kept, follow_symlinks=False)
        except FileExistsError:
            return True
        except OSError:
            return False
        return True

    def pack(self, name: bytes) -> Path:
        """Where a linked file is held."""
        return self._packs / name.hex()

    def seen(self) -> dict[bytes, Seen]:
        """All folders as they were last time."""
        rows: Iterable[tuple[bytes, bytes]] = self._base.execute("select path, seen from folder")
        decoder = msgspec.msgpack.Decoder(Seen)
        return {path: decoder.decode(seen) for path, seen in rows}

    def see(self, path: bytes, seen: Seen | None) -> None:
        """Remember a folder, or forget it."""
        if seen is None:
            self._base.execute("delete from folder where path = ?", (path,))
            return
        row = (path, msgspec.msgpack.encode(seen))
        self._base.execute("insert or replace into folder values (?, ?)", row)

    def add(self, snapshot: Snapshot) -> None:
        """Make a snapshot one that can be gone back to."""
        roots = msgspec.msgpack.encode(snapshot.roots)
        row = (snapshot.name, snapshot.at, snapshot.why, roots)
        self._base.execute("insert into snapshot values (?, ?, ?, ?)", row)

    def find(self, name: str) -> Snapshot | None:
        """The snapshot of that name."""
        where = "select * from snapshot where name = ?"
        return next(map(_snapshot, self._base.execute(where, (name,))), None)

    def newest(self) -> Iterator[Snapshot]:
        """All snapshots, the newest first."""
        yield from map(
            _snapshot, self._base.execute("select * from snapshot order by rowid desc").fetchall()
        )

    def size(self) -> int:
        """How many bytes are taken, without packs that git has too."""
        pages, free, page = (
            self._base.execute(f"pragma {what}").fetchone()[0]
            for what in ("page_count", "freelist_count", "page_size")
        )
        own = (file.stat() for file in self._packs.glob("*"))
        return (pages - free) * page + sum(s.st_size for s in own if s.st_nlink == 1)

    def prune(self, *, limit: int, count: int) -> int:
        """Drop the oldest snapshots where there are too many; returns how many went."""
        (held,) = self._base.execute("select count(*) from snapshot").fetchone()
        if held <= count and self.size() <= limit:
            return 0
        gone, live = self._affordable(room=limit * 3 // 4, count=count * 9 // 10)
        self._base.executemany("delete from snapshot where name = ?", gone)
        self._base.execute("create temp table live (name blob primary key) without rowid")
        self._base.executemany("insert or ignore into live values (?)", ((n,) for n in live))
        self._base.execute("delete from piece where name not in (select name from live)")
        self._base.execute("drop table live")
        self._base.execute("delete from folder")
        self._base.execute(f"pragma user_version = {_age()}")
        for file in self._packs.glob("*"):
            if bytes.fromhex(file.name) not in live:
                file.unlink(missing_ok=True)
        return len(gone)

    def age(self) -> int:
        """Another number whenever something was dropped: what was seen before may be gone."""
        (found,) = self._base.execute("pragma user_version").fetchone()
        return found

    def _affordable(self, *, room: int, count: int) -> tuple[list[tuple[str]], set[bytes]]:
        """Which snapshots must go, and the pieces of those that stay: always the newest."""
        gone: list[tuple[str]] = []
        live: set[bytes] = set()
        for number, snapshot in enumerate(self.newest()):
            fresh = set[bytes]() if gone else self._reached(snapshot, live)
            room -= sum(map(self._length, fresh))
            if gone or (number and (room < 0 or number >= count)):
                gone.append((snapshot.name,))
            else:
                live |= fresh
        return gone, live

    def _reached(self, snapshot: Snapshot, live: set[bytes]) -> set[bytes]:
        """The pieces that a snapshot has besides those."""
        waiting = [root.node for root in snapshot.roots if root.node is not None]
        reached: set[bytes] = set()
        while waiting:
            node = waiting.pop()
            for name in node.parts if not node.link else ():
                if name not in live and name not in reached:
                    reached.add(name)
                    waiting += self.listing(name) if node.folder else ()
        return reached

    def _length(self, name: bytes) -> int:
        found = self._base.execute("select length(content) from piece where name = ?", (name,))
        row: tuple[int] | None = found.fetchone()
        return row[0] if row else 0


@contextmanager
def opened(path: Path) -> Generator[Shelf]:
    """The file of snapshots, changed as a whole or not at all. Raises OSError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as base:
            path.chmod(0o600)
            base.executescript(TABLES)
            base.execute("begin immediate")
            if not base.execute("pragma user_version").fetchone()[0]:
                base.execute(f"pragma user_version = {_age()}")
            yield Shelf(base, path.with_suffix(".packs"))
            base.execute("commit")
    except sqlite3.Error as error:
        number = ENOSPC if "full" in str(error) else EIO
        raise OSError(number, f"snapshots: {error}", str(path)) from error


def _age() -> int:
    return 1 + int.from_bytes(os.urandom(3))


def named(content: bytes) -> bytes:
    """The name of some bytes."""
    return blake2b(content, digest_size=20).digest()


def _snapshot(row: tuple[str, float, str, bytes]) -> Snapshot:
    name, at, why, roots = row
    return Snapshot(name, at, why, msgspec.msgpack.decode(roots, type=tuple[Root, ...]))
