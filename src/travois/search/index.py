"""A search index by words and by meaning; deleting its file costs nothing but time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from travois.search import candidates, lexical, rank, update
from travois.search.database import Embedder, IndexFile, RankedHit, SearchDocument

MAX_EMBEDDED_AT_ONCE = 64
"""The most documents that an update embeds, unless its caller says otherwise."""


class SearchIndex:
    """Documents in collections, in one file that any number of processes may share."""

    def __init__(self, path: Path, embedder: Embedder | None) -> None:
        self._file = IndexFile(path)
        self._embedder = embedder

    @property
    def trouble(self) -> str:
        """The state of the file, in a sentence for the user; empty while all is well."""
        return self._file.trouble

    @property
    def has_embedder(self) -> bool:
        """Return whether documents are found by meaning, too."""
        return self._embedder is not None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def update(
        self,
        collection: str,
        documents: Iterable[SearchDocument],
        *,
        gone: Iterable[str] = (),
        marks: Mapping[str, str] | None = None,
        embed: int = MAX_EMBEDDED_AT_ONCE,
    ) -> int:
        """Add these documents and remove those ids; returns how many changed.

        Marks are kept as they are, for a caller that wants to know what it indexed last time;
        an empty one is forgotten. So many documents as `embed` says get their vectors at once; the
        others wait for it.
        """
        drafts, lost = list(documents), list(gone)

        def apply_change(base: sqlite3.Connection) -> int:
            changed = update.remove_documents(base, collection, lost)
            changed += update.put_documents(base, collection, drafts)
            if marks:
                update.set_marks(base, collection, marks)
            return changed

        changed = self._file.run(apply_change)
        if changed and embed:
            self.embed(collection, limit=embed)
        return changed

    def embed(self, collection: str, *, limit: int) -> int:
        """Compute vectors for some waiting documents; returns how many."""
        embedder = self._embedder
        if embedder is None:
            return 0
        return self._file.run(
            lambda base: update.embed_documents(base, collection, embedder, limit=limit)
        )

    def search(self, collection: str, text: str, *, limit: int, now: float) -> list[RankedHit]:
        """Return the best documents for a text, the best first."""
        return rank.rank_documents(*self.find_candidates(collection, text, now=now))[:limit]

    def find_candidates(
        self,
        collection: str,
        text: str,
        *,
        now: float,
        width: int = candidates.MAX_CANDIDATES,
        groups: Iterable[str] = (),
    ) -> candidates.CandidateSet:
        """Return the parsed query and the documents that may answer it.

        If groups are given, what is found by its words is of these.
        """
        embedder, within = self._embedder, msgspec.json.encode(list(groups)).decode()
        return self._file.run(
            lambda base: candidates.gather_candidates(
                base, collection, text, embedder=embedder, now=now, width=width, within=within
            )
        )

    def document_ids(self, collection: str, *, group: str | None = None) -> frozenset[str]:
        """Return the ids of all documents, or of those of one group."""

        def read_ids(base: sqlite3.Connection) -> frozenset[str]:
            rows = base.execute(
                "select id from document where (band = ?1 or ?1 is null) and collection ="
                " (select number from collection where name = ?2)",
                (group, collection),
            )
            return frozenset(id for (id,) in rows)

        return self._file.run(read_ids)

    def read_marks(self, collection: str, names: Sequence[str] | None = None) -> dict[str, str]:
        """Return the marks that were given to `update`, or those of these names."""
        wanted = None if names is None else msgspec.json.encode(names).decode()
        return self._file.run(
            lambda base: dict(
                base.execute(
                    "select name, value from mark where collection ="
                    " (select number from collection where name = ?1) and"
                    " (?2 is null or name in (select value from json_each(?2)))",
                    (collection, wanted),
                )
            )
        )

    def count_waiting(self, collection: str) -> int:
        """Return how many documents have no vector yet."""
        return self._file.run(lambda base: lexical.count_unembedded(base, collection))
