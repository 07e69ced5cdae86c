"""Comparison of a draft with the known memories: new, a repetition, or a contradiction.

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
from travois.memory.drafts import Draft
from travois.memory.memory import Author, Drop, Memory, Put, Scope
from travois.memory.similarity import content, denies, likeness, same

# Whom a wish is for, as its words say: this project, or the person in all of theirs.


SINGLE = r"(?:project|repo(?:sitory)?|code ?base|work ?space|monorepo|solution|checkout)"
PLURAL = r"(?:projects|repos(?:itories)?|repositories|code ?bases|work ?spaces|checkouts)"
OWNED = (
    r"(?:of |my |mine |our |the |these |other |own |future |new |single |personal |existing |"
    r"different |various |side )"
)
BOUND = (
    rf"(?! (?:in|of|inside|within|under) (?:this|the|our) (?:\w+ )?{SINGLE})"
    r"(?! (?:file|folder|root|name|director|member|manager|setting|version|lead|plan)\w*)"
)
"""All projects of one repository are still one place, and a project's files are none."""
EVERYWHERE = re.compile(
    rf"(?i)\b(?:all|every|each|any|whichever|whatever) {OWNED}{{0,4}}(?:{SINGLE}|{PLURAL})\b{BOUND}"
    rf"|\bacross (?:all )?{OWNED}{{0,3}}{PLURAL}\b{BOUND}|\bmy {OWNED}{{0,2}}{PLURAL}\b"
    r"|\b(?:no matter|regardless of|independent(?:ly)? of|irrespective of|never mind|"
    rf"does(?:n['’]?t| not) matter)\b[^.,;]{{0,20}}\b(?:{SINGLE}|{PLURAL}|folder|where i)\b"
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
MINE = re.compile(r"(?i)\b(?:everywhere|globally)\b\W*$")
"""Valid only in the first person: `use UTC everywhere` is about places in the code."""
MYSELF = re.compile(r"(?i)\b(?:i|i['’]\w+|me|my|myself|mine)\b")
TOGETHER = re.compile(r"(?i)\b(?:we|we['’]\w+|our|us|this|here)\b")
HERE = re.compile(
    rf"(?i)\b(?:this|the current|our|just the one|this very) (?:\w+ )?{SINGLE}\b"
    r"|\b(?:just|only|but|in|around|over) here\b|^\W*here,|\bhere(?:\W*$|[,;])"
    r"|\b(?:for|in|just|only) this one\b"
    rf"|\b(?:in|of|inside|within) the (?:\w+ )?{SINGLE}\b"
    r"|\b(?:in|für) (?:diesem?|dieses|das|unserem?) (?:projekt|repo)\b|\bnur hier\b|\bhier\W*$"
    r"|\b(?:en|para) (?:este|nuestro) (?:proyecto|repo\w*)\b|\bsolo aquí\b|\baquí\W*$"
    r"|\b(?:dans|pour) (?:ce|notre) (?:projet|dépôt|repo)\b|\bici\W*$"
)
"""The words of somebody who speaks of the place at hand."""
NOT_ONLY = re.compile(
    r"(?i)\b(?:not (?:just|only|limited to|specific to)|nicht nur|no (?:solo|sólo)|pas seulement|"
    rf"beyond|more than)\b[^.;]{{0,12}}(?:\bhere\b|\bhier\b|\baquí\b|\bici\b|\bthis\b|{SINGLE}|"
    r"projekt|proyecto|projet)"
)
NOT_ALL = re.compile(
    r"(?i)\bnot (?:in |for |a |across |on )?(?:all|every|any|other|my|everywhere|globally|global|"
    r"anywhere|necessarily)\b|\bnicht (?:in |für )?(?:alle|überall|jede)"
)
ONWARD = re.compile(
    r"(?i)^\W*(?:and |also,? |oh,? |btw,? )*(?:that|this|it|these|those|the same|same|both|das|"
    r"eso|esto|ça|cela)\b"
)
"""The beginning of a sentence that continues the one before it."""

ITEM = re.compile(r"\s*(?:[-*+•]|\d+[.)])(?:\s|$)")


def without_scope(text: str) -> str:
    """Return a wish without the words that name its scope."""
    return HERE.sub(" ", EVERYWHERE.sub(" ", text))


def said_scope(text: str) -> Scope | None:
    """Return the scope that these words name; None if they name none."""
    flat = " ".join(text.split())
    if NOT_ONLY.search(flat):
        return "user"
    if NOT_ALL.search(flat) and HERE.search(flat):
        return "project"
    if EVERYWHERE.search(flat) and not NOT_ALL.search(flat):
        return "user"
    if HERE.search(flat):
        return "project"
    alone = MINE.search(flat) and MYSELF.search(flat) and not TOGETHER.search(flat)
    return "user" if alone else None


def scope_of(words: str, sentence: str, *, message: str = "", after: str = "") -> Scope | None:
    """Return the scope of a wish: its own words count first, then the text around them.

    A line that ends in a colon speaks for the list below it; a sentence that goes on about the
    wish (`that goes for all my projects`) speaks for it, too.
    """
    onward = re.split(r"(?<=[.!?])\s|\n", after.strip(), maxsplit=1)[0]
    for text in (words, sentence, onward if ONWARD.match(onward) else "", _heading(words, message)):
        if found := said_scope(text):
            return found
    return None


def _heading(words: str, message: str) -> str:
    """Return the line above a list that contains these words, if it ends in a colon."""
    if words not in message:
        return ""
    *lines, own = message.partition(words)[0].split("\n")
    if not ITEM.match(own):
        return ""
    above = (line for line in reversed(lines) if line.strip() and not ITEM.match(line))
    heading = next(above, "")
    return heading if heading.rstrip().endswith(":") else ""


TOPIC = 0.3
"""Least likeness to an older memory that a change of mind replaces."""
OPPOSED = 0.5
"""Least likeness to an older memory that a contrary statement replaces."""
WIDER = "it applies to all projects"
KEPT = 5
"""Evidence kept for one memory, at most: the first and the latest."""


class Accepted(msgspec.Struct, frozen=True):
    """A draft that may be kept; `drop` is what it replaces in another scope."""

    change: Put
    drop: Drop | None = None


class Held(msgspec.Struct, frozen=True):
    """A draft that only the user can decide on."""

    change: Put
    why: str


class Refused(msgspec.Struct, frozen=True):
    """A rejected draft. The reason repeats nothing of its content."""

    why: str


Weighed = Accepted | Held | Refused


def settle(
    draft: Draft, memory: Memory, known: Sequence[Memory], *, sentence: str, told: Scope | None
) -> Weighed:
    """Compare a draft with the known memories: new, a repetition, or a contradiction.

    `told` is the scope that the user named, if any.
    """
    by_user = memory.author == "user"
    opposed = [old for old in known if _opposes(draft, old, sentence)]
    alike = [old for old in known if old not in opposed and _same(memory, old)]
    if alike:
        merged = _merged(alike[0], memory) if by_user else Refused("it is already known")
        return _widened(merged, alike[0]) if told == "user" else merged
    if not opposed:
        return Accepted(Put(memory))
    old = max(opposed, key=lambda one: likeness(draft.text, one.body or one.description))
    if by_user and told not in (None, old.scope) and not old.pinned:
        # An exception for one project leaves the rule for the others as it is.
        wider = told == "user" and old.scope == "project"
        return Accepted(Put(memory), Drop(old.name, old.scope, WIDER) if wider else None)
    put = replace(
        memory, name=old.name, scope=old.scope, type=old.type, created=old.created or memory.created
    )
    if old.pinned or not by_user:
        return Held(Put(put), f"it contradicts {old.name}" + (", which is pinned" * old.pinned))
    return Accepted(Put(put))


def _merged(old: Memory, memory: Memory) -> Weighed:
    """Add the draft's evidence to a memory that says the same."""
    if old.pinned:
        return Refused("a pinned memory already says it")
    held = tuple(one for one in old.evidence if one not in memory.evidence)
    evidence = (*held[:1], *(*held[1:], *memory.evidence)[-(KEPT - 1) :])
    author: Author = "user"
    return Accepted(
        Put(
            replace(
                old,
                evidence=evidence,
                verified=memory.verified,
                modified=memory.modified,
                author=author,
            )
        )
    )


def _widened(merged: Weighed, old: Memory) -> Weighed:
    """Move a project memory to the user scope, if the user said so."""
    if not isinstance(merged, Accepted) or old.scope != "project":
        return merged
    memory = replace(merged.change.memory, scope="user")
    return Accepted(Put(memory), Drop(old.name, old.scope, WIDER))


def _opposes(draft: Draft, old: Memory, sentence: str) -> bool:
    """Return whether both cannot hold, as far as words or the draft tell."""
    text = old.body or old.description
    alike = likeness(draft.text, text)
    if alike == 1.0 and denies(draft.text) == denies(text):
        return False
    if draft.replaces == old.name:
        return bool(content(draft.text) & content(text))
    if denies(draft.text) != denies(text) and alike >= OPPOSED:
        return True
    return signals.turns(sentence) and alike >= TOPIC and not content(draft.text) <= content(text)


def _same(memory: Memory, old: Memory) -> bool:
    """Return whether both make the same wish, whatever their scopes."""
    return same(without_scope(memory.body), without_scope(old.body or old.description))
