"""Consolidation rules: merge duplicates, resolve dates, let the newer statement hold.

Model sees: nothing of this module; what changes is in the index at the next start.
Tokens: none.
Cache: never moves the prefix.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from travois.core.tokens import estimate_tokens
from travois.memory import signals
from travois.memory.dates import dated, day
from travois.memory.memory import Change, Drop, Evidence, Memory, Put, Scope
from travois.memory.signals import names
from travois.memory.similarity import ALIKE, HELD, content, covered, denies, likeness

RANK = {"tool": 0, "model": 1, "user": 2}
"""The authority of an author: only the user's words may replace the user's words."""
NUMBER = re.compile(r"\w*\d[\w.:/-]*")

Memories = Mapping[str, Memory]
"""Memories by what they are called among all: scope and name."""


class Step(msgspec.Struct, frozen=True):
    """One change of a consolidation, and its reason."""

    why: str
    put: tuple[Memory, ...] = ()
    drop: tuple[str, ...] = ()
    held: bool = False
    """True if the user must decide on the step."""

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the step as memory changes."""
        gone = (name.partition("/") for name in self.drop)
        drops = (Drop(name, cast("Scope", scope), self.why) for scope, _, name in gone)
        return (*map(Put, self.put), *drops)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys of all memories that the step changes."""
        return (*map(key, self.put), *self.drop)

    def make(self, memories: dict[str, Memory]) -> None:
        """Apply the step to these memories."""
        for name in self.drop:
            memories.pop(name, None)
        memories.update(keyed(self.put))


def key(memory: Memory) -> str:
    """Return the key of a memory among those of all scopes."""
    return f"{memory.scope}/{memory.name}"


def named(change: Change) -> str:
    """Return the key of the memory that a change concerns."""
    return key(change.memory) if isinstance(change, Put) else f"{change.scope}/{change.name}"


def keyed(memories: Iterable[Memory]) -> dict[str, Memory]:
    """Return the memories by key."""
    return {key(memory): memory for memory in memories}


def text(memory: Memory) -> str:
    """Return the description and body of a memory."""
    return f"{memory.description}\n{memory.body}"


def exact(text: str) -> frozenset[str]:
    """Return the names and numbers in a text, which must match exactly."""
    numbers = (found.rstrip(".:/-").casefold() for found in NUMBER.findall(text))
    return frozenset((*names(text), *numbers))


def said(memory: Memory) -> float:
    """Return when the newest words of a memory were said, as far as known."""
    return max((e.at for e in memory.evidence), default=0.0) or memory.modified or memory.created


def ruled(memories: Memories, without: Collection[str] = ()) -> list[Step]:
    """Return the steps that rules propose, except those in `without`; each builds on the last."""
    steps: list[Step] = []
    state = dict(memories)
    for step in _steps(state):
        if step.why not in without:
            step.make(state)
            steps.append(step)
    return steps


def changes(before: Memories, after: Memories, *, why: str) -> tuple[Change, ...]:
    """Return the changes that lead from one set of memories to another."""
    put = [Put(memory) for name, memory in after.items() if before.get(name) != memory]
    gone = [memory for name, memory in before.items() if name not in after]
    return (*put, *(Drop(memory.name, memory.scope, why) for memory in gone))


def joined(kept: Memory, *others: Memory) -> Memory:
    """Return the first memory with the evidence and anchors of all; its text is unchanged."""
    every = (kept, *others)
    evidence = dict.fromkeys(e for memory in every for e in memory.evidence)
    anchors = {a.path: a for memory in reversed(every) for a in memory.anchors}
    return replace(
        kept,
        created=min((m.created for m in every if m.created), default=kept.created),
        verified=max(m.verified for m in every),
        evidence=tuple(sorted(evidence, key=_when)),
        anchors=tuple(anchors.values()),
    )


def double(one: Memory, other: Memory) -> bool:
    """Return whether the other memory says everything that this one says, with equal authority."""
    if one.scope != other.scope or RANK[one.author] > RANK[other.author]:
        return False
    if _plain(one) == _plain(other):
        return True
    whole, part = text(other), text(one)
    return (
        (one.type == other.type or content(part) == content(whole))
        and denies(part) == denies(whole)
        and exact(part) <= exact(whole)
        and len(content(part)) > 1
        and covered(part, content(whole)) >= HELD
    )


def opposed(older: Memory, newer: Memory) -> bool:
    """Return whether newer words of the user contradict an older memory."""
    if newer.author != "user" or older.scope != newer.scope or said(older) >= said(newer):
        return False
    one, other = text(older), text(newer)
    return (
        denies(one) != denies(other)
        and len(content(one) & content(other)) > 1
        and likeness(one, other) >= ALIKE
    )


def _steps(state: dict[str, Memory]) -> Iterator[Step]:
    """Yield every step that rules find; `state` reflects the steps so far."""
    for one, other in _near(state):
        if step := _settled(state.get(one), state.get(other)):
            yield step
    for memory in tuple(state.values()):
        exact = dated(memory)
        if exact != memory:
            yield Step(f"{key(memory)}: relative dates replaced by absolute dates", put=(exact,))


def _settled(one: Memory | None, other: Memory | None) -> Step | None:
    """Return the step that settles duplicates or contradictions; pinned memories stay."""
    if one is None or other is None:
        return None
    for gone, kept in sorted(((one, other), (other, one)), key=lambda pair: -pair[0].created):
        if not gone.pinned and double(gone, kept):
            put = () if kept.pinned else (joined(kept, gone),)
            return Step(f"{key(gone)} duplicates {key(kept)}", put, (key(gone),))
        if not gone.pinned and opposed(gone, kept):
            why = f"{key(gone)} no longer holds: the user has since said {key(kept)}"
            return Step(why, drop=(key(gone),))
    return None


def _near(memories: Memories) -> Iterator[tuple[str, str]]:
    """Yield all pairs that share most of the words of the shorter memory, each once.

    Only pairs that share one of its rarest words can qualify, so only those are compared.
    """
    words = {name: content(text(memory)) for name, memory in memories.items()}
    often = Counter(word for some in words.values() for word in some)
    by_word: dict[str, list[str]] = defaultdict(list)
    for name, some in words.items():
        for word in some:
            by_word[word].append(name)
    for name, some in words.items():
        rarest = sorted(some, key=lambda word: (often[word], word))
        few = rarest[: int(len(some) * (1 - ALIKE)) + 1]
        for other in {other for word in few for other in by_word[word]}:
            size = (len(some), name)
            longer = (len(words[other]), other)
            if size < longer and len(some & words[other]) >= ALIKE * len(some):
                yield name, other


def _plain(memory: Memory) -> str:
    return " ".join((memory.body or memory.description).casefold().split())


def _when(evidence: Evidence) -> float:
    return evidence.at


# What a model may do to memories at night: it is shown a topic, and what it proposes is judged.


LARGEST = 20_000
"""Tokens of a topic, at most."""
EACH = 3
"""Passages shown for one memory, at most."""
LONGEST = 600
"""Characters shown of one passage, at most."""
SHARED = 2
"""Least common words of a passage and a memory that it concerns."""
MOST = 50
"""Operations of one reply beyond this are no longer a tidying up."""
KEEPS = 0.6
"""Least share of a text's words that its sources must contain."""


class Passage(msgspec.Struct, frozen=True):
    """A message of the user, in their own words."""

    session: str
    seq: int
    at: float
    text: str


class Topic(msgspec.Struct, frozen=True):
    """Memories that the model sees together, with related passages and changed files."""

    memories: tuple[Memory, ...]
    passages: Mapping[str, Passage]
    """Passages by the names under which the model sees them."""
    drifted: Mapping[str, tuple[str, ...]]
    """The files of a memory that are no longer what they were."""

    def fresh(self, since: float) -> bool:
        """Return whether the topic has news since then."""
        told = bool(self.passages or self.drifted)
        return told or any(memory.modified > since for memory in self.memories)


class Operation(msgspec.Struct, frozen=True):
    """One operation that a model proposes."""

    do: Literal["merge", "rewrite", "drop"]
    names: tuple[str, ...]
    description: str = ""
    body: str = ""
    passage: str = ""
    words: str = ""
    why: str = ""


class Proposed(msgspec.Struct, frozen=True):
    """The operations that a model proposed for a topic, and the file contents it had seen."""

    topic: Topic
    operations: tuple[Operation, ...]
    read: str = ""


class Plan(msgspec.Struct, frozen=True):
    """The steps of a consolidation, those for the user to decide, and refused proposals."""

    steps: tuple[Step, ...]
    held: tuple[Step, ...] = ()
    refused: tuple[str, ...] = ()


def planned(
    memories: Memories,
    proposed: Iterable[Proposed],
    *,
    asks: Collection[Scope] = (),
    barred: Collection[str] = (),
    without: Collection[str] = (),
) -> Plan:
    """Plan a consolidation from rules and proposals; `asks` are the scopes that need approval.

    Memories of `barred` names stay unchanged, and steps in `without` are left out.
    """
    state, steps = dict(memories), list[Step]()
    held: list[Step] = []
    refused: list[str] = []

    def settle(step: Step) -> None:
        if not barred or not any(name.partition("/")[2] in barred for name in step.names):
            ask = step.held or any(name.partition("/")[0] in asks for name in step.names)
            (held if ask else steps).append(step)
            if not ask:
                step.make(state)

    for step in ruled(memories, without):
        settle(step)
    for part in proposed:
        for operation in part.operations:
            found = judged(operation, state, part.topic, read=part.read)
            if isinstance(found, str):
                refused.append(f"{operation.do} {', '.join(operation.names)}: {found}")
            else:
                settle(found)
    return Plan(tuple(steps), tuple(held), tuple(refused))


def topics(
    memories: Iterable[Memory],
    passages: Sequence[Passage],
    drifted: Mapping[str, tuple[str, ...]],
    *,
    tokens: int,
) -> Iterator[Topic]:
    """Split memories, except pinned ones, by scope, type and name into topics that fit."""
    room = min(tokens, LARGEST)
    batch: list[Memory] = []
    size = 0
    about = [(passage, content(passage.text)) for passage in passages]
    for memory in sorted(memories, key=lambda m: (m.scope, m.type, m.name)):
        cost = estimate_tokens(_shown(memory, ())) + EACH * LONGEST // 3
        if memory.pinned or cost > room:
            continue
        if batch and size + cost > room:
            yield _topic(batch, about, drifted)
            batch, size = [], 0
        batch.append(memory)
        size += cost
    if batch:
        yield _topic(batch, about, drifted)


def told(topic: Topic) -> str:
    """Render a topic for the model: one line of JSON for each memory and each passage."""
    lines = [_shown(memory, topic.drifted.get(key(memory), ())) for memory in topic.memories]
    if topic.passages:
        lines += ["", "What the user has said since:", ""]
        lines += (_quoted(name, passage) for name, passage in topic.passages.items())
    return "\n".join(lines)


def operations(reply: str) -> tuple[list[Operation], list[str]]:
    """Parse the operations in a model's reply; return them and the parse errors."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        listed = msgspec.json.decode(reply[start : end + 1], type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return [], ["the reply was not a list of operations"]
    found: list[Operation] = []
    flaws: list[str] = []
    for raw in listed[:MOST]:
        try:
            found.append(msgspec.json.decode(raw, type=Operation))
        except (msgspec.DecodeError, RecursionError) as flaw:
            flaws.append(f"an operation could not be read: {flaw}")
    return found, flaws


def judged(operation: Operation, memories: Memories, topic: Topic, *, read: str = "") -> Step | str:
    """Check an operation; return its step or why it is refused. `read` is what files showed."""
    known = {key(memory) for memory in topic.memories}
    found = [memories[name] for name in dict.fromkeys(operation.names) if name in memories]
    if not found or len(found) < len(operation.names) or not known.issuperset(operation.names):
        return "it names a memory that does not exist"
    if any(memory.pinned for memory in found):
        return "only the user can change a pinned memory"
    evidence = _evidence(operation, topic)
    if operation.words and evidence is None:
        return "the quoted words are not in that passage"
    match operation.do:
        case "drop":
            return _drop(operation, found, evidence, topic=topic)
        case "merge":
            return _merge(operation, found, evidence)
        case "rewrite":
            drifted = bool(topic.drifted.get(operation.names[0]))
            return _rewrite(operation, found, evidence, read=read if drifted else "")


def _evidence(operation: Operation, topic: Topic) -> Evidence | None:
    passage = topic.passages.get(operation.passage)
    words = " ".join(operation.words.split())
    if passage is None or not words or words not in " ".join(passage.text.split()):
        return None
    return Evidence(passage.session, passage.seq, "user", operation.words, passage.at)


def _drop(
    operation: Operation, found: list[Memory], evidence: Evidence | None, *, topic: Topic
) -> Step | str:
    gone, name = found[0], key(found[0])
    if len(found) == 2:
        if not double(gone, found[1]):
            return f"{key(found[1])} does not say everything that {name} says"
        why = f"{name} duplicates {key(found[1])}"
        return Step(why, (joined(found[1], gone),), (name,))
    why = f"{name} no longer holds: {operation.why}"
    if evidence is not None and evidence.at > said(gone):
        clear = _about(gone, evidence.words) and _changes(gone, evidence.words)
        return Step(why, drop=(name,), held=not clear)
    if gone.author != "user" and topic.drifted.get(name):
        return Step(why, drop=(name,))
    return "nothing the user has said since shows that it no longer holds"


def _merge(operation: Operation, found: list[Memory], evidence: Evidence | None) -> Step | str:
    first = found[0]
    if len(found) < 2:
        return "merge needs at least two memories"
    if len({(memory.scope, memory.type, memory.author) for memory in found}) > 1:
        return "they differ in scope, type or author"
    if flaw := _flaw(operation, found, evidence):
        return flaw
    more = () if evidence is None else (evidence,)
    one = joined(first, *found[1:])
    one = replace(one, evidence=(*one.evidence, *more))
    one = replace(one, description=operation.description, body=operation.body)
    names = ", ".join(map(key, found))
    return Step(f"{names} merged: {operation.why}", (one,), tuple(map(key, found[1:])))


def _rewrite(
    operation: Operation, found: list[Memory], evidence: Evidence | None, *, read: str
) -> Step | str:
    memory = found[0]
    if len(found) > 1:
        return "rewrite takes one memory; use merge for several"
    if flaw := _flaw(operation, found, evidence, read=read if memory.author != "user" else ""):
        return flaw
    more = () if evidence is None else (evidence,)
    fresh = replace(
        memory,
        description=operation.description,
        body=operation.body,
        evidence=(*memory.evidence, *more),
    )
    return Step(f"{key(memory)} rewritten: {operation.why}", (fresh,))


def _flaw(
    operation: Operation, found: list[Memory], evidence: Evidence | None, *, read: str = ""
) -> str:
    """Return why a replacement text is not acceptable; empty if it is."""
    after = f"{operation.description}\n{operation.body}"
    before = "\n".join(map(text, found))
    words = evidence.words if evidence else ""
    if not operation.description.strip():
        return "it has no description"
    allowed = f"{before}\n{words}\n{read}"
    if strange := sorted(exact(after) - exact(allowed)):
        return f"no source mentions {', '.join(strange[:3])}"
    if covered(after, content(allowed)) < KEEPS:
        return "most of it has no source"
    if signals.wishes(after) and not signals.wishes(f"{before}\n{words}"):
        return "it turns a fact into an instruction"
    if words or read:
        return ""
    if lost := sorted(exact(before) - exact(after)):
        return f"it leaves out {', '.join(lost[:3])}"
    if any(covered(text(memory), content(after)) < KEEPS for memory in found):
        return "it leaves out most of the original"
    if denies(after) != denies(before):
        return "it turns a yes into a no or a no into a yes"
    return ""


def _about(memory: Memory, words: str) -> bool:
    """Return whether words concern the same subject as a memory."""
    return len(content(words) & content(text(memory))) >= SHARED


def _changes(memory: Memory, words: str) -> bool:
    """Return whether words on the same subject contradict a memory."""
    return signals.turns(words) or denies(words) != denies(text(memory))


def _topic(
    batch: Sequence[Memory],
    about: Sequence[tuple[Passage, frozenset[str]]],
    drifted: Mapping[str, tuple[str, ...]],
) -> Topic:
    """Build a topic with the newest passages that concern each memory."""
    chosen: dict[Passage, None] = {}
    for memory in batch:
        mine, since = content(text(memory)), said(memory)
        near = [(len(mine & words), p.at, p) for p, words in about if p.at > since]
        best = sorted((found for found in near if found[0] >= SHARED), key=lambda n: n[:2])
        chosen |= dict.fromkeys(passage for *_, passage in best[-EACH:])
    ordered = sorted(chosen, key=lambda passage: passage.at)
    named = {f"p{number}": passage for number, passage in enumerate(ordered, 1)}
    return Topic(tuple(batch), named, {key(m): drifted[key(m)] for m in batch if key(m) in drifted})


def _shown(memory: Memory, drifted: tuple[str, ...]) -> str:
    line = {
        "name": key(memory),
        "type": memory.type,
        "author": memory.author,
        "said": str(day(said(memory))) if said(memory) else "",
        "description": memory.description,
        "body": memory.body,
    }
    changed = {"files changed since": drifted} if drifted else {}
    return msgspec.json.encode(line | changed).decode()


def _quoted(name: str, passage: Passage) -> str:
    line = {"passage": name, "on": str(day(passage.at)), "words": passage.text[:LONGEST]}
    return msgspec.json.encode(line).decode()
