"""Vector cells: vectors stored in blocks of the index file, so that many are read at once."""

from __future__ import annotations

import sqlite3
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence

CellPosition = tuple[int, int]
"""A cell and the number of a document in it."""


def add_vectors(
    base: sqlite3.Connection, collection: int, codes: Iterable[tuple[CellPosition, bytes]]
) -> None:
    """Add document vectors to their cells, and record with each document where its own is."""
    cells: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for (cell, number), row in codes:
        cells[cell].append((number, row))
    for cell, rows in cells.items():
        numbers, known = _load_cell(base, collection, cell)
        numbers.extend(number for number, _ in rows)
        _save_cell(
            base, collection, cell, numbers=numbers, codes=[known, *(row for _, row in rows)]
        )
        base.executemany(
            "update document set cell = ?, codes = ? where number = ?",
            ((cell, row, number) for number, row in rows),
        )


def drop_vectors(base: sqlite3.Connection, collection: int, places: Iterable[CellPosition]) -> None:
    """Remove document vectors from their cells."""
    cells: dict[int, list[int]] = defaultdict(list)
    for cell, number in places:
        cells[cell].append(number)
    for cell, gone in cells.items():
        numbers, codes = _load_cell(base, collection, cell)
        size = len(codes) // max(1, len(numbers))
        kept = [at for at, number in enumerate(numbers) if number not in gone]
        rows = [codes[at * size : (at + 1) * size] for at in kept]
        left = array("q", (numbers[at] for at in kept))
        _save_cell(base, collection, cell, numbers=left, codes=rows)


def clear_vectors(base: sqlite3.Connection, collection: int) -> None:
    """Remove all vector cells of a collection."""
    base.execute("delete from block where collection = ?", (collection,))


def _load_cell(base: sqlite3.Connection, collection: int, cell: int) -> tuple[array[int], bytes]:
    """Load the document numbers and vector codes of one cell."""
    row: tuple[bytes, bytes] | None = base.execute(
        "select numbers, codes from block where collection = ? and cell = ?", (collection, cell)
    ).fetchone()
    return (array("q", row[0]), row[1]) if row else (array("q"), b"")


def _save_cell(
    base: sqlite3.Connection,
    collection: int,
    cell: int,
    *,
    numbers: array[int],
    codes: Sequence[bytes],
) -> None:
    """Save the document numbers and vector codes of one cell."""
    base.execute(
        "insert or replace into block values (?, ?, ?, ?)",
        (collection, cell, numbers.tobytes(), b"".join(codes)),
    )
