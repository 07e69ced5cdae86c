"""Choosing the passages of a file to show after a compaction where not all of it fits.

Model sees: after a compaction, the declarations that were mentioned or changed, with their lines.
Tokens: the room that the caller gives.
Cache: moves nothing itself; a compaction that carries it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import log2

import msgspec

from travois.context.compaction.declarations import FILE_NAME, IDENTIFIER, find_declared_name
from travois.context.ledger.extractors import classify_tool, decode_arguments
from travois.core.content import AnyBlock, Call, Text
from travois.core.facts import Assistant, Entry, User
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem
from travois.prompt.instruction_text import count_fitting_lines

LONG_PASSAGE_LINES = 25
"""The lines after which a declaration is cut at the next blank line."""
PASSAGE_MARGIN_TOKENS = 60
"""The tokens of the marks around a passage."""
MIN_PASSAGE_TOKENS = 150
"""The least room in which another passage is started."""
CHANGED_WORTH = 4.0
"""The weight of a change: as much as a name mentioned 15 times."""
MAX_OUTER_INDENT = 4
"""A declaration further in belongs to the one around it."""
WRITING_KINDS = ("write", "edit", "patch")
COMMENT_STARTS = ("//", "#", "/*", "*", "@", "--", '"""', "'''")
"""Beginnings of lines that belong to the declaration after them."""

LineRange = tuple[int, int]
"""Lines of a file by index: the first, and the one after the last."""


class Passage(msgspec.Struct, frozen=True):
    """Lines that belong together, and how likely they are needed."""

    first: int
    end: int
    worth: float


def weigh_spoken_names(entries: Iterable[Entry | ViewItem]) -> dict[str, float]:
    """Weigh each name in messages and calls by how often and how recently it was mentioned.

    What a call writes does not count: it names everything in it, and is done.
    """
    found = SpokenNames()
    found.add(entries)
    return found.weights


class SpokenNames:
    """The number and place of mentions of each name."""

    def __init__(self) -> None:
        self._messages = 0
        self._found: dict[str, tuple[int, int]] = {}
        """The number of messages with a name, and the sum of their numbers."""

    def add(self, entries: Iterable[Entry | ViewItem]) -> None:
        """Add the entries that came since the last time."""
        for entry in entries:
            names = _names_in_entry(entry)
            self._messages += bool(names)
            for name in names:
                count, total = self._found.get(name, (0, 0))
                self._found[name] = count + 1, total + self._messages

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each name: more for a recent message."""
        return {
            name: 0.5 * count + total / self._messages
            for name, (count, total) in self._found.items()
        }


def weigh_file(path: str, names: Mapping[str, float]) -> float:
    """Return how often a file was mentioned, by its name with or without suffix."""
    name = file_name(path)
    return max(names.get(name, 0.0), names.get(name.partition(".")[0], 0.0))


def file_name(path: str) -> str:
    """Return the last part of a file's path, to count mentions of it."""
    return path.replace("\\", "/").rpartition("/")[2]


def _names_in_entry(entry: Entry | ViewItem) -> set[str]:
    """Collect the identifiers and file names in a message of the user or the model."""
    match entry.fact:
        case User(origin="human" | "task", content=content) | Assistant(content=content):
            text = "\n".join(map(_text_of_block, content))
            return {*IDENTIFIER.findall(text), *map(file_name, FILE_NAME.findall(text))}
        case _:
            return set()


def _text_of_block(block: AnyBlock) -> str:
    """Return a block's text or call arguments to count mentions in; empty for file writes."""
    match block:
        case Text(text=text):
            return text
        case Call(name=name, args=args) if (
            classify_tool(name, decode_arguments(args)) not in WRITING_KINDS
        ):
            return args
        case _:
            return ""


def choose_passages(
    lines: Sequence[str],
    *,
    among: Iterable[LineRange],
    names: Mapping[str, float],
    changed: Collection[int] = (),
    tokens: int,
) -> list[LineRange]:
    """Choose a file's best passages to show after a compaction: those that fit, in order."""
    parts = [part for lines_of in among for part in _split_passages(lines, lines_of)]
    found = _weigh_passages(lines, parts, names, changed=changed)
    chosen: list[LineRange] = []
    for one in sorted(found, key=lambda one: -one.worth):
        if chosen and tokens < MIN_PASSAGE_TOKENS:
            break
        room = tokens - (0 if _is_adjacent(one, chosen) else PASSAGE_MARGIN_TOKENS)
        count, size = _count_fitting_lines(lines[one.first : one.end], room)
        if count:
            chosen.append((one.first, one.first + count))
            tokens = room - size
    return list(_merge_ranges(sorted(chosen)))


def _count_fitting_lines(lines: Sequence[str], tokens: int) -> tuple[int, int]:
    """Return how many lines of a passage fit in a token budget, and their tokens."""
    count: int = count_fitting_lines(lines, tokens)
    size = estimate_tokens("".join(lines[:count]))
    while count and size > tokens:
        count = min(count - 1, count * tokens // size)
        size = estimate_tokens("".join(lines[:count]))
    return count, size


def _weigh_passages(
    lines: Sequence[str],
    parts: Sequence[LineRange],
    names: Mapping[str, float],
    *,
    changed: Collection[int],
) -> list[Passage]:
    """Weigh each passage: it was changed, or it has mentioned names that other passages lack."""
    held = [
        set(IDENTIFIER.findall("".join(lines[first:end]))) & names.keys() for first, end in parts
    ]
    common = Counter(name for each in held for name in each)
    return [
        Passage(
            first,
            end,
            CHANGED_WORTH * any(first <= line < end for line in changed)
            + sum(log2(1 + names[name]) / common[name] for name in each),
        )
        for (first, end), each in zip(parts, held, strict=True)
    ]


def _is_adjacent(one: Passage, chosen: Iterable[LineRange]) -> bool:
    return any(end == one.first or first == one.end for first, end in chosen)


def _split_passages(lines: Sequence[str], part: LineRange) -> Iterator[LineRange]:
    """Split a file into passages before each outer declaration; long ones at blank lines."""
    start, end = part
    for index in range(start + 1, end):
        cut = index
        if _is_outer_declaration(lines[index]):
            while cut - 1 > start and lines[cut - 1].lstrip().startswith(COMMENT_STARTS):
                cut -= 1
        elif index - start < LONG_PASSAGE_LINES or lines[index - 1].strip():
            continue
        if cut > start:
            yield start, cut
            start = cut
    if end > start:
        yield start, end


def _is_outer_declaration(line: str) -> bool:
    indent = len(line) - len(line.lstrip(" \t"))
    return indent <= MAX_OUTER_INDENT and bool(find_declared_name(line))


def _merge_ranges(chosen: Iterable[LineRange]) -> Iterator[LineRange]:
    """Merge adjacent line ranges of a file's passages."""
    first, end = -1, -1
    for start, stop in chosen:
        if start != end:
            if end > first:
                yield first, end
            first = start
        end = stop
    if end > first:
        yield first, end
