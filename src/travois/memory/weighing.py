"""Looking through a conversation for what is worth keeping.

The model proposes drafts in a fork that has no tools; rules decide what becomes of each. Without a
model, or where it fails, rules find the drafts too.
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

from travois.core.content import calls
from travois.core.errors import Fault
from travois.core.facts import Assistant, Entry, Noted, Opened
from travois.core.tokens import estimate
from travois.core.tool_names import canonical_name
from travois.core.view import View
from travois.engine.agent import Agent
from travois.engine.fork import inquire
from travois.memory.accept import Accepted, Ground, Held, Refused, Weighed, weigh_all
from travois.memory.drafts import NEAREST, Draft, drafts, request
from travois.memory.memory import Change, Drop, Evidence, Memory, Put, Scope
from travois.memory.port import GROWTH, Applied, Outcome, Turn
from travois.memory.signals import Signal, draft, explicit, points_elsewhere, ruled, signals
from travois.memory.similarity import content, covered, same
from travois.memory.speakers import Heard, heard, spoken
from travois.permissions.secrets import leak
from travois.ports.world import Warned
from travois.prompt.briefing import nested
from travois.prompt.environment import plain

PROMPT = Path(__file__).parent / "prompts" / "extract.md"
PATHS = re.compile(r"(?<![\w/:.])[\w.@-]*(?:/[\w.@-]+)*\.\w{1,8}\b")
FILES = 5
ABOUT = 2_000
"""How many characters of what a person said are searched with."""
SHOWN = 200
"""How many characters of a wish are told again."""
KNOWN = ("known", "pinned", "repeats", "files of the project")
"""What stands in the reason of a refusal where later sessions learn it anyway."""
SCOPES: tuple[Scope, ...] = ("project", "user", "team")
FORGET = re.compile(r"(?i)\b(?:forget|remove|delete|drop|erase|outdated|wrong|no longer)\b")


def due(view: View, since: int) -> bool:
    """Whether there may be something worth keeping in what was said after an entry.

    What tools brought and what a person only passed on is no talk.
    """
    fresh = heard(Entry(item.seq, 0.0, item.fact) for item in view.items if item.seq > since)
    if any(True for _ in signals(fresh)):
        return True
    return sum(estimate(one.text) for one in fresh if one.voice in ("user", "model")) >= GROWTH


async def extract(agent: Agent, *, after: Turn = "answer") -> Outcome:
    """Keep what is worth it of what was said since the last time.

    After a failure only what a person asked for is kept; the rest can be looked at later.
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
    except (OSError, Fault) as error:
        session.emit(Warned(f"Nothing could be remembered: {error}"))
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
    """Make, propose or leave what was weighed, as the user wants it in each scope; on record."""
    memories = agent.memory.memories
    assert memories is not None
    put = [await _anchored(agent, one.change) for one in weighed if isinstance(one, Accepted)]
    held = [(one.change, one.why) for one in weighed if isinstance(one, Held)]
    auto = [one for one in put if memories.consent(one.memory.scope) == "auto"]
    held += [(one, "memory asks first here") for one in put if one not in auto]
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
    """Whom what was weighed is for."""
    return verdict.change.memory.scope


def unkept_wishes(agent: Agent, weighed: Sequence[Weighed], ground: Ground) -> tuple[str, ...]:
    """Say of each wish to remember something that is not kept why, and how to keep it anyway."""
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
    """Whether a memory rests on words of this sentence."""
    flat, whole = " ".join(words.split()), " ".join(sentence.casefold().split())
    return flat in whole or whole in flat


def _why_not(wish: Signal, ground: Ground, off: Collection[Scope]) -> str:
    """Why a wish is not kept, as rules see it."""
    drafted = draft(wish)
    (verdict,) = weigh_all([drafted], ground)
    if points_elsewhere(wish.sentence):
        return "it does not say by itself what is meant"
    if isinstance(verdict, Refused):
        return verdict.why
    scope = scope_of(verdict)
    if scope in off:
        return f"memory is off for the {scope} scope (memory.consent.{scope})"
    return "it was not understood"


def _unkept(agent: Agent, wish: Signal, why: str) -> str:
    if "secret" in why or _secret(agent, wish.sentence):
        return f"Not remembered: {why}. Keep it where secrets are kept, and say where that is."
    if any(word in why for word in KNOWN):
        return f"Not remembered again: {why}."
    text = "TEXT" if points_elsewhere(wish.sentence) else quote(draft(wish).text[:SHOWN])
    return f"Not remembered: {why}. To keep it anyway: travois memory add {plain(text)}"


class Recorder:
    """The way in which a tool remembers and forgets: by the same rules as everything else."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def remember(self, draft: Draft) -> str:
        """Keep what the user just asked for; says what came of it."""
        agent, memories = self._agent, self._agent.memory.memories
        assert memories is not None
        entries = agent.session.history()
        known = await anyio.to_thread.run_sync(memories.all)
        ground = _ground(agent, entries, known, since=0)
        told = replace(draft, words=draft.words or _nearest(draft.text, ground.said))
        (verdict,) = weighed = weigh_all([told], ground)
        outcome = await settle(agent, weighed, ground, why="asked for")
        if isinstance(verdict, Refused):
            return f"Not remembered: {verdict.why}. {_acceptable(agent, verdict, told.words)}"
        waits = verdict.why if isinstance(verdict, Held) else "memory asks first here"
        if outcome.proposed:
            return f"Not remembered yet: {waits}. It waits in the inbox (travois memory inbox)."
        return outcome.diff or f"Not remembered: {'; '.join(outcome.refused) or 'memory is off'}."

    async def forget(self, name: str) -> str:
        """Drop a memory; says what came of it. Nobody but the user can ask for that."""
        agent, memories = self._agent, self._agent.memory.memories
        assert memories is not None
        entries = agent.session.history()
        known = await anyio.to_thread.run_sync(memories.all)
        drop = [Drop(m.name, m.scope, "asked for") for m in known if m.name == name][:1]
        if not drop:
            return f"There is no memory {name!r}. There are: {', '.join(m.name for m in known)}."
        if not FORGET.search(_last_said(heard(entries))):
            lay = partial(memories.propose, drop, why="the user did not ask for it")
            await anyio.to_thread.run_sync(lay)
            return "Not forgotten yet: the user did not ask for it. It waits in the inbox."
        done = await _made(agent, drop, why="forgotten as asked", session=_session(entries))
        outcome = Outcome(done.id, done.diff, (), done.refused)
        agent.session.append(Noted("memory", msgspec.json.encode(outcome).decode()))
        return done.diff or f"Not forgotten: {'; '.join(done.refused)}."


def _acceptable(agent: Agent, verdict: Refused, words: str) -> str:
    """Return what would be kept in place of what was refused; secrets are not repeated."""
    if "secret" in verdict.why:
        return "Leave the secret out: say where it is kept, if the user said so."
    if any(word in verdict.why for word in KNOWN):
        return "Nothing needs to be done: later sessions learn it anyway."
    rule = "A memory restates in one sentence what the user asked to remember, in their own words"
    if not explicit(words) or _secret(agent, words):
        return f"{rule}; they have not asked for this, so ask them first."
    kept = "The user can keep it as it is with `travois memory add TEXT`."
    return f"{rule}, here: {words.strip()[:200]!r}. {kept}"


def _ground(agent: Agent, entries: list[Entry], known: tuple[Memory, ...], *, since: int) -> Ground:
    files = (
        agent.prompt.instructions.standing(nested(agent)).files
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
    return leak(text) or ("secret of ours" * (agent.session.secrets.redacted(text) != text))


async def _weighed(agent: Agent, ground: Ground, *, after: Turn) -> list[Weighed]:
    """What the model would keep, and what a person asked for that it did not see; or by rule."""
    fresh = tuple(one for one in ground.said if one.seq > ground.since)
    by_rule = tuple(ruled(fresh, ground.said))
    if after == "failure":
        return weigh_all([one for one in by_rule if explicit(one.words)], ground)
    reply = await _reply(agent, ground, fresh) if agent.memory.extract == "model" else ""
    found = drafts(reply) if reply else by_rule
    weighed = weigh_all(found, ground)
    kept = [one for one, verdict in zip(found, weighed, strict=True) if not _refused(verdict)]
    missed = [one for one in by_rule if explicit(one.words) and not _any_covers(kept, one)]
    if not reply or not missed:
        return weighed
    fresh_known = tuple(one.change.memory for one in weighed if isinstance(one, Accepted))
    return [*weighed, *weigh_all(missed, replace(ground, known=(*ground.known, *fresh_known)))]


async def _reply(agent: Agent, ground: Ground, fresh: tuple[Heard, ...]) -> str:
    near: tuple[Memory, ...] = ()
    if agent.memory.memories is not None and ground.known:
        about = "\n".join(one.text for one in fresh if one.voice == "user")[-ABOUT:]
        search = partial(agent.memory.memories.search, about, limit=NEAREST)
        near = await anyio.to_thread.run_sync(search)
    return await inquire(agent, request(PROMPT.read_text("utf-8"), near), what="memories")


def _refused(verdict: Weighed) -> bool:
    return isinstance(verdict, Refused)


def _any_covers(kept: Iterable[Draft], wish: Draft) -> bool:
    """Whether a draft rests on these words, or says the same."""
    words = wish.words.casefold()
    return any(one.words.strip().casefold() in words or same(one.text, wish.text) for one in kept)


def _done_itself(entries: Iterable[Entry], since: int) -> bool:
    """Whether the model remembered something itself in what is to be looked through."""
    replies = (e.fact for e in entries if e.seq > since and isinstance(e.fact, Assistant))
    return any(
        canonical_name(call.name) == "Remember"
        for reply in replies
        for call in calls(reply.content)
    )


def _nearest(text: str, said: Iterable[Heard]) -> str:
    """The sentence of the person's last message that has most of this."""
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
    """The memory with the digests of the files that it speaks of, as they are at the moment."""
    memories, memory = agent.memory.memories, change.memory
    assert memories is not None
    paths = dict.fromkeys(PATHS.findall(memory.body)[:FILES])
    found = [await anyio.to_thread.run_sync(memories.anchor, path) for path in paths]
    anchors = tuple(anchor for anchor in found if anchor is not None)
    return Put(replace(memory, anchors=anchors or memory.anchors))
