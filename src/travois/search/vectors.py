"""Nearest-neighbour search over vectors, clustered into cells of which few are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from travois.search import vector_cells

Matrix: TypeAlias = NDArray[np.float32]

MAX_COMPARED_VECTORS = 4096
"""Up to how many vectors all are compared; of a larger collection, about as many."""
VECTORS_PER_CELL = 256
"""About how many vectors make a cell."""
CLUSTERING_ROUNDS = 6
"""How often the centres of cells are moved to the middle of what is nearest to them."""


class QueryMeaning:
    """The embedding of a query, compared with the documents of a collection."""

    def __init__(self, base: sqlite3.Connection, collection: int, row: bytes) -> None:
        self._base = base
        self._collection = collection
        self._row: Matrix = np.frombuffer(row, np.float32)

    def find_nearest(self, *, limit: int) -> list[int]:
        """Find the nearest documents, the nearest first."""
        found: list[tuple[bytes, bytes]] = self._base.execute(
            "select numbers, codes from block where collection = ?1 and"
            " (?2 = '[]' or cell in (select value from json_each(?2)))",
            (self._collection, str(self._nearest_cells())),
        ).fetchall()
        numbers = np.frombuffer(b"".join(some for some, _ in found), np.int64)
        cosines = self._compute_cosines(b"".join(codes for _, codes in found))
        return numbers[np.lexsort((numbers, -cosines))[:limit]].tolist()

    def cosines_of(self, codes: Sequence[bytes]) -> list[float]:
        """Return the cosine with each of these vectors."""
        return self._compute_cosines(b"".join(codes)).tolist()

    def _compute_cosines(self, codes: bytes) -> Matrix:
        rows, lengths = _decode_vectors(codes, len(self._row))
        return (rows @ self._row) / lengths

    def _nearest_cells(self) -> list[int]:
        """Return the nearest cells; none where there are no cells."""
        centres = _load_centres(self._base, self._collection, size=len(self._row))
        return np.argsort(-(centres @ self._row), kind="stable")[
            : MAX_COMPARED_VECTORS // VECTORS_PER_CELL
        ].tolist()


def write_vectors(
    base: sqlite3.Connection, collection: int, vectors: dict[int, bytes], *, size: int
) -> None:
    """Store document vectors, each in the cell with the nearest centre."""
    rows = np.frombuffer(b"".join(vectors.values()), np.float32).reshape(-1, size)
    centres = _load_centres(base, collection, size=size)
    cells = (
        _nearest_centres(rows, centres)
        if len(centres)
        else [number // VECTORS_PER_CELL for number in vectors]
    )
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled: Matrix = rows * (127 / np.maximum(largest, 1e-9))
    codes = (row.tobytes() for row in np.rint(scaled).astype(np.int8))
    vector_cells.add_vectors(
        base, collection, zip(zip(cells, vectors, strict=True), codes, strict=True)
    )


def rebuild_cells(base: sqlite3.Connection, collection: int, *, size: int, documents: int) -> None:
    """Cluster a collection's vectors into cells again, once it has outgrown the old ones."""
    if documents <= max(
        MAX_COMPARED_VECTORS, 2 * VECTORS_PER_CELL * len(_load_centres(base, collection, size=size))
    ):
        return
    found: list[tuple[int, bytes]] = base.execute(
        "select number, codes from document"
        " where collection = ? and codes is not null order by number",
        (collection,),
    ).fetchall()
    if len(found) <= MAX_COMPARED_VECTORS:
        return
    rows, lengths = _decode_vectors(b"".join(codes for _, codes in found), size)
    rows /= lengths[:, None]
    centres = _compute_centres(rows, len(rows) // VECTORS_PER_CELL)
    base.execute(
        "update collection set centres = ? where number = ?", (centres.tobytes(), collection)
    )
    vector_cells.clear_vectors(base, collection)
    placed = zip(_nearest_centres(rows, centres), found, strict=True)
    vector_cells.add_vectors(
        base, collection, (((cell, number), codes) for cell, (number, codes) in placed)
    )


def _nearest_centres(rows: Matrix, centres: Matrix) -> list[int]:
    """Return the number of the nearest vector cell's centre for each row."""
    parts = (rows[at : at + 4096] for at in range(0, len(rows), 4096))
    return [cell for part in parts for cell in np.argmax(part @ centres.T, axis=1).tolist()]


def _compute_centres(rows: Matrix, count: int) -> Matrix:
    """Compute the centres of so many vector cells; equal rows give equal centres."""
    sample = rows[:: max(1, len(rows) // (32 * count))]
    centres = sample[:: max(1, len(sample) // count)][:count]
    for _ in range(CLUSTERING_ROUNDS):
        sums = np.zeros_like(centres)
        np.add.at(sums, _nearest_centres(sample, centres), sample)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-9), centres)
    return centres


def _decode_vectors(codes: bytes, size: int) -> tuple[Matrix, Matrix]:
    """Decode stored codes to vectors, with the length of each."""
    rows = np.frombuffer(codes, np.int8).reshape(-1, size).astype(np.float32)
    return rows, np.sqrt(np.einsum("ij,ij->i", rows, rows)).clip(1e-9)


def _load_centres(base: sqlite3.Connection, collection: int, *, size: int) -> Matrix:
    row = base.execute("select centres from collection where number = ?", (collection,)).fetchone()
    return np.frombuffer(row[0], np.float32).reshape(-1, size)
