"""Extracting memories: finding what is worth keeping in a conversation.

The model proposes drafts in a fork without tools; rules check each. Without a model, or if it
fails, rules also find the drafts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote  # a start does not wait for it

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from travois.core.content import extract_calls
from travois.core.errors import UserError
from travois.core.facts import Assistant, Entry, Noted, Opened
from travois.core.tokens import estimate_tokens
from travois.core.tool_names import canonical_name
from travois.core.view import View
from travois.engine.agent import Agent
from travois.engine.fork import ask_in_fork
from travois.memory.check_drafts import EvidenceContext, check_drafts
from travois.memory.compare_drafts import Accept, DraftVerdict, NeedsReview, Reject
from travois.memory.memory import (
    EXTRACTION_GROWTH_TOKENS,
    MAX_NEAREST_MEMORIES,
    AppliedChanges,
    DropMemory,
    Evidence,
    ExtractionOutcome,
    Memory,
    MemoryChange,
    MemoryDraft,
    MemoryScope,
    PutMemory,
    TurnEnding,
    build_draft_request,
    parse_drafts,
)
from travois.memory.signals import (
    MemorySignal,
    asks_to_remember,
    draft_by_rules,
    draft_from_signal,
    find_signals,
    refers_elsewhere,
)
from travois.memory.similarity import content_words, have_same_meaning, share_covered
from travois.memory.speakers import Statement, collect_statements, split_spoken_sentences
from travois.permissions.leaks import find_leak
from travois.ports.world import UserWarned
from travois.prompt.briefing import list_nested_instructions
from travois.prompt.environment import escape_line

EXTRACTION_PROMPT_FILE = Path(__file__).parent / "prompts" / "extract.md"
PATH_PATTERN = re.compile(r"(?<![\w/:.])[\w.@-]*(?:/[\w.@-]+)*\.\w{1,8}\b")
MAX_ANCHORED_FILES = 5
MAX_SEARCH_CHARS = 2_000
"""Characters of the user's messages that are used for the search."""
MAX_SHOWN_WISH_CHARS = 200
"""Characters of a wish that are repeated in a message."""
ALREADY_KNOWN_REASONS = ("known", "pinned", "repeats", "project files")
"""Words in the reason of a rejection that mean: later sessions know it anyway."""
ALL_SCOPES: tuple[MemoryScope, ...] = ("project", "user", "team")
FORGET_REQUEST = re.compile(r"(?i)\b(?:forget|remove|delete|drop|erase|outdated|wrong|no longer)\b")


def is_extraction_due(view: View, since: int) -> bool:
    """Return whether the conversation after an entry may hold something worth keeping.

    Tool results and what the user only pasted do not count.
    """
    fresh = collect_statements(
        Entry(item.seq, 0.0, item.fact) for item in view.items if item.seq > since
    )
    if any(True for _ in find_signals(fresh)):
        return True
    return (
        sum(estimate_tokens(one.text) for one in fresh if one.voice in ("user", "model"))
        >= EXTRACTION_GROWTH_TOKENS
    )


async def extract_memories(agent: Agent, *, after: TurnEnding = "answer") -> ExtractionOutcome:
    """Keep what is worth keeping since the last extraction.

    After a failed turn only requests to remember are kept; the rest is examined later.
    """
    memories, session = agent.memory.memories, agent.session
    assert memories is not None
    entries, since = session.history(), session.extracted
    last, outcome = entries[-1].seq, ExtractionOutcome()
    try:
        known = await anyio.to_thread.run_sync(memories.read_all)
        ground = _build_evidence_context(agent, entries, known, since=since)
        if not _model_remembered(entries, since):
            weighed = await _check_conversation(agent, ground, after=after)
            if after == "failure" and not weighed:
                return outcome
            why = "learned from the conversation"
            unkept = explain_unkept_wishes(agent, weighed, ground)
            outcome = await apply_drafts(agent, weighed, ground, why=why, unkept=unkept)
    except (OSError, UserError) as error:
        session.emit(UserWarned(f"Memory extraction failed: {error}"))
        return ExtractionOutcome(refused=(str(error),))
    session.append(Noted("extracted", str(last)))
    return outcome


async def apply_drafts(
    agent: Agent,
    weighed: Sequence[DraftVerdict],
    context: EvidenceContext,
    *,
    why: str,
    unkept: tuple[str, ...] = (),
) -> ExtractionOutcome:
    """Apply, propose or drop checked memory drafts, as the user wants for each scope; log it."""
    memories = agent.memory.memories
    assert memories is not None
    put = [await _add_anchors(agent, one.change) for one in weighed if isinstance(one, Accept)]
    held = [(one.change, one.why) for one in weighed if isinstance(one, NeedsReview)]
    auto = [one for one in put if memories.consent(one.memory.scope) == "auto"]
    held += [(one, "memory asks first in this scope") for one in put if one not in auto]
    gone = [
        one.drop
        for one in weighed
        if isinstance(one, Accept)
        and one.drop
        and memories.consent(get_verdict_scope(one)) == "auto"
    ]
    done = await _apply_changes(agent, [*auto, *gone], why=why, session=context.session)
    proposed: list[str] = []
    for change, reason in held:
        if memories.consent(change.memory.scope) != "off":
            lay = partial(memories.propose, [change], why=reason)
            proposed += await anyio.to_thread.run_sync(lay)
    refused = (*(one.why for one in weighed if isinstance(one, Reject)), *done.refused)
    outcome = ExtractionOutcome(done.id, done.diff, tuple(proposed), refused, unkept)
    if weighed or unkept:
        agent.session.append(Noted("memory", msgspec.json.encode(outcome).decode()))
    return outcome


def get_verdict_scope(verdict: Accept | NeedsReview) -> MemoryScope:
    """Return the scope of an accepted memory draft."""
    return verdict.change.memory.scope


def explain_unkept_wishes(
    agent: Agent, weighed: Sequence[DraftVerdict], context: EvidenceContext
) -> tuple[str, ...]:
    """Explain each request to remember that is not kept, and how to keep it anyway."""
    assert agent.memory.memories is not None
    off: set[MemoryScope] = {
        scope for scope in ALL_SCOPES if agent.memory.memories.consent(scope) == "off"
    }
    puts = [one for one in weighed if isinstance(one, Accept | NeedsReview)]
    rests = [
        e.words.casefold()
        for one in puts
        if get_verdict_scope(one) not in off
        for e in _get_verdict_evidence(one)
    ]
    asked = (one for one in context.said if one.seq > context.since and one.voice == "user")
    wishes = [one for one in find_signals(asked) if one.kind == "remember"]
    return tuple(
        _format_unkept_wish(agent, wish, _find_unkept_reason(wish, context, off))
        for wish in wishes
        if not any(_overlaps_sentence(words, wish.sentence) for words in rests)
        and not (rests and refers_elsewhere(wish.sentence))
    )


def _get_verdict_evidence(verdict: Accept | NeedsReview) -> tuple[Evidence, ...]:
    return verdict.change.memory.evidence


def _overlaps_sentence(words: str, sentence: str) -> bool:
    """Return whether a memory's quote and a sentence contain one another."""
    flat, whole = " ".join(words.split()), " ".join(sentence.casefold().split())
    return flat in whole or whole in flat


def _find_unkept_reason(
    signal: MemorySignal, context: EvidenceContext, off: Collection[MemoryScope]
) -> str:
    """Return why the rules do not keep a wish as a memory."""
    drafted = draft_from_signal(signal)
    (verdict,) = check_drafts([drafted], context)
    if refers_elsewhere(signal.sentence):
        return "it does not say by itself what it means"
    if isinstance(verdict, Reject):
        return verdict.why
    scope = get_verdict_scope(verdict)
    if scope in off:
        return f"memory is off for the {scope} scope (memory.consent.{scope})"
    return "it could not be understood"


def _format_unkept_wish(agent: Agent, signal: MemorySignal, why: str) -> str:
    """Format the message about a wish that is not kept as a memory."""
    if "secret" in why or _find_secret(agent, signal.sentence):
        return f"Not remembered: {why}. Keep it in a secret store, and say where that is."
    if any(word in why for word in ALREADY_KNOWN_REASONS):
        return f"Not remembered again: {why}."
    text = (
        "TEXT"
        if refers_elsewhere(signal.sentence)
        else quote(draft_from_signal(signal).text[:MAX_SHOWN_WISH_CHARS])
    )
    return f"Not remembered: {why}. To keep it anyway: travois memory add {escape_line(text)}"


class AgentMemoryRecorder:
    """The interface through which a tool remembers and forgets, under the usual checks."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def remember(self, draft: MemoryDraft) -> str:
        """Keep what the user just asked for; return a message about the outcome."""
        agent, memories = self._agent, self._agent.memory.memories
        assert memories is not None
        entries = agent.session.history()
        known = await anyio.to_thread.run_sync(memories.read_all)
        ground = _build_evidence_context(agent, entries, known, since=0)
        told = replace(draft, words=draft.words or _find_nearest_sentence(draft.text, ground.said))
        (verdict,) = weighed = check_drafts([told], ground)
        outcome = await apply_drafts(agent, weighed, ground, why="on request")
        if isinstance(verdict, Reject):
            return (
                f"Not remembered: {verdict.why}. {_suggest_acceptable(agent, verdict, told.words)}"
            )
        waits = (
            verdict.why if isinstance(verdict, NeedsReview) else "memory asks first in this scope"
        )
        if outcome.proposed:
            return f"Not remembered yet: {waits}. It is in the inbox (travois memory inbox)."
        return outcome.diff or f"Not remembered: {'; '.join(outcome.refused) or 'memory is off'}."

    async def forget(self, name: str) -> str:
        """Delete a memory if the user asked for it; return a message about the outcome."""
        agent, memories = self._agent, self._agent.memory.memories
        assert memories is not None
        entries = agent.session.history()
        known = await anyio.to_thread.run_sync(memories.read_all)
        drop = [DropMemory(m.name, m.scope, "on request") for m in known if m.name == name][:1]
        if not drop:
            return f"There is no memory {name!r}. Available: {', '.join(m.name for m in known)}."
        if not FORGET_REQUEST.search(_get_last_user_text(collect_statements(entries))):
            lay = partial(memories.propose, drop, why="the user did not ask for it")
            await anyio.to_thread.run_sync(lay)
            return "Not forgotten yet: the user did not ask for it. It is in the inbox."
        done = await _apply_changes(
            agent, drop, why="forgotten on request", session=_get_session_id(entries)
        )
        outcome = ExtractionOutcome(done.id, done.diff, (), done.refused)
        agent.session.append(Noted("memory", msgspec.json.encode(outcome).decode()))
        return done.diff or f"Not forgotten: {'; '.join(done.refused)}."


def _suggest_acceptable(agent: Agent, verdict: Reject, words: str) -> str:
    """Return what would be kept instead of a rejected memory; secrets are not repeated."""
    if "secret" in verdict.why:
        return "Leave the secret out: say where it is kept, if the user said so."
    if any(word in verdict.why for word in ALREADY_KNOWN_REASONS):
        return "Nothing to do: later sessions know it anyway."
    rule = "A memory restates in one sentence what the user asked to remember, in their own words"
    if not asks_to_remember(words) or _find_secret(agent, words):
        return f"{rule}; they have not asked for this, so ask them first."
    kept = "The user can keep it as it is with `travois memory add TEXT`."
    return f"{rule}, here: {words.strip()[:200]!r}. {kept}"


def _build_evidence_context(
    agent: Agent, entries: list[Entry], known: tuple[Memory, ...], *, since: int
) -> EvidenceContext:
    """Collect the evidence that memory drafts are checked against."""
    files = (
        agent.prompt.instructions.load_always(list_nested_instructions(agent)).files
        if agent.prompt.instructions is not None
        else ()
    )
    return EvidenceContext(
        session=_get_session_id(entries),
        said=collect_statements(entries),
        secret=partial(_find_secret, agent),
        known=known,
        rules=tuple(file.text for file in files),
        since=since,
        now=agent.runtime.clock(),
    )


def _find_secret(agent: Agent, text: str) -> str:
    return find_leak(text) or ("session secret" * (agent.session.secrets.redact(text) != text))


async def _check_conversation(
    agent: Agent, context: EvidenceContext, *, after: TurnEnding
) -> list[DraftVerdict]:
    """Check the model's memory drafts, and the requests to remember that it missed."""
    fresh = tuple(one for one in context.said if one.seq > context.since)
    by_rule = tuple(draft_by_rules(fresh, context.said))
    if after == "failure":
        return check_drafts([one for one in by_rule if asks_to_remember(one.words)], context)
    reply = await _ask_for_drafts(agent, context, fresh) if agent.memory.extract == "model" else ""
    found = parse_drafts(reply) if reply else by_rule
    weighed = check_drafts(found, context)
    kept = [
        one for one, verdict in zip(found, weighed, strict=True) if not isinstance(verdict, Reject)
    ]
    missed = [one for one in by_rule if asks_to_remember(one.words) and not _covers_wish(kept, one)]
    if not reply or not missed:
        return weighed
    fresh_known = tuple(one.change.memory for one in weighed if isinstance(one, Accept))
    return [*weighed, *check_drafts(missed, replace(context, known=(*context.known, *fresh_known)))]


async def _ask_for_drafts(
    agent: Agent, context: EvidenceContext, fresh: tuple[Statement, ...]
) -> str:
    """Ask the model for memory drafts, with the nearest known memories."""
    near: tuple[Memory, ...] = ()
    if agent.memory.memories is not None and context.known:
        about = "\n".join(one.text for one in fresh if one.voice == "user")[-MAX_SEARCH_CHARS:]
        search = partial(agent.memory.memories.search, about, limit=MAX_NEAREST_MEMORIES)
        near = await anyio.to_thread.run_sync(search)
    return await ask_in_fork(
        agent, build_draft_request(EXTRACTION_PROMPT_FILE.read_text("utf-8"), near), what="memories"
    )


def _covers_wish(kept: Iterable[MemoryDraft], wish: MemoryDraft) -> bool:
    """Return whether a kept memory draft quotes this wish or says the same."""
    words = wish.words.casefold()
    return any(
        one.words.strip().casefold() in words or have_same_meaning(one.text, wish.text)
        for one in kept
    )


def _model_remembered(entries: Iterable[Entry], since: int) -> bool:
    """Return whether the model used the Remember tool since the last extraction."""
    replies = (e.fact for e in entries if e.seq > since and isinstance(e.fact, Assistant))
    return any(
        canonical_name(call.name) == "Remember"
        for reply in replies
        for call in extract_calls(reply.content)
    )


def _find_nearest_sentence(text: str, said: Iterable[Statement]) -> str:
    """Return the user's last sentence that shares most with a proposed memory."""
    last = _get_last_user_text(said)
    return max(
        split_spoken_sentences(last),
        key=lambda line: share_covered(text, content_words(line)),
        default=last,
    )


def _get_last_user_text(said: Iterable[Statement]) -> str:
    own = [one.text for one in said if one.voice == "user"]
    return own[-1] if own else ""


def _get_session_id(entries: Iterable[Entry]) -> str:
    ids = [entry.fact.session for entry in entries if isinstance(entry.fact, Opened)]
    return ids[-1] if ids else ""


async def _apply_changes(
    agent: Agent, changes: Sequence[MemoryChange], *, why: str, session: str
) -> AppliedChanges:
    """Save the memories extracted from a conversation, in a worker thread."""
    if not changes or agent.memory.memories is None:
        return AppliedChanges("", "")
    make = partial(agent.memory.memories.apply, changes, why=why, session=session)
    return await anyio.to_thread.run_sync(make)


async def _add_anchors(agent: Agent, change: PutMemory) -> PutMemory:
    """Add the current digests of the files that an extracted memory names."""
    memories, memory = agent.memory.memories, change.memory
    assert memories is not None
    paths = dict.fromkeys(PATH_PATTERN.findall(memory.body)[:MAX_ANCHORED_FILES])
    found = [await anyio.to_thread.run_sync(memories.anchor, path) for path in paths]
    anchors = tuple(anchor for anchor in found if anchor is not None)
    return PutMemory(replace(memory, anchors=anchors or memory.anchors))
