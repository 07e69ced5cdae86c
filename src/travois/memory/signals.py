"""What the user's own sentences ask to keep, told by few signs: who is addressed, and for how long.

A request to remember and a correction that is worded to last are drafts by themselves. All other
signs only say that the model should be asked, and what its drafts may rest on.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from travois.memory.memory import MemoryDraft, MemoryType
from travois.memory.phrases import compile_phrases, find_phrase, has_phrase, straighten_quotes
from travois.memory.similarity import content_words
from travois.memory.speakers import Statement, split_spoken_sentences

SignalKind = Literal["remember", "correction", "preference"]
CLAUSE_BREAK = re.compile(
    r"[,.;:!?…—–，。；：！？、]+\s*|\s-\s|\n| (?:and|but|so|und|aber|y|et|e) "
)
LEAD_TEXT = """and but also oh ok okay so btw hey yes please pls plz just can could would you u
always i i'd want like to now in future kannst du dir bitte por favor stp fyi really all well"""
LEAD_WORDS = frozenset(LEAD_TEXT.split())
"""Words before a request or a rule that change nothing about whom it addresses."""
ADDRESS_TEXT = """we use do don't that here we're my our be sure make try told said wir ich nous on
je nosotros yo noi nós"""
ADDRESS_WORDS = LEAD_WORDS | frozenset(ADDRESS_TEXT.split())
STATEMENT_START = re.compile(
    r"(?i)(?:that|this|it|these|to|i|i'm|i'd|we|we're|you|my|our|your|the|a|an|all|every|each|no|"
    r"not|always|never|in|on|at|for|when|if|please|don't|do|use|there|whenever)\b"
    r"(?! (?:when|time|day|last|yesterday)\b)|[^\w\s]|(?-i:[A-Z])|"
    r".*\b(?:is|are|has|have|uses?|needs?|lives?|goes|go|gets?)\b"
)
"""What follows an English `remember` that is followed by what to remember."""
MODAL_WORDS = frozenset(["should", "must", "have", "need", "ought", "can", "to"])
EXPERIENCE = re.compile(
    r"(?i)\b(?:you (?:keep|still)? ?(?:always|never)|"
    r"(?:i|we) (?:always|never) (?:get|see|had|forget|find|fail|lose))\b"
)
"""A report of what keeps happening, which wishes for nothing."""
LINK_WORD = re.compile(
    r"(?i)^(?:(?:that|this|it)\s*[:,–—-]\s*|(?:that|to|dass|que|che|att|dat|że|ki|что|أن)\b[\s,:]*)"
)
THING_AT_HAND = re.compile(
    r"(?i)\b(?:this (?!\w+s\b|project|repo|repository|codebase|team|app|package|library|machine|"
    r"company|customer|way|kind|for|in|on|at|to|by|and|or)|these |those |"
    r"that (?=(?:one|file|function|test|line|case|bug|error|page|class|method|branch|button)\b)|"
    r"(?:option|version|variant) |(?:first|second|last) (?=(?:one|version)\b))\w+"
)
"""References to something that only this conversation shows."""
TASK_END = re.compile(rf"{THING_AT_HAND.pattern}|\b(?:too|as well|both places)\W*$")
DEFINITE_WORD = re.compile(
    r"(?i)(?:\S+\s+){0,2}(?:the|that|this|these|those|it|them|there)\b(?! machine)"
)
"""A rule speaks of a kind of thing; who names the thing itself speaks of the work at hand."""
THIRD_PERSON_MODAL = re.compile(
    r"(?i)\b(?!(?:i|we|you|u|not|and|please) )[\w-]+ "
    r"(?:may|must|can|should|shall|will|ought|ha(?:s|ve) to)\b"
)
DEICTIC_START = re.compile(
    r"(?i)(?:this|that|these|those|it|das|eso|ça)\b(?! (?:is an? \w|project|repo\w*|codebase|team|"
    r"service|app|package|library|machine|board|chip|api|product|company|customer)\b)"
)
"""The beginning of a text that cannot be understood outside of its conversation."""
DEICTIC_MANNER = re.compile(
    r"(?i)\b(?:like (?:that|this)|(?:that|this|the) way I\b|do (?:it|that|this))\b"
)
SHOWN_OBJECT = re.compile(r"(?i) (?:that|this|it|das|ça|cela) ")
"""In a request: what to remember was said before it."""
MAX_OBJECTION_CHARS = 80
DEICTIC_END = re.compile(r"(?i)^(?: (?:that|this|it|das|eso|ça|please|too|well|for|me|later))*\W*$")
INTERROGATIVE = re.compile(r"(?i)[?？]\W*$|^(?:do|did|can|could|would|will|why) (?:you|we|i|u)\b")
SHOWN_QUESTION = re.compile(r"\w{4,}\W*[?？]")
PURPOSE_START = re.compile(r"(?i)\s*(?:to|in order to|if|when) ")
QUESTION_WORD = re.compile(r"(?i) ?(?:what|how|who|why|where|whether|which|if|when)\b")
PERSONAL_CLAUSE = re.compile(r"(?i)(?:it|this|that|he|she|they|there|users?|people)\b")
COMMAND_VERB = re.compile(
    r"(?i)(?:^|[.;:!\n>\"'] *)(?:don't |do not |please |never |always )?"
    r"(?:use|run|add|prefer|avoid|keep|put|send|push|deploy|set|disable|enable|skip|treat|reply|answer|write|commit|delete|"
    r"remove|include|ignore|start|stop|make|check|ask|approve|trust|grant|allow|call|show|apply|"
    r"store|save|log|mark|accept|merge|be|say|tell|never|always|remember)\b"
)
REFERENCE_WORDS = re.compile(
    r"https?://|\b(?:dashboard|ticket|wiki|board|channel|tracker|runbook)\b", re.IGNORECASE
)
EXACT_NAME = re.compile(
    r"`[^`\n]{2,}`|https?://[^\s)>\"'`]+|(?<!\w)--?[a-z][\w-]+"
    r"|(?<![\w/])~?\.{0,2}/[\w./@-]{2,}|\b[\w-]+(?:/[\w.@-]+)+|\b\w+\.[a-z]{2,5}\b"
    r"|\b[A-Za-z]+_\w+\b|\b[a-z]+[A-Z]\w+\b|\b[A-Z]{2,}[A-Z0-9]*\b"
    r"|\bv?\d+(?:[.:]\d+)+\b|\b\d{2,}\b|(?<=[a-z0-9,;] )[A-Z][a-z]{2,}\b"
)
SPECIFIED = re.compile(r"(?i)^(?:the|a|an|this|that|it|each|every)\b.{0,40}? should\b")
"""The beginning of a sentence that specifies what a program is to do."""
USER_WORDS = ("user", "nutzer", "nutzerin", "benutzer", "usuario", "utilisateur")
"""Words for the user, which are not names."""


class MemorySignal(msgspec.Struct, frozen=True):
    """A sentence of the user that may be worth remembering."""

    kind: SignalKind
    sentence: str
    seq: int


def find_signals(said: Iterable[Statement]) -> Iterator[MemorySignal]:
    """Yield the user's sentences that signal something to remember, in order."""
    answers = False
    for one in said:
        if one.voice == "user":
            yield from _find_in_message(one, objection=find_objection(one.text) if answers else "")
        answers = answers or one.voice in ("model", "act")


def _find_in_message(said: Statement, *, objection: str) -> Iterator[MemorySignal]:
    """Yield the signals in one message; `objection` tells how it begins."""
    for sentence in _join_references(split_spoken_sentences(said.text)):
        if kind := classify_sentence(sentence, objection=objection):
            yield MemorySignal(kind, sentence, said.seq)


def _join_references(sentences: Sequence[str]) -> Iterator[str]:
    """Yield sentences; one that asks to remember "that" with the sentence before it."""
    for earlier, before, sentence in zip(
        ("", "", *sentences), ("", *sentences), sentences, strict=False
    ):
        answers = earlier.endswith("?") or before.endswith("?")
        if before and not answers and find_request(sentence) and refers_elsewhere(sentence):
            yield f"{before} {sentence}"
        else:
            yield sentence


def draft_by_rules(fresh: Iterable[Statement], said: Iterable[Statement]) -> Iterator[MemoryDraft]:
    """Yield drafts in the user's words: requests to remember, and corrections that are to last.

    `fresh` is what no extraction has examined yet, `said` is everything.
    """
    since = min((one.seq for one in fresh), default=0)
    for signal in find_signals(said):
        plain = signal.kind != "preference" and not refers_elsewhere(signal.sentence)
        if plain and signal.seq >= since:
            yield draft_from_signal(signal)


def find_objection(message: str) -> Literal["", "objection", "prohibition"]:
    """Find how a message begins: it rejects what the model did, it forbids, or neither."""
    start = message[:MAX_OBJECTION_CHARS].lstrip(" \t\n.,!")
    for meaning in ("objection", "prohibition"):
        hit = find_phrase(meaning, start)
        if hit and LEAD_WORDS.issuperset(_words(start[: hit.start()])):
            return meaning
    return ""


def classify_sentence(sentence: str, *, objection: str = "") -> SignalKind | None:
    """Classify a user's sentence as a memory signal; None if it is ordinary talk."""
    if find_request(sentence):
        return "remember"
    if is_question(sentence) or takes_back(sentence) or EXPERIENCE.search(sentence):
        return None
    if always_applies(sentence, objects=bool(objection)):
        return "correction" if objection else "preference"
    rejects = objection == "objection" and _contrasts(sentence)
    if rejects and not DEFINITE_WORD.match(_strip_objection(sentence)):
        return "correction"
    return "preference" if has_phrase(sentence, "self", "preference") else None


def _contrasts(sentence: str) -> bool:
    """Return whether a sentence speaks of a kind of thing, or sets one against another."""
    shown = THING_AT_HAND.search(sentence) or THIRD_PERSON_MODAL.search(sentence)
    return not shown and has_phrase(sentence, "contrast", "standing")


def find_request(sentence: str) -> re.Match[str] | None:
    """Find the phrase by which a sentence asks the listener to remember something."""
    flat = straighten_quotes(sentence)
    for meaning in ("remember", "onwards"):
        for hit in compile_phrases(meaning).finditer(flat):
            if _asks_listener(flat, hit, english=hit.lastgroup == "en" and meaning == "remember"):
                return hit
    return None


def _asks_listener(sentence: str, hit: re.Match[str], *, english: bool) -> bool:
    """Return whether a phrase is said to the listener, about something that is said with it."""
    before, after = sentence[: hit.start()], sentence[hit.end() :]
    clause = CLAUSE_BREAK.split(before)[-1]
    words = _words(clause)
    told = not LEAD_WORDS.issuperset(words) or words[-1:] == ["i"]
    if THIRD_PERSON_MODAL.search(clause) or PURPOSE_START.match(clause):
        return False
    shown = bool(SHOWN_OBJECT.search(hit[0]))
    ends = bool(content_words(before)) and bool(DEICTIC_END.match(after))
    if shown or (ends and not (told and english)):
        asks = INTERROGATIVE.search(sentence) or has_phrase(before, "supposed")
        return bool(content_words(before)) and not asks
    if told and (hit.lastgroup == "en" or PERSONAL_CLAUSE.match(clause.strip())):
        return False
    asks = INTERROGATIVE.search(sentence)
    if not english:
        return not asks
    if QUESTION_WORD.match(after) or not STATEMENT_START.match(after.strip() or "x"):
        return False
    task = LINK_WORD.match(after.strip()) and after.strip().lower().startswith("to ")
    if task and (before.strip() or TASK_END.search(after)):
        return False
    return not sentence.rstrip().endswith("?") or bool(re.match(r" that\b|:", after))


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.casefold())


def always_applies(sentence: str, *, objects: bool = False) -> bool:
    """Return whether a sentence states a standing rule for its listener."""
    flat = straighten_quotes(sentence)
    return any(
        _addresses_listener(flat, hit, objects=objects)
        for meaning in ("always", "never", "onwards")
        for hit in compile_phrases(meaning).finditer(flat)
    )


def _addresses_listener(sentence: str, hit: re.Match[str], *, objects: bool) -> bool:
    """Return whether a clause with a word such as `always` addresses the listener.

    With another subject it describes a thing: "the importer must never overwrite rows".
    """
    clause = CLAUSE_BREAK.split(sentence[: hit.start()])[-1]
    words = _words(clause)
    if THIRD_PERSON_MODAL.search(clause):
        return False
    if not content_words(sentence[hit.end() :]) and content_words(sentence[: hit.start()]):
        return not PERSONAL_CLAUSE.match(clause.strip())
    known = ADDRESS_WORDS | MODAL_WORDS if words[:1] in (["we"], ["you"], ["i"]) else ADDRESS_WORDS
    if known.issuperset(words) or {"please", "bitte"}.intersection(words):
        return True
    brief = len(words) <= 2 and not PERSONAL_CLAUSE.match(clause.strip())
    return brief and (objects or hit.lastgroup != "en")


def refers_elsewhere(sentence: str) -> bool:
    """Return whether a request to remember cannot be understood from this sentence alone."""
    wish = extract_wish(sentence)
    alone = " " not in wish and wish.isascii()
    return alone or bool(DEICTIC_START.match(wish) or DEICTIC_MANNER.search(wish))


def extract_wish(sentence: str) -> str:
    """Return the wish in a request to remember: the words after it, or else before it."""
    if (asked := find_request(sentence)) is None:
        return _strip_objection(sentence)
    before, after = sentence[: asked.start()], sentence[asked.end() :].strip(" ,:：-–!，、")
    after = LINK_WORD.sub("", after).strip(" ,:–-")
    if asked.re is compile_phrases("onwards") and content_words(before):
        return f"{before.strip()} {after}".strip()
    shown = SHOWN_OBJECT.search(asked[0])
    return after if content_words(after) and not shown else before.strip(" ,.:-!、")


def _strip_objection(sentence: str) -> str:
    """Return a correction without the bare no that it starts with."""
    hit = re.match(
        r"(?i)(?:no+|nope|nein|non|não|nee|いや|不对|actually|wrong)\b[\s,.!:;—，、-]*", sentence
    )
    return sentence[hit.end() :] if hit else sentence


def draft_from_signal(signal: MemorySignal) -> MemoryDraft:
    """Make a memory draft from a signal, in the user's words."""
    text = extract_wish(signal.sentence)
    text = text[:1].upper() + text[1:]
    found = _guess_memory_type(text)
    return MemoryDraft(text, found, signal.sentence, scope="user" if found == "user" else None)


def _guess_memory_type(text: str) -> MemoryType:
    """Guess the memory type from the wording."""
    if has_phrase(text, "self"):
        return "user"
    if expresses_wish(text) or has_phrase(text, "preference"):
        return "feedback"
    return "reference" if REFERENCE_WORDS.search(text) else "project"


def asks_to_remember(text: str) -> bool:
    """Return whether the user asks to remember something."""
    return any(find_request(sentence) for sentence in split_spoken_sentences(text))


def expresses_wish(text: str) -> bool:
    """Return whether a text says what somebody should or may do, or wants: a memory signal."""
    return has_phrase(text, "wish") or bool(COMMAND_VERB.search(straighten_quotes(text)))


def retracts_earlier(after: str) -> bool:
    """Return whether a continuation takes back what was said before it."""
    hit = find_phrase("retraction", after)
    return hit is not None and len(_words(after[: hit.start()])) <= 3


def is_lasting(sentence: str, message: str = "") -> bool:
    """Return whether a sentence of the user shows that it is meant for later, too."""
    objection = find_objection(message or sentence)
    said = (sentence, *split_spoken_sentences(sentence))
    if any(classify_sentence(one, objection=objection) for one in said):
        return True
    if is_question(sentence) or takes_back(sentence) or EXPERIENCE.search(sentence):
        return False
    told = bool(objection) or not COMMAND_VERB.match(sentence) or has_phrase(sentence, "standing")
    return told and _contrasts(sentence)


def may_be_lasting(sentence: str) -> bool:
    """Return whether a sentence may be meant for later, which only the user knows."""
    return has_phrase(sentence, "wish", "denial")


def is_question(sentence: str) -> bool:
    """Return whether a sentence is only a question, and so no memory signal."""
    return bool(re.search(r"[?？]\W*$", sentence)) and not find_request(sentence)


def asks_something(message: str) -> bool:
    """Return whether a message asks a question, so that its rest may not be worth remembering."""
    return bool(SHOWN_QUESTION.search(message))


def needs_context(text: str) -> bool:
    """Return whether a text, as a memory, would not be understood without its conversation."""
    return bool(DEICTIC_START.match(text))


def changes_mind(sentence: str) -> bool:
    """Return whether a sentence says that something changed: an older memory is outdated."""
    return has_phrase(sentence, "change") or bool(find_objection(sentence))


def find_passing_reason(sentence: str, *, asked: bool) -> str:
    """Return why a sentence of the user holds nothing for later sessions; empty if it may."""
    if has_phrase(sentence, "passing", "refusal"):
        return "it was not meant to last"
    if has_phrase(sentence, "supposed") and not asked:
        return "it was only supposed"
    if not asked and has_phrase(sentence, "dated", "progress"):
        return "it is a temporary detail of a task"
    return ""


def find_doubt(quote: str, sentence: str, message: str) -> str:
    """Return why the user's words may not be a lasting wish; empty if nothing suggests so."""
    asked = asks_to_remember(message)
    if has_phrase(sentence, "limited") or (THING_AT_HAND.search(quote) and not asked):
        return "it may not be meant to last"
    if has_phrase(message, "irony"):
        return "it may have been a joke"
    return ""


def reports_others(sentence: str) -> bool:
    """Return whether a sentence reports what someone else says or thinks."""
    return has_phrase(sentence, "reported")


def takes_back(sentence: str) -> bool:
    """Return whether a sentence takes back what it began to say."""
    flat = straighten_quotes(sentence)
    return any(
        LEAD_WORDS.issuperset(_words(CLAUSE_BREAK.split(flat[: hit.start()])[-1]))
        for hit in compile_phrases("retraction").finditer(flat)
    )


def extract_names(text: str) -> Iterator[str]:
    """Yield the names and numbers in a memory draft: paths, URLs, code and people."""
    for found in EXACT_NAME.findall(text):
        name = found.strip("`.,;:").casefold()
        if name in USER_WORDS:
            continue
        yield name.removesuffix("s") if name.isalpha() else name
