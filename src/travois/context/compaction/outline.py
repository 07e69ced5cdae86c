"""The outline of a compaction summary: its sections, and sorting the model's text into them.

Model sees: one document with these headings; its own text first, then what the log says.
Tokens: those of what is sorted; nothing is added but headings.
Cache: moves nothing itself; a compaction that carries it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from travois.core.patterns import compile_lazily

UNSORTED_TITLE = "In the model's words"
"""The heading of a text that has none of the headings that were asked for."""
DRAFT_BLOCK = compile_lazily(r"(?is)<(draft|drafting|analysis|thinking)>.*?</\1>")
UNCLOSED_DRAFT = compile_lazily(r"(?is)<(?:draft|drafting|analysis|thinking)>.*\Z")
SUMMARY_TAG = compile_lazily(r"(?i)</?(?:summary|draft|drafting|analysis)>")
MARKDOWN_HEADING = compile_lazily(r"(?m)^[ \t]*#{1,6}[ \t]*(\S.*?)[ \t]*#*$")
HEADING_NUMBER = compile_lazily(r"^\d+[.):]\s*")


class SummaryPart(msgspec.Struct, frozen=True):
    """A section: its heading, other headings for it, and how updates treat old text."""

    title: str
    also: tuple[str, ...] = ()
    newest: bool = False
    """True if later text replaces earlier text instead of adding to it."""


REQUEST_PART = SummaryPart("Request and intent", ("primary request and intent", "request", "task"))
CONCEPTS_PART = SummaryPart(
    "Technical concepts", ("key technical concepts", "concepts", "how the system works")
)
FILES_PART = SummaryPart(
    "Files and code", ("files and code sections", "files", "files and functions")
)
ERRORS_PART = SummaryPart("Errors and fixes", ("errors", "errors and corrections"))
SOLVING_PART = SummaryPart("Problem solving", ("problems solved", "learnings", "key results"))
MESSAGES_PART = SummaryPart("All user messages", ("user messages",))
PENDING_PART = SummaryPart("Pending tasks", ("pending",), newest=True)
WORK_PART = SummaryPart("Current work", ("work in progress", "current state"), newest=True)
NEXT_PART = SummaryPart("Next step", ("next steps", "optional next step"), newest=True)
MAIN_OUTLINE = (
    REQUEST_PART,
    CONCEPTS_PART,
    FILES_PART,
    ERRORS_PART,
    SOLVING_PART,
    MESSAGES_PART,
    PENDING_PART,
    WORK_PART,
    NEXT_PART,
)
DONE_PART = SummaryPart("Work completed", ("current work",), newest=True)
CONTINUING_PART = SummaryPart("Context for continuing", ("next step", "next steps"), newest=True)
UP_TO_OUTLINE = (*MAIN_OUTLINE[:7], DONE_PART, CONTINUING_PART)
"""The outline for a beginning: later messages show the current work and the next step."""
TASK_PART = SummaryPart("Task")
STATE_PART = SummaryPart("State", newest=True)
DISCOVERIES_PART = SummaryPart("Discoveries")
NEXT_STEPS_PART = SummaryPart("Next steps", ("next step",), newest=True)
CONTEXT_PART = SummaryPart("Context to keep")
SUBAGENT_OUTLINE = (TASK_PART, STATE_PART, DISCOVERIES_PART, NEXT_STEPS_PART, CONTEXT_PART)
"""The outline for a subagent."""
SUBAGENT_TITLES = {
    REQUEST_PART.title: TASK_PART.title,
    CONCEPTS_PART.title: DISCOVERIES_PART.title,
    FILES_PART.title: STATE_PART.title,
    ERRORS_PART.title: DISCOVERIES_PART.title,
    SOLVING_PART.title: DISCOVERIES_PART.title,
    MESSAGES_PART.title: CONTEXT_PART.title,
    PENDING_PART.title: NEXT_STEPS_PART.title,
    WORK_PART.title: STATE_PART.title,
    NEXT_PART.title: NEXT_STEPS_PART.title,
}
"""The sections of a subagent's summary that take the content of the main outline's sections."""

PartTexts = Mapping[str, str]


def map_part_title(title: str, outline: Sequence[SummaryPart]) -> str:
    """Return the section of one summary outline that matches a section of the main outline."""
    titles = [part.title for part in outline]
    if title in titles:
        return title
    if outline is SUBAGENT_OUTLINE:
        return SUBAGENT_TITLES[title]
    return {WORK_PART.title: DONE_PART.title, NEXT_PART.title: CONTINUING_PART.title}[title]


def strip_draft(text: str, outline: Sequence[SummaryPart]) -> str:
    """Remove the drafting block from a model's summary; of an unclosed one, keep its sections."""
    kept = DRAFT_BLOCK.sub("", text)
    if open_ := UNCLOSED_DRAFT.search(kept):
        rest = kept[open_.start() :]
        heads = [found.start() for found in _find_headings(rest, outline)]
        kept = kept[: open_.start()] + (rest[heads[0] :] if heads else "")
    return SUMMARY_TAG.sub("", kept).strip()


def sort_into_parts(text: str, outline: Sequence[SummaryPart]) -> dict[str, str]:
    """Sort a summary's text into an outline's sections; text before the first is unsorted."""
    found = list(_find_headings(text, outline))
    sorted_: dict[str, str] = {}
    ends = [*(match.start() for match in found[1:]), len(text)] if found else []
    pieces = [(UNSORTED_TITLE, text[: found[0].start()] if found else text)]
    pieces += [
        (_match_part_title(match, outline), text[match.end() : end])
        for match, end in zip(found, ends, strict=True)
    ]
    for title, piece in pieces:
        if body := _demote_headings(piece):
            before = sorted_.get(title)
            sorted_[title] = f"{before}\n\n{body}" if before else body
    return sorted_


def merge_part_texts(
    before: PartTexts, since: PartTexts, outline: Sequence[SummaryPart]
) -> dict[str, str]:
    """Update a summary's sections with the text written later."""
    newest = {part.title for part in outline if part.newest}
    merged = dict(before)
    for title, text in since.items():
        old = "" if title in newest else merged.get(title, "")
        merged[title] = f"{old}\n\nSince then: {text}" if old else text
    return merged


def join_summary_parts(texts: PartTexts, outline: Sequence[SummaryPart]) -> str:
    """Join a summary's sections under their headings, in outline order."""
    head = [texts[UNSORTED_TITLE]] if UNSORTED_TITLE in texts else []
    return "\n\n".join(
        [*head, *(f"## {p.title}\n{texts[p.title]}" for p in outline if p.title in texts)]
    )


def _find_headings(text: str, outline: Sequence[SummaryPart]) -> list[re.Match[str]]:
    """Find the headings in a model's summary: marked as such, in bold, or numbered."""
    line = re.compile(r"(?m)^[ \t]*(?:#{1,6}[ \t]*)?(?:\*\*)?[ \t]*(\S[^\n]{0,60}?)[ \t]*$\n?")
    return [match for match in line.finditer(text) if _match_part_title(match, outline)]


def _match_part_title(match: re.Match[str], outline: Sequence[SummaryPart]) -> str:
    """Return the summary section that a heading of the model's text means; empty if none."""
    whole = match[0].strip()
    name = HEADING_NUMBER.sub("", match[1].strip(" \t*#:")).strip(" \t*:").lower()
    if not whole.startswith(("#", "**")) and not HEADING_NUMBER.match(whole):
        return ""
    for part in outline:
        if name == part.title.lower():
            return part.title
    return next((part.title for part in outline if name in part.also), "")


def _demote_headings(text: str) -> str:
    """Turn headings inside a summary section into bold text, as they would start a new one."""
    return MARKDOWN_HEADING.sub(r"**\1**", text).strip()
