"""Finding wishes without a model: what a person asks to remember, corrects, or says again.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from travois.context.memory.drafts import Draft
from travois.context.memory.heard import Heard, spoken
from travois.context.memory.likeness import content, same
from travois.context.memory.memory import Type

Kind = Literal["remember", "correction", "preference"]
REMEMBER = re.compile(
    r"(?i)(?:^|[:;—] )(?:and |also,? |oh,? |ok(?:ay)?,? |so,? |btw,? |hey,? |yes,? |please,? |"
    r"just ){0,3}"
    r"(?:can you |could you |would you |i want you to |i'd like you to )?(?:please )?"
    r"(?:(?:always )?remember|memori[sz]e|(?:make a )?note|keep in mind|don['’]t forget|"
    r"do not forget|"
    r"for (?:the )?future(?: reference)?|from now on|going forward|in (?:the )?future)\b"
    r"(?: (?:for (?:next time|later|the future|future sessions)))?"
    r"[\s,:-]*(?:that\b[\s,:]*)?"
)
ASKED = re.compile(r"(?i)^(?:do|did|can|could|would|will) (?:you|we|i) (?!please)|\?\s*$")
DOUBTED = re.compile(r"(?i)^(?:do|did|don['’]t|didn['’]t) (?:you|we|i)\b")
CORRECTION = re.compile(
    r"(?i)^(?:no+|nope|wrong|stop|not like that|that['’]s not how|that's wrong|that is wrong|"
    r"please don['’]t|"
    r"don['’]t|"
    r"do not|never|actually|please stop|again)\b[\s,.!:;—-]+"
)
MERE = re.compile(
    r"(?i)^(?:never ?mind|stop(?! \w+ing\b)|again\b(?!.*\b(?:always|never|i |we ))|"
    r"(?:please |i |we )?(?:don['’]t|do not) "
    r"(?:worry|bother|know|think|see|understand|get|need|have|care|panic|hesitate|mind|wait|"
    r"do that))\b"
)
"""What begins like a correction and is none."""
ADVICE = re.compile(
    r"(?i)\b(?:use|using|instead|always|never|prefer|don['’]t|do not|stop|rather than|not with|"
    r"should|must|only)\b"
)
PREFERENCE = re.compile(
    r"(?i)\b(?:(?:i|we) (?:always|never|prefer|like|love|hate|don['’]t like|do not like|"
    r"want you to|"
    r"usually|would rather|don['’]t want|only (?:use|want))|(?:i|we)['’]d (?:rather|prefer)|"
    r"my (?:name|role|job|team|timezone|time zone|editor|shell|preferred|preference) )"
    r"|^(?:please )?(?:always|never|prefer)\b|\b(?:whenever|every time|next time) you\b|"
    r"^next time\b"
    r"|\bwe want (?!to\b)|\b(?:for|in) all (?:of )?(?:my|our) |^(?:please |pls )?(?:don['’]?t|"
    r"do not) ever\b|\b(?:is|are|['’]re|"
    r"must) always\b"
)
STANDING = re.compile(
    r"(?i)\b(?:always|never|ever|next time|every time|whenever|in general|each time)\b"
)
ABOUT_ME = re.compile(r"(?i)\b(?:i am|i['’]m|my|call me|i (?:work|live|speak|use))\b")
PERSON = re.compile(
    r"(?i)\b(?:(?:i am|i['’]m) (?!\w+ing\b|not sure|done|stuck|\w+ed\b|lost|sure|sorry|afraid|"
    r"back|here|ok|"
    r"fine|ready)|my (?:name|role|job|timezone|time zone)|call me|i (?:work|live|speak))\b"
)
WISH = re.compile(
    r"(?i)\b(?:always|never|don['’]t|do not|should|must|prefer\w*|avoid|stop|want|like|hate)\b"
    r"|^(?:use|run|write|keep|put|add|answer|reply|ask|call|name|make|skip|format|commit|push)\b"
)
LINK = re.compile(
    r"https?://|\b(?:dashboard|ticket|wiki|board|channel|tracker|runbook)\b", re.IGNORECASE
)


class Signal(msgspec.Struct, frozen=True):
    """A sentence of a person's that may be worth remembering."""

    kind: Kind
    sentence: str
    seq: int


def signals(said: Iterable[Heard]) -> Iterator[Signal]:
    """All of them in what a person wrote, in order."""
    for one in said:
        for sentence in spoken(one.text) if one.voice == "user" else ():
            if found := kind(sentence):
                yield Signal(found, sentence, one.seq)


def ruled(fresh: Iterable[Heard], said: Iterable[Heard]) -> Iterator[Draft]:
    """Drafts in a person's own words: wishes to remember, corrections, what was said again.

    `fresh` is what was not looked at before, `said` is all of it.
    """
    before = tuple(signals(said))
    for signal in signals(fresh):
        if signal.kind == "remember" or _standing(signal) or _again(signal, before):
            yield draft(signal)


def draft(signal: Signal) -> Draft:
    """The draft that a sentence makes, in the words in which it was said."""
    asked = REMEMBER.search(signal.sentence)
    text = signal.sentence[asked.end() :].strip(" ,:-") if asked else ""
    text = text or signal.sentence
    text = CORRECTION.sub("", text) if _yes(text) else text
    text = text[:1].upper() + text[1:]
    found = _type(text)
    return Draft(text, found, signal.sentence, scope="user" if found == "user" else None)


def asked_to_remember(text: str) -> bool:
    """Whether a person asks to remember something."""
    return any(kind(sentence) == "remember" for sentence in spoken(text))


def kind(sentence: str) -> Kind | None:
    """What a sentence of a person's may be; none if it is just talk."""
    if REMEMBER.search(sentence) and not DOUBTED.match(sentence):
        return "remember"
    if ASKED.search(sentence):
        return None
    if MERE.match(sentence):
        return None
    if CORRECTION.match(sentence) and ADVICE.search(sentence):
        return "correction"
    lasting = PREFERENCE.search(sentence) or PERSON.search(sentence)
    return "preference" if lasting else None


def _standing(signal: Signal) -> bool:
    """Whether a correction says for itself that it is meant to last."""
    if signal.kind == "correction":
        return len(content(signal.sentence)) > 1 or bool(STANDING.search(signal.sentence))
    return bool(STANDING.search(signal.sentence) or PERSON.search(signal.sentence))


def _again(signal: Signal, before: Iterable[Signal]) -> bool:
    """Whether the same was said at another time."""
    other = (s for s in before if s.seq != signal.seq)
    return any(same(signal.sentence, one.sentence) for one in other)


def _yes(text: str) -> bool:
    """Whether a correction begins with a mere no, which says nothing later."""
    return bool(re.match(r"(?i)(?:no+|nope|wrong|actually|again|that's wrong)\b", text))


def _type(text: str) -> Type:
    if PERSON.search(text):
        return "user"
    if WISH.search(text):
        return "feedback"
    if ABOUT_ME.search(text):
        return "user"
    return "reference" if LINK.search(text) else "project"
