"""What recall costs as memory grows: a thousand documents, ten thousand, a hundred thousand.

The texts follow Zipf's law. Vectors of documents are made up from their words, since the model
would need an hour for them; the query goes through the real model. Growth is told by the time of
the processor, which other programs disturb less than the clock.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from math import log
from pathlib import Path
from time import perf_counter, process_time
from zlib import crc32

from travois.search.database import SearchDocument
from travois.search.embedder import MiniLmEmbedder, NoEmbedder, find_embedder
from travois.search.index import SearchIndex

SIZES = (1_000, 10_000, 100_000)
PASSAGES = 10
QUERIES = 60
FRESH = """
import sys
from pathlib import Path
from travois.search.embedder import NoEmbedder, find_embedder
from travois.search.index import SearchIndex
embedder = find_embedder(Path(sys.argv[2]))
index = SearchIndex(Path(sys.argv[1]), None if isinstance(embedder, NoEmbedder) else embedder)
assert index.search("passages", sys.argv[3], limit=5, now=0.0)
"""


class MadeUp:
    """Vectors of documents in no time, near if their words are the same; queries are real."""

    name, size = MiniLmEmbedder.name, MiniLmEmbedder.size

    def __init__(self, real: MiniLmEmbedder) -> None:
        self._real = real
        real.encode([""])
        import numpy as np

        self._words = np.random.default_rng(7).standard_normal((4096, self.size), np.float32)

    def encode(self, texts: Sequence[str]) -> bytes:
        if len(texts) == 1:
            return self._real.encode(texts)
        rows = (
            self._words[[crc32(word.encode()) % 4096 for word in text.split()]] for text in texts
        )
        sums = (row.sum(axis=0) for row in rows)
        return b"".join((row / (row @ row) ** 0.5).tobytes() for row in sums)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        stamp = Path(scratch, "stamp")
        real = find_embedder(stamp)
        print(f"meaning: {real.why if isinstance(real, NoEmbedder) else real.name}")
        print(
            "documents  write/s  fresh ms  warm p50 ms  p95 ms  update ms  cpu ms  / smallest  log n"
        )
        embedder = None if isinstance(real, NoEmbedder) else MadeUp(real)
        first = 0.0
        for size in SIZES:
            path = Path(scratch, f"{size}.db")
            work = measure(path, size, embedder=embedder, stamp=stamp)
            first = first or work
            print(f"  {work / first:10.2f}  {log(size) / log(SIZES[0]):5.2f}")


def measure(path: Path, size: int, *, embedder: MadeUp | None, stamp: Path) -> float:
    index = SearchIndex(path, embedder)
    wrote = size / spent(lambda: fill(index, size))
    queries = [text(random.Random(-n), 10) for n in range(1, QUERIES)]
    begun = process_time()
    times = sorted(spent(lambda q=q: look(index, q)) for q in queries)
    work = (process_time() - begun) / len(times)
    changed = statistics.median(spent(lambda n=n: change(index, n)) for n in range(9))
    fresh = min(spent(lambda: begin(path, stamp, queries[0])) for _ in range(3))
    shown = (fresh, statistics.median(times), times[int(0.95 * len(times))], changed, work)
    print(f"{size:9}  {wrote:7.0f}", end="")
    print(
        "  {:8.0f}  {:11.1f}  {:6.1f}  {:9.1f}  {:6.1f}".format(*(1000 * t for t in shown)), end=""
    )
    return work


def fill(index: SearchIndex, size: int) -> None:
    index.update("passages", documents(size))
    while index.embed("passages", limit=2000):
        pass


def look(index: SearchIndex, query: str) -> None:
    assert index.search("passages", query, limit=5, now=0.0)


def change(index: SearchIndex, number: int) -> None:
    index.update("passages", [SearchDocument(f"p{number}", text(random.Random(number + 0.5), 40))])


def begin(path: Path, stamp: Path, query: str) -> None:
    subprocess.run([sys.executable, "-c", FRESH, path, stamp, query], check=True)


def documents(size: int) -> Iterator[SearchDocument]:
    for number in range(size):
        group, order = divmod(number, PASSAGES)
        said = text(random.Random(number), 40)
        yield SearchDocument(f"p{number}", said, f"s{group}", order, at=60.0 * number)


def text(chance: random.Random, length: int) -> str:
    return " ".join(chance.choices(VOCABULARY, cum_weights=WEIGHTS, k=length))


def word(number: int) -> str:
    """A word that can be said, of its own for each number."""
    said = ""
    while number or not said:
        number, at = divmod(number, 80)
        said += "bdfgklmnprstvzhj"[at // 5] + "aeiou"[at % 5]
    return said


def spent(act: Callable[[], object]) -> float:
    begun = perf_counter()
    act()
    return perf_counter() - begun


VOCABULARY = [word(number) for number in range(30_000)]
WEIGHTS = list(accumulate(1 / (number + 10) for number in range(30_000)))
