"""Memory extraction: find what is worth keeping in a conversation.

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
from travois.memory.accept import Ground, weigh_all
from travois.memory.drafts import NEAREST, Draft, drafts, request
from travois.memory.memory import Change, Drop, Evidence, Memory, Put, Scope
from travois.memory.port import GROWTH, Applied, Outcome, Turn
from travois.memory.settle import Accepted, Held, Refused, Weighed
from travois.memory.signals import (
    Signal,
    asked_to_remember,
    draft,
    points_elsewhere,
    ruled,
    signals,
)
from travois.memory.similarity import content, covered, same
from travois.memory.speakers import Heard, heard, spoken
from travois.permissions.secrets import find_leak
from travois.ports.world import UserWarned
from travois.prompt.briefing import nested
from travois.prompt.environment import plain

PROMPT = Path(__file__).parent / "prompts" / "extract.md"
PATHS = re.compile(r"(?<![\w/:.])[\w.@-]*(?:/[\w.@-]+)*\.\w{1,8}\b")
FILES = 5
ABOUT = 2_000
"""Characters of the user's messages that are used for the search."""
SHOWN = 200
"""Characters of a wish that are repeated in a message."""
KNOWN = ("known", "pinned", "repeats", "project files")
"""Words in the reason of a rejection that mean: later sessions know it anyway."""
SCOPES: tuple[Scope, ...] = ("project", "user", "team")
FORGET = re.compile(r"(?i)\b(?:forget|remove|delete|drop|erase|outdated|wrong|no longer)\b")


def due(view: View, since: int) -> bool:
    """Return whether the conversation after an entry may hold something worth keeping.

    Tool results and what the user only pasted do not count.
    """
    fresh = heard(Entry(item.seq, 0.0, item.fact) for item in view.items if item.seq > since)
    if any(True for _ in signals(fresh)):
        return True
    return (
        sum(estimate_tokens(one.text) for one in fresh if one.voice in ("user", "model")) >= GROWTH
    )


async def extract(agent: Agent, *, after: Turn = "answer") -> Outcome:
    """Keep what is worth keeping since the last extraction.

    After a failed turn only requests to remember are kept; the rest is examined later.
    """
    memories, session = agent.memory.memories, agent.session
    assert memories is not None
    entries, since = session.history(), session.extracted
    last, outcome = entries[-1].seq, Outcome()
    try:
        known = await anyio.to_thread.run_sync(memories.all)
        ground = _ground(agent, entries, known, since=since)
        if not _done_itself(entries, since):
            weighed = await _weighed(agent, ground, after=after)
            if after == "failure" and not weighed:
                return outcome
            why = "learned from the conversation"
            unkept = unkept_wishes(agent, weighed, ground)
            outcome = await settle(agent, weighed, ground, why=why, unkept=unkept)
    except (OSError, UserError) as error:
        session.emit(UserWarned(f"Memory extraction failed: {error}"))
        return Outcome(refused=(str(error),))
    session.append(Noted("extracted", str(last)))
    return outcome


async def settle(
    agent: Agent,
    weighed: Sequence[Weighed],
    ground: Ground,
    *,
    why: str,
    unkept: tuple[str, ...] = (),
) -> Outcome:
    """Apply, propose or drop the checked drafts, as the user wants it in each scope; record it."""
    memories = agent.memory.memories
    assert memories is not None
    put = [await _anchored(agent, one.change) for one in weighed if isinstance(one, Accepted)]
    held = [(one.change, one.why) for one in weighed if isinstance(one, Held)]
    auto = [one for one in put if memories.consent(one.memory.scope) == "auto"]
    held += [(one, "memory asks first in this scope") for one in put if one not in auto]
    gone = [
        one.drop
        for one in weighed
        if isinstance(one, Accepted) and one.drop and memories.consent(scope_of(one)) == "auto"
    ]
    done = await _made(agent, [*auto, *gone], why=why, session=ground.session)
    proposed: list[str] = []
    for change, reason in held:
        if memories.consent(change.memory.scope) != "off":
            lay = partial(memories.propose, [change], why=reason)
            proposed += await anyio.to_thread.run_sync(lay)
    refused = (*(one.why for one in weighed if isinstance(one, Refused)), *done.refused)
    outcome = Outcome(done.id, done.diff, tuple(proposed), refused, unkept)
    if weighed or unkept:
        agent.session.append(Noted("memory", msgspec.json.encode(outcome).decode()))
    return outcome


def scope_of(verdict: Accepted | Held) -> Scope:
    """Return the scope of an accepted draft."""
    return verdict.change.memory.scope


def unkept_wishes(agent: Agent, weighed: Sequence[Weighed], ground: Ground) -> tuple[str, ...]:
    """Explain each request to remember that is not kept, and how to keep it anyway."""
    assert agent.memory.memories is not None
    off: set[Scope] = {scope for scope in SCOPES if agent.memory.memories.consent(scope) == "off"}
    puts = [one for one in weighed if isinstance(one, Accepted | Held)]
    rests = [e.words.casefold() for one in puts if scope_of(one) not in off for e in _rests(one)]
    asked = (one for one in ground.said if one.seq > ground.since and one.voice == "user")
    wishes = [one for one in signals(asked) if one.kind == "remember"]
    return tuple(
        _unkept(agent, wish, _why_not(wish, ground, off))
        for wish in wishes
        if not any(_overlaps(words, wish.sentence) for words in rests)
        and not (rests and points_elsewhere(wish.sentence))
    )


def _rests(verdict: Accepted | Held) -> tuple[Evidence, ...]:
    return verdict.change.memory.evidence


def _overlaps(words: str, sentence: str) -> bool:
    """Return whether a quote and a sentence contain one another."""
    flat, whole = " ".join(words.split()), " ".join(sentence.casefold().split())
    return flat in whole or whole in flat


def _why_not(wish: Signal, ground: Ground, off: Collection[Scope]) -> str:
    """Return why the rules do not keep a wish."""
    drafted = draft(wish)
    (verdict,) = weigh_all([drafted], ground)
    if points_elsewhere(wish.sentence):
        return "it does not say by itself what it means"
    if isinstance(verdict, Refused):
        return verdict.why
    scope = scope_of(verdict)
    if scope in off:
        return f"memory is off for the {scope} scope (memory.consent.{scope})"
    return "it could not be understood"


def _unkept(agent: Agent, wish: Signal, why: str) -> str:
    """Format the message about a wish that is not kept."""
    if "secret" in why or _secret(agent, wish.sentence):
        return f"Not remembered: {why}. Keep it in a secret store, and say where that is."
    if any(word in why for word in KNOWN):
        return f"Not remembered again: {why}."
    text = "TEXT" if points_elsewhere(wish.sentence) else quote(draft(wish).text[:SHOWN])
    return f"Not remembered: {why}. To keep it anyway: travois memory add {plain(text)}"


class Recorder:
    """The interface through which a tool remembers and forgets, under the usual checks."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def remember(self, draft: Draft) -> str:
        """Keep what the user just asked for; return a message about the outcome."""
        agent, memories = self._agent, self._agent.memory.memories
        assert memories is not None
        entries = agent.session.history()
        known = await anyio.to_thread.run_sync(memories.all)
        ground = _ground(agent, entries, known, since=0)
        told = replace(draft, words=draft.words or _nearest(draft.text, ground.said))
        (verdict,) = weighed = weigh_all([told], ground)
        outcome = await settle(agent, weighed, ground, why="on request")
        if isinstance(verdict, Refused):
            return f"Not remembered: {verdict.why}. {_acceptable(agent, verdict, told.words)}"
        waits = verdict.why if isinstance(verdict, Held) else "memory asks first in this scope"
        if outcome.proposed:
            return f"Not remembered yet: {waits}. It is in the inbox (travois memory inbox)."
        return outcome.diff or f"Not remembered: {'; '.join(outcome.refused) or 'memory is off'}."

    async def forget(self, name: str) -> str:
        """Delete a memory if the user asked for it; return a message about the outcome."""
        agent, memories = self._agent, self._agent.memory.memories
        assert memories is not None
        entries = agent.session.history()
        known = await anyio.to_thread.run_sync(memories.all)
        drop = [Drop(m.name, m.scope, "on request") for m in known if m.name == name][:1]
        if not drop:
            return f"There is no memory {name!r}. Available: {', '.join(m.name for m in known)}."
        if not FORGET.search(_last_said(heard(entries))):
            lay = partial(memories.propose, drop, why="the user did not ask for it")
            await anyio.to_thread.run_sync(lay)
            return "Not forgotten yet: the user did not ask for it. It is in the inbox."
        done = await _made(agent, drop, why="forgotten on request", session=_session(entries))
        outcome = Outcome(done.id, done.diff, (), done.refused)
        agent.session.append(Noted("memory", msgspec.json.encode(outcome).decode()))
        return done.diff or f"Not forgotten: {'; '.join(done.refused)}."


def _acceptable(agent: Agent, verdict: Refused, words: str) -> str:
    """Return what would be kept instead of a rejected draft; secrets are not repeated."""
    if "secret" in verdict.why:
        return "Leave the secret out: say where it is kept, if the user said so."
    if any(word in verdict.why for word in KNOWN):
        return "Nothing to do: later sessions know it anyway."
    rule = "A memory restates in one sentence what the user asked to remember, in their own words"
    if not asked_to_remember(words) or _secret(agent, words):
        return f"{rule}; they have not asked for this, so ask them first."
    kept = "The user can keep it as it is with `travois memory add TEXT`."
    return f"{rule}, here: {words.strip()[:200]!r}. {kept}"


def _ground(agent: Agent, entries: list[Entry], known: tuple[Memory, ...], *, since: int) -> Ground:
    """Collect everything that drafts are checked against."""
    files = (
        agent.prompt.instructions.load_always(nested(agent)).files
        if agent.prompt.instructions is not None
        else ()
    )
    return Ground(
        session=_session(entries),
        said=heard(entries),
        secret=partial(_secret, agent),
        known=known,
        rules=tuple(file.text for file in files),
        since=since,
        now=agent.runtime.clock(),
    )


def _secret(agent: Agent, text: str) -> str:
    return find_leak(text) or ("session secret" * (agent.session.secrets.redact(text) != text))


async def _weighed(agent: Agent, ground: Ground, *, after: Turn) -> list[Weighed]:
    """Check the model's drafts, and the requests to remember that it missed; or use rules alone."""
    fresh = tuple(one for one in ground.said if one.seq > ground.since)
    by_rule = tuple(ruled(fresh, ground.said))
    if after == "failure":
        return weigh_all([one for one in by_rule if asked_to_remember(one.words)], ground)
    reply = await _reply(agent, ground, fresh) if agent.memory.extract == "model" else ""
    found = drafts(reply) if reply else by_rule
    weighed = weigh_all(found, ground)
    kept = [
        one for one, verdict in zip(found, weighed, strict=True) if not isinstance(verdict, Refused)
    ]
    missed = [one for one in by_rule if asked_to_remember(one.words) and not _any_covers(kept, one)]
    if not reply or not missed:
        return weighed
    fresh_known = tuple(one.change.memory for one in weighed if isinstance(one, Accepted))
    return [*weighed, *weigh_all(missed, replace(ground, known=(*ground.known, *fresh_known)))]


async def _reply(agent: Agent, ground: Ground, fresh: tuple[Heard, ...]) -> str:
    """Ask the model for drafts, with the nearest known memories."""
    near: tuple[Memory, ...] = ()
    if agent.memory.memories is not None and ground.known:
        about = "\n".join(one.text for one in fresh if one.voice == "user")[-ABOUT:]
        search = partial(agent.memory.memories.search, about, limit=NEAREST)
        near = await anyio.to_thread.run_sync(search)
    return await ask_in_fork(agent, request(PROMPT.read_text("utf-8"), near), what="memories")


def _any_covers(kept: Iterable[Draft], wish: Draft) -> bool:
    """Return whether a kept draft quotes this wish or says the same."""
    words = wish.words.casefold()
    return any(one.words.strip().casefold() in words or same(one.text, wish.text) for one in kept)


def _done_itself(entries: Iterable[Entry], since: int) -> bool:
    """Return whether the model used the Remember tool since the last extraction."""
    replies = (e.fact for e in entries if e.seq > since and isinstance(e.fact, Assistant))
    return any(
        canonical_name(call.name) == "Remember"
        for reply in replies
        for call in extract_calls(reply.content)
    )


def _nearest(text: str, said: Iterable[Heard]) -> str:
    """Return the sentence of the user's last message that shares most with a text."""
    last = _last_said(said)
    return max(spoken(last), key=lambda line: covered(text, content(line)), default=last)


def _last_said(said: Iterable[Heard]) -> str:
    own = [one.text for one in said if one.voice == "user"]
    return own[-1] if own else ""


def _session(entries: Iterable[Entry]) -> str:
    ids = [entry.fact.session for entry in entries if isinstance(entry.fact, Opened)]
    return ids[-1] if ids else ""


async def _made(agent: Agent, changes: Sequence[Change], *, why: str, session: str) -> Applied:
    if not changes or agent.memory.memories is None:
        return Applied("", "")
    make = partial(agent.memory.memories.apply, changes, why=why, session=session)
    return await anyio.to_thread.run_sync(make)


async def _anchored(agent: Agent, change: Put) -> Put:
    """Add the current digests of the files that a memory names."""
    memories, memory = agent.memory.memories, change.memory
    assert memories is not None
    paths = dict.fromkeys(PATHS.findall(memory.body)[:FILES])
    found = [await anyio.to_thread.run_sync(memories.anchor, path) for path in paths]
    anchors = tuple(anchor for anchor in found if anchor is not None)
    return Put(replace(memory, anchors=anchors or memory.anchors))
