"""L3, session notes: kept by the model while it works, and used as a summary at a compaction.

Model sees: nothing until a compaction puts them beside what rules have gathered.
Tokens: at most `MAX_NOTES_TOKENS`, a sixth of it for each section; less in a small window.
Cache: never moves the prefix; an update reads the conversation's cache.
"""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from travois.core.cost import compute_cost
from travois.core.models import Price, Usage
from travois.core.patterns import compile_lazily
from travois.core.tokens import estimate_tokens

MAX_NOTES_TOKENS = 12_000
SECTION_DIVISOR = 6
"""A section may take the sixth part of the whole."""
FIRST_NOTES_SHARE = 0.5
"""The share of the room between head and threshold that is in use before the first notes."""
UPDATE_GROWTH_SHARE = 0.25
"""The share of that room by which a conversation grows before each update."""
LAST_UPDATE_SHARE = 0.1
"""The share of that room left when the last update before a compaction is made."""
MIN_CALLS_SINCE_UPDATE = 10
"""The calls since the last update that make another one worthwhile without a pause."""
UPDATE_REQUEST_TOKENS = 700
"""Tokens of the instructions in a typical update request."""
UPDATE_NOTES_TOKENS = 3_000
"""Tokens of the current notes in a typical update request."""
UPDATE_EDIT_TOKENS = 700
"""Tokens of the edits in a typical reply."""
MIN_NOTES_ROOM = 5_000
"""The least room between head and threshold in which notes can say anything."""
SUMMARY_TOKENS = 3_000
"""Tokens of the summary that an update saves, with its draft."""
COLD_COMPACTION_SHARE = 0.4
"""The share of compactions that come when the provider's cache is gone (docs/decisions/0046)."""
SUMMARY_PREPARED_SHARE = 0.75
"""The share of the threshold at which a summary is prepared, to be updated at the cut."""
SECTION_HEADING = compile_lazily(r"^# .+$", re.MULTILINE)


class NotesBudget(msgspec.Struct, frozen=True):
    """The token limits of the notes: all of them and each section."""

    whole: int = MAX_NOTES_TOKENS

    @property
    def section_tokens(self) -> int:
        """The limit of a section."""
        return self.whole // SECTION_DIVISOR


class UpdatePace(msgspec.Struct, frozen=True):
    """The thresholds for updates of the notes, in tokens."""

    first: int
    growth: int
    last: int
    """An update is also made when so much is left before a compaction, if half as much is new."""

    @classmethod
    def for_room(cls, room: int) -> UpdatePace:
        """Scale the thresholds to the room between head and threshold."""
        return cls(
            round(room * FIRST_NOTES_SHARE),
            round(room * UPDATE_GROWTH_SHARE),
            round(room * LAST_UPDATE_SHARE),
        )


class NotesProgress(msgspec.Struct, frozen=True):
    """The growth of a conversation since its notes were last updated."""

    grown: int
    """The tokens of what they do not cover."""
    left: int
    """The tokens left before a compaction."""
    first: bool = False
    """True if there are no notes yet."""
    calls: int = 0
    """Calls since the last update."""
    paused: bool = False
    """True if the last reply made no calls."""


def is_update_due(progress: NotesProgress, pace: UpdatePace) -> bool:
    """Return whether to update the session notes: enough has happened at a good moment."""
    closing = progress.left <= pace.last and progress.grown >= pace.last // 2
    grown = progress.grown >= (pace.first if progress.first else pace.growth)
    return (grown or closing) and (
        progress.calls >= MIN_CALLS_SINCE_UPDATE or progress.paused or closing
    )


def are_notes_worthwhile(price: Price, *, limit: int, head: int) -> bool:
    """Return whether session notes cost less than the summaries they save, at the model's prices.

    False where no prices are known or the provider has no prompt cache.
    """
    if not price.input or not price.read or limit - head < MIN_NOTES_ROOM:
        return False
    notes, summary = estimate_notes_costs(price, limit=limit, head=head)
    return notes < summary


def estimate_notes_costs(price: Price, *, limit: int, head: int) -> tuple[float, float]:
    """Return the dollars that notes updates until a compaction cost, and its summary's cost.

    A summary is prepared early and updated at the cut, where the whole conversation is read again
    if the cache is gone by then.
    """
    room = limit - head
    sizes = [limit - round(room * LAST_UPDATE_SHARE)]
    size = head + room * FIRST_NOTES_SHARE
    while size < sizes[0] - room * LAST_UPDATE_SHARE / 2:
        sizes.append(round(size))
        size += room * UPDATE_GROWTH_SHARE
    given = UPDATE_REQUEST_TOKENS + min(UPDATE_NOTES_TOKENS, room // SECTION_DIVISOR)
    updates = sum(
        compute_cost(Usage(input=given, read=one, output=UPDATE_EDIT_TOKENS), price)
        for one in sizes
    )
    prepared = compute_cost(
        Usage(
            input=UPDATE_REQUEST_TOKENS,
            read=round(limit * SUMMARY_PREPARED_SHARE),
            output=SUMMARY_TOKENS,
        ),
        price,
    )
    warm = compute_cost(
        Usage(input=UPDATE_REQUEST_TOKENS, read=limit, output=UPDATE_EDIT_TOKENS), price
    )
    cold = compute_cost(
        Usage(input=limit + UPDATE_REQUEST_TOKENS, output=UPDATE_EDIT_TOKENS), price
    )
    return updates, prepared + COLD_COMPACTION_SHARE * cold + (1 - COLD_COMPACTION_SHARE) * warm


def build_notes_prompt(
    notes: str, *, template: str, instructions: str, path: str, tool: str = "", budget: NotesBudget
) -> str:
    """Build the notes update prompt: variables filled in, oversize sections named last.

    If the user's instructions have no place for the notes, they are appended.
    """
    current = notes.strip() or template.strip()
    if "{{currentNotes}}" not in instructions:
        instructions = f"{instructions.strip()}\n\n{{{{currentNotes}}}}"
    filled = {"currentNotes": current, "notesPath": path, "editTool": tool}
    text = re.sub(r"\{\{(\w+)\}\}", lambda m: filled.get(m[1], m[0]), instructions.strip())
    return "\n\n".join((text, *describe_oversize_notes(notes, budget)))


def describe_oversize_notes(notes: str, budget: NotesBudget) -> list[str]:
    """Describe to the model which sections of the session notes are too long."""
    sizes = {name: estimate_tokens(text) for name, text in split_sections(notes).items()}
    over = [
        f"{name} ({size:,} tokens)" for name, size in sizes.items() if size > budget.section_tokens
    ]
    told: list[str] = []
    if over:
        told.append(
            f"Too long, shorten to {budget.section_tokens:,} tokens each: {', '.join(over)}."
        )
    if (total := sum(sizes.values())) > budget.whole:
        most = f"bring them below {budget.whole:,} tokens"
        told.append(f"The notes as a whole are too long ({total:,} tokens): {most}.")
    return told


def fit_notes(notes: str, *, path: str, budget: NotesBudget) -> str:
    """Return the session notes with each section cut to its limit, and the path of the rest.

    Sections that have only the template's hint are omitted.
    """
    parts = [text for text in split_sections(notes).values() if not _is_hint(text)]
    room, shown = budget.whole, list[str]()
    for text in parts:
        most = min(budget.section_tokens, room)
        part = _cut_section(text, path=path, most=most) if most > 0 else ""
        room -= estimate_tokens(part)
        shown += [part] if part else []
    return "\n\n".join(shown).strip()


def has_no_notes(notes: str, *, template: str) -> bool:
    """Return whether the session notes contain nothing but the template."""
    return not notes.strip() or notes.split() == template.split()


def replace_sections(notes: str, told: str) -> str:
    """Replace sections of the session notes by those of a text; unknown headings are ignored."""
    held, fresh = split_sections(notes), split_sections(told)
    kept = {name: fresh.get(name, text) for name, text in held.items()}
    return "\n\n".join(kept.values()) + "\n"


def split_sections(notes: str) -> dict[str, str]:
    """Split session notes by heading; text before the first one comes first."""
    starts = [found.start() for found in SECTION_HEADING.finditer(notes)]
    bounds = [0, *starts, len(notes)] if not starts or starts[0] else [*starts, len(notes)]
    texts = [notes[a:b].strip() for a, b in pairwise(bounds)]
    return {text.partition("\n")[0]: text for text in texts if text}


def _is_hint(section: str) -> bool:
    """Return whether a section of the session notes has only the template's hint."""
    body = section.partition("\n")[2].strip()
    return section.startswith("# ") and (not body or bool(re.fullmatch(r"\([^\n]*\)", body)))


def _cut_section(text: str, *, path: str, most: int) -> str:
    """Cut a section of the session notes to a token budget and name the file with the rest."""
    if estimate_tokens(text) <= most:
        return text
    kept = text[: most * 3].rpartition("\n")[0] or text[: most * 3]
    return f"{kept}\n(more in {path})"
