"""Without numpy, the same documents are near as with it."""

from __future__ import annotations

import random
from array import array
from math import hypot
from pathlib import Path

import pytest

from travois.search import plain_vectors, update
from travois.search.database import IndexFile, SearchDocument

vectors = pytest.importorskip("travois.search.vectors", reason="the comparison needs numpy")

SIZE, COUNT = 128, 3000


def unit(chance: random.Random, near: list[float] | None = None) -> list[float]:
    values = [chance.gauss(at, 1) for at in near or [0.0] * SIZE]
    length = hypot(*values)
    return [value / length for value in values]


@pytest.mark.parametrize("seed", range(3))
def test_the_nearest_are_those_that_numpy_finds(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    topics = [[9 * value for value in unit(chance)] for _ in range(300)]
    rows = [unit(chance, near=topics[number % 300]) for number in range(COUNT)]
    file, query = IndexFile(tmp_path / "index.db"), array("f", rows[7]).tobytes()

    def ask(base: object, module: object) -> tuple[list[int], list[float]]:
        meaning = module.QueryMeaning(base, 1, query)  # type: ignore[attr-defined]
        return meaning.find_nearest(limit=20), meaning.cosines_of(codes)

    documents = [SearchDocument(str(number), "") for number in range(COUNT)]
    file.run(lambda base: update.put_documents(base, "c", documents))
    stored = {number + 1: array("f", row).tobytes() for number, row in enumerate(rows)}
    file.run(lambda base: plain_vectors.write_vectors(base, 1, stored, size=SIZE))
    codes = [row for (row,) in file.run(lambda base: base.execute("select codes from document"))]
    plain, exact = (file.run(lambda base, m=m: ask(base, m)) for m in (plain_vectors, vectors))
    assert plain[1] == pytest.approx(exact[1], abs=1e-5)
    assert len(set(plain[0]) & set(exact[0])) >= 18
    assert plain[0][0] == exact[0][0] == 8
    file.close()


def test_a_vector_of_zeros_is_near_nothing(tmp_path: Path) -> None:
    file = IndexFile(tmp_path / "index.db")
    file.run(lambda base: update.put_documents(base, "c", [SearchDocument("a", "")]))
    zeros = {1: array("f", [0.0] * SIZE).tobytes()}
    file.run(lambda base: plain_vectors.write_vectors(base, 1, zeros, size=SIZE))
    row = array("f", [1.0] + [0.0] * (SIZE - 1)).tobytes()
    meaning = file.run(lambda base: plain_vectors.QueryMeaning(base, 1, row))
    assert meaning.cosines_of([bytes(SIZE)]) == [0.0]
    file.close()
