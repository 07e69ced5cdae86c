"""Routing of simple requests to tool calls by the nearest example; no model is asked.

No model is asked. A request that no example is like, or that does not name what the call needs,
becomes nothing: to do nothing is better than to do the wrong thing.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import hypot, log, sqrt
from operator import mul
from pathlib import Path
from typing import Any, Protocol

import msgspec

from travois.local_model.reading import (
    COUNTS,
    FILES,
    NAMED,
    TYPES,
    Kind,
    Span,
    shape,
    spans,
    wished,
)

# What people ask in one sentence, and the call that does it: read from `examples.jsonl`.


WORDS = 0.3
"""How much it counts whether the words are the same; the rest is whether they mean the same."""
KEPT = "examples.rows"
"""Made of `examples.jsonl` by `python -m bench.examples`."""
WORD = re.compile(r"\w+")


class Encoder(Protocol):
    """A model that turns texts into unit vectors."""

    name: str
    size: int

    def encode(self, texts: Sequence[str]) -> bytes:
        """Return one row of float32 of unit length for each text."""
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
    """The encoded examples, computed once because it takes a while."""

    encoder: str
    shapes: tuple[str, ...]
    rows: bytes
    """A signed byte for each value, the largest of each row 127."""


class Nearest:
    """An index of the examples by similarity to a request."""

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
        """Return the examples most like a text, the nearest first, each with its nearness."""
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
        """Count the words that occur only in examples without a call."""
        return len(self._idle.intersection(_words(shape(text))))

    def _encode(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        values = array("f", self._encoder.encode([shape(text) for text in texts]))
        size = self._encoder.size
        return [tuple(values[at : at + size]) for at in range(0, len(values), size)]

    def _bag(self, text: str) -> dict[str, float]:
        """Return the weights of a text's words, as a vector of unit length."""
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
    """Load the examples that ship with the program."""
    lines = Path(__file__).with_name("examples.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Example) for line in lines)


@cache
def kept() -> Kept:
    """Load the encoded examples that ship with the program."""
    return msgspec.msgpack.decode(Path(__file__).with_name(KEPT).read_bytes(), type=Kept)


def keep(encoder: Encoder) -> Kept:
    """Encode the examples for storage."""
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


# The arguments of a call, copied from the words of a request. What is not there is not guessed.


Value = str | int | list[Any] | None
Reader = Callable[[str], Value]

LINES = re.compile(
    r"\blines? (\d+)(?:\s*(?:-|–|to|until|through)\s*(?:line )?(\d+))?", re.IGNORECASE
)
ONWARDS = re.compile(
    r"\b(?:from|after|at|since) line \d+(?!\s*(?:-|–|to|until|through))", re.IGNORECASE
)
FIRST = re.compile(rf"\b(?:first|top|head) (\d+|{'|'.join(COUNTS)}) lines?", re.IGNORECASE)
ADDS = re.compile(r"\b(?:append|insert|end|top|to the file|another|one more)\b", re.IGNORECASE)
"""Who says so means a part of a file, and not all of it."""
EVERY = re.compile(r"\b(?:all|each|every|everywhere)\b", re.IGNORECASE)
UNWANTED = re.compile(r"\b(?:do not|don't|not|never|what|why|how|explain|meaning)\b", re.IGNORECASE)
"""Who says so of a command does not wish it done."""
RUINS = re.compile(
    r"(?<![\w-])(?:rm|rmdir|shred|dd|mkfs\S*|truncate|unlink|mv|chmod|chown|p?kill\w*|sudo|reset|clean"
    r"|restore|checkout|drop|delete|destroy|prune|-f|-delete|-exec|--force\S*|--hard)(?![\w-])|>",
    re.IGNORECASE,
)
"""What may throw something away is done by who understands why, or by hand."""
SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")
POLITE = re.compile(r"[\s,]*(?:please|thanks|thank you|for me)?[\s.!?]*$", re.IGNORECASE)
BETWEEN = re.compile(r"\s*(?:[;\n]|,(?: and\b)?| and )\s*")


def reader(tool: str, name: str) -> Reader:
    """Return the reader of an argument."""
    return READERS.get((tool, name), lambda text: None)


def _of(text: str, *kinds: Kind) -> list[Span]:
    return [span for span in spans(text) if span.kind in kinds]


def _one(*kinds: Kind) -> Reader:
    """Return a reader of the first span of the first kind that a text has."""

    def read(text: str) -> str | None:
        found = (span.text for kind in kinds for span in _of(text, kind))
        return next(found, None)

    return read


def _marked(text: str) -> list[str]:
    """Return quoted texts, without paths if there are others."""
    quoted = [span for span in spans(text) if span.mark]
    return [span.text for span in quoted if span.kind != "path"] or [s.text for s in quoted]


def _sole(some: list[str]) -> str | None:
    return some[0] if len(some) == 1 else None


def _sought(text: str) -> str | None:
    """Read the search pattern: quoted text, a code name, or a word after a cue."""
    said = _sole(_marked(text)) or _one("name", "word")(text)
    return SPECIAL.sub(r"\\\1", str(said).removesuffix("()")) if said else None


def _ending(text: str) -> str | None:
    if span := next(iter(_of(text, "type")), None):
        name = TYPES.get(span.text.casefold(), span.text.casefold())
        return "*test*" if name == "test" else f"*.{name}"
    return next((span.text for span in _of(text, "glob")), None)


def _glob(text: str) -> str | None:
    pattern = _ending(text) or next((span.text for span in _of(text, "path")), None) or _known(text)
    if pattern:
        return pattern if "/" in pattern else f"**/{pattern}"
    name = _sole(_marked(text)) or _one("called")(text)
    return f"**/*{name}*" if name else None


def _known(text: str) -> str | None:
    return next((FILES[span.text.casefold()] for span in _of(text, "known")), None)


def _file(text: str) -> str | None:
    said = next((span.text for span in _of(text, "path")), None)
    return FILES.get(said.casefold(), said) if said else _known(text)


def _command(text: str) -> str | None:
    """Read a command that is quoted, or follows a word like run."""
    if UNWANTED.search(text) or RUINS.search(text):
        return None
    if any(span.mark for span in spans(text)):
        return _sole(_marked(text))
    return next((_plain(span.text) for span in _of(text, "command")), None)


def _swap(at: int) -> Reader:
    def read(text: str) -> str | None:
        marked = _marked(text) or [span.text for span in _of(text, "old", "new")]
        marked = marked or [span.text for span in _of(text, "name", "number")]
        return marked[at] if len(marked) == 2 else None

    return read


def _content(text: str) -> str | None:
    if ADDS.search(text):
        return None
    return _sole(_marked(text)) or next((_plain(s.text) for s in _of(text, "content")), None)


def _plain(text: str) -> str:
    return POLITE.sub("", text)


def _line(at: int) -> Reader:
    def read(text: str) -> int | None:
        match = LINES.search(text)
        return int(match[at] or match[1]) if match else None

    return read


def _limit(text: str) -> int | None:
    if match := FIRST.search(text):
        return _counted(match[1])
    match = None if ONWARDS.search(text) else LINES.search(text)
    count = int(match[2] or match[1]) - int(match[1]) + 1 if match else 0
    return count if count > 0 else None


def _number(text: str) -> int | None:
    return next((_counted(span.text) for span in _of(text, "number", "count")), None)


def _counted(said: str) -> int:
    low = said.casefold()
    return COUNTS.index(low) + 2 if low in COUNTS else int(low)


def _url(text: str) -> str | None:
    url = next((span.text for span in _of(text, "url")), None)
    return url if url is None or "://" in url else f"https://{url}"


def _paths(text: str) -> Value:
    return [span.text for span in _of(text, "path", "folder")] or None


def _todos(text: str) -> Value:
    items = [item for span in _of(text, "items") for item in BETWEEN.split(_plain(span.text))]
    return [{"content": item, "status": "pending"} for item in items if item] or None


READERS: dict[tuple[str, str], Reader] = {
    ("Bash", "command"): _command,
    ("Edit", "file_path"): _one("path"),
    ("Edit", "old_string"): _swap(0),
    ("Edit", "new_string"): _swap(1),
    ("Edit", "replace_all"): lambda text: bool(EVERY.search(text)),
    ("GitBlame", "path"): _one("path"),
    ("GitBlame", "start"): _line(1),
    ("GitBlame", "end"): _line(2),
    ("GitDiff", "commit"): lambda text: "..".join(span.text for span in _of(text, "rev")) or None,
    ("GitDiff", "paths"): _paths,
    ("GitLog", "author"): _one("person"),
    ("GitLog", "grep"): _sought,
    ("GitLog", "n"): _number,
    ("GitLog", "path"): _one("path", "folder"),
    ("GitShow", "path"): _one("path"),
    ("GitShow", "rev"): _one("rev"),
    ("Glob", "path"): _one("folder", "path"),
    ("Glob", "pattern"): _glob,
    ("Grep", "glob"): _ending,
    ("Grep", "path"): lambda text: _one("folder", "path")(text) or _known(text),
    ("Grep", "pattern"): _sought,
    ("Read", "file_path"): _file,
    ("Read", "limit"): _limit,
    ("Read", "offset"): _line(1),
    ("Remember", "text"): _one("kept"),
    ("TodoWrite", "todos"): _todos,
    ("WebFetch", "url"): _url,
    ("Write", "content"): _content,
    ("Write", "file_path"): _one("path"),
}


COUNT = 16
"""The number of nearest examples that are considered."""
SURE = 0.5
"""How near an example must be."""
BARE = 0.56
"""The same where the request names nothing that the call could have in it."""
LONGEST = 30
"""The most words of a simple request, where each named thing counts as one."""
SURELY: tuple[Kind, ...] = (*NAMED, "type", "folder", "known", "count")
"""What nobody names in passing."""
MEANT = {
    **TYPES,
    **{name: file.casefold() for name, file in FILES.items()},
    **{name: str(at) for at, name in enumerate(COUNTS, start=2)},
}
"""How a call says what a request says otherwise."""
DOUBT = 0.15
"""What speaks against a call for each thing that the request names and the call does not, and for
each word that one uses to ask for more than a call."""


class Routed(msgspec.Struct, frozen=True):
    """The call that a request became, or the words that answer it."""

    tool: str
    input: dict[str, Any]
    sure: float
    say: str = ""


def route(text: str, *, near: Nearest, tools: frozenset[str]) -> Routed | None:
    """Route a request to a call; None if that is not certain."""
    if len(shape(text).split()) > LONGEST:
        return None
    best = max(_fitting(text, near=near, tools=tools), key=lambda one: one.sure, default=None)
    needed = SURE if best and best.input else BARE
    return best if best and best.sure >= needed else None


def _fitting(text: str, *, near: Nearest, tools: frozenset[str]) -> Iterator[Routed]:
    for cosine, example in near.find(text, count=COUNT):
        if not example.tool:
            yield Routed("", {}, cosine - DOUBT * _unlike(text, example), example.say)
        elif (
            example.tool in tools
            and wished(example.tool, text)
            and (call := _call(text, example)) is not None
        ):
            doubts = near.doubts(text) + _ignored(text, call)
            yield Routed(example.tool, call, cosine - DOUBT * doubts)


def _call(text: str, example: Example) -> dict[str, Any] | None:
    """Fill an example's arguments from this text."""
    call: dict[str, Any] = {}
    for name, value in example.input.items():
        read = reader(example.tool, name)
        call[name] = read(text) if read(example.text) == value else value
    return None if None in call.values() else call


def _unlike(text: str, example: Example) -> bool:
    """Return whether a request names kinds of things that an example does not."""
    kinds = {span.kind for span in spans(text)}
    return bool(kinds) and kinds.isdisjoint(span.kind for span in spans(example.text))


def _ignored(text: str, call: dict[str, Any]) -> int:
    """Count the things that the request names and the call does not contain."""
    said = repr(call).replace("\\", "").casefold()
    named = [span.text.removesuffix("()").casefold() for span in spans(text) if span.kind in SURELY]
    return sum(MEANT.get(name, name) not in said for name in named)
