"""The index of a memory folder: one line for each memory, on pages of limited length.

An index that would be too long becomes several pages, one for each topic; nothing is left out.

Model sees: `MEMORY.md`, through whoever tells it.
Tokens: at most 200 lines or 25,000 bytes.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote
from zlib import crc32

from travois.memory.memory import Memory
from travois.memory.text import DESCRIPTION_WIDTH, cut_text, make_slug

INDEX_FILE = "MEMORY.md"
TOPICS_FOLDER = "topics"
PINNED_FOLDER = "pinned"
MAX_PAGE_LINES = 200
MAX_PAGE_BYTES = 25_000
"""Limits of one index page."""
MAX_TOPIC_MEMORIES = 180
"""Memories on one topic page, at most."""
MIN_TOPIC_MEMORIES = 80
"""Memories on a topic page before one of its names may end it."""
TOPIC_END_ODDS = 64
"""One name in this many ends a topic page."""
INDEX_LINK = re.compile(
    r"[-*] \[[^\]]*\]\((?:topics/|pinned/)?[^()/\s]+\.md\).*|<{7}(?: .*)?|={7}|>{7}(?: .*)?"
)
"""A line that leads to a memory, or that a merge left between two such lines."""


def extract_prose(pages: Mapping[str, str]) -> tuple[str, ...]:
    """Return the lines that people wrote into a memory index, which must be kept."""
    found: list[str] = []
    for page in sorted(pages, key=lambda page: (page != INDEX_FILE, page)):
        lines = [line.rstrip() for line in pages[page].split("\n")]
        kept = [line for line in lines if not INDEX_LINK.fullmatch(line)]
        while kept and not kept[-1]:
            kept.pop()
        found += kept
    return tuple(found)


def build_index(memories: Iterable[Memory], kept: Sequence[str] = ()) -> dict[str, str]:
    """Build a memory index: every memory is at most two links from `MEMORY.md`."""
    known = sorted(memories, key=lambda memory: (memory.type, memory.name, memory.pinned))
    lines = [
        _format_index_line(memory)
        for memory in sorted(known, key=lambda one: (one.name, one.pinned))
    ]
    whole = [*kept, *lines]
    if fits_page(whole):
        return {INDEX_FILE: _join_lines(whole)} if whole else {}
    pages: dict[str, str] = {}
    heads = [_add_topic_page(group, pages) for group in _group_neighbours(known)]
    if not fits_page([*kept, *heads]):
        heads = [*_add_notes_pages(kept, pages), *heads]
        kept = ()
    return {INDEX_FILE: _join_lines([*kept, *heads]), **pages}


def _format_index_line(memory: Memory) -> str:
    """Format the line of the memory index that links to a memory."""
    place = f"{PINNED_FOLDER}/" if memory.pinned else ""
    start = f"- [{_escape_label(memory.name)}]({place}{quote(memory.name)}.md)"
    room = DESCRIPTION_WIDTH - len(start) - 2
    return f"{start}: {cut_text(memory.description, room)}" if room > 1 else start


def _escape_label(name: str) -> str:
    return re.sub(r"[\[\]\s]+", " ", name)


def _add_topic_page(group: Sequence[Memory], pages: dict[str, str]) -> str:
    """Add a topic page to a memory index; return the line that links to it."""
    first, last = group[0], group[-1]
    stem = make_slug(f"{first.type}-{first.name}")[:40].rstrip("-")
    path = f"{TOPICS_FOLDER}/{stem}.md"
    while path in pages:
        path = f"{path.removesuffix('.md')}-.md"
    pages[path] = _join_lines([_format_index_line(memory) for memory in group])
    head, tail = (cut_text(_escape_label(one.name), 24) for one in (first, last))
    start = f"- [{first.type}: {head} to {tail}]"
    words = Counter(word for one in group for word in set(make_slug(one.name).split("-")))
    often = sorted(words, key=lambda word: (-words[word], word))
    return cut_text(
        f"{start}({path}): {len(group)} memories: {', '.join(often[:12])}", DESCRIPTION_WIDTH
    )


def _group_neighbours(known: Sequence[Memory]) -> Iterator[list[Memory]]:
    """Group neighbours by type and name.

    A group ends at fixed names, not at fixed positions, so that one more memory changes only one
    group.
    """
    group, size = list[Memory](), 0
    for memory in known:
        more = len(_format_index_line(memory).encode()) + 1
        full = len(group) >= MAX_TOPIC_MEMORIES or size + more > MAX_PAGE_BYTES
        if group and (full or memory.type != group[-1].type or _ends_group(group)):
            yield group
            group, size = [], 0
        group.append(memory)
        size += more
    if group:
        yield group


def _ends_group(group: Sequence[Memory]) -> bool:
    """Return whether a topic page of the memory index ends after these memories, by a hash."""
    return (
        len(group) >= MIN_TOPIC_MEMORIES
        and crc32(group[-1].name.encode(errors="replace")) % TOPIC_END_ODDS == 0
    )


def _add_notes_pages(kept: Sequence[str], pages: dict[str, str]) -> Iterator[str]:
    """Move people's lines in a memory index to their own pages; yield the links to them."""
    lines = [part.rstrip() for line in kept for part in re.findall(".{1,6000}", line) or [""]]
    page: list[str] = []
    for line in (*lines, None):
        if line is None or not fits_page([*page, line]):
            path = f"{TOPICS_FOLDER}/notes-{sum('/notes-' in each for each in pages) + 1:03}.md"
            pages[path] = _join_lines(page)
            yield f"- [notes]({path}): lines that people wrote here"
            page = []
        if line is not None:
            page.append(line)


def fits_page(lines: Sequence[str]) -> bool:
    """Return whether these lines fit on one page of a memory index."""
    return (
        len(lines) <= MAX_PAGE_LINES
        and len(_join_lines(lines).encode(errors="replace")) <= MAX_PAGE_BYTES
    )


def _join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
