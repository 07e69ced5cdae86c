"""The arguments of a call, copied from the words of a request. What is not there is not guessed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from travois.host.local.reading import COUNTS, TYPES, Kind, Span, spans

Value = str | int | list[Any] | None
Reader = Callable[[str], Value]

PROGRAMS = (
    "bash|bun|bundle|cargo|cat|date|deno|df|docker|du|echo|env|git|go|gradle|head|ls|make|mvn|mypy"
    "|node|npm|npx|pip|pnpm|ps|pwd|pytest|python3?|rake|ruff|sh|tail|tox|tree|uname|uv|wc|which"
    "|whoami|yarn"
)
RUN = re.compile(
    r"\b(?:run|execute|start|launch)(?: the)?(?: shell)?(?: command)?:?"
    rf" ((?:{PROGRAMS})\b(?: [^\n]+)?)$",
    re.IGNORECASE,
)
TALK = re.compile(
    r"[,?]|\b(?:a|and|because|but|if|it|my|our|so|sure|that|the|them|then|this|until)\b",
    re.IGNORECASE,
)
"""What stands in sentences, and hardly ever in commands."""
LEAD = (
    r"^\W*(?:(?:please|now|ok|okay|and|then|(?:can|could|would|will|should) you|you should|always"
    r"|let us|let's|i want you to|for the future|from now on)[,:]?\s+)*"
)
WISHES = {
    "Bash": "run|execute|start|launch|try|call|do|build|test|use|let",
    "Edit": r"replace|change|rename|swap|turn|substitute|fix|in\s+\S+",
    "Remember": r"remember|memori[sz]e|keep|bear|(?:make a )?note|(?:don't|do not|never)\s+forget",
    "Write": "create|make|add|write|start|save|put|new|store",
}
"""How a wish for something that leaves a trace begins; what is only talked of is not done."""
WISHED = {tool: re.compile(rf"{LEAD}(?:{said})\b", re.IGNORECASE) for tool, said in WISHES.items()}
LINES = re.compile(
    r"\blines? (\d+)(?:\s*(?:-|–|to|until|through)\s*(?:line )?(\d+))?", re.IGNORECASE
)
ONWARDS = re.compile(
    r"\b(?:from|after|at|since) line \d+(?!\s*(?:-|–|to|until|through))", re.IGNORECASE
)
FIRST = re.compile(r"\b(?:first|top) (\d+) lines?", re.IGNORECASE)
ADDS = re.compile(r"\b(?:append|insert|end|top|to the file|another|one more)\b", re.IGNORECASE)
"""Who says so means a part of a file, and not all of it."""
EVERY = re.compile(r"\b(?:all|each|every|everywhere)\b", re.IGNORECASE)
UNWANTED = re.compile(r"\b(?:do not|don't|not|never|what|why|how|explain|meaning)\b", re.IGNORECASE)
"""Who says so of a command does not wish it done."""
RUINS = re.compile(
    r"(?<![\w-])(?:rm|rmdir|shred|dd|mkfs\S*|truncate|unlink|mv|chmod|chown|p?kill\w*|sudo|reset|clean"
    r"|restore|checkout|drop|delete|destroy|prune|-f|--force\S*|--hard)(?![\w-])|>",
    re.IGNORECASE,
)
"""What may throw something away is done by who understands why, or by hand."""
SPECIAL = re.compile(r"([\\.^$*+?{}\[\]|()])")
POLITE = re.compile(r"[\s,]*(?:please|thanks|thank you|for me)?[\s.!?]*$", re.IGNORECASE)
BETWEEN = re.compile(r"\s*(?:[;\n]|,(?: and\b)?| and )\s*")


def wished(tool: str, text: str) -> bool:
    """Whether a text is a wish for such a call, and does not only speak of one."""
    return tool not in WISHED or WISHED[tool].match(text) is not None


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
        name = span.text.casefold()
        return f"*.{TYPES.get(name, name)}"
    return next((span.text for span in _of(text, "glob")), None)


def _glob(text: str) -> str | None:
    pattern = _ending(text) or next((span.text for span in _of(text, "path")), None)
    if pattern:
        return pattern if "/" in pattern else f"**/{pattern}"
    name = _sole(_marked(text))
    return f"**/*{name}*" if name else None


def _command(text: str) -> str | None:
    """A command that is quoted, or that begins with the name of a program after a word like run."""
    if UNWANTED.search(text) or RUINS.search(text):
        return None
    if any(span.mark for span in spans(text)):
        return _sole(_marked(text))
    match = RUN.search(_plain(text))
    return match[1] if match and not TALK.search(match[1]) else None


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
        return int(match[1])
    match = None if ONWARDS.search(text) else LINES.search(text)
    count = int(match[2] or match[1]) - int(match[1]) + 1 if match else 0
    return count if count > 0 else None


def _number(text: str) -> int | None:
    said = next((span.text.casefold() for span in _of(text, "number", "count")), None)
    return None if said is None else COUNTS.index(said) + 2 if said in COUNTS else int(said)


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
    ("Grep", "path"): _one("folder", "path"),
    ("Grep", "pattern"): _sought,
    ("Read", "file_path"): _one("path"),
    ("Read", "limit"): _limit,
    ("Read", "offset"): _line(1),
    ("Remember", "text"): _one("kept"),
    ("TodoWrite", "todos"): _todos,
    ("WebFetch", "url"): _url,
    ("Write", "content"): _content,
    ("Write", "file_path"): _one("path"),
}
