"""Which documents mean nearly the same: vectors in cells of neighbours, of which few are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

FLAT = 6144
"""Up to how many vectors all are compared; of a larger collection, about as many."""
CELL = 256
"""How many vectors make a cell."""
ROUNDS = 6
"""How often the centres of cells are moved to the middle of what is nearest to them."""


def write(
    base: sqlite3.Connection, collection: int, numbers: Sequence[int], *, rows: Matrix
) -> None:
    """Keep the vectors of documents, each in the cell whose centre is nearest."""
    import numpy as np

    cells = np.zeros(len(rows), int)
    if len(centres := _centres(base, collection, size=rows.shape[1])):
        cells = nearest(rows, centres)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scaled: Matrix = rows * (127 / np.maximum(largest, 1e-9))
    codes = np.rint(scaled).astype(np.int8)
    base.executemany(
        "insert or replace into vector values (?, ?, ?, ?)",
        (
            (collection, cell, number, code.tobytes())
            for cell, number, code in zip(cells.tolist(), numbers, codes, strict=True)
        ),
    )


def erase(base: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Forget the vectors of documents."""
    base.executemany("delete from vector where document = ?", ((number,) for number in numbers))


def near(base: sqlite3.Connection, collection: int, query: Matrix) -> dict[int, float]:
    """The nearness of the documents in the cells around a query."""
    import numpy as np

    centres = _centres(base, collection, size=len(query))
    cells = [0]
    if len(centres):
        cells = np.argsort(-(centres @ query), kind="stable")[: FLAT // CELL].tolist()
    places = ",".join("?" * len(cells))
    return _cosines(
        base.execute(
            f"select document, codes from vector where collection = ? and cell in ({places})",  # noqa: S608  question marks
            (collection, *cells),
        ).fetchall(),
        query,
    )


def of(base: sqlite3.Connection, numbers: Sequence[int], *, query: Matrix) -> dict[int, float]:
    """The nearness of these documents, as far as it is known."""
    places = ",".join("?" * len(numbers))
    return _cosines(
        base.execute(
            f"select document, codes from vector where document in ({places})",  # noqa: S608
            numbers,
        ).fetchall(),
        query,
    )


def settle(base: sqlite3.Connection, collection: int, *, size: int) -> None:
    """Divide a collection into cells, when it has outgrown those that it has."""
    import numpy as np

    count: int = base.execute(
        "select count(*) from vector where collection = ?", (collection,)
    ).fetchone()[0]
    if count <= max(FLAT, 2 * CELL * len(_centres(base, collection, size=size))):
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
    cells = nearest(rows, centres)
    for cell, (number, codes) in sorted(zip(cells.tolist(), found, strict=True)):
        base.execute("insert into vector values (?, ?, ?, ?)", (collection, cell, number, codes))


def rows_of(data: bytes, *, size: int) -> Matrix:
    """The rows that an embedder made."""
    import numpy as np

    return np.frombuffer(data, np.float32).reshape(-1, size)


def nearest(rows: Matrix, centres: Matrix) -> NDArray[np.int64]:
    """The number of the centre that is nearest to each row."""
    import numpy as np

    parts = [
        np.argmax(rows[at : at + 4096] @ centres.T, axis=1) for at in range(0, len(rows), 4096)
    ]
    return np.concatenate(parts)


def _middles(rows: Matrix, count: int) -> Matrix:
    """The centres of so many cells. The same for the same rows."""
    import numpy as np

    sample = rows[:: max(1, len(rows) // (32 * count))]
    centres = sample[:: max(1, len(sample) // count)][:count]
    for _ in range(ROUNDS):
        cells = nearest(sample, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, cells, sample)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.maximum(lengths, 1e-9), centres)
    return centres


def _cosines(found: Sequence[tuple[int, bytes]], query: Matrix) -> dict[int, float]:
    if not found:
        return {}
    rows = _unit(b"".join(codes for _, codes in found), len(query))
    numbers = (number for number, _ in found)
    return dict(zip(numbers, (rows @ query).tolist(), strict=True))


def _unit(codes: bytes, size: int) -> Matrix:
    """Codes as vectors of unit length."""
    import numpy as np

    rows = np.frombuffer(codes, np.int8).reshape(-1, size).astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return rows / np.maximum(lengths, 1e-9)[:, None]


def _centres(base: sqlite3.Connection, collection: int, *, size: int) -> Matrix:
    row = base.execute("select centres from collection where number = ?", (collection,)).fetchone()
    return rows_of(row[0], size=size)
