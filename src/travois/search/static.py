"""Word pieces with fixed meanings: what MiniLM says of a text, nearly, as a sum of a small table.

The table comes with the program and needs nothing but the standard library. `bench/distil.py` made
it from all-MiniLM-L6-v2 and can make it again.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import hypot
from operator import mul
from pathlib import Path

from travois.search.wordpiece import WordPiece

LONGEST = 256
"""How many word pieces of a text count."""
TABLE, PIECES = "static.table", "static.txt"
"""A row for each piece: a byte for what the piece counts, and four bits for each value, from 1 to
15 around 8. The first half of the values stands in the low bits."""
LOW, HIGH = bytes(byte & 15 for byte in range(256)), bytes(byte >> 4 for byte in range(256))


class Static:
    """The table; it is read when it is first used."""

    name = "all-MiniLM-L6-v2/static-1"
    size = 128

    def __init__(self) -> None:
        self._loaded: tuple[WordPiece, bytes] | None = None

    def encode(self, texts: Sequence[str]) -> bytes:
        """One row of float32 of unit length for each text; zeros for one that says nothing."""
        self._loaded = self._loaded or _load()
        pieces, table = self._loaded
        coded = (pieces.encode(text, limit=LONGEST)[1:-1] for text in texts)
        return b"".join(_sum(table, numbers, size=self.size) for numbers in coded)


def _load() -> tuple[WordPiece, bytes]:
    folder = Path(__file__).parent
    pieces = (folder / PIECES).read_text("utf-8").splitlines()
    return WordPiece(pieces), (folder / TABLE).read_bytes()


def _sum(table: bytes, numbers: Sequence[int], *, size: int) -> bytes:
    width = 1 + size // 2
    found = [table[number * width : (number + 1) * width] for number in numbers]
    scales = [row[0] for row in found]
    middle = 8 * sum(scales)
    rows = [row[1:].translate(LOW) + row[1:].translate(HIGH) for row in found]
    sums = [sum(map(mul, scales, column)) - middle for column in zip(*rows, strict=True)]
    length = hypot(*sums) or 1.0
    return array("f", [value / length for value in sums] or [0.0] * size).tobytes()
