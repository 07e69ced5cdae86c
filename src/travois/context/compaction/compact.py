"""Compaction: a summary becomes the new context in place of the older conversation, as one fact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from travois.context.compaction.cut import (
    SUMMARY_MARK,
    CompactionTrigger,
    ConversationCut,
    cut_keeping_tail,
)
from travois.context.compaction.record import SessionRecord
from travois.context.compaction.restore import (
    MAX_ALL_SKILLS_TOKENS,
    RESTORED_SHARE,
    RecentFile,
    read_recent_files,
    restore_files,
    restore_skills,
)
from travois.context.compaction.summary import SummarySources, build_compaction
from travois.context.compaction.summary_call import (
    ModelSummary,
    describe_source,
    is_summary_outdated,
    prepare_draft,
    view_before_fork,
    write_model_summary,
)
from travois.context.compaction.summary_prompt import SummaryRequest
from travois.context.session_memory.notes import (
    current_notes,
    is_updating_notes,
    should_keep_notes,
    update_notes_if_due,
    wait_for_notes_summary,
)
from travois.context.window import compaction_threshold, current_model, hard_stop, scaled_layers
from travois.core.content import Opaque, Text, extract_text
from travois.core.facts import Compacted, Failed, Noted, User
from travois.core.models import COMPACTION_BETA
from travois.core.tokens import block_tokens, context_tokens, head_tokens, token_ratio
from travois.core.view import View, awaits_model, has_thinking
from travois.engine.agent import Agent
from travois.engine.fork import ask_quietly
from travois.hooks.events import PostCompact, PreCompact, SessionStart
from travois.hooks.fire import fire_hooks, shorten_hook_text
from travois.ports.world import CompactionProgress, UserWarned
from travois.prompt.briefing import on_instructions_reloaded
from travois.providers.anthropic import to_summary_request

# The provider's own summary: it is signed, so that the thinking after it stays valid.


WARM_CACHE_TRIGGERS = ("auto", "manual")
"""Triggers at which the cache is warm: else the provider's summary costs more than it is worth."""
PROVIDER_SUMMARY_OPENING = (
    f"{SUMMARY_MARK} A summary stands in their place; the newest messages come after it unchanged. "
    "What follows was gathered from the record and goes beyond that summary. Go on with the work "
    "where it stands. Anything that was set aside can be read again in the files named below, or "
    "found with Recall."
)


async def record_compaction(agent: Agent, fact: Compacted) -> Compacted:
    """Append a compaction to the log, with the provider's own summary if there is one.

    With that one, our text goes to the tail: nothing may stand between the provider's summary and
    the thinking that it keeps valid.
    """
    block = await _request_provider_summary(agent, fact)
    if block is None:
        agent.session.append(fact)
        return fact
    texts = [_rewrite_opening(block.text) for block in fact.summary if isinstance(block, Text)]
    summary, size = (block, *map(Text, texts)), fact.after + block_tokens(block)
    signed = replace(fact, summary=summary, by="provider", after=size)
    agent.session.append(signed)
    return signed


def _rewrite_opening(text: str) -> str:
    """Rewrite the opening of a compaction summary for use beside the provider's own."""
    _, gap, rest = text.partition("\n\n")
    return f"{PROVIDER_SUMMARY_OPENING}{gap}{rest}" if text.startswith(SUMMARY_MARK) else text


async def _request_provider_summary(agent: Agent, fact: Compacted) -> Opaque | None:
    """Ask the provider for its own compaction summary; None if it cannot or will not."""
    view = _conversation_up_to_span(agent.session.view, fact)
    able = agent.context.layers.signed and COMPACTION_BETA in current_model(agent).betas
    if view is None or not able or fact.trigger not in WARM_CACHE_TRIGGERS:
        return None
    reply = await ask_quietly(agent, view, what="signed summary", change=to_summary_request)
    match reply.content if reply else ():
        case (Opaque(kind="compaction", text=text) as block,) if text.strip():
            return block
        case _:
            return None


def _conversation_up_to_span(view: View, fact: Compacted) -> View | None:
    """Return the conversation up to the end of the compacted span; None if never sent as such."""
    ends = [index for index, item in enumerate(view.items, 1) if item.seq == fact.last]
    if not ends or view.items[0].seq != fact.first or not has_thinking(view):
        return None
    part = View(epoch=view.epoch, items=view.items[: ends[0]], moves=view.moves, since=view.since)
    return part if awaits_model(part) else None


TAIL_SHARES = (1.0, 0.5, 0.2, 0.0)
"""Shares of the usual tail, tried in turn until the rest fits."""


async def compact_conversation(
    agent: Agent,
    *,
    trigger: CompactionTrigger,
    focus: str = "",
    goal: int = 0,
    part: ConversationCut | None = None,
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
    heard = await fire_hooks(agent, PreCompact(why, focus))
    if heard.block and trigger != "overflow":
        agent.session.append(Failed("compaction", f"blocked by a PreCompact hook: {heard.block}"))
        return None
    hooks = tuple(shorten_hook_text(agent, text) for text in heard.context)
    try:
        fact = await _replace_older_part(
            agent, SummaryRequest(trigger, focus, hooks, part), goal=goal
        )
    finally:
        agent.session.emit(CompactionProgress(over=True))
    if fact is None:
        return None
    await on_instructions_reloaded(agent)
    await fire_hooks(agent, PostCompact(why, extract_text(fact.summary)))
    await fire_hooks(agent, SessionStart("compact"))
    return fact


async def _replace_older_part(
    agent: Agent, request: SummaryRequest, *, goal: int
) -> Compacted | None:
    """Build a compaction, append it to the log and report what it freed."""
    began, omitted = agent.runtime.clock(), agent.session.view.omitted
    fact = await _build_best_compaction(agent, request, goal=goal)
    if fact is None:
        _report_failed_compaction(agent)
        return None
    fact = replace(
        fact, seconds=max(0.0, agent.runtime.clock() - began), limit=compaction_threshold(agent)
    )
    fact = await record_compaction(agent, fact)
    if request.trigger != "manual":  # whoever asked for it is given the fact
        agent.session.emit(UserWarned(describe_compaction(fact)))
    if omitted:
        kept = f"This session is very long: {omitted:,} older messages are only in its log"
        agent.session.emit(UserWarned(kept))
    return fact


async def _build_best_compaction(
    agent: Agent, request: SummaryRequest, *, goal: int
) -> Compacted | None:
    """Build the compaction with the longest tail that fits and an up-to-date model summary."""
    held = await read_recent_files(agent)
    stop = hard_stop(current_model(agent), agent.context.layers)
    aim, most, part = goal or min(compaction_threshold(agent), stop), goal or stop, request.part
    if fact := await _compact_from_notes(agent, request, goal=aim, held=held):
        return fact
    written = await write_model_summary(agent, request)

    def try_cuts(summary: ModelSummary) -> Compacted | None:
        cuts = ((1.0, part),) if part else cut_candidates(agent)
        fact = best_compaction(agent, cuts, request=request, summary=summary, goal=aim, held=held)
        if part is None and (fact is None or fact.after >= most):
            bare = replace(
                summary, text="", source="ledger", why="no room for a summary by the model"
            )
            return (
                best_compaction(
                    agent, last_resort_cuts(agent), request=request, summary=bare, goal=most
                )
                or fact
            )
        return fact

    fact = try_cuts(written)
    if fact and part is None and is_summary_outdated(agent, written, until=fact.last):
        fact = try_cuts(await write_model_summary(agent, replace(request, anew=True))) or fact
    return fact


async def _compact_from_notes(
    agent: Agent, request: SummaryRequest, *, goal: int, held: tuple[RecentFile, ...]
) -> Compacted | None:
    """Build the compaction with the session notes as its summary; None if they cannot help.

    Notes cannot know what a person or a hook asks of this very summary.
    """
    if request.focus or request.hooks or request.part:
        return None
    offer = await wait_for_notes_summary(agent)
    if offer is None:
        return None
    written = ModelSummary(offer.text, "notes", offer.covers)
    cuts = ((1.0, offer.cut),)
    fact = best_compaction(agent, cuts, request=request, summary=written, goal=goal, held=held)
    return fact if fact is not None and fact.after < goal else None


def prepare_compaction(agent: Agent) -> None:
    """Let the model draft a compaction's summary in advance, so that little is left to write.

    Where notes are kept, they serve as the draft. A fork that can still share a summary with its
    siblings waits for the cut: a draft would cover its own part too, and be of use to it alone.
    """
    update_notes_if_due(agent)
    if should_keep_notes(agent) and (is_updating_notes(agent) or current_notes(agent).text):
        return
    may_draft = agent.context.layers.draft and not agent.session.drafted
    if (
        agent.runtime.background is None
        or not may_draft
        or view_before_fork(agent, SummaryRequest("auto"))
    ):
        return
    agent.runtime.background(lambda: _write_draft(agent))


async def _write_draft(agent: Agent) -> None:
    """Prepare a compaction summary in advance and log it as a draft."""
    text = await prepare_draft(agent)
    if text and agent.session.drafted:  # else a compaction came first, which did without it
        agent.session.append(Noted("draft", text))


def describe_compaction(fact: Compacted) -> str:
    """Describe in one line what a compaction freed and who wrote the summary."""
    saved = f"{fact.before:,} → about {fact.after:,} tokens"
    spans = f"{len(fact.files)} span{'' if len(fact.files) == 1 else 's'}"
    told = f"Compacted ({fact.trigger}): {saved}; {spans} saved to disk"
    if not fact.source:
        return told
    why = f" ({fact.why})" if fact.why else ""
    return f"{told}; summary {describe_source(fact.source)}{why}"


def cut_candidates(agent: Agent) -> Iterator[tuple[float, ConversationCut]]:
    """Yield the compaction cuts to try, longest tail first, each with its share of the tail."""
    for rung in TAIL_SHARES:
        if parted := cut_keeping_tail(
            agent.session.view, tail=round(scaled_layers(agent).tail * rung)
        ):
            yield rung, parted


def last_resort_cuts(agent: Agent) -> Iterator[tuple[float, ConversationCut]]:
    """Yield the compaction cuts to try when the unanswered messages alone are too large.

    First all but the last message is replaced, then everything: the files still have it.
    """
    items = tuple(agent.session.view.items)
    if items[1:] and isinstance(items[-1].fact, User):
        yield 0.0, ConversationCut(items[:-1], items[-1:])
    yield 0.0, ConversationCut(items, ())


def best_compaction(
    agent: Agent,
    cuts: Iterable[tuple[float, ConversationCut]],
    *,
    request: SummaryRequest,
    summary: ModelSummary,
    goal: int,
    held: tuple[RecentFile, ...] = (),
) -> Compacted | None:
    """Return the compaction of the first cut that gets below `goal`, or else the smallest one."""
    layers = scaled_layers(agent)
    before, best = context_tokens(agent.session.view), None
    room = min(RESTORED_SHARE * current_model(agent).window, before / 4) / token_ratio(
        agent.session.view
    )
    record = agent.session.fold(SessionRecord)
    names = record.names.weights if held else {}
    for rung, parted in cuts:
        files = restore_files(held, parted.kept, budget=round(room * rung), names=names)
        most = round(min(MAX_ALL_SKILLS_TOKENS, room) * rung)
        back = (*files, *restore_skills(record.skills, parted.kept, budget=most))
        paper = SummarySources(request, summary, restored=back)
        fact = build_compaction(agent, parted, record, layers=layers, paper=paper)
        fact = replace(fact, trigger=request.trigger, before=before)
        if fact.after < before and (best is None or fact.after < best.after):
            best = fact
        if fact.after < min(goal, before):
            break
    return best


def _report_failed_compaction(agent: Agent) -> None:
    """Report with numbers why a compaction could not shorten anything."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    sizes = f"{context_tokens(view):,} tokens in use, {head:,} of them for system prompt and tools"
    agent.session.append(Failed("compaction", f"nothing left to shorten: {sizes}"))
    agent.session.emit(UserWarned(f"Compaction cannot make room: {sizes}"))
