"""L3: notes that the model keeps while it works, for the time when the older part is set aside.

Model sees: nothing until a compaction puts them beside what rules have gathered.
Tokens: at most `WHOLE`, a sixth of it for each section.
Cache: never moves the prefix; an update reads the conversation's cache.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from travois.kernel.tokens import estimate

WHOLE = 12_000
EACH = 2_000
FIRST = 30_000
"""How far a conversation must have grown before its first notes, in tokens."""
GROWTH = 25_000
CALLS = 10
"""How many calls make an update worth while when there was no pause."""
HEADING = re.compile(r"^# .+$", re.MULTILINE)


class Progress(msgspec.Struct, frozen=True):
    """How a conversation has gone on since its notes were last brought up to date."""

    size: int
    """Its tokens."""
    noted: int = 0
    """Its tokens when they were written; zero if there are none."""
    calls: int = 0
    paused: bool = False
    """Whether the last reply asked for nothing."""


def due(progress: Progress) -> bool:
    """Whether the notes should be brought up to date: it has grown, and there is a good moment."""
    grown = progress.size - progress.noted >= (GROWTH if progress.noted else FIRST)
    return grown and (progress.calls >= CALLS or progress.paused)


def request(notes: str, *, template: str, instructions: str) -> str:
    """What the model is asked for: all of the notes, brought up to date."""
    sizes = {name: estimate(text) for name, text in sections(notes).items()}
    over = [f"{name} ({size:,} tokens)" for name, size in sizes.items() if size > EACH]
    parts = [instructions.strip(), notes.strip() or template.strip()]
    if over:
        parts.append(f"Too long, shorten to {EACH:,} tokens each: {', '.join(over)}.")
    if sum(sizes.values()) > WHOLE:
        parts.append(f"All of it together is too long: bring it below {WHOLE:,} tokens.")
    return "\n\n".join(parts)


def fitted(notes: str, *, path: str) -> str:
    """The notes with each section within its bounds, and where the rest of it can be read."""
    return "\n\n".join(_cut(text, path=path) for text in sections(notes).values()).strip()


def blank(notes: str, *, template: str) -> bool:
    """Whether nothing was noted yet."""
    return not notes.strip() or notes.split() == template.split()


def sections(notes: str) -> dict[str, str]:
    """The sections by their headings, which they begin with; what stands before them is first."""
    starts = [found.start() for found in HEADING.finditer(notes)]
    bounds = [0, *starts, len(notes)] if not starts or starts[0] else [*starts, len(notes)]
    texts = [notes[a:b].strip() for a, b in pairwise(bounds)]
    return {text.partition("\n")[0]: text for text in texts if text}


def _cut(text: str, *, path: str) -> str:
    if estimate(text) <= EACH:
        return text
    kept = text[: EACH * 3].rpartition("\n")[0] or text[: EACH * 3]
    return f"{kept}\n(more in {path})"
