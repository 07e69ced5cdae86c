"""Compaction: a summary becomes the new context in place of the older conversation, as one fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from travois.context.compaction.cut import SET_ASIDE, Cut, Trigger, cut
from travois.context.compaction.passages import spoken_names
from travois.context.compaction.restore import SHARE, SKILLS, Held, practised, recent, restored
from travois.context.compaction.summary import Paper, summarise
from travois.context.compaction.summary_call import (
    Wish,
    Written,
    inherited_view,
    is_outdated,
    prepare_draft,
    told_source,
    write_model_part,
)
from travois.context.session_memory.keep import (
    is_updating,
    keep_notes,
    keeps_notes,
    notes,
    offer_notes,
)
from travois.context.window import fitted, hard_stop, limit, model
from travois.core.content import Opaque, Text, extract_text
from travois.core.facts import Compacted, Failed, Noted, User
from travois.core.models import COMPACTION_BETA
from travois.core.tokens import block_tokens, context_tokens, head_tokens, token_ratio
from travois.core.view import View, awaits_model, has_thinking
from travois.engine.agent import Agent
from travois.engine.fork import ask_quietly
from travois.hooks.events import PostCompact, PreCompact, SessionStart
from travois.hooks.fire import bounded, fire
from travois.ports.world import CompactionProgress, UserWarned
from travois.prompt.briefing import reloaded
from travois.providers.anthropic_extras import summing

# The provider's own summary: it is signed, so that the thinking after it stays valid.


WARM = ("auto", "manual")
"""Triggers at which the cache is warm: else the provider's summary costs more than it is worth."""
OURS = (
    f"{SET_ASIDE} A summary stands in their place; the newest messages come after it unchanged. "
    "What follows was gathered from the record and goes beyond that summary. Go on with the work "
    "where it stands. Anything that was set aside can be read again in the files named below, or "
    "found with Recall."
)


async def record(agent: Agent, fact: Compacted) -> Compacted:
    """Append a compaction to the log, with the provider's own summary where there is one.

    With that one, our text goes to the tail: nothing may stand between the provider's summary and
    the thinking that it keeps valid.
    """
    block = await _summary(agent, fact)
    if block is None:
        agent.session.append(fact)
        return fact
    texts = [_reopened(block.text) for block in fact.summary if isinstance(block, Text)]
    summary, size = (block, *map(Text, texts)), fact.after + block_tokens(block)
    signed = replace(fact, summary=summary, by="provider", after=size)
    agent.session.append(signed)
    return signed


def _reopened(text: str) -> str:
    """Rewrite the opening of our text for use beside the provider's summary."""
    _, gap, rest = text.partition("\n\n")
    return f"{OURS}{gap}{rest}" if text.startswith(SET_ASIDE) else text


async def _summary(agent: Agent, fact: Compacted) -> Opaque | None:
    """Ask the provider for its own summary of the span; None where it cannot or will not."""
    view = _before(agent.session.view, fact)
    able = agent.context.layers.signed and COMPACTION_BETA in model(agent).betas
    if view is None or not able or fact.trigger not in WARM:
        return None
    reply = await ask_quietly(agent, view, what="signed summary", change=summing)
    match reply.content if reply else ():
        case (Opaque(kind="compaction", text=text) as block,) if text.strip():
            return block
        case _:
            return None


def _before(view: View, fact: Compacted) -> View | None:
    """Return the conversation up to the end of the span, if it was once a request of its own."""
    ends = [index for index, item in enumerate(view.items, 1) if item.seq == fact.last]
    if not ends or view.items[0].seq != fact.first or not has_thinking(view):
        return None
    part = View(epoch=view.epoch, items=view.items[: ends[0]], moves=view.moves, since=view.since)
    return part if awaits_model(part) else None


RUNGS = (1.0, 0.5, 0.2, 0.0)
"""Shares of the usual tail, tried in turn until the rest fits."""


async def compact(
    agent: Agent, *, trigger: Trigger, focus: str = "", goal: int = 0, part: Cut | None = None
) -> Compacted | None:
    """Replace the older conversation with a summary; None, with the reason logged, if it cannot
    help.

    `goal` is the size to get below, where the provider rejected the usual one as too large. `part`
    is the part to replace, where a person has chosen it.
    """
    if not agent.context.layers.shorten:
        by = agent.context.layers.off_by or "context.compact"
        agent.session.append(Failed("compaction", f"compaction is turned off ({by})"))
        return None
    why = "manual" if trigger == "manual" else "auto"
    heard = await fire(agent, PreCompact(why, focus))
    if heard.block and trigger != "overflow":
        agent.session.append(Failed("compaction", f"blocked by a PreCompact hook: {heard.block}"))
        return None
    hooks = tuple(bounded(agent, text) for text in heard.context)
    try:
        fact = await _replace(agent, Wish(trigger, focus, hooks, part), goal=goal)
    finally:
        agent.session.emit(CompactionProgress(over=True))
    if fact is None:
        return None
    await reloaded(agent)
    await fire(agent, PostCompact(why, extract_text(fact.summary)))
    await fire(agent, SessionStart("compact"))
    return fact


async def _replace(agent: Agent, wish: Wish, *, goal: int) -> Compacted | None:
    """Build the summary, append it to the log and report what it freed."""
    began, omitted = agent.runtime.clock(), agent.session.view.omitted
    fact = await _shortest(agent, wish, goal=goal)
    if fact is None:
        _decline(agent)
        return None
    fact = replace(fact, seconds=max(0.0, agent.runtime.clock() - began), limit=limit(agent))
    fact = await record(agent, fact)
    if wish.trigger != "manual":  # whoever asked for it is given the fact
        agent.session.emit(UserWarned(receipt(fact)))
    if omitted:
        kept = f"This session is very long: {omitted:,} older messages are only in its log"
        agent.session.emit(UserWarned(kept))
    return fact


async def _shortest(agent: Agent, wish: Wish, *, goal: int) -> Compacted | None:
    """Build the compaction with the longest tail that fits, with the model's part up to date."""
    held = await recent(agent, agent.session.history())
    stop = hard_stop(model(agent), agent.context.layers)
    aim, most, part = goal or min(limit(agent), stop), goal or stop, wish.part
    if fact := await _from_notes(agent, wish, goal=aim, held=held):
        return fact
    written = await write_model_part(agent, wish)

    def made(written: Written) -> Compacted | None:
        cuts = ((1.0, part),) if part else rungs(agent)
        fact = shorter(agent, cuts, wish=wish, written=written, goal=aim, held=held)
        if part is None and (fact is None or fact.after >= most):
            bare = replace(
                written, text="", source="ledger", why="no room for a summary by the model"
            )
            return shorter(agent, last_rungs(agent), wish=wish, written=bare, goal=most) or fact
        return fact

    fact = made(written)
    if fact and part is None and is_outdated(agent, written, until=fact.last):
        fact = made(await write_model_part(agent, replace(wish, anew=True))) or fact
    return fact


async def _from_notes(
    agent: Agent, wish: Wish, *, goal: int, held: tuple[Held, ...]
) -> Compacted | None:
    """Build the compaction with the session notes as the model's part; None where they cannot help.

    Notes cannot know what a person or a hook asks of this very summary.
    """
    if wish.focus or wish.hooks or wish.part:
        return None
    offer = await offer_notes(agent)
    if offer is None:
        return None
    written = Written(offer.text, "notes", offer.covers)
    cuts = ((1.0, offer.cut),)
    fact = shorter(agent, cuts, wish=wish, written=written, goal=goal, held=held)
    return fact if fact is not None and fact.after < goal else None


def prepare(agent: Agent) -> None:
    """Let the model write its part in advance, so that little is left to write at the cut.

    Where notes are kept, they are its part. A fork that can still share a summary with its siblings
    waits for the cut: a draft would cover its own part too, and be of use to it alone.
    """
    keep_notes(agent)
    if keeps_notes(agent) and (is_updating(agent) or notes(agent).text):
        return
    may_draft = agent.context.layers.draft and not agent.session.drafted
    if agent.runtime.background is None or not may_draft or inherited_view(agent, Wish("auto")):
        return
    agent.runtime.background(lambda: _drafted(agent))


async def _drafted(agent: Agent) -> None:
    text = await prepare_draft(agent)
    if text and agent.session.drafted:  # else a compaction came first, which did without it
        agent.session.append(Noted("draft", text))


def receipt(fact: Compacted) -> str:
    """Describe in one line what a compaction freed and who wrote the summary."""
    saved = f"{fact.before:,} → about {fact.after:,} tokens"
    spans = f"{len(fact.files)} span{'' if len(fact.files) == 1 else 's'}"
    told = f"Compacted ({fact.trigger}): {saved}; {spans} saved to disk"
    if not fact.source:
        return told
    why = f" ({fact.why})" if fact.why else ""
    return f"{told}; summary {told_source(fact.source)}{why}"


def rungs(agent: Agent) -> Iterator[tuple[float, Cut]]:
    """Yield the cuts to try, longest tail first, each with its share of the usual tail."""
    for rung in RUNGS:
        if parted := cut(agent.session.view, tail=round(fitted(agent).tail * rung)):
            yield rung, parted


def last_rungs(agent: Agent) -> Iterator[tuple[float, Cut]]:
    """Yield the cuts to try when the unanswered messages alone are too large.

    First all but the last message is replaced, then everything: the files still have it.
    """
    items = tuple(agent.session.view.items)
    if items[1:] and isinstance(items[-1].fact, User):
        yield 0.0, Cut(items[:-1], items[-1:])
    yield 0.0, Cut(items, ())


def shorter(
    agent: Agent,
    cuts: Iterable[tuple[float, Cut]],
    *,
    wish: Wish,
    written: Written,
    goal: int,
    held: tuple[Held, ...] = (),
) -> Compacted | None:
    """Return the compaction of the first cut that gets below `goal`, or else the smallest one."""
    layers = fitted(agent)
    before, best = context_tokens(agent.session.view), None
    room = min(SHARE * model(agent).window, before / 4) / token_ratio(agent.session.view)
    entries = agent.session.history()
    names = spoken_names(entries) if held else {}
    for rung, parted in cuts:
        files = restored(held, parted.kept, budget=round(room * rung), names=names)
        most = round(min(SKILLS, room) * rung)
        back = (*files, *practised(entries, parted.kept, budget=most))
        paper = Paper(wish, written, restored=back)
        fact = summarise(agent, parted, entries, layers=layers, paper=paper)
        fact = replace(fact, trigger=wish.trigger, before=before)
        if fact.after < before and (best is None or fact.after < best.after):
            best = fact
        if fact.after < min(goal, before):
            break
    return best


def _decline(agent: Agent) -> None:
    """Report with numbers why nothing could be shortened."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    sizes = f"{context_tokens(view):,} tokens in use, {head:,} of them for system prompt and tools"
    agent.session.append(Failed("compaction", f"nothing left to shorten: {sizes}"))
    agent.session.emit(UserWarned(f"Compaction cannot make room: {sizes}"))
