"""What a request names to the letter: paths, addresses, quotations, numbers, commands."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["url", "glob", "path", "rev", "number", "name", "text"]
BARE = r"""
(?P<url>https?://[^\s<>"'`]*[^\s<>"'`.,;:!?)]|\b(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev)\b(?:/[\w./%#?=&+-]*\w)?)
|(?P<glob>[\w./{},-]*\*[\w./{},*-]*)
|(?P<path>(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+(?:[\w.@+-]*[\w@+-])?
  |(?<![\w.])[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,9}\b|(?<![\w.])\.[A-Za-z][\w.-]*\w
  |\b(?:Makefile|Dockerfile|README|LICENSE|CHANGELOG|CONTRIBUTING|Procfile|Gemfile|Rakefile|Justfile)\b)
|(?P<rev>\b(?:HEAD(?:[~^]\d*)*|(?=[a-f]*\d)[0-9a-f]{7,40}|v\d+(?:\.\d+)+)(?![\w.]))
|(?P<number>(?<![\w.])\d+\b(?![.%]\d))
|(?P<name>\b[A-Za-z_]\w*\(\)|\b\w*[A-Za-z]_\w+|\b[a-z]+[A-Z]\w*|\b[A-Z][a-z]+[A-Z]\w*|\b[A-Z]{2,}[A-Z0-9_]{2,}\b)
"""
MARKED = r"""
`(?P<code>[^`\n]+)`|"(?P<double>[^"\n]+)"|“(?P<curly>[^”\n]+)”|(?<!\w)'(?P<single>[^'\n]+)'(?!\w)
"""
SPAN = re.compile(f"{MARKED}|{BARE}", re.VERBOSE)
ALONE = re.compile(BARE, re.VERBOSE)
NOT_PATHS = {"and/or", "e.g", "i.e", "etc"}
SAID: dict[Kind, str] = {
    "url": "url",
    "glob": "pattern",
    "path": "file",
    "rev": "commit",
    "number": "number",
    "name": "name",
    "text": "text",
}
"""The word that stands for what is named, where only the wish counts."""


class Span(msgspec.Struct, frozen=True):
    """A part of a request that can be copied."""

    text: str
    kind: Kind
    mark: str = ""
    """How it was quoted: a backtick, a quotation mark, or not at all."""
    start: int = 0
    end: int = 0


def spans(text: str) -> tuple[Span, ...]:
    """All that a text names, from left to right."""
    found = [_span(match) for match in SPAN.finditer(text)]
    return tuple(span for span in found if span.text.casefold() not in NOT_PATHS)


def shape(text: str) -> str:
    """A text with words in the place of all that it names."""
    parts: list[str] = []
    at = 0
    for span in spans(text):
        parts += text[at : span.start], "command" if span.mark == "`" else SAID[span.kind]
        at = span.end
    return "".join((*parts, text[at:]))


def _span(match: re.Match[str]) -> Span:
    group = match.lastgroup or ""
    text, (start, end) = match[group], match.span()
    if group in ("code", "double", "curly", "single"):
        return Span(text, _kind(text), "`" if group == "code" else '"', start, end)
    return Span(text, _kind(text), "", start, end)


def _kind(text: str) -> Kind:
    match = ALONE.fullmatch(text)
    kinds: dict[str | None, Kind] = {kind: kind for kind in SAID}
    return kinds[match.lastgroup] if match else "text"
