"""What a request names to the letter: paths, addresses, quotations, numbers, texts to keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, get_args

import msgspec

Named = Literal["url", "glob", "path", "rev", "number", "name", "text"]
"""What looks like itself wherever it stands."""
Loose = Literal[
    "kept", "items", "content", "type", "old", "new", "folder", "count", "word", "person"
]
"""What only the words around it tell."""
Kind = Named | Loose
NAMED: tuple[Named, ...] = get_args(Named)
LOOSE: tuple[Loose, ...] = get_args(Loose)

TYPES = {
    "javascript": "js",
    "markdown": "md",
    "python": "py",
    "ruby": "rb",
    "rust": "rs",
    "shell": "sh",
    "text": "txt",
    "typescript": "ts",
}
"""How files end that people call otherwise."""
COUNTS = (
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
TAILS = (
    r"""(?<!you\ )\b(?:remember|memori[sz]e|(?:keep|bear)\ in\ mind|(?:make\ a\ )?note
        |(?:do\ not|don't|never)\ forget)\b(?:\ for\ (?:later|next\ time|(?:the\ )?future))?
        [,:]?(?:\ that\b)?:?\ (?P<kept>.+[^?\s])\s*$""",
    r"\b(?:todos?|to-do|tasks?|list|steps)\b[^:\n]*:\s(?P<items>.+)$",
    r"""\b(?:create|make|add|write|start|save|put)\b.*?\s
        (?:that\ (?:says|reads|contains|holds)|containing|saying|reading
        |with(?:\ the)?\ (?:text|contents?|lines?|words?)|with(?=\ \S+$)):?\s
        (?P<content>(?!(?:an?|the|some|all|every|each|my|our)\b)[^\s`"“'].*)$""",
)
ENDINGS = (
    rf"""(?<!\w)(?P<type>{"|".join(TYPES)}|css|csv|html|java|json|sql|toml|xml|yaml|go|c)
        (?=\ (?:files?|modules?|scripts?|sources?|code)\b)""",
    r"(?<![\w/])\.(?P<type>[a-z]\w*)(?=\ files?\b)",
    r"\bend(?:ing|s)?\ (?:in|with)\ \.?(?P<type>\w+)",
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
    r"\b(?:the|in|under|of|inside)\ (?P<folder>[\w.-]+)\ (?:folder|directory)\b",
    r"\b(?:folder|directory)\ (?P<folder>[\w.-]+)\s*[.?!]?$",
    r"\b(?:ls|in|under|inside|within)\ (?:the\ )?(?P<folder>[a-z][\w-]*)\s*[.?!]?$",
    rf"\b(?P<count>{'|'.join(COUNTS)})\ (?:\w+\ )?(?:commits|changes|entries)\b",
    r"""\b(?:word|term|string|phrase|function|class|variable|constant|method|setting)
        \ (?P<word>[\w-]+)""",
    r"""\b(?:grep|(?:grep|search|look|hunt)\ for|(?:occurrences?|us(?:ag)?es?|mentions?)\ of
        |imports?|uses?|mentions?|contains?)\ (?P<word>[\w-]+)\s*[.?!]?$""",
    r"\bdoes\ (?P<word>[\w-]+)\ (?:appear|occur|show\ up)\b",
    r"\b(?:by|of|did)\ (?P<person>(?-i:[A-Z][a-z]+))\b",
)
SPAN = re.compile(f"{MARKED}|{BARE}", re.VERBOSE)
ALONE = re.compile(BARE, re.VERBOSE)
FIRST = tuple(
    re.compile(pattern, re.VERBOSE | re.IGNORECASE | re.DOTALL) for pattern in TAILS + ENDINGS
)
CUE = tuple(re.compile(cue, re.VERBOSE | re.IGNORECASE) for cue in CUES)
IDLE = frozenset(
    ("a", "an", "the", "it", "this", "that", "there", "here", "file", "files", "current", "same")
)
NOT_PATHS = frozenset(("and/or", "e.g", "i.e", "etc"))
SAID: dict[Kind, str] = {
    "content": "text",
    "count": "number",
    "glob": "pattern",
    "kept": "something",
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
        said = "command" if span.mark == "`" else SAID.get(span.kind, span.kind)
        parts += text[at : span.start], said
        at = span.end
    shaped = "".join((*parts, text[at:]))
    for pattern, whole in SHORT:
        shaped = pattern.sub(whole, shaped)
    return shaped


def _all(text: str) -> Iterator[Span]:
    for pattern in FIRST:
        yield from _loose(pattern, text)
    for match in SPAN.finditer(text):
        quoted = match.lastgroup in ("code", "double", "curly", "single")
        said = match[match.lastgroup or 0]
        if quoted or (said.casefold() not in NOT_PATHS and "..." not in said):
            mark = ("`" if match.lastgroup == "code" else '"') if quoted else ""
            yield Span(_kind(said), said, *match.span(), mark)
    for cue in CUE:
        yield from (span for span in _loose(cue, text) if span.text.casefold() not in IDLE)


def _loose(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    for match in pattern.finditer(text):
        for kind in LOOSE:
            if kind in pattern.groupindex:
                yield Span(kind, match[kind], *match.span(kind))


def _kind(text: str) -> Kind:
    match = ALONE.fullmatch(text)
    found: list[Kind] = [kind for kind in NAMED if match and match.lastgroup == kind]
    if found == ["path"] and "/" in text and "." not in text.rpartition("/")[2]:
        return "folder"
    return found[0] if found else "text"
