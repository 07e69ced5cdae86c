"""Assembling the compaction summary that replaces the older conversation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from travois.context import ledger
from travois.context.compaction import declarations, spans
from travois.context.compaction.cut import (
    FORK_OPENING,
    LATER_PART_OPENING,
    SUBAGENT_OPENING,
    SUMMARY_OPENING,
    UNATTENDED_INSTRUCTION,
    CompactionTrigger,
    ConversationCut,
    is_summary,
)
from travois.context.compaction.outline import (
    FILES_PART,
    MESSAGES_PART,
    REQUEST_PART,
    SUBAGENT_OUTLINE,
    UNSORTED_TITLE,
    map_part_title,
    sort_into_parts,
)
from travois.context.compaction.record import SessionRecord, restore_items
from travois.context.compaction.summary_call import ModelSummary
from travois.context.compaction.summary_prompt import SummaryRequest, summary_outline
from travois.context.layers import ContextLayers
from travois.context.ledger import Ledger, received
from travois.context.ledger.received import ReceivedMessage, fence_text, share_budget
from travois.context.tool_results import render_preview
from travois.context.window import current_model, room_beside_head
from travois.core.content import Text
from travois.core.facts import Compacted
from travois.core.tokens import estimate_tokens, fact_tokens, head_tokens, token_ratio
from travois.core.view import ViewItem
from travois.engine.agent import Agent

TASK_TITLE = "## Your task, word for word"
LONG_TASK_TITLE = (
    "## Your task, too long to show in full: read the rest in its file when you need it"
)
CUT_TASK_SHARE = 0.4
"""The part of its room that a task takes which is cut anyway: the rest is for the work."""
SUMMARY_TITLE = "# Summary of what was set aside"
AUTHORS_NOTE = (
    "Text that stands directly under a numbered or plain heading was written by the model "
    "({model}){covers}. What stands under a ### heading was copied from the log by the program."
)
LEDGER_ONLY_NOTE = (
    "No model took part in it{why}: everything below was copied from the log by the program, so "
    "reasons, findings and the next step are only in the messages and files that it names."
)
NOT_REPEATED_NOTE = "Messages that are still in the conversation are not repeated here."
HOOKS_TITLE = "## What PreCompact hooks asked to keep"
FULL_RECORD_TITLE = "## All of these lists and messages, unshortened, are in this file"
SPANS_TITLE = "## Where what was set aside can be read"
TASKS_TITLE = "## The tasks that you were given, word for word, the newest last"


class SummarySources(msgspec.Struct, frozen=True):
    """The sources of a summary besides the log."""

    wish: SummaryRequest
    written: ModelSummary = ModelSummary()
    restored: tuple[Text, ...] = ()
    """Files and skills that are shown again."""


def build_compaction(
    agent: Agent,
    parted: ConversationCut,
    past: SessionRecord,
    *,
    layers: ContextLayers,
    paper: SummarySources,
) -> Compacted:
    """Build the compaction fact: the summary document and the files with the replaced spans."""
    pieces = spans.split_into_spans(restore_items(agent.session, parted.fresh_items))
    files = tuple(
        agent.world.spill(f"span-{parted.last_seq}-{number}", span.text.encode(errors="replace"))
        for number, span in enumerate(pieces, 1)
    )
    titles = tuple(span.title for span in pieces)
    record = _drop_visible_messages(past.ledger, parted.kept)
    task = repeat_task(agent, record, parted.kept, budget=layers.task)
    layers = (
        layers.scale_to_room(room_beside_head(agent) - estimate_tokens(task)) if task else layers
    )
    listing = spans.list_spans(
        [*past.span_titles, *titles], [*past.span_files, *files], budget=layers.contents
    )
    sections = _gather_sections(agent, record, parted, layers=layers, code=past.code)
    sections += [(REQUEST_PART.title, task)] if task else []
    text = _write_document(agent, parted, record, sections=sections, paper=paper)
    parts = (
        text,
        _with_heading(SPANS_TITLE, listing),
        _describe_omitted(agent.session.view.omitted),
    )
    written = paper.written
    told = (*agent.prompt.restate(agent), *agent.tools.restate_mcp())
    blocks = (*told, Text("\n\n".join(filter(None, parts))), *paper.restored)
    return Compacted(
        parted.first_seq,
        parted.last_seq,
        blocks,
        "model" if written.text else "ledger",
        after=_estimate_next_request(agent, blocks, parted.kept),
        files=files,
        titles=titles,
        source=written.source,
        why=written.why,
    )


SummarySections = list[tuple[str, str]]
"""Text from the ledger, each beside the title of the section that it belongs to."""


def _gather_sections(
    agent: Agent,
    record: Ledger,
    parted: ConversationCut,
    *,
    layers: ContextLayers,
    code: declarations.DeclarationIndex,
) -> SummarySections:
    """Collect the summary sections from the ledger, received messages and code declarations."""
    found = _sections_from_ledger(agent, record, parted, budget=layers.ledger)
    others = _section_from_others(agent, record, parted, budget=layers.received)
    found += [(MESSAGES_PART.title, others)] if others else []
    kept = "\n".join(str(item.fact.content) for item in parted.kept)
    seen = declarations.list_declarations(
        code, budget=layers.code, skip=kept, cwd=record.cwd, until=parted.last_seq
    )
    return [*found, (FILES_PART.title, seen)] if seen else found


def _write_document(
    agent: Agent,
    parted: ConversationCut,
    record: Ledger,
    *,
    sections: SummarySections,
    paper: SummarySources,
) -> str:
    """Write the summary document: authors and time, then sections, the model's text first."""
    parts, written = summary_outline(agent, paper.wish), paper.written
    own = sort_into_parts(written.text, parts)
    own.pop(
        map_part_title(MESSAGES_PART.title, parts), None
    ) if parts is not SUBAGENT_OUTLINE else None
    hooks = () if written.text else paper.wish.hooks  # else the model has heeded them
    lines = [_choose_opening(agent, record, parted, trigger=paper.wish.trigger)]
    lines += [
        f"{SUMMARY_TITLE}\n{_describe_authorship(agent, written)}",
        _with_heading(f"## {UNSORTED_TITLE}", own.get(UNSORTED_TITLE, "")),
    ]
    for number, part in enumerate(parts, 1):
        listed = [
            f"#{text}" for title, text in sections if map_part_title(title, parts) == part.title
        ]
        body = "\n\n".join(filter(None, (own.get(part.title, ""), *listed)))
        name = part.title if parts is SUBAGENT_OUTLINE else f"{number}. {part.title}"
        lines.append(_with_heading(f"## {name}", body))
    lines.append(_with_heading(HOOKS_TITLE, "\n\n".join(hooks)))
    return "\n\n".join(filter(None, lines))


def _describe_authorship(agent: Agent, summary: ModelSummary) -> str:
    """State who wrote a compaction summary, and when."""
    at = datetime.fromtimestamp(agent.runtime.clock(), UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = f"Made on {at}, at entry {agent.session.seq} of the session's log."
    if not summary.text:
        why = f" ({summary.why})" if summary.why else ""
        return f"{made} {LEDGER_ONLY_NOTE.format(why=why)} {NOT_REPEATED_NOTE}"
    covers = f", which knew the conversation up to entry {summary.covers}" if summary.covers else ""
    authors = AUTHORS_NOTE.format(model=current_model(agent).name, covers=covers)
    return f"{made} {authors} {NOT_REPEATED_NOTE}"


def _drop_visible_messages(record: Ledger, kept: Sequence[ViewItem]) -> Ledger:
    """Return the ledger without messages that stay visible beside the summary."""
    stays = {item.seq for item in kept if not is_summary(item)}
    answers = tuple(one for one in record.answers if one.seq not in stays)
    return replace(
        record, answers=answers, said=tuple(one for one in record.said if one.seq not in stays)
    )


def _with_heading(title: str, text: str) -> str:
    return f"{title}\n{text}" if text else ""


def repeat_task(agent: Agent, record: Ledger, kept: Sequence[ViewItem], *, budget: int) -> str:
    """Repeat a subagent's task verbatim in the summary, unless it is in the part that is kept.

    A task too large for the window is shown by its two ends, with the file that has all of it.
    """
    stays = {item.seq for item in kept if not is_summary(item)}
    tasks = [one for one in record.task if one.seq not in stays]
    sizes = [estimate_tokens(one.text) for one in tasks]
    if sum(sizes) > budget:
        return _shorten_tasks(
            agent, tasks, rooms=share_budget(sizes, round(budget * CUT_TASK_SHARE))
        )
    title = TASK_TITLE if len(record.task) == 1 else TASKS_TITLE
    shown = [fence_text("task", one.text) for one in tasks]
    return "\n".join((title, *shown)) if shown else ""


def _shorten_tasks(agent: Agent, tasks: Sequence[ReceivedMessage], *, rooms: Sequence[int]) -> str:
    """Show the two ends of tasks that do not fit in the summary, and name the file of each."""
    shown: list[str] = []
    for one, room in zip(tasks, rooms, strict=True):
        text = one.text
        if estimate_tokens(text) > room:
            path = agent.world.spill(f"task-{one.seq}", text.encode(errors="replace"))
            nonce = f"{int(agent.runtime.jitter() * 0xFFFFFF):06x}"
            text = render_preview(text, path=path, tokens=room, nonce=nonce)
        shown.append(fence_text("task", text))
    return "\n".join((LONG_TASK_TITLE, *shown))


def _sections_from_ledger(
    agent: Agent, record: Ledger, parted: ConversationCut, *, budget: int
) -> SummarySections:
    """Build the summary's ledger sections, and the file with what they shorten."""
    shown = ledger.render_ledger(record, budget=budget)
    if not shown.overflow:
        return list(shown.sections)
    data = shown.overflow.encode(errors="replace")
    path = agent.world.spill(f"record-{parted.last_seq}", data)
    return [*shown.sections, (MESSAGES_PART.title, f"{FULL_RECORD_TITLE}\n- {path}")]


def _section_from_others(
    agent: Agent, record: Ledger, parted: ConversationCut, *, budget: int
) -> str:
    """Build the summary section for messages of agents and hooks, and a file for the overflow."""
    stays = {item.seq for item in parted.kept if not is_summary(item)}
    gone = [one for one in record.received if one.seq not in stays]
    shown = received.render_received(gone, budget=budget)
    if not shown.overflow:
        return shown.text
    data = shown.overflow.encode(errors="replace")
    path = agent.world.spill(f"received-{parted.last_seq}", data)
    return received.render_received(gone, budget=budget, where=path).text


def _choose_opening(
    agent: Agent, record: Ledger, parted: ConversationCut, *, trigger: CompactionTrigger
) -> str:
    """Choose the opening sentence of a summary: for a fork, a subagent or the main session."""
    if record.task:
        return FORK_OPENING if record.fork else SUBAGENT_OPENING
    later = parted.kept and parted.kept[0].seq < parted.first_seq
    opening = LATER_PART_OPENING if later else SUMMARY_OPENING
    return (
        opening
        if agent.permissions.is_attended or trigger == "manual"
        else f"{opening} {UNATTENDED_INSTRUCTION}"
    )


def _describe_omitted(omitted: int) -> str:
    """Describe in the summary messages that were too long to be saved as files."""
    if not omitted:
        return ""
    return f"{omitted:,} even older messages are only in the session log, not in the files above."


def _estimate_next_request(agent: Agent, blocks: Sequence[Text], kept: Sequence[ViewItem]) -> int:
    """Estimate the size of the request after a compaction with this summary."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    said = sum(estimate_tokens(block.text) for block in blocks)
    return round((head + said + sum(fact_tokens(item.fact) for item in kept)) * token_ratio(view))
