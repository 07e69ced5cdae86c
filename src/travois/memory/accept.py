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
from travois.memory.drafts import Draft, draft_name
from travois.memory.memory import Author, Evidence, Memory, Put, Scope
from travois.memory.settle import Accepted, Held, Refused, Weighed, scope_of, settle
from travois.memory.similarity import content, covered, denies, same
from travois.memory.speakers import Heard, Voice, spoken

SHORTEST = 6
WORDS = 400
"""Characters that a quote may have, at most."""
LINE = 150
SUPPORT = 0.6
"""Least share of a memory that must occur in the conversation."""
OWN = 0.25
"""Least share of a wish that the user must have said."""
SHOWN = 0.4
"""Least share of a model's statement that someone else must have said."""


class Ground(msgspec.Struct, frozen=True, dict=True):
    """The conversation and the known memories that drafts are checked against."""

    session: str
    said: tuple[Heard, ...]
    secret: Callable[[str], str]
    """The kind of secret that a text holds; empty if none."""
    known: tuple[Memory, ...] = ()
    rules: tuple[str, ...] = ()
    """The texts of instruction files."""
    since: int = 0
    """Entries up to this one were looked at before."""
    now: float = 0.0

    @cached_property
    def all(self) -> str:
        """Return everything that was said, to look up names in."""
        return "\n".join(one.text for one in self.said).casefold()

    @cached_property
    def about(self) -> dict[Voice, frozenset[str]]:
        """Return the content words of each speaker."""
        voices: tuple[Voice, ...] = ("user", "model", "act", "tool", "ours")
        return {voice: content("\n".join(self.by(voice))) for voice in voices}

    @cached_property
    def told(self) -> tuple[str, ...]:
        """Return each line that memory or an instruction file put into the conversation."""
        texts = (*self.by("ours"), *self.rules)
        return tuple(line for text in texts for line in (*text.splitlines(), *spoken(text)))

    @cached_property
    def foreign(self) -> tuple[str, ...]:
        """Return each sentence that came from a tool, a web page or a paste."""
        return tuple(line for text in self.by("tool") for line in spoken(text))

    def by(self, voice: Voice) -> Iterator[str]:
        """Return what one speaker said."""
        return (one.text for one in self.said if one.voice == voice)


class Place(msgspec.Struct, frozen=True):
    """The place in the conversation that a draft quotes."""

    by: Heard
    words: str
    """As they stand there."""
    sentence: str
    """The quoted words with the sentence around them."""
    after: str = ""
    """The speaker's next words."""


def weigh_all(found: Iterable[Draft], ground: Ground) -> list[Weighed]:
    """Check drafts in turn; an accepted draft counts as known for the next."""
    verdicts: list[Weighed] = []
    for draft in found:
        verdict = weigh(draft, ground)
        verdicts.append(verdict)
        if isinstance(verdict, Accepted):
            put = verdict.change.memory
            others = (m for m in ground.known if (m.name, m.scope) != (put.name, put.scope))
            ground = replace(ground, known=(*others, put))
    return verdicts


def weigh(draft: Draft, ground: Ground) -> Weighed:
    """Decide whether a draft is accepted, needs the user's approval, or is rejected."""
    for text in (draft.text, draft.words, draft.name, draft.why):
        if kind := ground.secret(text):
            return Refused(f"it contains a secret ({kind})")
    place = found(draft.words, ground)
    if isinstance(place, Refused):
        return place
    if kind := ground.secret(place.sentence):
        return Refused(f"its sentence contains a secret ({kind})")
    draft = replace(draft, why=_reason(draft.why, ground))
    if why := _unfit(draft, place, ground):
        return Refused(why)
    memory = _memory(draft, place, ground)
    if why := _unproven(draft, place, ground):
        return Held(Put(memory), why)
    told = _told_scope(place)
    return settle(draft, memory, ground.known, sentence=place.sentence, told=told)


def found(words: str, ground: Ground) -> Place | Refused:
    """Find the last place where these words were said, by the speaker who counts most."""
    pattern = _pattern(words)
    if pattern is None or len(words) > WORDS:
        return Refused("it quotes nothing from the conversation")
    places = [(one, hit) for one in ground.said if (hit := pattern.search(one.text))]
    voices = {one.voice for one, _ in places}
    if "ours" in voices:
        return Refused("it repeats what memory or an instruction file says")
    for voice in ("user", "tool", "model"):
        if voice in voices:
            one, hit = next(p for p in reversed(places) if p[0].voice == voice)
            if one.seq <= ground.since:
                return Refused("its source was already examined")
            sentence = _around(one.text, hit)
            return Place(one, hit[0], sentence, _after(one, hit, ground))
    return Refused("the quoted words do not appear in the conversation")


def _pattern(words: str) -> re.Pattern[str] | None:
    """Compile a pattern for these words with any white space between them."""
    parts = words.strip(" \t\n\"'`.,;:!").split()
    if len(" ".join(parts)) < SHORTEST:
        return None
    return re.compile(r"\s+".join(map(re.escape, parts)), re.IGNORECASE)


def _around(text: str, hit: re.Match[str]) -> str:
    """Return the sentence that contains the quoted words."""
    start = max(text.rfind(mark, 0, hit.start()) for mark in ("\n", ". ", "! ", "? ")) + 1
    ends = [at for mark in ("\n", ". ", "! ", "? ") if (at := text.find(mark, hit.end() - 1)) >= 0]
    return text[start : min(ends) + 1 if ends else len(text)].strip()


def _after(one: Heard, hit: re.Match[str], ground: Ground) -> str:
    """Return what the same speaker said next: in this message, or else in the next one."""
    rest = re.split(r"^[^.!?\n]*[.!?…\n]+\s*", one.text[hit.end() :], maxsplit=1)[-1].strip()
    later = (o.text for o in ground.said if o.voice == one.voice and o.seq > one.seq)
    return rest or next(later, "")


def _unfit(draft: Draft, place: Place, ground: Ground) -> str:
    """Return why a draft is rejected whoever said it, or an empty string."""
    if not content(draft.text) or signals.adrift(draft.text):
        return "it has no content"
    if any(_restated(draft.text, line) for line in ground.told):
        return "it repeats what memory or an instruction file says"
    if why := _useless(draft, place, renewed=_renewed(draft, ground)):
        return why
    if invented(draft, ground):
        return "it names something that nobody mentioned"
    if covered(draft.text, _supporting(place, ground)) < SUPPORT:
        return "it claims more than was said"
    return ""


def _renewed(draft: Draft, ground: Ground) -> bool:
    """Return whether the draft only repeats a known memory."""
    return any(same(draft.text, old.body or old.description) for old in ground.known)


def _useless(draft: Draft, place: Place, *, renewed: bool) -> str:
    """Return why nobody will need this later, or an empty string."""
    by, wish = place.by, draft.type in ("user", "feedback")
    if by.files:
        return "the project files already say it"
    if signals.withdrawn(place.sentence) or signals.taken_back(place.after):
        return "it was not meant to last"
    if by.voice != "user":
        telling = wish or signals.telling(draft.text, by=by.voice)
        return signals.passing(draft.text, said=False) or (
            "" if telling else "it will not help later"
        )
    sentence = place.sentence
    if renewed and not signals.asks(sentence):
        return ""
    idle = wish and not signals.lasting(sentence) and not signals.weak(sentence)
    if (
        signals.asks(sentence)
        or signals.task(sentence)
        or idle
        or signals.turned(draft.text, sentence)
    ):
        return "it is a task or a question"
    return (
        "" if signals.asked_to_remember(place.sentence) else signals.passing(draft.text, said=True)
    )


def _restated(text: str, line: str) -> bool:
    """Return whether a text says almost the same as a line."""
    about = content(text)
    fits = len(about) > 1 and covered(text, content(line)) >= OWN + SUPPORT
    return fits and denies(text) == denies(line)


def invented(draft: Draft, ground: Ground) -> bool:
    """Return whether a draft names or counts something that occurs nowhere."""
    return any(name not in ground.all for name in signals.names(f"{draft.text}\n{draft.why}"))


def _supporting(place: Place, ground: Ground) -> frozenset[str]:
    """Return the words that may support a draft: the user's, and those they had seen before.

    What the model said after them proves nothing about what they meant.
    """
    by = place.by
    if by.voice == "user":
        before = (o.text for o in ground.said if o.voice in ("model", "act") and o.seq < by.seq)
        return ground.about["user"] | content("\n".join(before))
    own = ground.about["user"] | ground.about["model"] | ground.about["act"]
    return own | content(by.text) if by.voice == "tool" else own


def _unproven(draft: Draft, place: Place, ground: Ground) -> str:
    """Return why the user must decide on a draft, or an empty string if its source suffices."""
    told = max(ground.foreign, key=lambda line: covered(draft.text, content(line)), default="")
    by_tool = covered(draft.text, content(told)) if told else 0.0
    by_user = covered(draft.text, ground.about["user"])
    if place.by.voice != "user":
        wish = draft.type in ("user", "feedback") or signals.wishes(draft.text)
        steers = signals.steers(place.sentence) or (by_tool >= SUPPORT and signals.steers(told))
        if wish or steers:
            return "the user did not say it"
        alone = place.by.voice == "model" and max(by_tool, by_user) < SHOWN
        return "only the model said it" if alone else ""
    if by_tool > by_user and by_tool >= SUPPORT and not _plain(draft, told):
        return "it comes from a tool or a web page, not from the user"
    wish = draft.type in ("user", "feedback")
    if (wish or signals.wishes(draft.text)) and (
        why := signals.meant_otherwise(place.sentence, place.words, place.after)
    ):
        return why
    wishes = wish or signals.wishes(draft.text)
    if wishes and place.by.blocks and not _asked(place):
        return "it may come from text that the user pasted"
    if (
        wishes
        and signals.discussed(place.by.text)
        and not signals.asked_to_remember(place.sentence)
    ):
        return "the user may only be asking about it"
    standing = signals.lasting(place.sentence) or _renewed(draft, ground)
    if (wish or signals.commands(draft.text)) and not standing:
        return "the user may have meant it only for now"
    meant = signals.points(place.sentence)
    return "" if meant or by_user >= OWN else "it goes beyond what the user said"


def _asked(place: Place) -> bool:
    """Return whether the first or the last line of a message asks to remember it."""
    lines = place.by.text.strip().splitlines()
    return (
        signals.asked_to_remember(place.sentence) and place.sentence in f"{lines[0]}\n{lines[-1]}"
    )


def _plain(draft: Draft, told: str) -> bool:
    """Return whether a draft only states what someone else stated."""
    wish = draft.type in ("user", "feedback") or signals.wishes(draft.text)
    return not wish and not signals.steers(told)


def _reason(why: str, ground: Ground) -> str:
    """Return the draft's reason if the conversation supports it."""
    about = ground.about
    said = about["user"] | about["model"]
    names = all(name in ground.all for name in signals.names(why))
    return why.strip() if why and names and covered(why, said) >= SUPPORT else ""


def _told_scope(place: Place) -> Scope | None:
    """Return the scope that the user named, if any."""
    if place.by.voice != "user":
        return None
    return scope_of(place.words, place.sentence, message=place.by.text, after=place.after)


def _memory(draft: Draft, place: Place, ground: Ground) -> Memory:
    """Build the memory for a draft and its quoted words."""
    by, text = place.by, draft.text.strip()
    author: Author = "user" if by.voice == "user" else "tool" if by.voice == "tool" else "model"
    usual: Scope = "user" if draft.type == "user" else "project"
    scope = _told_scope(place) or draft.scope or usual
    line = " ".join(text.split())
    return Memory(
        name=_free(draft_name(draft.name or text), ground.known),
        description=line if len(line) <= LINE else f"{line[: LINE - 1].rstrip()}…",
        type=draft.type,
        body=f"{text}\n\nWhy: {draft.why}" if draft.why else text,
        author=author,
        created=ground.now,
        modified=ground.now,
        verified=ground.now,
        evidence=(Evidence(ground.session, by.seq, author, place.words, by.at),),
        scope=scope if author == "user" else "project",
    )


def _free(name: str, known: tuple[Memory, ...]) -> str:
    """Return the name, with a number if another memory has it."""
    taken, number = {memory.name for memory in known}, 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free
