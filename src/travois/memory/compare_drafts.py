"""Comparing a draft with the known memories: new, a repetition, or a contradiction.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from travois.memory import signals
from travois.memory.memory import (
    DropMemory,
    Memory,
    MemoryAuthor,
    MemoryDraft,
    MemoryScope,
    PutMemory,
)
from travois.memory.similarity import (
    contains_denial,
    content_words,
    have_same_meaning,
    measure_likeness,
)

# Whom a wish is for, as its words say: this project, or the person in all of theirs.


PROJECT_NOUN = r"(?:project|repo(?:sitory)?|code ?base|work ?space|monorepo|solution|checkout)"
PROJECTS_NOUN = r"(?:projects|repos(?:itories)?|repositories|code ?bases|work ?spaces|checkouts)"
OWNER_WORDS = (
    r"(?:of |my |mine |our |the |these |other |own |future |new |single |personal |existing |"
    r"different |various |side )"
)
NOT_WITHIN_PROJECT = (
    rf"(?! (?:in|of|inside|within|under) (?:this|the|our) (?:\w+ )?{PROJECT_NOUN})"
    r"(?! (?:file|folder|root|name|director|member|manager|setting|version|lead|plan)\w*)"
)
"""All projects of one repository are still one place, and a project's files are none."""
ALL_PROJECTS = re.compile(
    rf"(?i)\b(?:all|every|each|any|whichever|whatever) {OWNER_WORDS}{{0,4}}"
    rf"(?:{PROJECT_NOUN}|{PROJECTS_NOUN})\b{NOT_WITHIN_PROJECT}"
    rf"|\bacross (?:all )?{OWNER_WORDS}{{0,3}}{PROJECTS_NOUN}\b{NOT_WITHIN_PROJECT}"
    rf"|\bmy {OWNER_WORDS}{{0,2}}{PROJECTS_NOUN}\b"
    r"|\b(?:no matter|regardless of|independent(?:ly)? of|irrespective of|never mind|"
    r"does(?:n['’]?t| not) matter)\b[^.,;]{0,20}"
    rf"\b(?:{PROJECT_NOUN}|{PROJECTS_NOUN}|folder|where i)\b"
    r"|\b(?:wherever|everywhere|anywhere|in everything|on everything|in anything|whatever) "
    r"(?:that )?i(?:['’]m|['’]ll)?\b"
    r"|\b(?:cross|multi)-project\b|\bproject-(?:independent|agnostic)(?:ly)?\b"
    r"|\b(?:global|universal|user[- ](?:level|wide|scope\w*)|account[- ]wide) "
    r"(?:rule|preference|default|setting|memory|convention|wish|habit)\b|\buser scope\b"
    r"|\b(?:remember|save|store|keep|applies|apply|holds?|goes|valid|note)\b[^.,;]{0,15} globally\b"
    r"|\b(?:all|jede[mnrs]?|sämtliche[nr]?|alle[nr]?) (?:meine[nr]? |unsere[nr]? |anderen )*"
    r"(?:projekte?n?|repos?)\b|\bprojektübergreifend\b|\büberall\b(?! (?:in|im) )"
    r"|\b(?:todos|todas|cada|cualquier) (?:(?:los|mis|nuestros|tus) )*"
    r"(?:proyectos?|repos?(?:itorios?)?)\b|\ben todas partes\b"
    r"|\b(?:tous|toutes|chaque|n['’]importe quel) (?:(?:les|mes|nos) )*"
    r"(?:projets?|dépôts?|repos?)\b|\bpartout\b(?! dans )"
)
"""The words of somebody who speaks of all their projects."""
EVERYWHERE_ENDING = re.compile(r"(?i)\b(?:everywhere|globally)\b\W*$")
"""Valid only in the first person: `use UTC everywhere` is about places in the code."""
FIRST_PERSON_SINGULAR = re.compile(r"(?i)\b(?:i|i['’]\w+|me|my|myself|mine)\b")
FIRST_PERSON_PLURAL = re.compile(r"(?i)\b(?:we|we['’]\w+|our|us|this|here)\b")
THIS_PROJECT = re.compile(
    rf"(?i)\b(?:this|the current|our|just the one|this very) (?:\w+ )?{PROJECT_NOUN}\b"
    r"|\b(?:just|only|but|in|around|over) here\b|^\W*here,|\bhere(?:\W*$|[,;])"
    r"|\b(?:for|in|just|only) this one\b"
    rf"|\b(?:in|of|inside|within) the (?:\w+ )?{PROJECT_NOUN}\b"
    r"|\b(?:in|für) (?:diesem?|dieses|das|unserem?) (?:projekt|repo)\b|\bnur hier\b|\bhier\W*$"
    r"|\b(?:en|para) (?:este|nuestro) (?:proyecto|repo\w*)\b|\bsolo aquí\b|\baquí\W*$"
    r"|\b(?:dans|pour) (?:ce|notre) (?:projet|dépôt|repo)\b|\bici\W*$"
)
"""The words of somebody who speaks of the place at hand."""
NOT_ONLY_HERE = re.compile(
    r"(?i)\b(?:not (?:just|only|limited to|specific to)|nicht nur|no (?:solo|sólo)|pas seulement|"
    r"beyond|more than)\b[^.;]{0,12}"
    rf"(?:\bhere\b|\bhier\b|\baquí\b|\bici\b|\bthis\b|{PROJECT_NOUN}|"
    r"projekt|proyecto|projet)"
)
NOT_ALL_PROJECTS = re.compile(
    r"(?i)\bnot (?:in |for |a |across |on )?(?:all|every|any|other|my|everywhere|globally|global|"
    r"anywhere|necessarily)\b|\bnicht (?:in |für )?(?:alle|überall|jede)"
)
CONTINUATION_START = re.compile(
    r"(?i)^\W*(?:and |also,? |oh,? |btw,? )*(?:that|this|it|these|those|the same|same|both|das|"
    r"eso|esto|ça|cela)\b"
)
"""The beginning of a sentence that continues the one before it."""

LIST_ITEM_START = re.compile(r"\s*(?:[-*+•]|\d+[.)])(?:\s|$)")


def strip_scope_words(text: str) -> str:
    """Return a draft's wish without the words that name its scope."""
    return THIS_PROJECT.sub(" ", ALL_PROJECTS.sub(" ", text))


def parse_scope_words(text: str) -> MemoryScope | None:
    """Return the memory scope that these words name; None if they name none."""
    flat = " ".join(text.split())
    if NOT_ONLY_HERE.search(flat):
        return "user"
    if NOT_ALL_PROJECTS.search(flat) and THIS_PROJECT.search(flat):
        return "project"
    if ALL_PROJECTS.search(flat) and not NOT_ALL_PROJECTS.search(flat):
        return "user"
    if THIS_PROJECT.search(flat):
        return "project"
    alone = (
        EVERYWHERE_ENDING.search(flat)
        and FIRST_PERSON_SINGULAR.search(flat)
        and not FIRST_PERSON_PLURAL.search(flat)
    )
    return "user" if alone else None


def find_wish_scope(
    words: str, sentence: str, *, message: str = "", after: str = ""
) -> MemoryScope | None:
    """Return the scope of a wish: its own words count first, then the text around them.

    A line that ends in a colon speaks for the list below it; a sentence that goes on about the
    wish (`that goes for all my projects`) speaks for it, too.
    """
    onward = re.split(r"(?<=[.!?])\s|\n", after.strip(), maxsplit=1)[0]
    for text in (
        words,
        sentence,
        onward if CONTINUATION_START.match(onward) else "",
        _find_list_heading(words, message),
    ):
        if found := parse_scope_words(text):
            return found
    return None


def _find_list_heading(words: str, message: str) -> str:
    """Return the line above a list that contains a draft's words, if it ends in a colon."""
    if words not in message:
        return ""
    *lines, own = message.partition(words)[0].split("\n")
    if not LIST_ITEM_START.match(own):
        return ""
    above = (line for line in reversed(lines) if line.strip() and not LIST_ITEM_START.match(line))
    heading = next(above, "")
    return heading if heading.rstrip().endswith(":") else ""


MIN_TOPIC_LIKENESS = 0.3
"""Least likeness to an older memory that a change of mind replaces."""
MIN_CONTRARY_LIKENESS = 0.5
"""Least likeness to an older memory that a contrary statement replaces."""
WIDENED_REASON = "it applies to all projects"
MAX_KEPT_EVIDENCE = 5
"""Evidence kept for one memory, at most: the first and the latest."""


class Accept(msgspec.Struct, frozen=True):
    """A draft that may be kept; `drop` is what it replaces in another scope."""

    change: PutMemory
    drop: DropMemory | None = None


class NeedsReview(msgspec.Struct, frozen=True):
    """A draft that only the user can decide on."""

    change: PutMemory
    why: str


class Reject(msgspec.Struct, frozen=True):
    """A rejected draft. The reason repeats nothing of its content."""

    why: str


DraftVerdict = Accept | NeedsReview | Reject


def settle_draft(
    draft: MemoryDraft,
    memory: Memory,
    known: Sequence[Memory],
    *,
    sentence: str,
    told: MemoryScope | None,
) -> DraftVerdict:
    """Compare a draft with the known memories: new, a repetition, or a contradiction.

    `told` is the scope that the user named, if any.
    """
    by_user = memory.author == "user"
    opposed = [old for old in known if _contradicts_old(draft, old, sentence)]
    alike = [old for old in known if old not in opposed and _wishes_same(memory, old)]
    if alike:
        merged = _merge_evidence(alike[0], memory) if by_user else Reject("it is already known")
        return _widen_scope(merged, alike[0]) if told == "user" else merged
    if not opposed:
        return Accept(PutMemory(memory))
    old = max(opposed, key=lambda one: measure_likeness(draft.text, one.body or one.description))
    if by_user and told not in (None, old.scope) and not old.pinned:
        # An exception for one project leaves the rule for the others as it is.
        wider = told == "user" and old.scope == "project"
        return Accept(
            PutMemory(memory), DropMemory(old.name, old.scope, WIDENED_REASON) if wider else None
        )
    put = replace(
        memory, name=old.name, scope=old.scope, type=old.type, created=old.created or memory.created
    )
    if old.pinned or not by_user:
        return NeedsReview(
            PutMemory(put), f"it contradicts {old.name}" + (", which is pinned" * old.pinned)
        )
    return Accept(PutMemory(put))


def _merge_evidence(old: Memory, memory: Memory) -> DraftVerdict:
    """Add the draft's evidence to a memory that says the same."""
    if old.pinned:
        return Reject("a pinned memory already says it")
    held = tuple(one for one in old.evidence if one not in memory.evidence)
    evidence = (*held[:1], *(*held[1:], *memory.evidence)[-(MAX_KEPT_EVIDENCE - 1) :])
    author: MemoryAuthor = "user"
    return Accept(
        PutMemory(
            replace(
                old,
                evidence=evidence,
                verified=memory.verified,
                modified=memory.modified,
                author=author,
            )
        )
    )


def _widen_scope(merged: DraftVerdict, old: Memory) -> DraftVerdict:
    """Move a project memory to the user scope, if the user said so."""
    if not isinstance(merged, Accept) or old.scope != "project":
        return merged
    memory = replace(merged.change.memory, scope="user")
    return Accept(PutMemory(memory), DropMemory(old.name, old.scope, WIDENED_REASON))


def _contradicts_old(draft: MemoryDraft, old: Memory, sentence: str) -> bool:
    """Return whether a draft and a known memory cannot both hold, as far as known."""
    text = old.body or old.description
    alike = measure_likeness(draft.text, text)
    if alike == 1.0 and contains_denial(draft.text) == contains_denial(text):
        return False
    if draft.replaces == old.name:
        return bool(content_words(draft.text) & content_words(text))
    if contains_denial(draft.text) != contains_denial(text) and alike >= MIN_CONTRARY_LIKENESS:
        return True
    return (
        signals.changes_mind(sentence)
        and alike >= MIN_TOPIC_LIKENESS
        and not content_words(draft.text) <= content_words(text)
    )


def _wishes_same(memory: Memory, old: Memory) -> bool:
    """Return whether a draft and a known memory make the same wish, whatever their scopes."""
    return have_same_meaning(
        strip_scope_words(memory.body), strip_scope_words(old.body or old.description)
    )
