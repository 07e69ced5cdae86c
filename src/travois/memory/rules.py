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

from travois.memory.drafts import Draft
from travois.memory.memory import Type
from travois.memory.similarity import content, same
from travois.memory.speakers import HANDLED, Heard, spoken
from travois.memory.tongues import plainly

Kind = Literal["remember", "correction", "preference"]
REMEMBER = re.compile(
    r"(?i)(?:^|[:;—,.!?]\s+|\band )(?:and |but |also,? |oh,? |ok(?:ay)?,? |so,? |btw,? |hey,? |"
    r"yes,? |please,? |pl[sz],? |just ){0,3}"
    r"(?:can you |could you |would you |i want you to |i'd like you to )?(?:please )?"
    r"(?:(?:always )?reme?m?ber(?! (?:when|yesterday|last|the time)\b)|memori[sz]e|"
    r"kannst du dir (?:bitte )?merken|(?:make a )?note|keep in mind|don['’]?t forget|do not forget|"
    r"merke? dir|denk(?:e)? dran|vergiss nicht|recuerda|no olvides|acu[eé]rdate|retiens|"
    r"souviens-toi|n'oublie pas|ab (?:jetzt|sofort)|a partir de ahora|désormais|"
    r"for (?:the )?future(?: reference)?|from now on|going forward|in (?:the )?future)\b"
    r"(?: (?:for (?:next time|later|the future|future sessions)))?"
    r"(?: bitte| por favor)?[\s,:!-]*(?:(?:that|to|dass|que)\b[\s,:]*)?"
)
VAGUE = re.compile(r"(?i)\bremember (?!that|to\b|this|my|our|we|i\b|the|:)[^?]*\?")
"""A question about remembering, which asks for nothing to be remembered."""
DEICTIC = re.compile(
    r"(?i)(?:this|that|these|those|it)\b(?! (?:is an? \w|project|repo\w*|codebase|team|"
    r"service|app|package|library|machine|board|chip|api|product|company|customer)\b)"
)
"""How a text begins that cannot be understood where it was not said."""
ASKED = re.compile(r"(?i)^(?:do|did|can|could|would|will) (?:you|we|i) (?!please)|\?\s*$")
DOUBTED = re.compile(r"(?i)^(?:do|did|don['’]t|didn['’]t) (?:you|we|i)\b")
CORRECTION = re.compile(
    r"(?i)^(?:no+|nope|wrong|stop|not like that|that['’]s not how|that's wrong|that is wrong|"
    r"please don['’]t|"
    r"don['’]t|"
    r"do not|never|actually|please stop|again|you (?:keep|always|still) (?=\w+ing))\b[\s,.!:;—-]*"
)
MERE = re.compile(
    r"(?i)^(?:never ?mind|stop(?! \w+ing\b)|again\b(?!.*\b(?:always|never|i |we ))|"
    r"(?:please |i |we )?(?:don['’]t|do not) "
    r"(?:worry|bother|know|think|see|understand|get|need|have|care|panic|hesitate|mind|wait|"
    r"do that))\b"
)
"""What begins like a correction and is none."""
BARRED = re.compile(
    r"(?i)(?:please )?(?:don['’]t|do not|stop) (?!worry|bother|know|think|see|mind|wait)\w+"
)
TAKEN_BACK = re.compile(
    r"(?i)^\W*(?:(?:h+m+|no+|ok(?:ay)?|wait|oh|sorry|well|actually|ah)[\s,.!…-]+){0,3}"
    r"(?:scratch that|never ?mind|forget (?:it|that|this|what)|on second thoughts?|leave it|"
    r"strike that|ignore (?:that|this|what i)|not really|just kidding|kidding|"
    r"i take (?:it|that) back|"
    r"no,? wait|that was (?:wrong|a mistake)|undo that)\b"
)
"""How somebody begins who takes back what they said before."""
ADVICE = re.compile(
    r"(?i)\b(?:use|using|instead|always|never|prefer|don['’]t|do not|stop|rather than|not with|"
    r"should|must|only)\b"
)
PREFERENCE = re.compile(
    r"(?i)(?:i|we)(?:['’]d)?(?: really| also| just| all)? (?:always|never|prefer|like|love|hate|"
    r"dislike|don['’]t like|do not like|want you to|need you to|usually|would rather|rather|"
    r"don['’]t want|only (?:use|want|do|have))\b"
    r"|my (?:name|role|job|team|timezone|time zone|editor|shell|preferred|preference)\b"
    r"|(?:always|never(?! mind)|prefer)\b|next time\b"
    r"|(?:for|in) all (?:of )?(?:my|our) |we want (?!to\b)"
    r"|(?:don['’]t|do not) ever\b|(?:whenever|every time|each time) you\b"
    r"|.*\b(?:is|are|['’]re|must) always\b"
    r"|.*\b(?:is|are) (?:banned|forbidden|not allowed|verboten|off limits|prohibited)\b"
)
"""How a clause begins that says what somebody wants at all times."""
STANDING = re.compile(
    r"(?i)\b(?:always|never(?! mind)|ever|next time|every time|whenever|in general|each time|"
    r"everywhere|anywhere|period|by default|throughout|as a (?:general )?rule|rule of thumb|"
    r"conventions?|across the board|changed (?:my|our) minds?|told you|fyi|heads[- ]up|"
    r"for the record|so you know|no exceptions|without exception|that['’]?s how we|in doubt|"
    r"unless (?:i|we)|(?:before|after|with|for|on|at) (?:every|each) \w+|everything goes|"
    r"(?:before|when|after|if) you (?:\w+ ){1,3}(?:any\w*|something|an?)\b)"
)
"""What tells that a sentence is about all times and places, or any of a kind."""
INDIRECT = re.compile(
    r"(?i)\b(?:that|which|say|says|saying|mentions?|called|named|about|how|why|whether|let['’]s|"
    r"would)\b|\bto $|^(?:the|an?|my|his|her|their|some)\b.*\b(?:we|you|one|i|they|people)\b|"
    r"^(?:tell|ask|write|add|create|put|make)\b.*\bto\b"
)
"""What stands before words that are told of, and not meant for whoever listens."""
ADDRESSED = re.compile(
    r"(?i)\b(?:(?:make|be) sure|try|you (?:have|need|ought)|(?:i|we)(?:['’]d)? (?:want|need|expect|"
    r"like) you) to\b|\bi (?:told|said)(?: to)? you(?: that)?\b"
)
CLAUSE = re.compile(
    r"[,.;:!?…—–]+\s+|\s-\s|\n|\b(?:and|but|so|because|also|btw|by the way|then|plus|und|aber|y|"
    r"pero|et|mais)\s+"
)
ASIDE = re.compile(
    r"(?i)[.;!?…]+\s+|,?\s(?:and |but )?(?:by the way|btw|also|please)\s+"
    r"|,\s+(?=(?:always|every time|everywhere|as a rule|period)\W*$)"
)
FELT = re.compile(
    r"(?i)(?:it|this|that|he|she|they|there|(?:i|we|you)(?= (?:always|never)))?\b.{0,30}?"
    r"\b(?:always|never) (?:get|gets|got|see|sees|seen|have|had|has|run into|forget|forgot|"
    r"finish\w*|hear\w*|find|found|end up|thought|knew|fails?|failed|crash\w*|lose|lost|breaks?|"
    r"broke|hangs?|happen\w*|worked|works|was|been|did|tried|used to)\b"
    r"|(?:it|this|that|he|she|they|there)\b.*\b(?:always|never)\b"
)
"""What tells what happens, and wishes for nothing."""
LEAD = re.compile(
    r"(?i)^(?:[-*+•\d.)\s]+|please |just |ok(?:ay)? |oh |hey |hi |yes |and |now |well |"
    r"here |in here )+"
)
ABOUT_ME = re.compile(r"(?i)\b(?:i am|i['’]m|my|call me|i (?:work|live|speak|use))\b")
PERSON = re.compile(
    r"(?i)(?<!like )(?<!if )\b(?:(?:i am|i['’]m) (?:not |also )?(?:an? (?!bit|little|few|moment)|"
    r"the (?!only|first|last|one|same)|our |new to |based |from |responsible |fluent |native |"
    r"dyslexic|colou?r[- ]?blind|deaf|"
    r"blind|left[- ]handed|in charge|on the \w+ team|(?-i:[A-Z][a-z]{2,}\b))|"
    r"my (?:name|role|job|timezone|time zone)\b|call me\b|i (?:work|live|speak)\b)"
)
"""What somebody is for longer than a day."""
WISH = re.compile(
    r"(?i)\b(?:always|never|only|don['’]t|do not|should|must|prefer\w*|avoid|stop|want|like|hate)\b"
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
        if points_elsewhere(signal.sentence):
            continue
        if signal.kind == "remember" or _standing(signal) or _again(signal, before):
            yield draft(signal)


def points_elsewhere(sentence: str) -> bool:
    """Whether what is to be remembered cannot be understood from this sentence alone."""
    wish = _wish(sentence)
    return bool(DEICTIC.match(wish)) or " " not in wish


def draft(signal: Signal) -> Draft:
    """The draft that a sentence makes, in the words in which it was said."""
    text = _wish(signal.sentence)
    text = CORRECTION.sub("", text) if _yes(text) else text
    text = text[:1].upper() + text[1:]
    found = _type(text)
    return Draft(text, found, signal.sentence, scope="user" if found == "user" else None)


def _wish(sentence: str) -> str:
    """What is to be remembered: what stands after the asking, or else before it."""
    asked = REMEMBER.search(sentence)
    if asked is None:
        return sentence
    after = sentence[asked.end() :].strip(" ,:-!")
    return after if content(after) else sentence[: asked.start()].strip(" ,:-!")


def asked_to_remember(text: str) -> bool:
    """Whether a person asks to remember something."""
    return any(kind(sentence) == "remember" for sentence in spoken(text))


def kind(sentence: str) -> Kind | None:
    """What a sentence of a person's may be; none if it is just talk."""
    asked = REMEMBER.search(sentence)
    if asked and not DOUBTED.match(sentence) and not VAGUE.search(sentence):
        return "remember"
    sentence = plainly(sentence)
    if any(just.match(sentence) for just in (MERE, TAKEN_BACK, FELT)) or ASKED.search(sentence):
        return None
    if CORRECTION.match(sentence) and ADVICE.search(sentence):
        return "correction"
    if any(PREFERENCE.match(clause) for clause in clauses(sentence)) or PERSON.search(sentence):
        return "preference"
    corrected = any(BARRED.match(clause) for clause in clauses(sentence))
    return "correction" if corrected else None


def clauses(sentence: str) -> Iterator[str]:
    """The parts of a sentence, without what leads them in.

    A task is one part up to an aside: what it is about is not said to whoever listens.
    """
    ends = ASIDE if HANDLED.match(LEAD.sub("", sentence)) else CLAUSE
    parts = (LEAD.sub("", part.strip()) for part in ends.split(sentence) if part)
    return (part for part in parts if not FELT.match(part))


def standing(sentence: str) -> bool:
    """Whether whoever listens is told something that holds at all times."""
    return any(_direct(clause) for clause in clauses(plainly(sentence)))


def _direct(clause: str) -> bool:
    marked = STANDING.search(clause)
    if marked is None or (HANDLED.match(clause) and clause[marked.end() :].strip(" .!")):
        return False
    return not INDIRECT.search(ADDRESSED.sub("", clause[: marked.start()]))


def _standing(signal: Signal) -> bool:
    """Whether a correction says for itself that it is meant to last."""
    said = plainly(signal.sentence)
    if signal.kind == "correction":
        return len(content(signal.sentence)) > 1 or standing(said)
    return standing(said) or bool(PERSON.search(said))


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
