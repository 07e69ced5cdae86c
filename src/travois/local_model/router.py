"""Routing simple requests to tool calls by the nearest example.

No model is asked. A request that no example resembles, or that does not name what the call needs,
is not routed: doing nothing is better than doing the wrong thing.
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

from travois.local_model.request_spans import (
    FILE_ENDINGS,
    MARKED_KINDS,
    NUMBER_WORDS,
    WELL_KNOWN_FILES,
    RequestSpan,
    SpanKind,
    find_request_spans,
    mask_request_spans,
    requests_tool,
)

# What people ask in one sentence, and the call that does it: read from `examples.jsonl`.


WORD_WEIGHT = 0.3
"""How much it counts whether the words are the same; the rest is whether they mean the same."""
STORED_EXAMPLES_FILE = "examples.rows"
"""Made of `examples.jsonl` by `python -m bench.examples`."""
WORD_IN_EXAMPLE = re.compile(r"\w+")


class TextEncoder(Protocol):
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


class StoredExamples(msgspec.Struct, frozen=True):
    """The encoded examples, computed once because it takes a while."""

    encoder: str
    shapes: tuple[str, ...]
    rows: bytes
    """A signed byte for each value, the largest of each row 127."""


class ExampleIndex:
    """An index of the examples by similarity to a request."""

    def __init__(self, encoder: TextEncoder, examples: Sequence[Example] | None = None) -> None:
        self.examples = tuple(load_examples() if examples is None else examples)
        self._encoder = encoder
        self._rows: list[tuple[float, ...]] = []
        stored = load_stored_examples() if examples is None else None
        if stored and stored.encoder == encoder.name:
            shapes, self._rows = stored.shapes, _unpack_rows(stored.rows, encoder.size)
        else:
            shapes = tuple(mask_request_spans(one.text) for one in self.examples)
        often = Counter(word for text in shapes for word in set(_casefold_words(text)))
        self._rarity = {word: log(1 + len(shapes) / count) for word, count in often.items()}
        self._bags = [self._weigh_words(text) for text in shapes]
        calls = [bool(one.tool) for one in self.examples]
        said = [
            {
                word
                for text, call in zip(shapes, calls, strict=True)
                if call is kind
                for word in _casefold_words(text)
            }
            for kind in (False, True)
        ]
        self._idle = said[0] - said[1]

    def find_nearest(self, text: str, *, count: int) -> list[tuple[float, Example]]:
        """Return the examples most like a text, the nearest first, each with its nearness."""
        self._rows = self._rows or self._encode_texts([one.text for one in self.examples])
        (asked,) = self._encode_texts([text])
        bag = self._weigh_words(mask_request_spans(text))
        near = [
            (1 - WORD_WEIGHT) * sum(map(mul, asked, row)) + WORD_WEIGHT * _dot_product(bag, other)
            for row, other in zip(self._rows, self._bags, strict=True)
        ]
        order = sorted(range(len(near)), key=lambda at: -near[at])
        return [(near[at], self.examples[at]) for at in order[:count]]

    def count_doubtful_words(self, text: str) -> int:
        """Count the words that occur only in examples without a call."""
        return len(self._idle.intersection(_casefold_words(mask_request_spans(text))))

    def _encode_texts(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
        values = array("f", self._encoder.encode([mask_request_spans(text) for text in texts]))
        size = self._encoder.size
        return [tuple(values[at : at + size]) for at in range(0, len(values), size)]

    def _weigh_words(self, text: str) -> dict[str, float]:
        """Return the weights of a text's words, as a vector of unit length."""
        rarest = log(1 + len(self.examples))
        weights = {word: self._rarity.get(word, rarest) for word in _casefold_words(text)}
        length = sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}


def _casefold_words(text: str) -> list[str]:
    return WORD_IN_EXAMPLE.findall(text.casefold())


def _dot_product(one: dict[str, float], other: dict[str, float]) -> float:
    return sum(weight * other[word] for word, weight in one.items() if word in other)


@cache
def load_examples() -> tuple[Example, ...]:
    """Load the routing examples that ship with the program."""
    lines = Path(__file__).with_name("examples.jsonl").read_bytes().splitlines()
    return tuple(msgspec.json.decode(line, type=Example) for line in lines)


@cache
def load_stored_examples() -> StoredExamples:
    """Load the encoded routing examples that ship with the program."""
    return msgspec.msgpack.decode(
        Path(__file__).with_name(STORED_EXAMPLES_FILE).read_bytes(), type=StoredExamples
    )


def build_stored_examples(encoder: TextEncoder) -> StoredExamples:
    """Encode the routing examples for storage."""
    shapes = tuple(mask_request_spans(one.text) for one in load_examples())
    values, size = array("f", encoder.encode(shapes)), encoder.size
    rows = [values[at : at + size] for at in range(0, len(values), size)]
    packed = (
        array("b", (round(127 * value / _largest_value(row)) for value in row)) for row in rows
    )
    return StoredExamples(encoder.name, shapes, b"".join(row.tobytes() for row in packed))


def _largest_value(row: array[float]) -> float:
    return max(map(abs, row)) or 1.0


def _unpack_rows(packed: bytes, size: int) -> list[tuple[float, ...]]:
    """Unpack the stored vectors of routing examples and scale them to unit length."""
    values = array("b", packed)
    rows = (values[at : at + size] for at in range(0, len(values), size))
    return [
        tuple(value / length for value in row) for row in rows if (length := hypot(*row) or 1.0)
    ]


# The arguments of a call, copied from the words of a request. What is not there is not guessed.


ArgumentValue = str | int | list[Any] | None
ArgumentReader = Callable[[str], ArgumentValue]

LINE_RANGE = re.compile(
    r"\blines? (\d+)(?:\s*(?:-|–|to|until|through)\s*(?:line )?(\d+))?", re.IGNORECASE
)
FROM_LINE_ON = re.compile(
    r"\b(?:from|after|at|since) line \d+(?!\s*(?:-|–|to|until|through))", re.IGNORECASE
)
FIRST_LINES = re.compile(
    rf"\b(?:first|top|head) (\d+|{'|'.join(NUMBER_WORDS)}) lines?", re.IGNORECASE
)
PARTIAL_WRITE = re.compile(
    r"\b(?:append|insert|end|top|to the file|another|one more)\b", re.IGNORECASE
)
"""Who says so means a part of a file, and not all of it."""
EVERY_OCCURRENCE = re.compile(r"\b(?:all|each|every|everywhere)\b", re.IGNORECASE)
UNWANTED_COMMAND = re.compile(
    r"\b(?:do not|don't|not|never|what|why|how|explain|meaning)\b", re.IGNORECASE
)
"""Who says so of a command does not wish it done."""
DESTRUCTIVE_WORD = re.compile(
    r"(?<![\w-])(?:rm|rmdir|shred|dd|mkfs\S*|truncate|unlink|mv|chmod|chown|p?kill\w*|sudo|reset|clean"
    r"|restore|checkout|drop|delete|destroy|prune|-f|-delete|-exec|--force\S*|--hard)(?![\w-])|>",
    re.IGNORECASE,
)
"""What may throw something away is done by who understands why, or by hand."""
REGEX_SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")
POLITE_SUFFIX = re.compile(r"[\s,]*(?:please|thanks|thank you|for me)?[\s.!?]*$", re.IGNORECASE)
LIST_SEPARATOR = re.compile(r"\s*(?:[;\n]|,(?: and\b)?| and )\s*")


def argument_reader(tool: str, name: str) -> ArgumentReader:
    """Return the reader that routing uses for an argument."""
    return ARGUMENT_READERS.get((tool, name), lambda text: None)


def _spans_of_kind(text: str, *kinds: SpanKind) -> list[RequestSpan]:
    return [span for span in find_request_spans(text) if span.kind in kinds]


def _first_of_kinds(*kinds: SpanKind) -> ArgumentReader:
    """Return a routing reader of the first span of the first kind in a request."""

    def read_first_span(text: str) -> str | None:
        found = (span.text for kind in kinds for span in _spans_of_kind(text, kind))
        return next(found, None)

    return read_first_span


def _texts_in_quotes(text: str) -> list[str]:
    """Return a request's quoted texts for routing, without paths if there are others."""
    quoted = [span for span in find_request_spans(text) if span.mark]
    return [span.text for span in quoted if span.kind != "path"] or [s.text for s in quoted]


def _only_item(some: list[str]) -> str | None:
    return some[0] if len(some) == 1 else None


def _read_search_pattern(text: str) -> str | None:
    """Read a search pattern from a request: quoted text, a code name, or a cued word."""
    said = _only_item(_texts_in_quotes(text)) or _first_of_kinds("name", "word")(text)
    return REGEX_SPECIAL.sub(r"\\\1", str(said).removesuffix("()")) if said else None


def _read_file_ending(text: str) -> str | None:
    """Read a file type from a request as a glob for routing."""
    if span := next(iter(_spans_of_kind(text, "type")), None):
        name = FILE_ENDINGS.get(span.text.casefold(), span.text.casefold())
        return "*test*" if name == "test" else f"*.{name}"
    return next((span.text for span in _spans_of_kind(text, "glob")), None)


def _read_glob_pattern(text: str) -> str | None:
    """Read the pattern of a Glob call from a request."""
    pattern = (
        _read_file_ending(text)
        or next((span.text for span in _spans_of_kind(text, "path")), None)
        or _read_well_known_file(text)
    )
    if pattern:
        return pattern if "/" in pattern else f"**/{pattern}"
    name = _only_item(_texts_in_quotes(text)) or _first_of_kinds("called")(text)
    return f"**/*{name}*" if name else None


def _read_well_known_file(text: str) -> str | None:
    """Read a well-known file from a request, such as the readme."""
    return next(
        (WELL_KNOWN_FILES[span.text.casefold()] for span in _spans_of_kind(text, "known")), None
    )


def _read_file_path(text: str) -> str | None:
    said = next((span.text for span in _spans_of_kind(text, "path")), None)
    return WELL_KNOWN_FILES.get(said.casefold(), said) if said else _read_well_known_file(text)


def is_harmless_text(text: str) -> bool:
    """Return whether a wished command throws nothing away and is no question about it."""
    return not (UNWANTED_COMMAND.search(text) or DESTRUCTIVE_WORD.search(text))


def _read_command(text: str) -> str | None:
    """Read a command from a request: quoted, or after a word like run."""
    if not is_harmless_text(text):
        return None
    if any(span.mark for span in find_request_spans(text)):
        return _only_item(_texts_in_quotes(text))
    return next((_strip_polite_suffix(span.text) for span in _spans_of_kind(text, "command")), None)


def _swap_reader(at: int) -> ArgumentReader:
    """Return a reader for the old or the new text of a replacement in a request."""

    def read_swapped_text(text: str) -> str | None:
        marked = _texts_in_quotes(text) or [
            span.text for span in _spans_of_kind(text, "old", "new")
        ]
        marked = marked or [span.text for span in _spans_of_kind(text, "name", "number")]
        return marked[at] if len(marked) == 2 else None

    return read_swapped_text


def _read_file_content(text: str) -> str | None:
    """Read the content of a Write call from a request; None if only a part is meant."""
    if PARTIAL_WRITE.search(text):
        return None
    return _only_item(_texts_in_quotes(text)) or next(
        (_strip_polite_suffix(s.text) for s in _spans_of_kind(text, "content")), None
    )


def _strip_polite_suffix(text: str) -> str:
    return POLITE_SUFFIX.sub("", text)


def _line_reader(at: int) -> ArgumentReader:
    """Return a reader for the first or last line number in a request."""

    def read_line_number(text: str) -> int | None:
        match = LINE_RANGE.search(text)
        return int(match[at] or match[1]) if match else None

    return read_line_number


def _read_line_limit(text: str) -> int | None:
    """Read from a request how many lines to show."""
    if match := FIRST_LINES.search(text):
        return _parse_count(match[1])
    match = None if FROM_LINE_ON.search(text) else LINE_RANGE.search(text)
    count = int(match[2] or match[1]) - int(match[1]) + 1 if match else 0
    return count if count > 0 else None


def _read_number(text: str) -> int | None:
    return next((_parse_count(span.text) for span in _spans_of_kind(text, "number", "count")), None)


def _parse_count(said: str) -> int:
    low = said.casefold()
    return NUMBER_WORDS.index(low) + 2 if low in NUMBER_WORDS else int(low)


def _read_url(text: str) -> str | None:
    url = next((span.text for span in _spans_of_kind(text, "url")), None)
    return url if url is None or "://" in url else f"https://{url}"


def _read_paths(text: str) -> ArgumentValue:
    return [span.text for span in _spans_of_kind(text, "path", "folder")] or None


def _read_todos(text: str) -> ArgumentValue:
    """Read the items of a todo list from a request."""
    items = [
        item
        for span in _spans_of_kind(text, "items")
        for item in LIST_SEPARATOR.split(_strip_polite_suffix(span.text))
    ]
    return [{"content": item, "status": "pending"} for item in items if item] or None


ARGUMENT_READERS: dict[tuple[str, str], ArgumentReader] = {
    ("Bash", "command"): _read_command,
    ("Edit", "file_path"): _first_of_kinds("path"),
    ("Edit", "old_string"): _swap_reader(0),
    ("Edit", "new_string"): _swap_reader(1),
    ("Edit", "replace_all"): lambda text: bool(EVERY_OCCURRENCE.search(text)),
    ("GitBlame", "path"): _first_of_kinds("path"),
    ("GitBlame", "start"): _line_reader(1),
    ("GitBlame", "end"): _line_reader(2),
    ("GitDiff", "commit"): lambda text: (
        "..".join(span.text for span in _spans_of_kind(text, "rev")) or None
    ),
    ("GitDiff", "paths"): _read_paths,
    ("GitLog", "author"): _first_of_kinds("person"),
    ("GitLog", "grep"): _read_search_pattern,
    ("GitLog", "n"): _read_number,
    ("GitLog", "path"): _first_of_kinds("path", "folder"),
    ("GitShow", "path"): _first_of_kinds("path"),
    ("GitShow", "rev"): _first_of_kinds("rev"),
    ("Glob", "path"): _first_of_kinds("folder", "path"),
    ("Glob", "pattern"): _read_glob_pattern,
    ("Grep", "glob"): _read_file_ending,
    ("Grep", "path"): lambda text: (
        _first_of_kinds("folder", "path")(text) or _read_well_known_file(text)
    ),
    ("Grep", "pattern"): _read_search_pattern,
    ("Read", "file_path"): _read_file_path,
    ("Read", "limit"): _read_line_limit,
    ("Read", "offset"): _line_reader(1),
    ("Remember", "text"): _first_of_kinds("kept"),
    ("TodoWrite", "todos"): _read_todos,
    ("WebFetch", "url"): _read_url,
    ("Write", "content"): _read_file_content,
    ("Write", "file_path"): _first_of_kinds("path"),
}


NEAREST_EXAMPLES = 16
"""The number of nearest examples that are considered."""
MIN_SIMILARITY = 0.5
"""How near an example must be."""
MIN_SIMILARITY_WITHOUT_ARGUMENTS = 0.56
"""The same where the request names nothing that the call could have in it."""
MAX_REQUEST_WORDS = 30
"""The most words of a simple request, where each named thing counts as one."""
INTENDED_KINDS: tuple[SpanKind, ...] = (*MARKED_KINDS, "type", "folder", "known", "count")
"""What nobody names in passing."""
VALUE_SYNONYMS = {
    **FILE_ENDINGS,
    **{name: file.casefold() for name, file in WELL_KNOWN_FILES.items()},
    **{name: str(at) for at, name in enumerate(NUMBER_WORDS, start=2)},
}
"""How a call says what a request says otherwise."""
DOUBT_PENALTY = 0.15
"""What speaks against a call for each thing that the request names and the call does not, and for
each word that one uses to ask for more than a call."""


class RoutedCall(msgspec.Struct, frozen=True):
    """The call that a request became, or the words that answer it."""

    tool: str
    input: dict[str, Any]
    sure: float
    say: str = ""


def route_request(text: str, *, examples: ExampleIndex, tools: frozenset[str]) -> RoutedCall | None:
    """Route a request to a tool call by its nearest examples; None if uncertain."""
    if len(mask_request_spans(text).split()) > MAX_REQUEST_WORDS:
        return None
    best = max(
        _fitting_calls(text, examples=examples, tools=tools), key=lambda one: one.sure, default=None
    )
    needed = MIN_SIMILARITY if best and best.input else MIN_SIMILARITY_WITHOUT_ARGUMENTS
    return best if best and best.sure >= needed else None


def _fitting_calls(
    text: str, *, examples: ExampleIndex, tools: frozenset[str]
) -> Iterator[RoutedCall]:
    """List the calls of similar examples that fit a request, each with its certainty."""
    for cosine, example in examples.find_nearest(text, count=NEAREST_EXAMPLES):
        if not example.tool:
            yield RoutedCall(
                "", {}, cosine - DOUBT_PENALTY * _names_other_kinds(text, example), example.say
            )
        elif (
            example.tool in tools
            and requests_tool(example.tool, text)
            and (call := _fill_example_call(text, example)) is not None
        ):
            doubts = examples.count_doubtful_words(text) + _count_ignored_spans(text, call)
            yield RoutedCall(example.tool, call, cosine - DOUBT_PENALTY * doubts)


def _fill_example_call(text: str, example: Example) -> dict[str, Any] | None:
    """Fill a routing example's arguments from the request."""
    call: dict[str, Any] = {}
    for name, value in example.input.items():
        read = argument_reader(example.tool, name)
        call[name] = read(text) if read(example.text) == value else value
    return None if None in call.values() else call


def _names_other_kinds(text: str, example: Example) -> bool:
    """Return whether a request names kinds of things that a routing example does not."""
    kinds = {span.kind for span in find_request_spans(text)}
    return bool(kinds) and kinds.isdisjoint(span.kind for span in find_request_spans(example.text))


def _count_ignored_spans(text: str, call: dict[str, Any]) -> int:
    """Count the things that a request names and the routed call does not contain."""
    said = repr(call).replace("\\", "").casefold()
    named = [
        span.text.removesuffix("()").casefold()
        for span in find_request_spans(text)
        if span.kind in INTENDED_KINDS
    ]
    return sum(VALUE_SYNONYMS.get(name, name) not in said for name in named)
