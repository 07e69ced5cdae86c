"""Memories as files: front matter that other agents can read, with our own keys added.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from difflib import unified_diff
from hashlib import sha256
from typing import Literal

import msgspec
from msgspec.structs import replace

from travois.files import front_matter
from travois.memory.memory import (
    Evidence,
    FileAnchor,
    Memory,
    MemoryAuthor,
    MemoryScope,
    MemoryType,
)

DESCRIPTION_WIDTH = 150
"""Characters of a description, at most."""
MAX_CHANGE_LINES = 24
"""Lines of a change that are shown, at most."""
MEMORY_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MAX_NAME_CHARS = 60
MAX_EVIDENCE_ITEMS = 20
MAX_EVIDENCE_CHARS = 1000
TIME_KEYS = ("modified", "created", "verified")
FRONT_MATTER_KEYS = frozenset(
    ("name", "description", "type", "author", "evidence", "anchors", "checksum", *TIME_KEYS)
)
PLAIN_SCALAR = re.compile(r"[A-Za-z0-9](?:[\w ,./()'+-]*[\w.)])?", re.ASCII)
END_OF_TIME = 253_402_300_800.0


class MemoryPage(msgspec.Struct, frozen=True):
    """A memory as its file has it, and the flaws of the file."""

    memory: Memory
    flaws: tuple[str, ...] = ()


def make_slug(text: str) -> str:
    """Make a memory name from a text; empty if the text has no usable characters."""
    words = "-".join(re.findall(r"[a-z0-9]+", text.lower()))
    return words[:MAX_NAME_CHARS].rstrip("-")


def tidy_memory(memory: Memory) -> Memory:
    """Return the memory as its file can store it: a one-line description, times in milliseconds."""
    body = _strip_unstorable(memory.body).strip("\r\n")
    kept = memory.evidence[:1] + memory.evidence[1:][1 - MAX_EVIDENCE_ITEMS :]
    return replace(
        memory,
        description=_make_description(memory.description, body, memory.name),
        body=body,
        created=_round_time(memory.created),
        modified=_round_time(memory.modified),
        verified=_round_time(memory.verified),
        evidence=tuple(
            replace(
                one,
                words=_strip_unstorable(one.words)[:MAX_EVIDENCE_CHARS],
                session=_strip_unstorable(one.session),
            )
            for one in kept
        ),
        anchors=tuple(
            replace(one, path=path)
            for one in memory.anchors
            if (path := _strip_unstorable(one.path))
        ),
    )


def render_memory_file(memory: Memory, before: str = "") -> str:
    """Render a memory file; unknown front matter keys of the earlier text are kept."""
    memory = tidy_memory(memory)
    lines = [
        f"name: {_render_scalar(memory.name)}",
        f"description: {_render_scalar(memory.description)}",
        f"type: {memory.type}",
        *_render_times(memory, "modified"),
        f"author: {memory.author}",
        *_render_times(memory, "created", "verified"),
        *_render_list("evidence", (msgspec.json.encode(one).decode() for one in memory.evidence)),
        *_render_list("anchors", (f"{one.sha256} {one.path}" for one in memory.anchors)),
        *find_unknown_lines(before),
    ]
    head, tail = "\n".join(("---", *lines, "")), f"---\n\n{memory.body}\n"
    return f"{head}checksum: {_compute_checksum(head + tail)}\n{tail}"


def parse_memory_file(
    name: str, text: str, *, scope: MemoryScope = "project", pinned: bool = False
) -> MemoryPage:
    """Parse a memory file; missing fields get the values of a note that the user wrote."""
    found = front_matter.parse_front_matter(text)
    flaws = [why for line, why in found.flaws if line > 1 or text.startswith("---")]
    value = _FrontMatterValues(found.values, flaws)
    body = found.body.strip("\r\n")
    memory = Memory(
        name,
        _make_description(value.read_text("description"), body, name),
        value.read_type(),
        body,
        author=value.read_author(),
        created=value.read_time("created"),
        modified=value.read_time("modified"),
        verified=value.read_time("verified"),
        evidence=tuple(value.read_evidence()),
        anchors=tuple(value.read_anchors()),
        scope=scope,
        pinned=pinned,
    )
    return MemoryPage(memory, tuple(flaws))


def find_unknown_lines(text: str) -> Iterator[str]:
    """Yield front matter lines of a memory file that are not ours, comments included."""
    found = front_matter.FRONT_MATTER_PATTERN.match(text)
    ours = False
    for line in found[1].split("\n")[:-1] if found else ():
        if key := front_matter.KEY_LINE.fullmatch(line.rstrip()):
            ours = key[1] in FRONT_MATTER_KEYS
        elif line[:1] not in ("", " ", "\t", "-"):
            ours = False
        if not ours:
            yield line


class _FrontMatterValues(msgspec.Struct, frozen=True):
    """The front matter of a memory file; unreadable values are recorded as flaws."""

    values: Mapping[str, front_matter.FrontMatterValue]
    flaws: list[str]

    def read_text(self, key: str) -> str:
        value = self.values.get(key, "")
        return value if isinstance(value, str) else ", ".join(value)

    def read_items(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, ())
        return (value,) if isinstance(value, str) else value

    def read_type(self) -> MemoryType:
        match self.read_text("type"):
            case "user" | "feedback" | "project" | "reference" as known:
                return known
            case "":
                return "project"
            case other:
                self.flaws.append(
                    f"type {other!r} is not one of user, feedback, project, reference"
                )
                return "project"

    def read_author(self) -> MemoryAuthor:
        match self.read_text("author"):
            case "user" | "model" | "tool" as known:
                return known
            case "":
                return "user"
            case other:
                self.flaws.append(f"author {other!r} is not one of user, model, tool")
                return "tool"

    def read_time(self, key: str) -> float:
        if not (text := self.read_text(key)):
            return 0.0
        try:
            found = datetime.fromisoformat(text)
            return _round_time((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        except (ValueError, OverflowError):
            self.flaws.append(f"{key} is not a time such as 2026-01-31T12:00:00Z")
            return 0.0

    def read_evidence(self) -> Iterator[Evidence]:
        for item in self.read_items("evidence"):
            try:
                yield msgspec.json.decode(item, type=Evidence)
            except (msgspec.DecodeError, UnicodeEncodeError):
                self.flaws.append("evidence has an item that cannot be read")

    def read_anchors(self) -> Iterator[FileAnchor]:
        for item in self.read_items("anchors"):
            digest, _, path = item.partition(" ")
            if path:
                yield FileAnchor(path, digest)
            else:
                self.flaws.append("anchors has an item that is not `sha256 path`")


def _make_description(text: str, body: str, name: str) -> str:
    """Return a memory's one-line description: as written, or the start of its body."""
    for words in (text, body.lstrip("#\n\r ").partition("\n")[0]):
        line = " ".join(_strip_unstorable(words).split())
        if line not in front_matter.NULL_VALUES:
            return cut_text(line, DESCRIPTION_WIDTH)
    return name


def _strip_unstorable(text: str) -> str:
    """Replace characters that no memory file can store."""
    return text.encode(errors="replace").decode().replace("\0", "")


def cut_text(text: str, size: int) -> str:
    """Shorten a memory's text that is too long, with an ellipsis."""
    return text if len(text) <= size else text[: max(0, size - 1)].rstrip() + "…"


def _round_time(at: float) -> float:
    return round(at, 3) if 0.0005 < at < END_OF_TIME - 1 else 0.0


def _render_times(
    memory: Memory, *keys: Literal["modified", "created", "verified"]
) -> Iterator[str]:
    """Yield front matter lines with the times of a memory that are known."""
    for key in keys:
        if at := getattr(memory, key):
            stamp = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
            yield f"{key}: {stamp.isoformat(timespec='milliseconds')}Z"


def _render_scalar(text: str) -> str:
    plain = PLAIN_SCALAR.fullmatch(text) and text not in front_matter.NULL_VALUES
    return text if plain else json.dumps(text, ensure_ascii=False)


def _render_list(key: str, items: Iterable[str]) -> Iterator[str]:
    """Yield a list in the front matter of a memory file; nothing if it is empty."""
    lines = ["  - '" + item.replace("'", "''") + "'" for item in items]
    if lines:
        yield f"{key}:"
        yield from lines


def _compute_checksum(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:16]


def render_memory_diff(before: Memory | None, after: Memory | None) -> str:
    """Render the change of a memory as a short unified diff."""
    old, new = _format_diff_lines(before), _format_diff_lines(after)
    name = next(one.name for one in (after, before) if one is not None)
    start, end = (f"{name}.md" if one else "/dev/null" for one in (before, after))
    lines = list(unified_diff(old, new, start, end, n=0, lineterm=""))
    lines = [line for line in lines if not line.startswith("@@")]
    more = (
        [f"… {len(lines) - MAX_CHANGE_LINES} more lines"]
        if len(lines) > MAX_CHANGE_LINES + 1
        else []
    )
    return "\n".join((*lines[: MAX_CHANGE_LINES if more else None], *more))


def _format_diff_lines(memory: Memory | None) -> list[str]:
    """Format a memory as the lines that a diff of memories compares."""
    if memory is None:
        return []
    pinned = ", pinned" if memory.pinned else ""
    head = f"{memory.description} ({memory.type}, said by {memory.author}{pinned})"
    body = memory.body.splitlines() if memory.body.strip() != memory.description else []
    return [cut_text(line, DESCRIPTION_WIDTH * 2) for line in (head, *body)]
