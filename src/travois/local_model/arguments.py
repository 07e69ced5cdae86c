"""The arguments of a call, copied from the words of a request. What is not there is not guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from travois.local_model.patterns import COUNTS, FILES, TYPES
from travois.local_model.reading import Kind, Span, spans

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
    """How an argument is read from a text."""
    return READERS.get((tool, name), lambda text: None)


def _of(text: str, *kinds: Kind) -> list[Span]:
    return [span for span in spans(text) if span.kind in kinds]


def _one(*kinds: Kind) -> Reader:
    """The first that a text names of the first of these kinds that it names."""

    def read(text: str) -> str | None:
        found = (span.text for kind in kinds for span in _of(text, kind))
        return next(found, None)

    return read


def _marked(text: str) -> list[str]:
    """What is quoted, apart from paths beside other things."""
    quoted = [span for span in spans(text) if span.mark]
    return [span.text for span in quoted if span.kind != "path"] or [s.text for s in quoted]


def _sole(some: list[str]) -> str | None:
    return some[0] if len(some) == 1 else None


def _sought(text: str) -> str | None:
    """What is to be found: what is quoted, or looks like code, or is called a word."""
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
    """A command that is quoted, or that begins with the name of a program after a word like run."""
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
