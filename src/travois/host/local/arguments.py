"""The arguments of a call, copied from the words of a request. What is not there is not guessed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from travois.host.local.reading import Kind, Span, spans

Value = str | int | list[Any] | None
Reader = Callable[[str], Value]

TYPES = {
    "python": "py",
    "javascript": "js",
    "typescript": "ts",
    "rust": "rs",
    "go": "go",
    "markdown": "md",
    "java": "java",
    "ruby": "rb",
    "shell": "sh",
    "json": "json",
    "yaml": "yaml",
    "toml": "toml",
    "html": "html",
    "css": "css",
    "text": "txt",
    "c": "c",
    "c++": "cpp",
    "notebook": "ipynb",
    "sql": "sql",
    "xml": "xml",
    "csv": "csv",
}
KIND_OF_FILE = re.compile(
    rf"\.?\b({'|'.join(map(re.escape, TYPES))})\b(?= (?:files?|modules?|scripts?|sources?|code)\b)",
    re.IGNORECASE,
)
ENDING = re.compile(
    r"(?<![\w/])\.([a-z]\w{0,5})\b(?= files?\b)|\b(?:ending|end|ends) (?:in|with) \.?(\w+)",
    re.IGNORECASE,
)
FOLDER = re.compile(
    r"\b(?:in|under|inside|of|within) (?:the )?[`\"']?([\w./-]+?)/?[`\"']? (?:folder|directory|dir)\b|\b(?:folder|directory|dir) [`\"']?([\w./-]*\w)",
    re.IGNORECASE,
)
SOUGHT = (
    re.compile(
        r"\b(?:word|term|string|phrase|identifier|function|class|variable|constant|symbol|method|setting|option|flag|name) (?:of )?([\w.-]*\w)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\bwhere (?:is|are|do we|does|did we|do i) (?:the )?(?:use |call |define |set |mention )?([\w.-]*\w)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(?:for|mentions?|uses?|using|contains?|containing|says?|references? to|occurrences? of|usages? of|mentions? of|calls? to|imports?|mentioning|grep) (?:the |every |all |any )?([\w.-]*\w)",
        re.IGNORECASE,
    ),
)
IDLE = frozenset(
    [
        "a",
        "an",
        "the",
        "it",
        "this",
        "that",
        "file",
        "files",
        "code",
        "word",
        "words",
        "text",
        "name",
        "folder",
        "all",
        "any",
        "every",
        "me",
        "us",
        "repo",
        "repository",
        "project",
    ]
)
PROGRAMS = "pytest|python3?|make|npm|npx|yarn|pnpm|cargo|go|git|ls|cat|echo|pip|uv|ruff|mypy|node|deno|bun|docker|du|df|wc|head|tail|date|pwd|whoami|uname|which|tox|gradle|mvn|bundle|rake|bash|sh|tree|ps|env"
RUN = re.compile(
    rf"\b(?:run|execute|start|launch|try|call)(?: the)?(?: shell)?(?: command)?:? ((?:{PROGRAMS})\b(?: .+)?)$",
    re.IGNORECASE | re.DOTALL,
)
TO_KEEP = re.compile(
    r"\b(?:remember|memori[sz]e|keep in mind|note|do not forget|don't forget|bear in mind)\b(?: for (?:later|next time|the future|future sessions))?[,:]?(?: that)?:? (.+)$",
    re.IGNORECASE | re.DOTALL,
)
CONTENT = re.compile(
    r"\b(?:with|containing|that (?:says|contains|reads|holds)|saying|reading|holding)(?: just| only)?(?: the)?(?: text| content| contents| line| words?)?:? (.+)$",
    re.IGNORECASE | re.DOTALL,
)
SWAP = re.compile(r"\b(?:from )?([\w.-]*\w) (?:with|by|to|into) ([\w.-]*\w)", re.IGNORECASE)
LINES = re.compile(
    r"\blines? (\d+)(?:\s*(?:-|–|to|until|through|and)\s*(?:line )?(\d+))?", re.IGNORECASE
)
FIRST = re.compile(r"\b(?:first|top|initial) (\d+) lines?", re.IGNORECASE)
BY = re.compile(r"\b(?:by|from|of) ([A-Z]\w+)\b|\b([A-Z]\w+)(?:'s)? (?:commit|change)")
POLITE = re.compile(r"[\s,]*(?:please|thanks|thank you|for me)?[\s.!?]*$", re.IGNORECASE)


def fill(text: str, tool: str, wanted: Iterable[str]) -> dict[str, Any] | None:
    """Those arguments that a tool wants, or none if one of them is not in the text."""
    found = {name: READERS[tool, name](text) for name in wanted if (tool, name) in READERS}
    return None if any(value in (None, "", []) for value in found.values()) else found


def read(tool: str, name: str) -> bool:
    """Whether an argument is read from the text, and not taken from an example."""
    return (tool, name) in READERS


def _of(text: str, *kinds: Kind, mark: str | None = None) -> list[Span]:
    return [s for s in spans(text) if s.kind in kinds and (mark is None or s.mark == mark)]


def _first(text: str, *kinds: Kind) -> str | None:
    return next((span.text for span in _of(text, *kinds)), None)


def _path(text: str) -> str | None:
    return _first(text, "path")


def _folder(text: str) -> str | None:
    if match := FOLDER.search(text):
        return match[1] or match[2]
    return _path(text)


def _sought(text: str) -> str | None:
    """What is to be found: what is quoted, or looks like a name of code, or is called a word."""
    marked = [span.text for span in spans(text) if span.mark]
    if marked or (marked := [span.text.removesuffix("()") for span in _of(text, "name")]):
        return re.escape(marked[0]).replace(r"\ ", " ").replace(r"\-", "-")
    for cue in SOUGHT:
        for match in cue.finditer(text):
            if match[1].casefold() not in IDLE:
                return re.escape(match[1])
    return None


def _ending(text: str) -> str | None:
    if match := ENDING.search(text):
        return f"*.{match[1] or match[2]}"
    if match := KIND_OF_FILE.search(text):
        return f"*.{TYPES[match[1].casefold()]}"
    return _first(text, "glob")


def _glob(text: str) -> str | None:
    if pattern := _first(text, "glob"):
        return pattern if "/" in pattern else f"**/{pattern}"
    if pattern := _ending(text):
        return f"**/{pattern}"
    if path := _path(text):
        return path if "/" in path else f"**/{path}"
    name = next((span.text for span in spans(text) if span.mark), None) or _sought(text)
    return f"**/*{name}*" if name else None


def _command(text: str) -> str | None:
    marked = [span.text for span in spans(text) if span.mark]
    if marked:
        return marked[0] if len(marked) == 1 else None
    match = RUN.search(text)
    return POLITE.sub("", match[1]) if match else None


def _swap(text: str) -> tuple[str, str] | None:
    """What is to be replaced, and by what."""
    marked = [span.text for span in spans(text) if span.mark and span.kind != "path"]
    if len(marked) == 2:
        return marked[0], marked[1]
    match = SWAP.search(text)
    return (match[1], match[2]) if match and not marked else None


def _content(text: str) -> str | None:
    marked = [span.text for span in spans(text) if span.mark and span.kind != "path"]
    if marked:
        return marked[0] if len(marked) == 1 else None
    match = CONTENT.search(text)
    return POLITE.sub("", match[1]) if match else None


def _kept(text: str) -> str | None:
    match = TO_KEEP.search(text)
    return match[1].strip() if match else None


def _url(text: str) -> str | None:
    url = _first(text, "url")
    return url if url is None or "://" in url else f"https://{url}"


def _number(text: str) -> int | None:
    number = _first(text, "number")
    return int(number) if number else None


def _line(text: str, at: int) -> int | None:
    match = LINES.search(text)
    return int(match[at] or match[1]) if match else None


def _limit(text: str) -> int | None:
    if match := FIRST.search(text):
        return int(match[1])
    first, last = _line(text, 1), _line(text, 2)
    return last - first + 1 if first and last and last >= first else None


def _author(text: str) -> str | None:
    match = BY.search(text)
    return (match[1] or match[2]) if match else None


def _todos(text: str) -> list[Any]:
    _, colon, rest = text.partition(":")
    items = (
        re.split(r"\s*(?:[;\n]|,(?: and)?| and (?=[a-z]))\s*", POLITE.sub("", rest))
        if colon
        else []
    )
    return [
        {"content": item.strip(" -*"), "status": "pending"} for item in items if item.strip(" -*")
    ]


READERS: dict[tuple[str, str], Reader] = {
    ("Read", "file_path"): _path,
    ("Read", "offset"): lambda text: _line(text, 1),
    ("Read", "limit"): _limit,
    ("Write", "file_path"): _path,
    ("Write", "content"): _content,
    ("Edit", "file_path"): _path,
    ("Edit", "old_string"): lambda text: (_swap(text) or ("", ""))[0],
    ("Edit", "new_string"): lambda text: (_swap(text) or ("", ""))[1],
    ("Grep", "pattern"): _sought,
    ("Grep", "path"): _folder,
    ("Grep", "glob"): _ending,
    ("Glob", "pattern"): _glob,
    ("Glob", "path"): _folder,
    ("Bash", "command"): _command,
    ("GitDiff", "commit"): lambda text: _first(text, "rev"),
    ("GitDiff", "paths"): lambda text: [span.text for span in _of(text, "path")],
    ("GitLog", "n"): _number,
    ("GitLog", "path"): _path,
    ("GitLog", "grep"): _sought,
    ("GitLog", "author"): _author,
    ("GitShow", "rev"): lambda text: _first(text, "rev"),
    ("GitShow", "path"): _path,
    ("GitBlame", "path"): _path,
    ("GitBlame", "start"): lambda text: _line(text, 1),
    ("GitBlame", "end"): lambda text: _line(text, 2),
    ("TodoWrite", "todos"): _todos,
    ("WebFetch", "url"): _url,
    ("Remember", "text"): _kept,
}
