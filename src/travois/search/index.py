"""An index of documents by words and by meaning. Deleting its file loses nothing but time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from travois.search import lexical as lexicon
from travois.search import rank
from travois.search import rank as gather
from travois.search import update as writing
from travois.search.database import Document, Embedder, File, Hit

AT_ONCE = 64
"""How many documents an update embeds; the others wait for `embed`."""


class Index:
    """Documents in collections, in one file that any number of processes may use at once."""

    def __init__(self, path: Path, embedder: Embedder | None) -> None:
        self._file = File(path)
        self._embedder = embedder

    @property
    def trouble(self) -> str:
        """What became of the file, in a sentence for the user; empty while all is well."""
        return self._file.trouble

    @property
    def embeds(self) -> bool:
        """Whether documents are found by meaning, too."""
        return self._embedder is not None

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def update(
        self,
        collection: str,
        documents: Iterable[Document],
        *,
        gone: Iterable[str] = (),
        marks: Mapping[str, str] | None = None,
    ) -> int:
        """Make these documents findable and those ids not; returns how many changed.

        Marks are kept as they are, for a caller that wants to know what it indexed last time;
        an empty one is forgotten. Few documents get their vectors at once; many wait for `embed`.
        """
        drafts, lost = list(documents), list(gone)

        def change(base: sqlite3.Connection) -> int:
            changed = writing.remove(base, collection, lost)
            changed += writing.put(base, collection, drafts)
            if marks:
                writing.mark(base, collection, marks)
            return changed

        changed = self._file.run(change)
        if changed:
            self.embed(collection, limit=AT_ONCE)
        return changed

    def embed(self, collection: str, *, limit: int) -> int:
        """Give vectors to some documents that wait for them; returns how many got theirs."""
        embedder = self._embedder
        if embedder is None:
            return 0
        return self._file.run(lambda base: writing.embed(base, collection, embedder, limit=limit))

    def search(self, collection: str, text: str, *, limit: int, now: float) -> list[Hit]:
        """The documents that have most to do with a text, the best first."""
        return rank.rank(*self.candidates(collection, text, now=now))[:limit]

    def groups(self, collection: str, text: str, *, limit: int, now: float) -> list[Hit]:
        """The groups that have most to do with a text, the best first."""
        found = self.candidates(collection, text, now=now, width=gather.WIDE)
        return rank.groups(*found)[:limit]

    def candidates(
        self,
        collection: str,
        text: str,
        *,
        now: float,
        width: int = gather.WIDTH,
        groups: Iterable[str] = (),
    ) -> gather.Found:
        """The query as it is understood, and all that may answer it.

        If groups are given, what is found by its words is of these.
        """
        embedder, within = self._embedder, msgspec.json.encode(list(groups)).decode()
        return self._file.run(
            lambda base: gather.candidates(
                base, collection, text, embedder=embedder, now=now, width=width, within=within
            )
        )

    def ids(self, collection: str, *, group: str | None = None) -> frozenset[str]:
        """The ids of all documents, or of those of one group."""

        def read(base: sqlite3.Connection) -> frozenset[str]:
            rows = base.execute(
                "select id from document where (band = ?1 or ?1 is null) and collection ="
                " (select number from collection where name = ?2)",
                (group, collection),
            )
            return frozenset(id for (id,) in rows)

        return self._file.run(read)

    def marks(self, collection: str) -> dict[str, str]:
        """The marks that were given to `update`."""
        return self._file.run(
            lambda base: dict(
                base.execute(
                    "select name, value from mark where collection ="
                    " (select number from collection where name = ?)",
                    (collection,),
                )
            )
        )

    def waiting(self, collection: str) -> int:
        """How many documents have no vector yet."""
        return self._file.run(lambda base: lexicon.waiting(base, collection))
