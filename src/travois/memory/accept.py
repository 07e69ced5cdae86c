"""What may become a memory: every draft is held against what was really said, and by whom.

A wish rests on a person's own words or waits for their word. A fact rests on what somebody said.
What is secret, invented, passing, or known already is refused.

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

from travois.memory import signals as wording
from travois.memory.drafts import Draft, draft_name
from travois.memory.memory import Author, Evidence, Memory, Put, Scope
from travois.memory.settle import Accepted as Accepted
from travois.memory.settle import Held as Held
from travois.memory.settle import Refused as Refused
from travois.memory.settle import Weighed as Weighed
from travois.memory.settle import scope_of, settle
from travois.memory.similarity import content, covered, denies, same
from travois.memory.speakers import Heard, Voice, spoken

SHORTEST = 6
WORDS = 400
"""How many characters the words may have that a memory rests on."""
LINE = 150
SUPPORT = 0.6
"""What part of a memory somebody must have said."""
OWN = 0.25
"""What part of a wish the person themselves must have said."""
SHOWN = 0.4
"""What part of a model's statement must have been shown to it by somebody else."""


class Ground(msgspec.Struct, frozen=True, dict=True):
    """What drafts are held against."""

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
        """Everything that was said, to look for names in."""
        return "\n".join(one.text for one in self.said).casefold()

    @cached_property
    def about(self) -> dict[Voice, frozenset[str]]:
        """The words of each voice."""
        voices: tuple[Voice, ...] = ("user", "model", "act", "tool", "ours")
        return {voice: content("\n".join(self.by(voice))) for voice in voices}

    @cached_property
    def told(self) -> tuple[str, ...]:
        """Each line of our own: what is remembered or written in instruction files."""
        texts = (*self.by("ours"), *self.rules)
        return tuple(line for text in texts for line in (*text.splitlines(), *spoken(text)))

    @cached_property
    def foreign(self) -> tuple[str, ...]:
        """Each sentence that a tool, a page or a paste brought."""
        return tuple(line for text in self.by("tool") for line in spoken(text))

    def by(self, voice: Voice) -> Iterator[str]:
        """What this voice said."""
        return (one.text for one in self.said if one.voice == voice)


class Place(msgspec.Struct, frozen=True):
    """Where the words of a draft were said."""

    by: Heard
    words: str
    """As they stand there."""
    sentence: str
    """With what stands around them."""
    after: str = ""
    """How whoever said them went on."""


def weigh_all(found: Iterable[Draft], ground: Ground) -> list[Weighed]:
    """Weigh drafts in turn: what one brings is known to the next."""
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
    """Whether this may be kept, must wait for a person, or is refused."""
    for text in (draft.text, draft.words, draft.name, draft.why):
        if kind := ground.secret(text):
            return Refused(f"it holds a secret ({kind})")
    place = found(draft.words, ground)
    if isinstance(place, Refused):
        return place
    if kind := ground.secret(place.sentence):
        return Refused(f"it stands beside a secret ({kind})")
    draft = replace(draft, why=_reason(draft.why, ground))
    if why := _unfit(draft, place, ground):
        return Refused(why)
    memory = _memory(draft, place, ground)
    if why := _unproven(draft, place, ground):
        return Held(Put(memory), why)
    told = _told_scope(place)
    return settle(draft, memory, ground.known, sentence=place.sentence, told=told)


def found(words: str, ground: Ground) -> Place | Refused:
    """Where these words were said last, by whoever counts most."""
    pattern = _pattern(words)
    if pattern is None or len(words) > WORDS:
        return Refused("it rests on no words")
    places = [(one, hit) for one in ground.said if (hit := pattern.search(one.text))]
    voices = {one.voice for one, _ in places}
    if "ours" in voices:
        return Refused("it repeats what was told from memory or from instructions")
    for voice in ("user", "tool", "model"):
        if voice in voices:
            one, hit = next(p for p in reversed(places) if p[0].voice == voice)
            if one.seq <= ground.since:
                return Refused("what it rests on was looked at before")
            sentence = _around(one.text, hit)
            return Place(one, hit[0], sentence, _after(one, hit, ground))
    return Refused("the words that it rests on were never said")


def _pattern(words: str) -> re.Pattern[str] | None:
    """These words with any white space between them."""
    parts = words.strip(" \t\n\"'`.,;:!").split()
    if len(" ".join(parts)) < SHORTEST:
        return None
    return re.compile(r"\s+".join(map(re.escape, parts)), re.IGNORECASE)


def _around(text: str, hit: re.Match[str]) -> str:
    start = max(text.rfind(mark, 0, hit.start()) for mark in ("\n", ". ", "! ", "? ")) + 1
    ends = [at for mark in ("\n", ". ", "! ", "? ") if (at := text.find(mark, hit.end() - 1)) >= 0]
    return text[start : min(ends) + 1 if ends else len(text)].strip()


def _after(one: Heard, hit: re.Match[str], ground: Ground) -> str:
    """What the same voice said next: in this message, or else in its next one."""
    rest = re.split(r"^[^.!?\n]*[.!?…\n]+\s*", one.text[hit.end() :], maxsplit=1)[-1].strip()
    later = (o.text for o in ground.said if o.voice == one.voice and o.seq > one.seq)
    return rest or next(later, "")


def _unfit(draft: Draft, place: Place, ground: Ground) -> str:
    """Why a draft is not kept, whoever said it; empty if it may be."""
    if not content(draft.text) or wording.adrift(draft.text):
        return "it says nothing"
    if any(_restated(draft.text, line) for line in ground.told):
        return "it repeats what was told from memory or from instructions"
    if why := _useless(draft, place, renewed=_renewed(draft, ground)):
        return why
    if invented(draft, ground):
        return "it names what nobody spoke of"
    if covered(draft.text, _supporting(place, ground)) < SUPPORT:
        return "it says more than was said"
    return ""


def _renewed(draft: Draft, ground: Ground) -> bool:
    """Whether it only says again what is remembered."""
    return any(same(draft.text, old.body or old.description) for old in ground.known)


def _useless(draft: Draft, place: Place, *, renewed: bool) -> str:
    """Why nobody will need this later; empty if somebody may."""
    by, wish = place.by, draft.type in ("user", "feedback")
    if by.files:
        return "the files of the project say it"
    if wording.withdrawn(place.sentence) or wording.taken_back(place.after):
        return "it was not meant to last"
    if by.voice != "user":
        telling = wish or wording.telling(draft.text, by=by.voice)
        return wording.passing(draft.text, said=False) or ("" if telling else "it will not help")
    sentence = place.sentence
    if renewed and not wording.asks(sentence):
        return ""
    idle = wish and not wording.lasting(sentence) and not wording.weak(sentence)
    if (
        wording.asks(sentence)
        or wording.task(sentence)
        or idle
        or wording.turned(draft.text, sentence)
    ):
        return "it was a task or a question"
    return "" if wording.explicit(place.sentence) else wording.passing(draft.text, said=True)


def _restated(text: str, line: str) -> bool:
    about = content(text)
    fits = len(about) > 1 and covered(text, content(line)) >= OWN + SUPPORT
    return fits and denies(text) == denies(line)


def invented(draft: Draft, ground: Ground) -> bool:
    """Whether a draft names something, or counts it, that occurs nowhere."""
    return any(name not in ground.all for name in wording.names(f"{draft.text}\n{draft.why}"))


def _supporting(place: Place, ground: Ground) -> frozenset[str]:
    """The words that may stand behind a draft: what a person said and what they had before them.

    What the model said after them proves nothing about what they meant.
    """
    by = place.by
    if by.voice == "user":
        before = (o.text for o in ground.said if o.voice in ("model", "act") and o.seq < by.seq)
        return ground.about["user"] | content("\n".join(before))
    own = ground.about["user"] | ground.about["model"] | ground.about["act"]
    return own | content(by.text) if by.voice == "tool" else own


def _unproven(draft: Draft, place: Place, ground: Ground) -> str:
    """Why only a person can say whether this holds; empty if it rests on what it should."""
    told = max(ground.foreign, key=lambda line: covered(draft.text, content(line)), default="")
    by_tool = covered(draft.text, content(told)) if told else 0.0
    by_user = covered(draft.text, ground.about["user"])
    if place.by.voice != "user":
        wish = draft.type in ("user", "feedback") or wording.wishes(draft.text)
        steers = wording.steers(place.sentence) or (by_tool >= SUPPORT and wording.steers(told))
        if wish or steers:
            return "the user did not say it"
        alone = place.by.voice == "model" and max(by_tool, by_user) < SHOWN
        return "only the model says it" if alone else ""
    if by_tool > by_user and by_tool >= SUPPORT and not _plain(draft, told):
        return "it says what a tool or a page said, not the user"
    wish = draft.type in ("user", "feedback")
    if (wish or wording.wishes(draft.text)) and (
        why := wording.meant_otherwise(place.sentence, place.words, place.after)
    ):
        return why
    wishes = wish or wording.wishes(draft.text)
    if wishes and place.by.blocks and not _asked(place):
        return "it may be part of what the user pasted"
    if wishes and wording.discussed(place.by.text) and not wording.explicit(place.sentence):
        return "it may be what the user asks about"
    standing = wording.lasting(place.sentence) or _renewed(draft, ground)
    if (wish or wording.commands(draft.text)) and not standing:
        return "the user may have meant it for the moment"
    meant = wording.points(place.sentence)
    return "" if meant or by_user >= OWN else "it goes beyond what the user said"


def _asked(place: Place) -> bool:
    """Whether the first or the last line of a message asks to remember it."""
    lines = place.by.text.strip().splitlines()
    return wording.explicit(place.sentence) and place.sentence in f"{lines[0]}\n{lines[-1]}"


def _plain(draft: Draft, told: str) -> bool:
    """Whether it only states what somebody else stated."""
    wish = draft.type in ("user", "feedback") or wording.wishes(draft.text)
    return not wish and not wording.steers(told)


def _reason(why: str, ground: Ground) -> str:
    """The reason that was given, if it was given."""
    about = ground.about
    said = about["user"] | about["model"]
    names = all(name in ground.all for name in wording.names(why))
    return why.strip() if why and names and covered(why, said) >= SUPPORT else ""


def _told_scope(place: Place) -> Scope | None:
    """Whom a person says that it is for."""
    if place.by.voice != "user":
        return None
    return scope_of(place.words, place.sentence, message=place.by.text, after=place.after)


def _memory(draft: Draft, place: Place, ground: Ground) -> Memory:
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
    taken, number = {memory.name for memory in known}, 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free
