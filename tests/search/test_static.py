"""The table of word pieces that comes with the program."""

from __future__ import annotations

import subprocess
import sys
from array import array
from math import hypot
from operator import mul

import pytest

from travois.search.embedder import StaticEmbedder

ALONE = """
import sys
from travois.search.embedder import StaticEmbedder as Static
assert len(Static().encode(["one", "two"])) == 2 * 4 * Static.size
print(sorted({"numpy", "tokenizers", "ctypes"} & sys.modules.keys()))
"""


@pytest.fixture(scope="module")
def table() -> StaticEmbedder:
    return StaticEmbedder()


def rows(table: StaticEmbedder, *texts: str) -> list[array[float]]:
    values = array("f", table.encode(texts))
    return [values[at : at + table.size] for at in range(0, len(values), table.size)]


def test_it_needs_nothing_that_is_not_in_the_standard_library() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_texts_of_like_meaning_are_near(table: StaticEmbedder) -> None:
    asked, near, far = rows(
        *(table, "How do we store sessions?", "Session data lives in Redis."),
        "The cat sat on the mat.",
    )
    assert sum(map(mul, asked, near)) > 0.35 > 0.1 > sum(map(mul, asked, far))


def test_a_row_is_of_unit_length_in_any_company_or_says_nothing(table: StaticEmbedder) -> None:
    texts = ["", "x", "a longer text " * 30, "日本語", "y" * 300, "\ud800\0", "word " * 5000]
    together = rows(table, *texts)
    assert together == [row for text in texts for row in rows(table, text)]
    assert {round(hypot(*row), 5) for row in together} == {0.0, 1.0}
    assert table.encode([]) == b""
