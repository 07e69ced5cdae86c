"""What a request names to the letter: paths, addresses, quotations, numbers, texts to keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from travois.local_model import patterns
from travois.local_model.commands import command
from travois.local_model.plain import plain

Named = Literal["url", "glob", "path", "rev", "number", "name", "text"]
"""What looks like itself wherever it stands."""
Loose = Literal[
    "kept",
    "items",
    "content",
    "command",
    "known",
    "type",
    "old",
    "new",
    "folder",
    "count",
    "called",
    "word",
    "person",
]
"""What only the words around it tell."""
Kind = Named | Loose
NAMED: tuple[Named, ...] = get_args(Named)
LOOSE: tuple[Loose, ...] = get_args(Loose)

SPAN = re.compile(f"{patterns.MARKED}|{patterns.BARE}", re.VERBOSE)
ALONE = re.compile(patterns.BARE, re.VERBOSE)
FIRST = tuple(
    re.compile(pattern, re.VERBOSE | re.IGNORECASE | re.DOTALL)
    for pattern in patterns.TAILS + patterns.ENDINGS
)
CUE = tuple(re.compile(cue, re.VERBOSE | re.IGNORECASE) for cue in patterns.CUES)
IDLE = re.compile(patterns.IDLE, re.IGNORECASE)
UNSOUGHT = re.compile(f"{patterns.IDLE}|{patterns.UNSOUGHT}", re.IGNORECASE)
NOT_PATHS = frozenset(("and/or", "e.g", "i.e", "etc"))
SAID: dict[Kind, str] = {
    "called": "name",
    "content": "text",
    "count": "number",
    "glob": "pattern",
    "kept": "something",
    "known": "file",
    "new": "text",
    "old": "text",
    "path": "file",
    "rev": "commit",
    "type": "python",
}
"""What stands for a thing that is named, where its kind is not a good word for it."""
SHORT = ((re.compile(r"n['’]t\b"), " not"), (re.compile(r"(?<=\w)['’]s\b"), " is"))


class Span(msgspec.Struct, frozen=True):
    """A part of a request that can be copied."""

    kind: Kind
    text: str
    start: int
    end: int
    mark: str = ""
    """How it was quoted: a backtick, a quotation mark, or not at all."""


@lru_cache(maxsize=512)
def spans(text: str) -> tuple[Span, ...]:
    """All that a text names, from left to right, as it stands in plain words. No two overlap."""
    text = plain(text)
    found: list[Span] = []
    for span in _all(text):
        if not any(span.start < other.end and other.start < span.end for other in found):
            found.append(span)
    return tuple(sorted(found, key=lambda span: span.start))


def shape(text: str) -> str:
    """A text in which words stand for all that it names: what is wished, and not of what."""
    parts: list[str] = []
    at, text = 0, plain(asked := text)
    for span in spans(asked):
        said = "command" if span.mark == "`" else SAID.get(span.kind, span.kind)
        parts += text[at : span.start], said
        at = span.end
    shaped = "".join((*parts, text[at:]))
    for pattern, whole in SHORT:
        shaped = pattern.sub(whole, shaped)
    return shaped


def _all(text: str) -> Iterator[Span]:
    if run := command(text):
        yield Span("command", text[slice(*run)], *run)
    for pattern in FIRST:
        yield from _loose(pattern, text)
    for match in SPAN.finditer(text):
        quoted = match.lastgroup in ("code", "double", "curly", "single")
        said = match[match.lastgroup or 0]
        if quoted or (said.casefold() not in NOT_PATHS and "..." not in said):
            mark = ("`" if match.lastgroup == "code" else '"') if quoted else ""
            yield Span(_kind(said), said, *match.span(), mark)
    for cue in CUE:
        yield from (span for span in _loose(cue, text) if not _idle(span))


def _loose(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        for kind in (*LOOSE, "rev"):
            if kind in pattern.groupindex:
                yield Span(kind, match[kind], *match.span(kind))


def _idle(span: Span) -> bool:
    words = UNSOUGHT if span.kind in ("word", "called") else IDLE
    return words.fullmatch(span.text) is not None


def _kind(text: str) -> Kind:
    match = ALONE.fullmatch(text)
    found: list[Kind] = [kind for kind in NAMED if match and match.lastgroup == kind]
    if found == ["path"] and "/" in text and "." not in text.rpartition("/")[2]:
        return "folder"
    return found[0] if found else "text"
