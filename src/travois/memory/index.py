"""The index of a memory folder: one line for each memory, on pages of limited length.

An index that would be too long becomes several pages, one for each topic; nothing is left out.

Model sees: `MEMORY.md`, through whoever tells it.
Tokens: at most 200 lines or 25,000 bytes.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import quote
from zlib import crc32

import msgspec

from travois.memory.dreaming.rules import Memories, ruled, text
from travois.memory.memory import Memory
from travois.memory.text import WIDTH, cut, slug

INDEX = "MEMORY.md"
TOPICS = "topics"
PINNED = "pinned"
LINES = 200
BYTES = 25_000
"""Limits of one index page."""
PAGE = 180
"""Memories on one topic page, at most."""
LEAST = 80
"""Memories on a topic page before one of its names may end it."""
OFTEN = 64
"""One name in this many ends a topic page."""
LINK = re.compile(
    r"[-*] \[[^\]]*\]\((?:topics/|pinned/)?[^()/\s]+\.md\).*|<{7}(?: .*)?|={7}|>{7}(?: .*)?"
)
"""A line that leads to a memory, or that a merge left between two such lines."""


def prose(pages: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines of an index that people wrote, which must be kept."""
    found: list[str] = []
    for page in sorted(pages, key=lambda page: (page != INDEX, page)):
        lines = [line.rstrip() for line in pages[page].split("\n")]
        kept = [line for line in lines if not LINK.fullmatch(line)]
        while kept and not kept[-1]:
            kept.pop()
        found += kept
    return tuple(found)


def index(memories: Iterable[Memory], kept: Sequence[str] = ()) -> dict[str, str]:
    """Build the pages of an index, by path: every memory is at most two links from `MEMORY.md`."""
    known = sorted(memories, key=lambda memory: (memory.type, memory.name, memory.pinned))
    lines = [_line(memory) for memory in sorted(known, key=lambda one: (one.name, one.pinned))]
    whole = [*kept, *lines]
    if fits(whole):
        return {INDEX: _page(whole)} if whole else {}
    pages: dict[str, str] = {}
    heads = [_topic(group, pages) for group in _groups(known)]
    if not fits([*kept, *heads]):
        heads = [*_aside(kept, pages), *heads]
        kept = ()
    return {INDEX: _page([*kept, *heads]), **pages}


def _line(memory: Memory) -> str:
    place = f"{PINNED}/" if memory.pinned else ""
    start = f"- [{_label(memory.name)}]({place}{quote(memory.name)}.md)"
    room = WIDTH - len(start) - 2
    return f"{start}: {cut(memory.description, room)}" if room > 1 else start


def _label(name: str) -> str:
    return re.sub(r"[\[\]\s]+", " ", name)


def _topic(group: Sequence[Memory], pages: dict[str, str]) -> str:
    """Add the page of a group; return the line that links to it."""
    first, last = group[0], group[-1]
    stem = slug(f"{first.type}-{first.name}")[:40].rstrip("-")
    path = f"{TOPICS}/{stem}.md"
    while path in pages:
        path = f"{path.removesuffix('.md')}-.md"
    pages[path] = _page([_line(memory) for memory in group])
    start = f"- [{first.type}: {cut(_label(first.name), 24)} to {cut(_label(last.name), 24)}]"
    words = Counter(word for one in group for word in set(slug(one.name).split("-")))
    often = sorted(words, key=lambda word: (-words[word], word))
    return cut(f"{start}({path}): {len(group)} memories: {', '.join(often[:12])}", WIDTH)


def _groups(known: Sequence[Memory]) -> Iterator[list[Memory]]:
    """Group neighbours by type and name.

    A group ends at fixed names, not at fixed positions, so that one more memory changes only one
    group.
    """
    group, size = list[Memory](), 0
    for memory in known:
        more = len(_line(memory).encode()) + 1
        full = len(group) >= PAGE or size + more > BYTES
        if group and (full or memory.type != group[-1].type or _ends(group)):
            yield group
            group, size = [], 0
        group.append(memory)
        size += more
    if group:
        yield group


def _ends(group: Sequence[Memory]) -> bool:
    return len(group) >= LEAST and crc32(group[-1].name.encode(errors="replace")) % OFTEN == 0


def _aside(kept: Sequence[str], pages: dict[str, str]) -> Iterator[str]:
    """Move the lines that people wrote to pages of their own; yield the links to them."""
    lines = [part.rstrip() for line in kept for part in re.findall(".{1,6000}", line) or [""]]
    page: list[str] = []
    for line in (*lines, None):
        if line is None or not fits([*page, line]):
            path = f"{TOPICS}/notes-{sum('/notes-' in each for each in pages) + 1:03}.md"
            pages[path] = _page(page)
            yield f"- [notes]({path}): lines that people wrote here"
            page = []
        if line is not None:
            page.append(line)


def fits(lines: Sequence[str]) -> bool:
    """Return whether these lines fit on one page."""
    return len(lines) <= LINES and len(_page(lines).encode(errors="replace")) <= BYTES


def _page(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# What is wrong with memories, as far as rules can tell, and the command that mends each of it.


UNUSED = 90 * 86400.0
"""Seconds without a recall after which a memory counts as unused."""
Kind = Literal["file", "secret", "stale", "conflict", "unused"]


class Finding(msgspec.Struct, frozen=True):
    """A problem with a memory, and the command that fixes it."""

    kind: Kind
    name: str
    what: str
    fix: str


def leaks(known: Memories, leak: Callable[[str], str]) -> Iterator[Finding]:
    """Yield the memories that contain a secret; `leak` returns the kind of secret in a text."""
    for key, one in known.items():
        said = "\n".join((text(one), *(evidence.words for evidence in one.evidence)))
        if kind := leak(said):
            yield Finding(
                "secret", one.name, f"{key} seems to contain a secret ({kind})", drop(one)
            )


def moved(known: Memories, changed: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Yield the memories whose files have changed; `changed` has those files by memory key."""
    for key, paths in changed.items():
        fix = f"travois memory edit {known[key].name}   or   {drop(known[key])}"
        what = f"{key} refers to {', '.join(paths)}, changed since"
        yield Finding("stale", known[key].name, what, fix)


def conflicts(known: Memories) -> Iterator[Finding]:
    """Yield duplicates and contradictions, as a consolidation would settle them."""
    for step in ruled(known):
        yield from (
            Finding("conflict", known[key].name, step.why, drop(known[key])) for key in step.drop
        )


def unused(known: Memories, never: Collection[str], *, now: float) -> Iterator[Finding]:
    """Yield the memories that were never recalled for a long time."""
    for key, one in known.items():
        if key in never and not one.pinned and 0 < one.modified < now - UNUSED:
            what = f"{key} was not used in {int((now - one.modified) // 86400)} days"
            yield Finding("unused", one.name, what, drop(one))


def drop(memory: Memory) -> str:
    """Return the command that forgets a memory."""
    return f"travois memory forget {memory.name} --scope {memory.scope}"
