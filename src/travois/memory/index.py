"""The index of a memory folder: one line for each memory, on pages that are never too long.

An index that would be too long becomes several, one for each topic; nothing is left out of them.

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

INDEX, TOPICS, PINNED = "MEMORY.md", "topics", "pinned"
LINES, BYTES = 200, 25_000
"""How long a page may be."""
PAGE, LEAST, OFTEN = 180, 80, 64
"""A topic has at most so many memories; from `LEAST` on, one name in so many ends it."""
LINK = re.compile(
    r"[-*] \[[^\]]*\]\((?:topics/|pinned/)?[^()/\s]+\.md\).*|<{7}(?: .*)?|={7}|>{7}(?: .*)?"
)
"""A line that leads to a memory, or that a merge left between two such lines."""


def prose(pages: Mapping[str, str]) -> tuple[str, ...]:
    """The lines that people wrote into an index, which are not ours to drop."""
    found: list[str] = []
    for page in sorted(pages, key=lambda page: (page != INDEX, page)):
        lines = [line.rstrip() for line in pages[page].split("\n")]
        kept = [line for line in lines if not LINK.fullmatch(line)]
        while kept and not kept[-1]:
            kept.pop()
        found += kept
    return tuple(found)


def index(memories: Iterable[Memory], kept: Sequence[str] = ()) -> dict[str, str]:
    """The pages of an index, by the path of each: from `MEMORY.md`, two links lead anywhere."""
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
    """Write the page of a group; returns the line that leads to it."""
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
    """Neighbours by type and name. A group ends at names that are fixed, not at places, so that
    one memory more changes one group only."""
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
    """What people wrote, on pages of its own."""
    lines = [part.rstrip() for line in kept for part in re.findall(".{1,6000}", line) or [""]]
    page: list[str] = []
    for line in (*lines, None):
        if line is None or not fits([*page, line]):
            path = f"{TOPICS}/notes-{sum('/notes-' in each for each in pages) + 1:03}.md"
            pages[path] = _page(page)
            yield f"- [notes]({path}): what people wrote here"
            page = []
        if line is not None:
            page.append(line)


def fits(lines: Sequence[str]) -> bool:
    """Whether these lines may be one page."""
    return len(lines) <= LINES and len(_page(lines).encode(errors="replace")) <= BYTES


def _page(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# What is wrong with memories, as far as rules can tell, and the command that mends each of it.


UNUSED = 90 * 86400.0
"""How long a memory may lie without being of any use."""
Kind = Literal["file", "secret", "stale", "conflict", "unused"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, and what mends it."""

    kind: Kind
    name: str
    what: str
    fix: str


def leaks(known: Memories, leak: Callable[[str], str]) -> Iterator[Finding]:
    """Memories that hold a secret; `leak` tells which kind a text holds."""
    for key, one in known.items():
        said = "\n".join((text(one), *(evidence.words for evidence in one.evidence)))
        if kind := leak(said):
            yield Finding("secret", one.name, f"{key} seems to hold a secret ({kind})", drop(one))


def moved(known: Memories, changed: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    """Memories whose files have changed since; those are told by the memory's key."""
    for key, paths in changed.items():
        fix = f"travois memory edit {known[key].name}   or   {drop(known[key])}"
        what = f"{key} speaks of {', '.join(paths)}, changed since"
        yield Finding("stale", known[key].name, what, fix)


def conflicts(known: Memories) -> Iterator[Finding]:
    """Doubles and contradictions, as a night would settle them."""
    for step in ruled(known):
        yield from (
            Finding("conflict", known[key].name, step.why, drop(known[key])) for key in step.drop
        )


def unused(known: Memories, never: Collection[str], *, now: float) -> Iterator[Finding]:
    """Memories that were never recalled, for long enough."""
    for key, one in known.items():
        if key in never and not one.pinned and 0 < one.modified < now - UNUSED:
            what = f"{key} was not of any use in {int((now - one.modified) // 86400)} days"
            yield Finding("unused", one.name, what, drop(one))


def drop(memory: Memory) -> str:
    """The command that forgets it."""
    return f"travois memory forget {memory.name} --scope {memory.scope}"
