"""What people ask in one sentence, and the call that does it: read from `examples.jsonl`."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache
from operator import mul
from pathlib import Path
from typing import Any, Protocol

import msgspec

from travois.host.local.reading import shape


class Encoder(Protocol):
    """Turns texts into vectors whose angles tell how near their meanings are."""

    name: str
    size: int

    def encode(self, texts: Sequence[str]) -> bytes:
        """One row of float32 of unit length for each text."""
        ...


class Example(msgspec.Struct, frozen=True):
    """One request and its answer: a call, or words."""

    text: str
    """What a person might ask."""
    tool: str = ""
    """The tool's name as a model sees it; empty where words are the answer."""
    input: dict[str, Any] = {}
    """Its arguments; what is copied from the text stands there as it is."""
    say: str = ""


class Nearest:
    """Examples by how near they are to a request. What they name does not count, what they ask does."""

    def __init__(self, encoder: Encoder, examples: Sequence[Example] | None = None) -> None:
        self.examples = tuple(known() if examples is None else examples)
        self._encoder = encoder
        self._rows: list[array[float]] = []

    def find(self, text: str, *, count: int) -> list[tuple[float, Example]]:
        """The examples most like a text, the nearest first, each with its cosine."""
        self._rows = self._rows or self._encode([one.text for one in self.examples])
        (asked,) = self._encode([text])
        cosines = [sum(map(mul, asked, row)) for row in self._rows]
        order = sorted(range(len(cosines)), key=lambda at: -cosines[at])
        return [(cosines[at], self.examples[at]) for at in order[:count]]

    def _encode(self, texts: Sequence[str]) -> list[array[float]]:
        values = array("f", self._encoder.encode([shape(text) for text in texts]))
        size = self._encoder.size
        return [values[at : at + size] for at in range(0, len(values), size)]


@cache
def known() -> tuple[Example, ...]:
    """The examples that come with the program."""
    lines = Path(__file__).with_name("examples.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Example) for line in lines)
