"""The sections of a summary, and the sorting of the model's text into them.

Model sees: one document with these headings; its own text first, then what the log says.
Tokens: those of what is sorted; nothing is added but headings.
Cache: moves nothing itself; a compaction that carries it does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

OWN = "In the model's words"
"""The heading of a text that has none of the headings that were asked for."""
DRAFT = re.compile(r"(?is)<(draft|drafting|analysis|thinking)>.*?</\1>")
UNCLOSED = re.compile(r"(?is)<(?:draft|drafting|analysis|thinking)>.*\Z")
WRAPPER = re.compile(r"(?i)</?(?:summary|draft|drafting|analysis)>")
MARKED = re.compile(r"(?m)^[ \t]*#{1,6}[ \t]*(\S.*?)[ \t]*#*$")
NUMBER = re.compile(r"^\d+[.):]\s*")


class Part(msgspec.Struct, frozen=True):
    """A section: its heading, other headings for it, and how updates treat old text."""

    title: str
    also: tuple[str, ...] = ()
    newest: bool = False
    """True if later text replaces earlier text instead of adding to it."""


REQUEST = Part("Request and intent", ("primary request and intent", "request", "task"))
CONCEPTS = Part(
    "Technical concepts", ("key technical concepts", "concepts", "how the system works")
)
FILES = Part("Files and code", ("files and code sections", "files", "files and functions"))
ERRORS = Part("Errors and fixes", ("errors", "errors and corrections"))
SOLVING = Part("Problem solving", ("problems solved", "learnings", "key results"))
MESSAGES = Part("All user messages", ("user messages",))
PENDING = Part("Pending tasks", ("pending",), newest=True)
WORK = Part("Current work", ("work in progress", "current state"), newest=True)
NEXT = Part("Next step", ("next steps", "optional next step"), newest=True)
MAIN = (REQUEST, CONCEPTS, FILES, ERRORS, SOLVING, MESSAGES, PENDING, WORK, NEXT)
DONE = Part("Work completed", ("current work",), newest=True)
CONTINUING = Part("Context for continuing", ("next step", "next steps"), newest=True)
UP_TO = (*MAIN[:7], DONE, CONTINUING)
"""The outline for a beginning: later messages show the current work and the next step."""
TASK = Part("Task")
STATE = Part("State", newest=True)
FOUND = Part("Discoveries")
STEPS = Part("Next steps", ("next step",), newest=True)
KEEP = Part("Context to keep")
AGENT = (TASK, STATE, FOUND, STEPS, KEEP)
"""The outline for a subagent."""
AGENT_PLACES = {
    REQUEST.title: TASK.title,
    CONCEPTS.title: FOUND.title,
    FILES.title: STATE.title,
    ERRORS.title: FOUND.title,
    SOLVING.title: FOUND.title,
    MESSAGES.title: KEEP.title,
    PENDING.title: STEPS.title,
    WORK.title: STATE.title,
    NEXT.title: STEPS.title,
}
"""The sections of a subagent's summary that take the content of the main outline's sections."""

Texts = Mapping[str, str]


def place(title: str, outline: Sequence[Part]) -> str:
    """Return the section of an outline that takes the content of a section of the main outline."""
    titles = [part.title for part in outline]
    if title in titles:
        return title
    if outline is AGENT:
        return AGENT_PLACES[title]
    return {WORK.title: DONE.title, NEXT.title: CONTINUING.title}[title]


def without_draft(text: str, outline: Sequence[Part]) -> str:
    """Remove the drafting block; of an unclosed one, keep the sections in it."""
    kept = DRAFT.sub("", text)
    if open_ := UNCLOSED.search(kept):
        rest = kept[open_.start() :]
        heads = [found.start() for found in _headings(rest, outline)]
        kept = kept[: open_.start()] + (rest[heads[0] :] if heads else "")
    return WRAPPER.sub("", kept).strip()


def sort_text(text: str, outline: Sequence[Part]) -> dict[str, str]:
    """Sort a text by the headings of an outline; text before the first one is filed as unsorted."""
    found = list(_headings(text, outline))
    sorted_: dict[str, str] = {}
    ends = [*(match.start() for match in found[1:]), len(text)] if found else []
    pieces = [(OWN, text[: found[0].start()] if found else text)]
    pieces += [
        (_title(match, outline), text[match.end() : end])
        for match, end in zip(found, ends, strict=True)
    ]
    for title, piece in pieces:
        if body := _plain(piece):
            before = sorted_.get(title)
            sorted_[title] = f"{before}\n\n{body}" if before else body
    return sorted_


def add_text(before: Texts, since: Texts, outline: Sequence[Part]) -> dict[str, str]:
    """Update sorted text with what was written later about what came since."""
    newest = {part.title for part in outline if part.newest}
    merged = dict(before)
    for title, text in since.items():
        old = "" if title in newest else merged.get(title, "")
        merged[title] = f"{old}\n\nSince then: {text}" if old else text
    return merged


def joined(texts: Texts, outline: Sequence[Part]) -> str:
    """Write sorted text under its headings, in the order of the outline."""
    head = [texts[OWN]] if OWN in texts else []
    return "\n\n".join(
        [*head, *(f"## {p.title}\n{texts[p.title]}" for p in outline if p.title in texts)]
    )


def _headings(text: str, outline: Sequence[Part]) -> list[re.Match[str]]:
    """Find the lines that are headings of sections: marked as such, in bold, or numbered."""
    line = re.compile(r"(?m)^[ \t]*(?:#{1,6}[ \t]*)?(?:\*\*)?[ \t]*(\S[^\n]{0,60}?)[ \t]*$\n?")
    return [match for match in line.finditer(text) if _title(match, outline)]


def _title(match: re.Match[str], outline: Sequence[Part]) -> str:
    whole = match[0].strip()
    name = NUMBER.sub("", match[1].strip(" \t*#:")).strip(" \t*:").lower()
    if not whole.startswith(("#", "**")) and not NUMBER.match(whole):
        return ""
    for part in outline:
        if name == part.title.lower():
            return part.title
    return next((part.title for part in outline if name in part.also), "")


def _plain(text: str) -> str:
    """Turn headings inside a section into bold text: none may pass for one of the document."""
    return MARKED.sub(r"**\1**", text).strip()
