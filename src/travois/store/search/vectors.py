"""Which documents mean nearly the same: vectors in cells of neighbours, of which few are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]

FLAT = 6144
"""Up to how many vectors all are compared; of a larger collection, about as many."""
CELL = 256
"""How many vectors make a cell."""
ROUNDS = 6
"""How often the centres of cells are moved to the middle of what is nearest to them."""


def write(
    base: sqlite3.Connection, collection: int, vectors: dict[int, bytes], *, size: int
) -> None:
    """Keep the vectors of documents, each in the cell whose centre is nearest."""
    rows = np.frombuffer(b"".join(vectors.values()), np.float32).reshape(-1, size)
    centres = _centres(base, collection, size=size)
    cells = _nearest(rows, centres).tolist() if len(centres) else [0] * len(rows)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled: Matrix = rows * (127 / np.maximum(largest, 1e-9))
    for cell, number, codes in zip(cells, vectors, np.rint(scaled).astype(np.int8), strict=True):
        kept = (collection, cell, number, codes.tobytes())
        base.execute("insert or replace into vector values (?, ?, ?, ?)", kept)
    _settle(base, collection, len(centres), size=size)


class Sense:
    """The meaning of a query, beside which the documents of a collection are held."""

    def __init__(self, base: sqlite3.Connection, collection: int, row: bytes) -> None:
        self._base = base
        self._collection = collection
        self._row: Matrix = np.frombuffer(row, np.float32)

    def near(self) -> dict[int, float]:
        """How near those are that lie in the cells around it."""
        centres = _centres(self._base, self._collection, size=len(self._row))
        cells = [0]
        if len(centres):
            order = np.argsort(-(centres @ self._row), kind="stable")
            cells = order[: FLAT // CELL].tolist()
        return self._cosines("collection = ? and cell in", [self._collection], cells)

    def of(self, numbers: Sequence[int]) -> dict[int, float]:
        """How near these documents are, as far as that is known."""
        return self._cosines("document in", [], numbers)

    def _cosines(self, where: str, values: Sequence[int], among: Sequence[int]) -> dict[int, float]:
        found: list[tuple[int, bytes]] = self._base.execute(
            f"select document, codes from vector where {where} ({','.join('?' * len(among))})",  # noqa: S608
            (*values, *among),
        ).fetchall()
        rows = _unit(b"".join(codes for _, codes in found), len(self._row))
        numbers = (number for number, _ in found)
        return dict(zip(numbers, (rows @ self._row).tolist(), strict=True))


def _settle(base: sqlite3.Connection, collection: int, cells: int, *, size: int) -> None:
    """Divide a collection into cells, when it has outgrown those that it has."""
    count: int = base.execute(
        "select count(*) from vector where collection = ?", (collection,)
    ).fetchone()[0]
    if count <= max(FLAT, 2 * CELL * cells):
        return
    found: list[tuple[int, bytes]] = base.execute(
        "select document, codes from vector where collection = ? order by document", (collection,)
    ).fetchall()
    rows = _unit(b"".join(codes for _, codes in found), size)
    centres = _middles(rows, count // CELL)
    base.execute(
        "update collection set centres = ? where number = ?",
        (centres.astype(np.float32).tobytes(), collection),
    )
    base.execute("delete from vector where collection = ?", (collection,))
    placed = zip(_nearest(rows, centres).tolist(), found, strict=True)
    for cell, (number, codes) in sorted(placed):
        base.execute("insert into vector values (?, ?, ?, ?)", (collection, cell, number, codes))


def _nearest(rows: Matrix, centres: Matrix) -> NDArray[np.int64]:
    """The number of the centre that is nearest to each row."""
    parts = [
        np.argmax(rows[at : at + 4096] @ centres.T, axis=1) for at in range(0, len(rows), 4096)
    ]
    return np.concatenate(parts)


def _middles(rows: Matrix, count: int) -> Matrix:
    """The centres of so many cells. The same for the same rows."""
    sample = rows[:: max(1, len(rows) // (32 * count))]
    centres = sample[:: max(1, len(sample) // count)][:count]
    for _ in range(ROUNDS):
        cells = _nearest(sample, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, cells, sample)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-9), centres)
    return centres


def _unit(codes: bytes, size: int) -> Matrix:
    """Codes as vectors of unit length."""
    rows = np.frombuffer(codes, np.int8).reshape(-1, size).astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return rows / np.maximum(lengths, 1e-9)[:, None]


def _centres(base: sqlite3.Connection, collection: int, *, size: int) -> Matrix:
    row = base.execute("select centres from collection where number = ?", (collection,)).fetchone()
    return np.frombuffer(row[0], np.float32).reshape(-1, size)
