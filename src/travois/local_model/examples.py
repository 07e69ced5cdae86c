"""What people ask in one sentence, and the call that does it: read from `examples.jsonl`."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import cache
from math import hypot, log, sqrt
from operator import mul
from pathlib import Path
from typing import Any, Protocol

import msgspec

from travois.local_model.reading import shape

WORDS = 0.3
"""How much it counts whether the words are the same; the rest is whether they mean the same."""
KEPT = "examples.rows"
"""Made of `examples.jsonl` by `python -m bench.examples`."""
WORD = re.compile(r"\w+")


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
    """The tool's name as a model sees it; empty where no call is the answer."""
    input: dict[str, Any] = {}
    """Its arguments; what is copied from the text stands there as it is."""
    say: str = ""
    """The words that answer; empty where it takes more than a call."""


class Kept(msgspec.Struct, frozen=True):
    """What the examples ask, and what an encoder says of it: made once, for it takes a while."""

    encoder: str
    shapes: tuple[str, ...]
    rows: bytes
    """A signed byte for each value, the largest of each row 127."""


class Nearest:
    """Examples by how near they are to a request: in what they ask, whatever they ask it of."""

    def __init__(self, encoder: Encoder, examples: Sequence[Example] | None = None) -> None:
        self.examples = tuple(known() if examples is None else examples)
        self._encoder = encoder
        self._rows: list[tuple[float, ...]] = []
        stored = kept() if examples is None else None
        if stored and stored.encoder == encoder.name:
            shapes, self._rows = stored.shapes, _unpacked(stored.rows, encoder.size)
        else:
            shapes = tuple(shape(one.text) for one in self.examples)
        often = Counter(word for text in shapes for word in set(_words(text)))
        self._rarity = {word: log(1 + len(shapes) / count) for word, count in often.items()}
        self._bags = [self._bag(text) for text in shapes]
        calls = [bool(one.tool) for one in self.examples]
        said = [
            {
                word
                for text, call in zip(shapes, calls, strict=True)
                if call is kind
                for word in _words(text)
            }
            for kind in (False, True)
        ]
        self._idle = said[0] - said[1]

    def find(self, text: str, *, count: int) -> list[tuple[float, Example]]:
        """The examples most like a text, the nearest first, each with its nearness."""
        self._rows = self._rows or self._encode([one.text for one in self.examples])
        (asked,) = self._encode([text])
        bag = self._bag(shape(text))
        near = [
            (1 - WORDS) * sum(map(mul, asked, row)) + WORDS * _shared(bag, other)
            for row, other in zip(self._rows, self._bags, strict=True)
        ]
        order = sorted(range(len(near)), key=lambda at: -near[at])
        return [(near[at], self.examples[at]) for at in order[:count]]

    def doubts(self, text: str) -> int:
        """How many of its words stand in examples that no call answers, and in no others."""
        return len(self._idle.intersection(_words(shape(text))))

    def _encode(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        values = array("f", self._encoder.encode([shape(text) for text in texts]))
        size = self._encoder.size
        return [tuple(values[at : at + size]) for at in range(0, len(values), size)]

    def _bag(self, text: str) -> dict[str, float]:
        """The weights of a text's words, as a vector of unit length."""
        rarest = log(1 + len(self.examples))
        weights = {word: self._rarity.get(word, rarest) for word in _words(text)}
        length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def _shared(one: dict[str, float], other: dict[str, float]) -> float:
    return sum(weight * other[word] for word, weight in one.items() if word in other)


@cache
def known() -> tuple[Example, ...]:
    """The examples that come with the program."""
    lines = Path(__file__).with_name("examples.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Example) for line in lines)


@cache
def kept() -> Kept:
    """What was made of them."""
    return msgspec.msgpack.decode(Path(__file__).with_name(KEPT).read_bytes(), type=Kept)


def keep(encoder: Encoder) -> Kept:
    """What there is to be kept of the examples."""
    shapes = tuple(shape(one.text) for one in known())
    values, size = array("f", encoder.encode(shapes)), encoder.size
    rows = [values[at : at + size] for at in range(0, len(values), size)]
    packed = (array("b", (round(127 * value / _most(row)) for value in row)) for row in rows)
    return Kept(encoder.name, shapes, b"".join(row.tobytes() for row in packed))


def _most(row: array[float]) -> float:
    return max(map(abs, row)) or 1.0


def _unpacked(packed: bytes, size: int) -> list[tuple[float, ...]]:
    values = array("b", packed)
    rows = (values[at : at + size] for at in range(0, len(values), size))
    return [
        tuple(value / length for value in row) for row in rows if (length := hypot(*row) or 1.0)
    ]
