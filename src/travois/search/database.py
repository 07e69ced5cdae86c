"""The SQLite file of a search index: opened on demand, rebuilt when damaged, else in memory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from threading import RLock
from typing import Protocol, TypeVar

import msgspec

from travois.search import lexical
from travois.sessions import blobs

LOCK_TIMEOUT_SECONDS = 30.0
"""The seconds to wait for other processes that write."""
SCHEMA_VERSION = 2
CREATE_TABLES = """
create table if not exists collection (
    number integer primary key, name text unique, embedder text default '',
    documents int default 0, words int default 0, centres blob default x''
);
create table if not exists document (
    number integer primary key autoincrement, collection int, id text, digest blob, band text,
    place int, body blob, words text, cell int, codes blob, unique (collection, id)
);
create index if not exists member on document (collection, band, place);
create index if not exists pending on document (collection) where codes is null;
create table if not exists block (
    collection int, cell int, numbers blob, codes blob, primary key (collection, cell)
);
create table if not exists mark (
    collection int, name text, value text, primary key (collection, name)
) without rowid;
"""
DAMAGED_FILE_CODES = frozenset(
    (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
)
"""What the content of a file is to blame for; the rest is the place where it lies."""

RowT = TypeVar("RowT")


class ForeignIndexFile(sqlite3.DatabaseError):
    """An index file of another version or program."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB


class IndexFile:
    """A SQLite file for any number of threads and processes."""

    def __init__(self, path: Path) -> None:
        self.trouble = ""
        """What became of the file, in a sentence for the user; empty while all is well."""
        self._path = path
        self._base: sqlite3.Connection | None = None
        self._inode = 0
        self._lock = RLock()

    def run(self, action: Callable[[sqlite3.Connection], RowT]) -> RowT:
        """Run an action on the open file, again if the file had to be repaired for it."""
        with self._lock:
            for mend in (self._replace_damaged_file, self._fall_back_to_memory):
                try:
                    return action(self._open_file())
                except sqlite3.DatabaseError as error:
                    self._roll_back()
                    mend(error)
            return action(self._open_file())

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        with self._lock, suppress(sqlite3.Error):
            if self._base is not None:
                self._base.close()
            self._base = None

    def _open_file(self) -> sqlite3.Connection:
        if self._base is not None and self._inode in (0, _file_inode(self._path)):
            return self._base
        self.close()
        with suppress(OSError):
            blobs.make_folders(self._path.parent)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        self._base = _connect_sqlite(str(self._path))
        self._inode = _file_inode(self._path)
        _create_tables(self._base)
        return self._base

    def _replace_damaged_file(self, error: sqlite3.DatabaseError) -> None:
        """Move a damaged file away, unless another process already did."""
        if _sqlite_error_code(error) not in DAMAGED_FILE_CODES:
            self._fall_back_to_memory(error)
            return
        self.close()
        if self._inode not in (0, _file_inode(self._path)):
            return
        aside = self._path.with_name(f"{self._path.name}.damaged")
        with suppress(OSError):
            self._path.replace(aside)
            for ending in ("-wal", "-shm"):
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        self.trouble = f"The search index was damaged ({error}); it is being rebuilt."

    def _fall_back_to_memory(self, error: sqlite3.DatabaseError) -> None:
        """Continue in memory, with what can still be read of the file."""
        if _sqlite_error_code(error) is None:
            raise error
        self.close()
        self._base, self._inode = _connect_sqlite(":memory:"), 0
        with suppress(sqlite3.Error):
            name = f"{self._path.absolute().as_uri()}?mode=ro&immutable=1"
            with closing(sqlite3.connect(name, uri=True)) as source:
                source.backup(self._base)
        try:
            _create_tables(self._base)
        except sqlite3.DatabaseError:
            self._base = _connect_sqlite(":memory:")
            _create_tables(self._base)
        self.trouble = f"The search index cannot be saved ({error}); it stays in memory."

    def _roll_back(self) -> None:
        with suppress(sqlite3.Error):
            if self._base is not None and self._base.in_transaction:
                self._base.execute("rollback")


def _connect_sqlite(name: str) -> sqlite3.Connection:
    """Open the SQLite file of a search index."""
    return sqlite3.connect(
        name, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )


def _create_tables(base: sqlite3.Connection) -> None:
    """Create the tables in an empty file; raises `ForeignIndexFile` if it holds something else."""
    version = SCHEMA_VERSION * 1000 + lexical.TERMS_VERSION
    base.executescript("pragma journal_mode = wal; pragma synchronous = normal;")
    if base.execute("pragma user_version").fetchone()[0] == version:
        return
    base.execute("begin immediate")
    found: int = base.execute("pragma user_version").fetchone()[0]
    if found != version and base.execute("select count(*) from sqlite_master").fetchone()[0]:
        raise ForeignIndexFile("it has another version")
    for statement in CREATE_TABLES.split(";"):
        base.execute(statement)
    base.execute(f"pragma user_version = {version}")
    base.execute("commit")


def _file_inode(path: Path) -> int:
    """Return the inode of the index file, to notice when it is replaced; -1 if missing."""
    try:
        return path.stat().st_ino
    except OSError:
        return -1


def _sqlite_error_code(error: sqlite3.DatabaseError) -> int | None:
    """Return SQLite's primary error code; None for a programming error."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


# What can be searched, what a search finds, and what a ranking may know of both.


class SearchDocument(msgspec.Struct, frozen=True, array_like=True):
    """A passage that can be found; a long text is several documents of one group."""

    id: str
    text: str
    group: str = ""
    """The session or topic that it belongs to."""
    order: int = 0
    """Its place in the group: neighbours differ by one."""
    at: float = 0.0
    who: str = ""
    title: str = ""
    """Its headline, which weighs more than the text."""
    turn: str = ""
    """The turn that it is a passage of; empty if it is one by itself."""

    @property
    def text_to_embed(self) -> str:
        """The text that its embedding is computed from."""
        text = f"{self.who}: {self.text}" if self.who else self.text
        return f"{self.title}\n{text}" if self.title else text


class RankedHit(msgspec.Struct, frozen=True):
    """A document or group that was found; a higher score is better."""

    id: str
    score: float
    group: str = ""


class SearchQuery(msgspec.Struct, frozen=True):
    """A search query: its text, its indexed words and their weights."""

    text: str
    words: tuple[str, ...]
    """Its words as they are indexed, each once."""
    rarity: Mapping[str, float]
    """The weight of each of its words: the rarer, the heavier. Absent: in no document."""
    now: float
    length: float
    """The average number of words of a document."""
    embedder: str = ""
    """What the vectors of the collection were made with."""


class SearchCandidate(msgspec.Struct, frozen=True):
    """A document that may answer a query, and its scores."""

    document: SearchDocument
    words: tuple[str, ...]
    """Its words as they are indexed, in order; those of the title come first, and twice."""
    lexical: float
    """BM25 of the query's words."""
    cosine: float | None
    """Nearness in meaning, from -1 to 1; none where that is not known."""


class Embedder(Protocol):
    """A model that turns texts into unit vectors; a small angle means a similar meaning."""

    name: str
    """Vectors of different names cannot be compared."""
    size: int

    def encode(self, texts: Sequence[str]) -> bytes:
        """Encode each text as one row of float32 of unit length."""
        ...
