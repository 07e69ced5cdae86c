"""Instruction files as text: rendering, imports, comments and path patterns.

Model sees: each file with its path and its text as it is on disk, never shortened by a compaction.
Tokens: at most 40,000 and a fifth of the window; of files beyond that their beginning and path.
Cache: never moves the prefix; they stand in notes, and after a compaction in its summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Literal

import msgspec

from travois.core.content import Text
from travois.core.facts import User
from travois.core.tokens import estimate_tokens
from travois.core.view import ViewItem
from travois.files import front_matter
from travois.prompt.environment import plain

Kind = Literal["Managed", "User", "Project", "Local"]
"""The origin of a file, by the names that hooks know."""
Reason = Literal["session_start", "nested_traversal", "path_glob_match", "include", "compact"]
TAG = "<instructions>"
INTRO = (
    "How the user and the project want you to work, file by file as they are on disk. Follow them "
    "where they differ from your habits; where two files disagree, the later one takes precedence."
)
MOST = 40_000
SHARE = 5
"""They may take this part of the window."""
HEAD = 60
"""A beginning of fewer tokens than this is one line."""
LINE = 200
PATTERNS = 1_000
"""Patterns that the braces of one pattern may expand to."""
LONGEST = 1_000
SCOPES = ("paths", "globs", "applyTo")
"""Keys under which agents write the path patterns of a rule."""

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
COMMENT = re.compile(r" {0,3}<!--")
SPAN = re.compile(r"``[^\n]*?``|`[^`\n]*`")
IMPORT = re.compile(r"(?<!\S)@((?:[^\s\\`]|\\ )+)")
BRACES = re.compile(r"\{([^{}]*)\}")


class Instruction(msgspec.Struct, frozen=True):
    """One instruction file as the model sees it."""

    path: str
    text: str
    kind: Kind
    reason: Reason = "session_start"
    by: str = ""
    """The path of the file that brought it: itself, or the one that imports it."""

    @property
    def mark(self) -> str:
        """Return a digest of the text, which the text itself cannot contain."""
        return sha256(self.text.encode(errors="replace")).hexdigest()[:16]

    @property
    def start(self) -> str:
        """Return the beginning of the header line, the same for every version of the text."""
        path = plain(self.path).replace('"', "\\x22")
        return f'<file path="{path}" from="{self.kind.lower()}" '

    @property
    def opening(self) -> str:
        """Return the header line; a conversation that contains it shows this version."""
        return f'{self.start}sha256="{self.mark}">'


class Found(msgspec.Struct, frozen=True):
    """Instruction files in order of precedence, and notices about others."""

    files: tuple[Instruction, ...] = ()
    notices: tuple[str, ...] = ()


class Rendered(msgspec.Struct, frozen=True):
    """Instruction files as one text, and the paths of the shortened ones."""

    text: str = ""
    cut: tuple[str, ...] = ()


def room(window: int) -> int:
    """Return the token limit of all instruction files."""
    return min(MOST, window // SHARE)


def render(files: Sequence[Instruction], *, budget: int) -> Rendered:
    """Render the files in order; if they exceed the budget, the longest are shortened."""
    if not files:
        return Rendered()
    heads = _heads(files, budget)
    parts = [_shown(file, heads.get(file.path)) for file in files]
    return Rendered("\n".join((TAG, INTRO, *parts, "</instructions>")), tuple(heads))


def untold(files: Iterable[Instruction], items: Iterable[ViewItem]) -> tuple[Instruction, ...]:
    """Return the files that the conversation does not show in their current version."""
    notes = [
        block.text
        for item in items
        if isinstance(item.fact, User) and item.fact.origin == "note"
        for block in item.fact.content
        if isinstance(block, Text) and block.text.startswith(TAG)
    ]
    return tuple(file for file in files if file.opening not in _last(notes, file.start))


def beginning(lines: Sequence[str], tokens: int) -> int:
    """Return how many of these lines fit."""
    for count, line in enumerate(lines):
        tokens -= estimate_tokens(line)
        if tokens < 0:
            return count
    return len(lines)


def _last(notes: list[str], start: str) -> str:
    """Return the last note that contains a file with this header."""
    return next((note for note in reversed(notes) if start in note), "")


def _heads(files: Sequence[Instruction], budget: int) -> dict[str, int]:
    """Return the token limit of each file that is shortened."""
    sizes = {file.path: estimate_tokens(file.text) for file in files}
    cut: list[str] = []
    for file in sorted(files, key=lambda file: (file.kind != "Managed", sizes[file.path])):
        if sizes[file.path] <= budget:
            budget -= sizes[file.path]
        else:
            cut.append(file.path)
    return {path: budget // len(cut) for path in cut}


def _shown(file: Instruction, tokens: int | None) -> str:
    body = file.text
    if tokens is not None:
        lines = body.splitlines(keepends=True)
        count = beginning(lines, tokens) if tokens >= HEAD else 0
        head = "".join(lines[:count]) or f"{lines[0].rstrip()[:LINE]}\n"
        body = f"{head}[{count or 1} of {len(lines)} lines. Read {plain(file.path)} for the rest.]"
    return f"{file.opening}\n{body}\n</file {file.mark}>"


# --- what a file says -----------------------------------------------------------------------------


def uncommented(text: str) -> str:
    """Return the text without HTML comments that begin a line, except in code."""
    return "".join(line for line, _ in _lines(text)) if "<!--" in text else text


def imports(text: str) -> tuple[str, ...]:
    """Return the paths imported as `@path`, except in code."""
    prose = "".join(line for line, code in _lines(text) if not code) if "@" in text else ""
    found = (name.replace("\\ ", " ") for name in IMPORT.findall(SPAN.sub("", prose)))
    return tuple(dict.fromkeys(found))


def only_imports(text: str) -> bool:
    """Return whether the text consists of imports only."""
    return all(IMPORT.fullmatch(word) for word in text.split())


def scope(text: str) -> tuple[str, ...]:
    """Return the path patterns in a rule's front matter; empty if it applies everywhere."""
    values = front_matter.parse_front_matter(text).values
    paths = next((values[key] for key in SCOPES if key in values), ())
    listed = front_matter.split_on_commas(paths) if isinstance(paths, str) else paths
    return tuple(glob for word in listed if (glob := word.strip("'\"")))


def fits(pattern: str, path: str) -> bool:
    """Return whether a pattern with `*`, `**` and braces matches the whole path."""
    return any(_walked(one.split("/"), path.split("/")) for one in _expanded(pattern))


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line outside of comments, and whether it is code."""
    fence, comment = "", list[str]()
    for line in text.splitlines(keepends=True):
        if comment or (not fence and COMMENT.match(line)):
            comment.append(line)
            if "-->" in line:
                rest = "".join(comment).partition("-->")[2]
                comment = []
                yield from [(rest, False)] if rest.strip() else []
            continue
        found = FENCE.match(line)
        yield line, bool(fence or found)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and line.strip() == found[1]:
            fence = ""
    yield from ((line, False) for line in comment)


def _expanded(pattern: str) -> list[str]:
    done, waiting = list[str](), [pattern[:LONGEST]]
    while waiting and len(done) < PATTERNS:
        one = waiting.pop()
        if found := BRACES.search(one):
            before, after = one[: found.start()], one[found.end() :]
            waiting += (before + choice + after for choice in found[1].split(","))
        else:
            done.append(one)
    return done


def _walked(pattern: list[str], path: list[str]) -> bool:
    """Match a path in time linear in the pattern, by following all readings at once."""
    at = {0}
    for part in pattern:
        if part == "**":
            at = set(range(min(at), len(path) + 1))
        else:
            at = {i + 1 for i in at if i < len(path) and fnmatchcase(path[i], part)}
        if not at:
            return False
    return len(path) in at
