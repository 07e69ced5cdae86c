"""Continuation: could the work have gone on from the request right after a compaction?

Of the paths, symbols and values in the arguments of the next ten recorded calls that stood in the
conversation before, the share that this request shows. Lists of bare names do not count: a name
without anything said of it helps nobody to go on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from bench.present import calls_of
from bench.steps import Step
from travois.context.ledger.extractors import decode_arguments, is_list, is_object
from travois.core.content import Text, extract_text

NEXT = 10
"""How many of the next calls count."""
MANY, RUN = 4, 8
"""So many names on one line, or lines of one name each, are a list."""
MARKS = re.compile(r"^[\s\-*•]+")
LABEL = re.compile(r"^[^\s:]+: |^(?:[A-Za-z]+ ){0,3}[A-Za-z]+: ")
"""What a line is about, before its names."""
PLAIN_WORD = re.compile(r"[A-Za-z]?[a-z]+[.,;:!?)]*$|[A-Z]+$")
"""A word of a sentence, which names of things in code rarely are."""
FILE = re.compile(r"^<file .*?^</file [0-9a-f]*>$", re.MULTILINE | re.DOTALL)
WORDS = 0.25
"""With this share of plain words, names are part of sentences."""

Atoms = Callable[[str], set[str]]
"""Finds paths, symbols and values in a text."""


class Continued(msgspec.Struct, frozen=True):
    """What the next calls took from the conversation, and what of that is out of sight."""

    wanted: int
    lost: tuple[str, ...]


def continued(steps: Sequence[Step], *, at: int, shown: str, atoms: Atoms) -> Continued:
    """Judge one request, `at` being how many steps were done before it."""
    before: set[str] = set()
    for text in _texts(steps[:at]):
        before |= atoms(text)
    before |= {name for user in _said(steps[at : at + 1]) for name in atoms(user)}
    wanted: set[str] = set()
    for _, call in zip(range(NEXT), calls_of(steps[at:]), strict=False):
        wanted |= atoms("\n".join(_values(decode_arguments(call.args))))
    wanted &= before
    return Continued(len(wanted), tuple(sorted(wanted - atoms(shown))))


def _texts(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        yield from _said((step,))
        yield from (block.text for block in step.content if isinstance(block, Text))
        yield from (extract_text(outcome.content) for outcome in step.results.values())
    for call in calls_of(steps):
        yield "\n".join(_values(decode_arguments(call.args)))


def _said(steps: Iterable[Step]) -> Iterator[str]:
    yield from (extract_text(user.content) for step in steps for user in step.said)


def _values(value: object) -> Iterator[str]:
    """All texts in the arguments of a call, without their names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float):
        yield str(value)
    elif is_object(value) or is_list(value):
        for part in value.values() if is_object(value) else value:
            yield from _values(part)


def without_name_lists(texts: Iterable[str], written: Collection[str]) -> str:
    """What a request shows, without lists of bare names in what the harness has written."""
    return "\n".join(unlisted(text) if text in written else text for text in texts)


def unlisted(text: str) -> str:
    """A text without its lists of bare names; files that stand in it stay whole."""
    kept: list[str] = []
    end = 0
    for found in FILE.finditer(text):
        kept += [*_unlisted(text[end : found.start()]), found[0]]
        end = found.end()
    return "\n".join([*kept, *_unlisted(text[end:])])


def _unlisted(text: str) -> Iterator[str]:
    single: list[str] = []
    for line in text.split("\n"):
        names = _names(line)
        if len(names) == 1:
            single.append(line)
            continue
        yield from single if len(single) < RUN else ()
        single = []
        if len(names) < MANY:
            yield line
    yield from single if len(single) < RUN else ()


def _names(line: str) -> list[str]:
    """The names that a line consists of; none if it says something of them."""
    words = re.split(r"[\s,;|]+", LABEL.sub("", MARKS.sub("", line)).strip())
    words = [word for word in words if word]
    plain = sum(bool(PLAIN_WORD.match(word)) for word in words)
    return [] if not words or plain >= WORDS * len(words) else words
