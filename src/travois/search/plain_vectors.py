"""Nearest-neighbour search over plain vectors without numpy: by signs first, then exactly.

The vectors of the static table are small, and a default install has no numpy. Two vectors that
point the same way have most signs in common, which is one operation on integers to count; only the
best by that count are compared value by value.
"""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Sequence
from heapq import nsmallest
from math import hypot, sqrt
from operator import mul

from travois.search import vector_cells

VECTORS_PER_BLOCK = 256
"""How many vectors are stored together."""
MIN_COMPARED = 1024
"""How many vectors are compared exactly, at least."""
SIGN_BYTES = bytes(byte > 127 for byte in range(256))
"""One for a negative value, which is a byte with its highest bit set."""


class QueryMeaning:
    """The embedding of a query, compared with the documents of a collection."""

    def __init__(self, base: sqlite3.Connection, collection: int, row: bytes) -> None:
        self._base = base
        self._collection = collection
        self._row = array("f", row).tolist()

    def find_nearest(self, *, limit: int) -> list[int]:
        """Find the nearest documents, the nearest first."""
        size = len(self._row)
        wanted = int.from_bytes(bytes(value < 0 for value in self._row), "big")
        numbers, codes = array("q"), bytearray()
        for some, block in self._base.execute(
            "select numbers, codes from block where collection = ?", (self._collection,)
        ):
            numbers.frombytes(some)
            codes += block
        signs = codes.translate(SIGN_BYTES)
        apart = [
            (int.from_bytes(signs[at : at + size], "big") ^ wanted).bit_count()
            for at in range(0, len(signs), size)
        ]
        near = nsmallest(max(MIN_COMPARED, 3 * limit), range(len(apart)), key=apart.__getitem__)
        cosines = self.cosines_of([bytes(codes[at * size : (at + 1) * size]) for at in near])
        best = sorted(zip(cosines, near, strict=True), key=lambda one: (-one[0], numbers[one[1]]))
        return [numbers[at] for _, at in best[:limit]]

    def cosines_of(self, codes: Sequence[bytes]) -> list[float]:
        """Return the cosine with each of these vectors."""
        return [self._cosine(array("b", one)) for one in codes]

    def _cosine(self, values: array[int]) -> float:
        return sum(map(mul, self._row, values)) / (sqrt(sum(map(mul, values, values))) or 1.0)


def write_vectors(
    base: sqlite3.Connection, collection: int, vectors: dict[int, bytes], *, size: int
) -> None:
    """Store document vectors, as bytes, in blocks by document number."""
    vector_cells.add_vectors(
        base,
        collection,
        (
            ((number // VECTORS_PER_BLOCK, number), _encode_vector(row))
            for number, row in vectors.items()
        ),
    )


def rebuild_cells(base: sqlite3.Connection, collection: int, *, size: int, documents: int) -> None:
    """Do nothing: plain vectors are all compared, however many there are."""


def _encode_vector(row: bytes) -> bytes:
    """Encode a plain vector as one signed byte per value."""
    values = array("f", row)
    largest = max(map(abs, values), default=0.0)
    if not largest or not hypot(*values):
        return bytes(len(values))
    return array("b", [round(value * 127 / largest) for value in values]).tobytes()
