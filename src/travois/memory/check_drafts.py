"""Checks that a memory draft must pass: each is compared with the conversation and its speakers.

A wish needs the user's own words or their approval. A fact needs a source in the conversation.
Secrets, inventions, temporary details and duplicates are rejected.

Model sees: nothing of this module.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import msgspec
from msgspec.structs import replace

from travois.memory import signals
from travois.memory.compare_drafts import (
    Accept,
    DraftVerdict,
    NeedsReview,
    Reject,
    find_wish_scope,
    settle_draft,
)
from travois.memory.memory import (
    Evidence,
    Memory,
    MemoryAuthor,
    MemoryDraft,
    MemoryScope,
    PutMemory,
    make_draft_name,
)
from travois.memory.similarity import (
    contains_denial,
    content_words,
    have_same_meaning,
    share_covered,
)
from travois.memory.speakers import SpeakerVoice, Statement, split_spoken_sentences

MIN_QUOTE_CHARS = 6
MAX_QUOTE_CHARS = 400
"""Characters that a quote may have, at most."""
NEARBY_CHARS = 80
"""Characters before and after the words that are looked at for a secret, too."""
MAX_QUOTED_LINES = 20
"""Quoted lines of a message that are looked at for a secret that its sentence names."""
MAX_DESCRIPTION_CHARS = 150
MIN_SUPPORT_SHARE = 0.6
"""Least share of a memory that must occur in the conversation."""
MIN_USER_SHARE = 0.25
"""Least share of a wish that the user must have said."""


class EvidenceContext(msgspec.Struct, frozen=True, dict=True):
    """The conversation and the known memories that drafts are checked against."""

    session: str
    said: tuple[Statement, ...]
    secret: Callable[[str], str]
    """The kind of secret that a text holds; empty if none."""
    known: tuple[Memory, ...] = ()
    rules: tuple[str, ...] = ()
    """The texts of instruction files."""
    since: int = 0
    """Entries up to this one were looked at before."""
    now: float = 0.0

    @cached_property
    def all_text(self) -> str:
        """Return everything that was said, to look up names in."""
        return "\n".join(one.text for one in self.said).casefold()

    @cached_property
    def words_by_voice(self) -> dict[SpeakerVoice, frozenset[str]]:
        """Return the content words of each speaker."""
        voices: tuple[SpeakerVoice, ...] = ("user", "model", "act", "tool", "ours")
        return {voice: content_words("\n".join(self.texts_by(voice))) for voice in voices}

    @cached_property
    def instruction_lines(self) -> tuple[str, ...]:
        """Return each line that memory or an instruction file put into the conversation."""
        texts = (*self.texts_by("ours"), *self.rules)
        return tuple(
            line for text in texts for line in (*text.splitlines(), *split_spoken_sentences(text))
        )

    @cached_property
    def tool_sentences(self) -> tuple[str, ...]:
        """Return each sentence that came from a tool, a web page or a paste."""
        return tuple(
            line for text in self.texts_by("tool") for line in split_spoken_sentences(text)
        )

    def texts_by(self, voice: SpeakerVoice) -> Iterator[str]:
        """Return what one speaker said."""
        return (one.text for one in self.said if one.voice == voice)


class EvidenceQuote(msgspec.Struct, frozen=True):
    """The place in the conversation that a draft quotes."""

    by: Statement
    words: str
    """As they stand there."""
    sentence: str
    """The quoted words with the sentence around them."""
    after: str = ""
    """The speaker's next words."""
    around: str = ""
    """Some of the message before and after the words."""


def check_drafts(found: Iterable[MemoryDraft], context: EvidenceContext) -> list[DraftVerdict]:
    """Check memory drafts in turn; an accepted draft counts as known for the next."""
    verdicts: list[DraftVerdict] = []
    for draft in found:
        verdict = check_draft(draft, context)
        verdicts.append(verdict)
        if isinstance(verdict, Accept):
            put = verdict.change.memory
            others = (m for m in context.known if (m.name, m.scope) != (put.name, put.scope))
            context = replace(context, known=(*others, put))
    return verdicts


def check_draft(draft: MemoryDraft, context: EvidenceContext) -> DraftVerdict:
    """Decide whether a memory draft is accepted, needs the user's approval, or is rejected."""
    for text in (draft.text, draft.words, draft.name, draft.why):
        if kind := context.secret(text):
            return Reject(f"it contains a secret ({kind})")
    place = find_quote(draft.words, context)
    if isinstance(place, Reject):
        return place
    if kind := _find_secret_nearby(place, context):
        return Reject(f"its sentence contains a secret ({kind})")
    draft = replace(draft, why=_keep_supported_reason(draft.why, context))
    if why := _find_rejection_reason(draft, place, context):
        return Reject(why)
    memory = _build_memory(draft, place, context)
    if why := _find_review_reason(draft, place, context):
        return NeedsReview(PutMemory(memory), why)
    told = _find_stated_scope(place)
    return settle_draft(draft, memory, context.known, sentence=place.sentence, told=told)


def _find_secret_nearby(place: EvidenceQuote, context: EvidenceContext) -> str:
    """Return the kind of secret near the quoted words, also if the user put it in quotes."""
    passed = (one for one in context.said if one.seq == place.by.seq and one.voice == "tool")
    quoted = (line for one in passed for line in one.text.splitlines()[:MAX_QUOTED_LINES])
    texts = (place.sentence, place.around, *(f"{place.sentence} {line}" for line in quoted))
    return next((kind for text in texts if (kind := context.secret(text))), "")


def find_quote(words: str, context: EvidenceContext) -> EvidenceQuote | Reject:
    """Find where a draft's quoted words were last said, by the speaker who counts most."""
    pattern = _compile_quote(words)
    if pattern is None or len(words) > MAX_QUOTE_CHARS:
        return Reject("it quotes nothing from the conversation")
    places = [(one, hit) for one in context.said if (hit := pattern.search(one.text))]
    voices = {one.voice for one, _ in places}
    if "ours" in voices:
        return Reject("it repeats what memory or an instruction file says")
    for voice in ("user", "tool", "model"):
        if voice in voices:
            one, hit = next(p for p in reversed(places) if p[0].voice == voice)
            if one.seq <= context.since:
                return Reject("its source was already examined")
            sentence = _find_sentence(one.text, hit)
            after = _find_continuation(one, hit, context)
            around = one.text[max(0, hit.start() - NEARBY_CHARS) : hit.end() + NEARBY_CHARS]
            return EvidenceQuote(one, hit[0], sentence, after, around)
    return Reject("the quoted words do not appear in the conversation")


def _compile_quote(words: str) -> re.Pattern[str] | None:
    """Compile a pattern for a draft's quoted words with any white space between them."""
    parts = words.strip(" \t\n\"'`.,;:!").split()
    if len(" ".join(parts)) < MIN_QUOTE_CHARS:
        return None
    return re.compile(r"\s+".join(map(re.escape, parts)), re.IGNORECASE)


def _find_sentence(text: str, hit: re.Match[str]) -> str:
    """Return the sentence that contains a draft's quoted words."""
    start = max(text.rfind(mark, 0, hit.start()) for mark in ("\n", ". ", "! ", "? ")) + 1
    ends = [at for mark in ("\n", ". ", "! ", "? ") if (at := text.find(mark, hit.end() - 1)) >= 0]
    return text[start : min(ends) + 1 if ends else len(text)].strip()


def _find_continuation(one: Statement, hit: re.Match[str], context: EvidenceContext) -> str:
    """Return what the quoted speaker said next: in this message, or in the next one."""
    rest = re.split(r"^[^.!?\n]*[.!?…\n]+\s*", one.text[hit.end() :], maxsplit=1)[-1].strip()
    later = (o.text for o in context.said if o.voice == one.voice and o.seq > one.seq)
    return rest or next(later, "")


def _find_rejection_reason(
    draft: MemoryDraft, quote: EvidenceQuote, context: EvidenceContext
) -> str:
    """Return why a draft is rejected whoever said it; empty if it is not."""
    if not content_words(draft.text) or signals.needs_context(draft.text):
        return "it has no content"
    if any(_repeats_line(draft.text, line) for line in context.instruction_lines):
        return "it repeats what memory or an instruction file says"
    if why := _find_uselessness(draft, quote, renewed=_repeats_memory(draft, context)):
        return why
    if invents_names(draft, context):
        return "it names something that nobody mentioned"
    if share_covered(draft.text, _collect_supporting_words(quote, context)) < MIN_SUPPORT_SHARE:
        return "it claims more than was said"
    return ""


def _repeats_memory(draft: MemoryDraft, context: EvidenceContext) -> bool:
    """Return whether the draft only repeats a known memory."""
    return any(have_same_meaning(draft.text, old.body or old.description) for old in context.known)


def _find_uselessness(draft: MemoryDraft, quote: EvidenceQuote, *, renewed: bool) -> str:
    """Return why nobody will need a memory draft later; empty if somebody may."""
    by, sentence = quote.by, quote.sentence
    if by.files:
        return "the project files already say it"
    asked = signals.asks_to_remember(sentence)
    if draft.lasts == "now" and not asked:
        return "it was not meant to last"
    for text in (sentence, draft.text):
        if why := signals.find_passing_reason(text, asked=asked):
            return why
    if signals.retracts_earlier(quote.after) or signals.takes_back(sentence):
        return "it was not meant to last"
    if by.voice == "user" and (signals.is_question(sentence) or signals.SPECIFIED.search(sentence)):
        return "it is a task or a question"
    wish = draft.type in ("user", "feedback") and by.voice == "user"
    if wish and not renewed and not signals.is_lasting(sentence, by.text):
        return "" if signals.may_be_lasting(sentence) else "it is a task or a question"
    return ""


def _repeats_line(text: str, line: str) -> bool:
    """Return whether a draft says almost the same as an instruction or memory line."""
    about = content_words(text)
    fits = (
        len(about) > 1
        and share_covered(text, content_words(line)) >= MIN_USER_SHARE + MIN_SUPPORT_SHARE
    )
    return fits and contains_denial(text) == contains_denial(line)


def invents_names(draft: MemoryDraft, context: EvidenceContext) -> bool:
    """Return whether a draft names or counts something that occurs nowhere."""
    return any(
        name not in context.all_text for name in signals.extract_names(f"{draft.text}\n{draft.why}")
    )


def _collect_supporting_words(quote: EvidenceQuote, context: EvidenceContext) -> frozenset[str]:
    """Return the words that may support a draft: the user's, and those they had seen before.

    What the model said after them proves nothing about what they meant.
    """
    by = quote.by
    if by.voice == "user":
        before = (o.text for o in context.said if o.voice in ("model", "act") and o.seq < by.seq)
        return context.words_by_voice["user"] | content_words("\n".join(before))
    own = (
        context.words_by_voice["user"]
        | context.words_by_voice["model"]
        | context.words_by_voice["act"]
    )
    return own | content_words(by.text) if by.voice == "tool" else own


def _find_review_reason(draft: MemoryDraft, quote: EvidenceQuote, context: EvidenceContext) -> str:
    """Return why the user must decide on a draft; empty if its source suffices."""
    if quote.by.voice != "user":
        return "the user did not say it"
    wishes = draft.type in ("user", "feedback") or signals.expresses_wish(draft.text)
    by_tool = max(
        (share_covered(draft.text, content_words(line)) for line in context.tool_sentences),
        default=0.0,
    )
    by_user = share_covered(draft.text, context.words_by_voice["user"])
    if wishes and by_tool > by_user and by_tool >= MIN_SUPPORT_SHARE:
        return "it comes from a tool or a web page, not from the user"
    asked = signals.asks_to_remember(quote.sentence)
    if not asked and signals.reports_others(quote.sentence):
        return "the user reported what someone else says"
    if wishes:
        if why := signals.find_doubt(quote.words, quote.sentence, quote.by.text):
            return why
        if quote.by.blocks and not _is_request_at_edge(quote):
            return "it may come from text that the user pasted"
        if signals.asks_something(quote.by.text) and not asked:
            return "the user may only be asking about it"
        if not signals.is_lasting(quote.sentence, quote.by.text) and not _repeats_memory(
            draft, context
        ):
            return "the user may have meant it only for now"
    return "" if asked or by_user >= MIN_USER_SHARE else "it goes beyond what the user said"


def _is_request_at_edge(quote: EvidenceQuote) -> bool:
    """Return whether the first or the last line of a message asks to remember it."""
    lines = quote.by.text.strip().splitlines()
    return signals.asks_to_remember(quote.sentence) and quote.sentence in f"{lines[0]}\n{lines[-1]}"


def _keep_supported_reason(why: str, context: EvidenceContext) -> str:
    """Return the draft's reason if the conversation supports it."""
    about = context.words_by_voice
    said = about["user"] | about["model"]
    names = all(name in context.all_text for name in signals.extract_names(why))
    return why.strip() if why and names and share_covered(why, said) >= MIN_SUPPORT_SHARE else ""


def _find_stated_scope(quote: EvidenceQuote) -> MemoryScope | None:
    """Return the scope that the user named for a draft; None if none."""
    if quote.by.voice != "user":
        return None
    return find_wish_scope(quote.words, quote.sentence, message=quote.by.text, after=quote.after)


def _build_memory(draft: MemoryDraft, quote: EvidenceQuote, context: EvidenceContext) -> Memory:
    """Build the memory for a checked draft and its quoted words."""
    by, text = quote.by, draft.text.strip()
    author: MemoryAuthor = (
        "user" if by.voice == "user" else "tool" if by.voice == "tool" else "model"
    )
    usual: MemoryScope = "user" if draft.type == "user" else "project"
    scope = _find_stated_scope(quote) or draft.scope or usual
    line = " ".join(text.split())
    return Memory(
        name=_make_unique_name(make_draft_name(draft.name or text), context.known),
        description=line
        if len(line) <= MAX_DESCRIPTION_CHARS
        else f"{line[: MAX_DESCRIPTION_CHARS - 1].rstrip()}…",
        type=draft.type,
        body=f"{text}\n\nWhy: {draft.why}" if draft.why else text,
        author=author,
        created=context.now,
        modified=context.now,
        verified=context.now,
        evidence=(Evidence(context.session, by.seq, author, quote.words, by.at),),
        scope=scope if author == "user" else "project",
    )


def _make_unique_name(name: str, known: tuple[Memory, ...]) -> str:
    """Return a draft's name, numbered if another memory has it."""
    taken, number = {memory.name for memory in known}, 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free
