"""Compaction: what was established takes the place of the older conversation, in one fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec.structs import replace

from travois.context.compact import Cut, Trigger, cut
from travois.engine.agent import Agent
from travois.engine.briefing import reloaded
from travois.engine.fork import inquire
from travois.engine.hooks import bounded, fire
from travois.engine.notes import is_updating, keep_notes, keeps_notes, notes, offer_notes
from travois.engine.occasions import PostCompact, PreCompact, SessionStart
from travois.engine.ports import Warned
from travois.engine.restore import SHARE, SKILLS, Held, practised, recent, restored
from travois.engine.room import fitted, hard_stop, limit, model
from travois.engine.signed import record
from travois.engine.summary import summarise
from travois.kernel.blocks import words
from travois.kernel.facts import Compacted, Failed, Noted, User
from travois.kernel.tokens import context_tokens, estimate, head_tokens, ratio

PROMPT = Path(__file__).parent.parent / "context" / "prompts" / "summary.md"
AGENT_PROMPT = PROMPT.with_name("summary-agent.md")
RUNGS = (1.0, 0.5, 0.2, 0.0)
"""How much of the usual tail is kept, try by try, until the rest fits."""


async def compact(
    agent: Agent, *, trigger: Trigger, focus: str = "", goal: int = 0, part: Cut | None = None
) -> Compacted | None:
    """Make one fact of the older conversation; none, with the reason told, if that cannot help.

    `goal` is the size to come below, where the provider has told that the usual one is too large.
    `part` is what gives way, where a person has chosen it.
    """
    if not agent.layers.shorten:
        by = agent.layers.off_by or "context.compact"
        agent.session.append(Failed("compaction", f"compaction is switched off ({by})"))
        return None
    began, omitted = agent.clock(), agent.session.view.omitted
    why = "manual" if trigger == "manual" else "auto"
    heard = await fire(agent, PreCompact(why, focus))
    if heard.block and trigger != "overflow":
        agent.session.append(Failed("compaction", f"a hook says: {heard.block}"))
        return None
    words_of_hooks = tuple(bounded(agent, text) for text in heard.context)
    stop = hard_stop(model(agent), agent.layers)
    usual = min(limit(agent), stop)
    held = await recent(agent, agent.session.history())
    fact = None
    if not focus and part is None and not words_of_hooks:
        fact = await _noted(agent, trigger=trigger, goal=goal or usual, held=held)
    if fact is None:
        prose = await _prose(agent, trigger=trigger, focus=focus, hooks=words_of_hooks)
        cuts = ((1.0, part),) if part else rungs(agent)
        fact = shorter(agent, cuts, trigger=trigger, prose=prose, goal=goal or usual, held=held)
    most = goal or stop
    if part is None and (fact is None or fact.after >= most):
        fact = shorter(agent, last_rungs(agent), trigger=trigger, goal=most) or fact
    if fact is None:
        _decline(agent)
        return None
    fact = replace(fact, seconds=max(0.0, agent.clock() - began), limit=limit(agent))
    fact = await record(agent, fact)
    if trigger != "manual":  # whoever asked for it is given the fact
        agent.session.emit(Warned(receipt(fact)))
    if omitted:
        kept = f"{omitted:,} older messages of this very long session are kept in its log only"
        agent.session.emit(Warned(kept))
    await reloaded(agent)
    await fire(agent, PostCompact(why, words(fact.summary)))
    await fire(agent, SessionStart("compact"))
    return fact


async def _noted(
    agent: Agent, *, trigger: Trigger, goal: int, held: tuple[Held, ...]
) -> Compacted | None:
    """The fact with the notes as the model's part; none where they cannot help."""
    offer = await offer_notes(agent)
    if offer is None:
        return None
    cuts = ((1.0, offer.cut),)
    fact = shorter(agent, cuts, trigger=trigger, prose=offer.text, goal=goal, held=held)
    return fact if fact is not None and fact.after < goal else None


def prepare(agent: Agent) -> None:
    """Let the model write its part beforehand, so that nobody waits when the time has come.

    Where notes are kept, those are its part.
    """
    keep_notes(agent)
    if keeps_notes(agent) and (is_updating(agent) or notes(agent).text):
        return
    if agent.background is not None and agent.layers.draft and not agent.session.drafted:
        agent.background(lambda: _drafted(agent))


async def _drafted(agent: Agent) -> None:
    text = await inquire(agent, _instruction(agent, ""), what="summary")
    if text:
        agent.session.append(Noted("draft", text))


def receipt(fact: Compacted) -> str:
    """What a compaction did, in one line."""
    saved = f"{fact.before:,} to about {fact.after:,} tokens"
    spans = f"{len(fact.files)} span{'' if len(fact.files) == 1 else 's'}"
    return f"compacted ({fact.trigger}): {saved}; {spans} set aside, none lost"


def rungs(agent: Agent) -> Iterator[tuple[float, Cut]]:
    """Where the conversation may be cut, the longest tail first, each with its share of it."""
    for rung in RUNGS:
        if parted := cut(agent.session.view, tail=round(fitted(agent).tail * rung)):
            yield rung, parted


def last_rungs(agent: Agent) -> Iterator[tuple[float, Cut]]:
    """What is left to try where even that is too large which waits for an answer.

    First all but the last message gives way, then all: what was said can be read in the files.
    """
    items = tuple(agent.session.view.items)
    if items[1:] and isinstance(items[-1].fact, User):
        yield 0.0, Cut(items[:-1], items[-1:])
    yield 0.0, Cut(items, ())


def shorter(
    agent: Agent,
    cuts: Iterable[tuple[float, Cut]],
    *,
    trigger: Trigger,
    goal: int,
    prose: str = "",
    held: tuple[Held, ...] = (),
) -> Compacted | None:
    """The fact of the first cut that brings the conversation below its limit, or of the best."""
    layers = fitted(agent)
    before, best = context_tokens(agent.session.view), None
    room = min(SHARE * model(agent).window, before / 4) / ratio(agent.session.view)
    entries = agent.session.history()
    for rung, parted in cuts:
        files = restored(held, parted.kept, budget=round(room * rung))
        most = round(min(SKILLS, room) * rung)
        back = (*files, *practised(entries, parted.kept, budget=most))
        fact = summarise(agent, parted, entries, layers=layers, prose=prose, restored=back)
        fact = replace(fact, trigger=trigger, before=before)
        if fact.after < before and (best is None or fact.after < best.after):
            best = fact
        if fact.after < goal:
            break
    return best


async def _prose(agent: Agent, *, trigger: Trigger, focus: str, hooks: tuple[str, ...] = ()) -> str:
    """The model's part: prepared if it is there, asked for if a person or a hook has a say in it.

    One that is longer than all that rules gather is no summary and is thrown away. What hooks said
    is kept as it is where no model is asked: the window is full, or the cache is gone.
    """
    asking = trigger == "manual" or (trigger == "auto" and bool(hooks))
    text = ""
    if agent.layers.draft and asking:
        text = await inquire(agent, _instruction(agent, focus, hooks), what="summary")
    elif agent.layers.draft:
        text = agent.session.draft
    text = text if estimate(text) <= fitted(agent).ledger else ""
    return text if asking and text else "\n\n".join(part for part in (text, *hooks) if part)


def _instruction(agent: Agent, focus: str, hooks: tuple[str, ...] = ()) -> str:
    """What the model is asked for: the user's own words first, then those of hooks in order."""
    prompt = PROMPT if agent.birth is None else AGENT_PROMPT
    parts = [prompt.read_text("utf-8").strip()]
    parts += [f"Give most room to: {focus}"] if focus else []
    parts += [f"The user's hooks add:\n{text}" for text in hooks]
    return "\n\n".join(parts)


def _decline(agent: Agent) -> None:
    """Say why nothing could be made shorter, with the numbers."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    sizes = f"{context_tokens(view):,} tokens in use, {head:,} of them system text and tools"
    agent.session.append(Failed("compaction", f"nothing could be made shorter: {sizes}"))
    agent.session.emit(Warned(f"compaction cannot help: {sizes}"))
