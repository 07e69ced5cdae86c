"""Consolidation rules: merge duplicates, resolve dates, let the newer statement win.

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
from travois.memory.dates import date_memory, to_local_date
from travois.memory.memory import DropMemory, Evidence, Memory, MemoryChange, MemoryScope, PutMemory
from travois.memory.signals import extract_names
from travois.memory.similarity import (
    MIN_CONTAINED_SHARE,
    MIN_SAME_LIKENESS,
    contains_denial,
    content_words,
    measure_likeness,
    share_covered,
)

AUTHOR_RANK = {"tool": 0, "model": 1, "user": 2}
"""The authority of an author: only the user's words may replace the user's words."""
NUMBER_PATTERN = re.compile(r"\w*\d[\w.:/-]*")

MemoriesByKey = Mapping[str, Memory]
"""Memories by what they are called among all: scope and name."""


class DreamStep(msgspec.Struct, frozen=True):
    """One change of a consolidation, and its reason."""

    why: str
    put: tuple[Memory, ...] = ()
    drop: tuple[str, ...] = ()
    held: bool = False
    """True if the user must decide on the step."""

    @property
    def changes(self) -> tuple[MemoryChange, ...]:
        """Return the step as memory changes."""
        gone = (name.partition("/") for name in self.drop)
        drops = (DropMemory(name, cast("MemoryScope", scope), self.why) for scope, _, name in gone)
        return (*map(PutMemory, self.put), *drops)

    @property
    def memory_keys(self) -> tuple[str, ...]:
        """Return the keys of all memories that the step changes."""
        return (*map(get_memory_key, self.put), *self.drop)

    def apply(self, memories: dict[str, Memory]) -> None:
        """Apply the step to these memories."""
        for name in self.drop:
            memories.pop(name, None)
        memories.update(index_by_key(self.put))


def get_memory_key(memory: Memory) -> str:
    """Return the key of a memory among those of all scopes."""
    return f"{memory.scope}/{memory.name}"


def get_change_key(change: MemoryChange) -> str:
    """Return the key of the memory that a consolidation changes."""
    return (
        get_memory_key(change.memory)
        if isinstance(change, PutMemory)
        else f"{change.scope}/{change.name}"
    )


def index_by_key(memories: Iterable[Memory]) -> dict[str, Memory]:
    """Return the memories to consolidate by key."""
    return {get_memory_key(memory): memory for memory in memories}


def join_memory_text(memory: Memory) -> str:
    """Return a memory's description and body, to compare it."""
    return f"{memory.description}\n{memory.body}"


def extract_exact_terms(text: str) -> frozenset[str]:
    """Return a memory's names and numbers, which must match exactly to be merged."""
    numbers = (found.rstrip(".:/-").casefold() for found in NUMBER_PATTERN.findall(text))
    return frozenset((*extract_names(text), *numbers))


def find_last_said(memory: Memory) -> float:
    """Return when the newest words of a memory were said, as far as known."""
    return max((e.at for e in memory.evidence), default=0.0) or memory.modified or memory.created


def plan_rule_steps(memories: MemoriesByKey, without: Collection[str] = ()) -> list[DreamStep]:
    """Plan the consolidation steps that rules propose, except those in `without`."""
    steps: list[DreamStep] = []
    state = dict(memories)
    for step in _iterate_rules(state):
        if step.why not in without:
            step.apply(state)
            steps.append(step)
    return steps


def diff_memories(
    before: MemoriesByKey, after: MemoriesByKey, *, why: str
) -> tuple[MemoryChange, ...]:
    """Return the changes that lead from one set of memories to a consolidated one."""
    put = [PutMemory(memory) for name, memory in after.items() if before.get(name) != memory]
    gone = [memory for name, memory in before.items() if name not in after]
    return (*put, *(DropMemory(memory.name, memory.scope, why) for memory in gone))


def join_memories(kept: Memory, *others: Memory) -> Memory:
    """Merge the evidence and anchors of memories into the first; its text is unchanged."""
    every = (kept, *others)
    evidence = dict.fromkeys(e for memory in every for e in memory.evidence)
    anchors = {a.path: a for memory in reversed(every) for a in memory.anchors}
    return replace(
        kept,
        created=min((m.created for m in every if m.created), default=kept.created),
        verified=max(m.verified for m in every),
        evidence=tuple(sorted(evidence, key=_get_evidence_time)),
        anchors=tuple(anchors.values()),
    )


def is_duplicate(one: Memory, other: Memory) -> bool:
    """Return whether another memory says all that this one says, with equal authority."""
    if one.scope != other.scope or AUTHOR_RANK[one.author] > AUTHOR_RANK[other.author]:
        return False
    if _normalise_body(one) == _normalise_body(other):
        return True
    whole, part = join_memory_text(other), join_memory_text(one)
    return (
        (one.type == other.type or content_words(part) == content_words(whole))
        and contains_denial(part) == contains_denial(whole)
        and extract_exact_terms(part) <= extract_exact_terms(whole)
        and len(content_words(part)) > 1
        and share_covered(part, content_words(whole)) >= MIN_CONTAINED_SHARE
    )


def is_contradicted(older: Memory, newer: Memory) -> bool:
    """Return whether newer words of the user contradict an older memory."""
    if (
        newer.author != "user"
        or older.scope != newer.scope
        or find_last_said(older) >= find_last_said(newer)
    ):
        return False
    one, other = join_memory_text(older), join_memory_text(newer)
    return (
        contains_denial(one) != contains_denial(other)
        and len(content_words(one) & content_words(other)) > 1
        and measure_likeness(one, other) >= MIN_SAME_LIKENESS
    )


def _iterate_rules(state: dict[str, Memory]) -> Iterator[DreamStep]:
    """Yield every step that consolidation rules find; `state` reflects the steps so far."""
    for one, other in _find_similar_pairs(state):
        if step := _settle_pair(state.get(one), state.get(other)):
            yield step
    for memory in tuple(state.values()):
        exact = date_memory(memory)
        if exact != memory:
            yield DreamStep(
                f"{get_memory_key(memory)}: relative dates replaced by absolute dates", put=(exact,)
            )


def _settle_pair(one: Memory | None, other: Memory | None) -> DreamStep | None:
    """Return the step that settles duplicates or contradictions; pinned memories stay."""
    if one is None or other is None:
        return None
    for gone, kept in sorted(((one, other), (other, one)), key=lambda pair: -pair[0].created):
        if not gone.pinned and is_duplicate(gone, kept):
            put = () if kept.pinned else (join_memories(kept, gone),)
            return DreamStep(
                f"{get_memory_key(gone)} duplicates {get_memory_key(kept)}",
                put,
                (get_memory_key(gone),),
            )
        if not gone.pinned and is_contradicted(gone, kept):
            why = (
                f"{get_memory_key(gone)} no longer holds: "
                f"the user has since said {get_memory_key(kept)}"
            )
            return DreamStep(why, drop=(get_memory_key(gone),))
    return None


def _find_similar_pairs(memories: MemoriesByKey) -> Iterator[tuple[str, str]]:
    """Yield all pairs that share most of the words of the shorter memory, each once.

    Only pairs that share one of its rarest words can qualify, so only those are compared.
    """
    words = {name: content_words(join_memory_text(memory)) for name, memory in memories.items()}
    often = Counter(word for some in words.values() for word in some)
    by_word: dict[str, list[str]] = defaultdict(list)
    for name, some in words.items():
        for word in some:
            by_word[word].append(name)
    for name, some in words.items():
        rarest = sorted(some, key=lambda word: (often[word], word))
        few = rarest[: int(len(some) * (1 - MIN_SAME_LIKENESS)) + 1]
        for other in {other for word in few for other in by_word[word]}:
            size = (len(some), name)
            longer = (len(words[other]), other)
            if size < longer and len(some & words[other]) >= MIN_SAME_LIKENESS * len(some):
                yield name, other


def _normalise_body(memory: Memory) -> str:
    return " ".join((memory.body or memory.description).casefold().split())


def _get_evidence_time(evidence: Evidence) -> float:
    return evidence.at


# What a model may do to memories at night: it is shown a topic, and what it proposes is judged.


MAX_TOPIC_TOKENS = 20_000
"""Tokens of a topic, at most."""
MAX_PASSAGES_PER_MEMORY = 3
"""Passages shown for one memory, at most."""
MAX_PASSAGE_CHARS = 600
"""Characters shown of one passage, at most."""
MIN_SHARED_WORDS = 2
"""Least common words of a passage and a memory that it concerns."""
MAX_OPERATIONS = 50
"""Operations of one reply beyond this are no longer a tidying up."""
MIN_SUPPORTED_SHARE = 0.6
"""Least share of a text's words that its sources must contain."""


class UserPassage(msgspec.Struct, frozen=True):
    """A message of the user, in their own words."""

    session: str
    seq: int
    at: float
    text: str


class MemoryTopic(msgspec.Struct, frozen=True):
    """Memories that the model sees together, with related passages and changed files."""

    memories: tuple[Memory, ...]
    passages: Mapping[str, UserPassage]
    """Passages by the names under which the model sees them."""
    drifted: Mapping[str, tuple[str, ...]]
    """The files of a memory that are no longer what they were."""

    def has_news_since(self, since: float) -> bool:
        """Return whether the topic has news since then."""
        told = bool(self.passages or self.drifted)
        return told or any(memory.modified > since for memory in self.memories)


class DreamOperation(msgspec.Struct, frozen=True):
    """One operation that a model proposes."""

    do: Literal["merge", "rewrite", "drop"]
    names: tuple[str, ...]
    description: str = ""
    body: str = ""
    passage: str = ""
    words: str = ""
    why: str = ""


class TopicProposal(msgspec.Struct, frozen=True):
    """The operations that a model proposed for a topic, and the file contents it had seen."""

    topic: MemoryTopic
    operations: tuple[DreamOperation, ...]
    read: str = ""


class DreamPlan(msgspec.Struct, frozen=True):
    """The steps of a consolidation, those for the user to decide, and refused proposals."""

    steps: tuple[DreamStep, ...]
    held: tuple[DreamStep, ...] = ()
    refused: tuple[str, ...] = ()


def plan_dream(
    memories: MemoriesByKey,
    proposed: Iterable[TopicProposal],
    *,
    asks: Collection[MemoryScope] = (),
    barred: Collection[str] = (),
    without: Collection[str] = (),
) -> DreamPlan:
    """Plan a consolidation from rules and proposals; `asks` are the scopes that need approval.

    Memories of `barred` names stay unchanged, and steps in `without` are left out.
    """
    state, steps = dict(memories), list[DreamStep]()
    held: list[DreamStep] = []
    refused: list[str] = []

    def add_step(step: DreamStep) -> None:
        if not barred or not any(name.partition("/")[2] in barred for name in step.memory_keys):
            ask = step.held or any(name.partition("/")[0] in asks for name in step.memory_keys)
            (held if ask else steps).append(step)
            if not ask:
                step.apply(state)

    for step in plan_rule_steps(memories, without):
        add_step(step)
    for part in proposed:
        for operation in part.operations:
            found = check_operation(operation, state, part.topic, read=part.read)
            if isinstance(found, str):
                refused.append(f"{operation.do} {', '.join(operation.names)}: {found}")
            else:
                add_step(found)
    return DreamPlan(tuple(steps), tuple(held), tuple(refused))


def split_into_topics(
    memories: Iterable[Memory],
    passages: Sequence[UserPassage],
    drifted: Mapping[str, tuple[str, ...]],
    *,
    tokens: int,
) -> Iterator[MemoryTopic]:
    """Split memories to consolidate, except pinned ones, into topics that fit."""
    room = min(tokens, MAX_TOPIC_TOKENS)
    batch: list[Memory] = []
    size = 0
    about = [(passage, content_words(passage.text)) for passage in passages]
    for memory in sorted(memories, key=lambda m: (m.scope, m.type, m.name)):
        cost = (
            estimate_tokens(_render_memory_line(memory, ()))
            + MAX_PASSAGES_PER_MEMORY * MAX_PASSAGE_CHARS // 3
        )
        if memory.pinned or cost > room:
            continue
        if batch and size + cost > room:
            yield _build_topic(batch, about, drifted)
            batch, size = [], 0
        batch.append(memory)
        size += cost
    if batch:
        yield _build_topic(batch, about, drifted)


def render_topic(topic: MemoryTopic) -> str:
    """Render a consolidation topic for the model: a JSON line per memory and passage."""
    lines = [
        _render_memory_line(memory, topic.drifted.get(get_memory_key(memory), ()))
        for memory in topic.memories
    ]
    if topic.passages:
        lines += ["", "What the user has said since:", ""]
        lines += (_render_passage_line(name, passage) for name, passage in topic.passages.items())
    return "\n".join(lines)


def parse_operations(reply: str) -> tuple[list[DreamOperation], list[str]]:
    """Parse the consolidation operations in a model's reply; return them and the errors."""
    start, end = reply.find("["), reply.rfind("]")
    try:
        listed = msgspec.json.decode(reply[start : end + 1], type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return [], ["the reply was not a list of operations"]
    found: list[DreamOperation] = []
    flaws: list[str] = []
    for raw in listed[:MAX_OPERATIONS]:
        try:
            found.append(msgspec.json.decode(raw, type=DreamOperation))
        except (msgspec.DecodeError, RecursionError) as flaw:
            flaws.append(f"an operation could not be read: {flaw}")
    return found, flaws


def check_operation(
    operation: DreamOperation, memories: MemoriesByKey, topic: MemoryTopic, *, read: str = ""
) -> DreamStep | str:
    """Check a consolidation operation; return its step or why it is refused."""
    known = {get_memory_key(memory) for memory in topic.memories}
    found = [memories[name] for name in dict.fromkeys(operation.names) if name in memories]
    if not found or len(found) < len(operation.names) or not known.issuperset(operation.names):
        return "it names a memory that does not exist"
    if any(memory.pinned for memory in found):
        return "only the user can change a pinned memory"
    evidence = _find_operation_evidence(operation, topic)
    if operation.words and evidence is None:
        return "the quoted words are not in that passage"
    match operation.do:
        case "drop":
            return _check_drop(operation, found, evidence, topic=topic)
        case "merge":
            return _check_merge(operation, found, evidence)
        case "rewrite":
            drifted = bool(topic.drifted.get(operation.names[0]))
            return _check_rewrite(operation, found, evidence, read=read if drifted else "")


def _find_operation_evidence(operation: DreamOperation, topic: MemoryTopic) -> Evidence | None:
    """Find the user's words that a memory consolidation step quotes; None if they are not there."""
    passage = topic.passages.get(operation.passage)
    words = " ".join(operation.words.split())
    if passage is None or not words or words not in " ".join(passage.text.split()):
        return None
    return Evidence(passage.session, passage.seq, "user", operation.words, passage.at)


def _check_drop(
    operation: DreamOperation, found: list[Memory], evidence: Evidence | None, *, topic: MemoryTopic
) -> DreamStep | str:
    """Accept a memory consolidation step that deletes a memory, or return why it is refused."""
    gone, name = found[0], get_memory_key(found[0])
    if len(found) == 2:
        if not is_duplicate(gone, found[1]):
            return f"{get_memory_key(found[1])} does not say everything that {name} says"
        why = f"{name} duplicates {get_memory_key(found[1])}"
        return DreamStep(why, (join_memories(found[1], gone),), (name,))
    why = f"{name} no longer holds: {operation.why}"
    if evidence is not None and evidence.at > find_last_said(gone):
        clear = _shares_subject(gone, evidence.words) and _contradicts_memory(gone, evidence.words)
        return DreamStep(why, drop=(name,), held=not clear)
    if gone.author != "user" and topic.drifted.get(name):
        return DreamStep(why, drop=(name,))
    return "nothing the user has said since shows that it no longer holds"


def _check_merge(
    operation: DreamOperation, found: list[Memory], evidence: Evidence | None
) -> DreamStep | str:
    """Accept a memory consolidation step that merges memories, or return why it is refused."""
    first = found[0]
    if len(found) < 2:
        return "merge needs at least two memories"
    if len({(memory.scope, memory.type, memory.author) for memory in found}) > 1:
        return "they differ in scope, type or author"
    if flaw := _find_text_flaw(operation, found, evidence):
        return flaw
    more = () if evidence is None else (evidence,)
    one = join_memories(first, *found[1:])
    one = replace(one, evidence=(*one.evidence, *more))
    one = replace(one, description=operation.description, body=operation.body)
    names = ", ".join(map(get_memory_key, found))
    return DreamStep(
        f"{names} merged: {operation.why}", (one,), tuple(map(get_memory_key, found[1:]))
    )


def _check_rewrite(
    operation: DreamOperation, found: list[Memory], evidence: Evidence | None, *, read: str
) -> DreamStep | str:
    """Accept a memory consolidation step that rewrites one memory, or return why it is refused."""
    memory = found[0]
    if len(found) > 1:
        return "rewrite takes one memory; use merge for several"
    if flaw := _find_text_flaw(
        operation, found, evidence, read=read if memory.author != "user" else ""
    ):
        return flaw
    more = () if evidence is None else (evidence,)
    fresh = replace(
        memory,
        description=operation.description,
        body=operation.body,
        evidence=(*memory.evidence, *more),
    )
    return DreamStep(f"{get_memory_key(memory)} rewritten: {operation.why}", (fresh,))


def _find_text_flaw(
    operation: DreamOperation, found: list[Memory], evidence: Evidence | None, *, read: str = ""
) -> str:
    """Return why a memory consolidation step has an unacceptable new text; empty if it has not."""
    after = f"{operation.description}\n{operation.body}"
    before = "\n".join(map(join_memory_text, found))
    words = evidence.words if evidence else ""
    if not operation.description.strip():
        return "it has no description"
    allowed = f"{before}\n{words}\n{read}"
    if strange := sorted(extract_exact_terms(after) - extract_exact_terms(allowed)):
        return f"no source mentions {', '.join(strange[:3])}"
    if share_covered(after, content_words(allowed)) < MIN_SUPPORTED_SHARE:
        return "most of it has no source"
    if signals.expresses_wish(after) and not signals.expresses_wish(f"{before}\n{words}"):
        return "it turns a fact into an instruction"
    if words or read:
        return ""
    if lost := sorted(extract_exact_terms(before) - extract_exact_terms(after)):
        return f"it leaves out {', '.join(lost[:3])}"
    if any(
        share_covered(join_memory_text(memory), content_words(after)) < MIN_SUPPORTED_SHARE
        for memory in found
    ):
        return "it leaves out most of the original"
    if contains_denial(after) != contains_denial(before):
        return "it turns a yes into a no or a no into a yes"
    return ""


def _shares_subject(memory: Memory, words: str) -> bool:
    """Return whether words of the user concern the same subject as a memory."""
    return len(content_words(words) & content_words(join_memory_text(memory))) >= MIN_SHARED_WORDS


def _contradicts_memory(memory: Memory, words: str) -> bool:
    """Return whether words of the user on the same subject contradict a memory."""
    return signals.changes_mind(words) or contains_denial(words) != contains_denial(
        join_memory_text(memory)
    )


def _build_topic(
    batch: Sequence[Memory],
    about: Sequence[tuple[UserPassage, frozenset[str]]],
    drifted: Mapping[str, tuple[str, ...]],
) -> MemoryTopic:
    """Build a consolidation topic with the newest passages about each memory."""
    chosen: dict[UserPassage, None] = {}
    for memory in batch:
        mine, since = content_words(join_memory_text(memory)), find_last_said(memory)
        near = [(len(mine & words), p.at, p) for p, words in about if p.at > since]
        best = sorted(
            (found for found in near if found[0] >= MIN_SHARED_WORDS), key=lambda n: n[:2]
        )
        chosen |= dict.fromkeys(passage for *_, passage in best[-MAX_PASSAGES_PER_MEMORY:])
    ordered = sorted(chosen, key=lambda passage: passage.at)
    named = {f"p{number}": passage for number, passage in enumerate(ordered, 1)}
    return MemoryTopic(
        tuple(batch),
        named,
        {
            get_memory_key(m): drifted[get_memory_key(m)]
            for m in batch
            if get_memory_key(m) in drifted
        },
    )


def _render_memory_line(memory: Memory, drifted: tuple[str, ...]) -> str:
    """Render a memory as a line of JSON for the consolidation prompt."""
    line = {
        "name": get_memory_key(memory),
        "type": memory.type,
        "author": memory.author,
        "said": str(to_local_date(find_last_said(memory))) if find_last_said(memory) else "",
        "description": memory.description,
        "body": memory.body,
    }
    changed = {"files changed since": drifted} if drifted else {}
    return msgspec.json.encode(line | changed).decode()


def _render_passage_line(name: str, passage: UserPassage) -> str:
    """Render a passage of the user's words as a line of JSON for the consolidation prompt."""
    line = {
        "passage": name,
        "on": str(to_local_date(passage.at)),
        "words": passage.text[:MAX_PASSAGE_CHARS],
    }
    return msgspec.json.encode(line).decode()
