"""What a request names to the letter: paths, addresses, quotations, numbers, texts to keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, get_args

import msgspec

Named = Literal["url", "glob", "path", "rev", "number", "name", "text"]
"""What nobody names in passing."""
Loose = Literal["kept", "items", "content", "old", "new", "folder", "word", "person"]
"""What only the words around it tell."""
Kind = Named | Loose
NAMED: tuple[Named, ...] = get_args(Named)
LOOSE: tuple[Loose, ...] = get_args(Loose)

TAILS = (
    r"""\b(?:remember|memori[sz]e|keep\ in\ mind|bear\ in\ mind|make\ a\ note|note
        |(?:do\ not|don't|never)\ forget)\b
        (?:\ for\ (?:later|next\ time|(?:the\ )?future))?[,:]?(?:\ that\b)?:?\ (?P<kept>.+)$""",
    r"\b(?:todos?|to-do|tasks?|list|steps)\b[^:\n]*:\s(?P<items>.+)$",
    r"""\b(?:create|make|add|write|start|save|put)\b.*?\s
        (?:that\ (?:says|reads|contains|holds)|with|containing|saying|reading)(?:\ the)?+
        (?:\ (?:text|contents?|lines?|words?))?+:?+\s(?P<content>[^\s`"“'].*)$""",
)
MARKED = r"""
`(?P<code>[^`\n]+)`|"(?P<double>[^"\n]+)"|“(?P<curly>[^”\n]+)”|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)
"""
BARE = r"""
(?P<url>https?://[^\s<>"'`]*[^\s<>"'`.,;:!?)]
  |\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev)\b(?:/[\w./%#?=&+-]*\w)?)
|(?P<glob>[\w./{},-]*\*[\w./{},*-]*)
|(?P<path>(?<![\w.])(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+(?:[\w.@+-]*[\w@+-])?
  |(?<![\w.])[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,9}\b|(?<![\w.])\.[A-Za-z][\w.-]*\w(?!\ files?)
  |\b(?:Makefile|Dockerfile|README|LICENSE|CHANGELOG|CONTRIBUTING|Procfile|Gemfile|Justfile)\b)
|(?P<rev>\b(?:HEAD(?:[~^]\d*)*|(?=[a-f]*\d)[0-9a-f]{7,40}|v\d+(?:\.\d+)+)(?![\w.]))
|(?P<number>(?<![\w.])\d+\b(?![.%]\d))
|(?P<name>\b[A-Za-z_]\w*\(\)|\b\w*[A-Za-z]_\w+|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*
  |\b(?:TODO|FIXME|XXX|HACK)(?=s?\b)|\b[A-Z]{2,}[A-Z0-9_]{2,}\b)
"""
CUES = (
    r"""\b(?:replace|rename|change|turn|swap|substitute)(?:\ (?:the|word|every|all))*
        \ (?P<old>[\w.-]*\w)\ (?:with|by|to|into|for)\ (?P<new>[\w.-]*\w)""",
    r"""\b(?:the|in|under|of)\ (?P<folder>[\w.-]+)\ (?:folder|directory)\b""",
    r"""\b(?:in|under|inside|within)\ (?:the\ )?(?P<folder>[a-z][\w-]*)[.?!]?$""",
    r"""\b(?:word|term|string|phrase|function|class|variable|constant|method|setting)
        \ (?P<word>[\w-]+)""",
    r"""\b(?:grep|grep\ for|search\ for|look\ for|occurrences?\ of|uses\ of|mentions?\ of)
        \ (?P<word>[\w-]+)[.?!]?$""",
    r"\b(?:by|of|did)\ (?P<person>(?-i:[A-Z][a-z]+))\b",
)
SPAN = re.compile(f"{MARKED}|{BARE}", re.VERBOSE)
ALONE = re.compile(BARE, re.VERBOSE)
TAIL = tuple(re.compile(tail, re.VERBOSE | re.IGNORECASE | re.DOTALL) for tail in TAILS)
CUE = tuple(re.compile(cue, re.VERBOSE | re.IGNORECASE) for cue in CUES)
IDLE = frozenset(("a", "an", "the", "it", "this", "that", "file", "files", "current", "same"))
NOT_PATHS = frozenset(("and/or", "e.g", "i.e", "etc"))
SAID: dict[Kind, str] = {"rev": "commit", "path": "file", "glob": "pattern"}
"""What stands for a thing that is named, where its kind is not a good word for it."""


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
    """All that a text names, from left to right. No two overlap."""
    found: list[Span] = []
    for span in _all(text):
        if not any(span.start < other.end and other.start < span.end for other in found):
            found.append(span)
    return tuple(sorted(found, key=lambda span: span.start))


def shape(text: str) -> str:
    """A text in which words stand for all that it names: what is wished, and not of what."""
    parts: list[str] = []
    at = 0
    for span in spans(text):
        parts += (
            text[at : span.start],
            "command" if span.mark == "`" else SAID.get(span.kind, span.kind),
        )
        at = span.end
    return "".join((*parts, text[at:]))


def _all(text: str) -> Iterator[Span]:
    for tail in TAIL:
        yield from _groups(tail, text)
    for match in SPAN.finditer(text):
        quoted = match.lastgroup in ("code", "double", "curly", "single")
        said = match[match.lastgroup or 0]
        if said.casefold() not in NOT_PATHS:
            mark = ("`" if match.lastgroup == "code" else '"') if quoted else ""
            yield Span(_kind(said), said, *match.span(), mark)
    for cue in CUE:
        yield from (span for span in _groups(cue, text) if span.text.casefold() not in IDLE)


def _groups(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        for kind in LOOSE:
            if kind in pattern.groupindex:
                yield Span(kind, match[kind], *match.span(kind))


def _kind(text: str) -> Kind:
    match = ALONE.fullmatch(text)
    found: list[Kind] = [kind for kind in NAMED if match and match.lastgroup == kind]
    return found[0] if found else "text"
