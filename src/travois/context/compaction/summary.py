"""Assembly of the document that replaces the older conversation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from travois.context import ledger
from travois.context.compaction import declarations, spans
from travois.context.compaction.cut import (
    ALONE,
    CHILD_OPENING,
    FORK_OPENING,
    LATER_OPENING,
    OPENING,
    Cut,
    Trigger,
    is_summary,
)
from travois.context.compaction.outline import (
    AGENT,
    FILES,
    MESSAGES,
    OWN,
    REQUEST,
    place,
    sort_text,
)
from travois.context.compaction.summary_call import Wish, Written, parts_of
from travois.context.layers import Layers
from travois.context.ledger import Ledger, received
from travois.context.ledger.received import Received, allot, fenced
from travois.context.tool_results import preview
from travois.context.window import beside_head, model
from travois.core.content import Text
from travois.core.facts import Cleared, Compacted, Entry
from travois.core.tokens import estimate_tokens, fact_tokens, head_tokens, token_ratio
from travois.core.view import ViewItem, project_view
from travois.engine.agent import Agent

YOUR_TASK = "## Your task, word for word"
LONG_TASK = "## Your task, too long to show in full: read the rest in its file when you need it"
CUT_TASK = 0.4
"""The part of its room that a task takes which is cut anyway: the rest is for the work."""
TITLE = "# Summary of what was set aside"
AUTHORS = (
    "Text that stands directly under a numbered or plain heading was written by the model "
    "({model}){covers}. What stands under a ### heading was copied from the log by the program."
)
LEDGER_ALONE = (
    "No model took part in it{why}: everything below was copied from the log by the program, so "
    "reasons, findings and the next step are only in the messages and files that it names."
)
NOT_REPEATED = "Messages that are still in the conversation are not repeated here."
HOOKS = "## What PreCompact hooks asked to keep"
WHOLE_RECORD = "## All of these lists and messages, unshortened, are in this file"
WHERE = "## Where what was set aside can be read"
YOUR_TASKS = "## The tasks that you were given, word for word, the newest last"


class Paper(msgspec.Struct, frozen=True):
    """The sources of a summary besides the log."""

    wish: Wish
    written: Written = Written()
    restored: tuple[Text, ...] = ()
    """Files and skills that are shown again."""


def summarise(
    agent: Agent, parted: Cut, entries: list[Entry], *, layers: Layers, paper: Paper
) -> Compacted:
    """Build the compaction fact: the summary document and the files with the replaced spans."""
    ever = _ever(entries)
    pieces = spans.split([ever.get(item.seq, item) for item in parted.fresh])
    files = tuple(
        agent.world.spill(f"span-{parted.last}-{number}", span.text.encode(errors="replace"))
        for number, span in enumerate(pieces, 1)
    )
    titles = tuple(span.title for span in pieces)
    record = _gone(ledger.fold(entries), parted.kept)
    task = given_task(agent, record, parted.kept, budget=layers.task)
    layers = layers.fitted(beside_head(agent) - estimate_tokens(task)) if task else layers
    past = [entry.fact for entry in entries if isinstance(entry.fact, Compacted)]
    listing = spans.contents(
        [*(title for fact in past for title in fact.titles), *titles],
        [*(path for fact in past for path in fact.files), *files],
        budget=layers.contents,
    )
    sections = _sections(agent, record, parted, layers=layers, seen=_until(ever, parted.last))
    sections += [(REQUEST.title, task)] if task else []
    text = _document(agent, parted, record, sections=sections, paper=paper)
    parts = (text, _headed(WHERE, listing), _unlisted(agent.session.view.omitted))
    written = paper.written
    told = (*agent.prompt.restate(agent), *agent.tools.restate_mcp())
    blocks = (*told, Text("\n\n".join(filter(None, parts))), *paper.restored)
    return Compacted(
        parted.first,
        parted.last,
        blocks,
        "model" if written.text else "ledger",
        after=_size(agent, blocks, parted.kept),
        files=files,
        titles=titles,
        source=written.source,
        why=written.why,
    )


Sections = list[tuple[str, str]]
"""Text from the ledger, each beside the title of the section that it belongs to."""


def _sections(
    agent: Agent, record: Ledger, parted: Cut, *, layers: Layers, seen: tuple[ViewItem, ...]
) -> Sections:
    found = _from_record(agent, record, parted, budget=layers.ledger)
    others = _from_others(agent, record, parted, budget=layers.received)
    found += [(MESSAGES.title, others)] if others else []
    kept = "\n".join(str(item.fact.content) for item in parted.kept)
    code = declarations.listing(seen, budget=layers.code, skip=kept, cwd=record.cwd)
    return [*found, (FILES.title, code)] if code else found


def _document(
    agent: Agent, parted: Cut, record: Ledger, *, sections: Sections, paper: Paper
) -> str:
    """Write the document: authors and time, then its sections, each with the model's text first."""
    parts, written = parts_of(agent, paper.wish), paper.written
    own = sort_text(written.text, parts)
    own.pop(place(MESSAGES.title, parts), None) if parts is not AGENT else None
    hooks = () if written.text else paper.wish.hooks  # else the model has heeded them
    lines = [_opening(agent, record, parted, trigger=paper.wish.trigger)]
    lines += [f"{TITLE}\n{_author(agent, written)}", _headed(f"## {OWN}", own.get(OWN, ""))]
    for number, part in enumerate(parts, 1):
        listed = [f"#{text}" for title, text in sections if place(title, parts) == part.title]
        body = "\n\n".join(filter(None, (own.get(part.title, ""), *listed)))
        name = part.title if parts is AGENT else f"{number}. {part.title}"
        lines.append(_headed(f"## {name}", body))
    lines.append(_headed(HOOKS, "\n\n".join(hooks)))
    return "\n\n".join(filter(None, lines))


def _author(agent: Agent, written: Written) -> str:
    """State who wrote the document, and when."""
    at = datetime.fromtimestamp(agent.runtime.clock(), UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = f"Made on {at}, at entry {agent.session.seq} of the session's log."
    if not written.text:
        why = f" ({written.why})" if written.why else ""
        return f"{made} {LEDGER_ALONE.format(why=why)} {NOT_REPEATED}"
    covers = f", which knew the conversation up to entry {written.covers}" if written.covers else ""
    return f"{made} {AUTHORS.format(model=model(agent).name, covers=covers)} {NOT_REPEATED}"


def _gone(record: Ledger, kept: Sequence[ViewItem]) -> Ledger:
    """Return the ledger without messages that are still visible in full."""
    stays = {item.seq for item in kept if not is_summary(item)}
    answers = tuple(one for one in record.answers if one.seq not in stays)
    return replace(
        record, answers=answers, said=tuple(one for one in record.said if one.seq not in stays)
    )


def _headed(title: str, text: str) -> str:
    return f"{title}\n{text}" if text else ""


def given_task(agent: Agent, record: Ledger, kept: Sequence[ViewItem], *, budget: int) -> str:
    """Repeat an agent's task verbatim, unless it stands in the part that is kept.

    A task too large for the window is shown by its two ends, with the file that has all of it.
    """
    stays = {item.seq for item in kept if not is_summary(item)}
    tasks = [one for one in record.task if one.seq not in stays]
    sizes = [estimate_tokens(one.text) for one in tasks]
    if sum(sizes) > budget:
        return _cut_task(agent, tasks, rooms=allot(sizes, round(budget * CUT_TASK)))
    title = YOUR_TASK if len(record.task) == 1 else YOUR_TASKS
    shown = [fenced("task", one.text) for one in tasks]
    return "\n".join((title, *shown)) if shown else ""


def _cut_task(agent: Agent, tasks: Sequence[Received], *, rooms: Sequence[int]) -> str:
    """Show the two ends of tasks that do not fit, and name the file of each."""
    shown: list[str] = []
    for one, room in zip(tasks, rooms, strict=True):
        text = one.text
        if estimate_tokens(text) > room:
            path = agent.world.spill(f"task-{one.seq}", text.encode(errors="replace"))
            nonce = f"{int(agent.runtime.jitter() * 0xFFFFFF):06x}"
            text = preview(text, path=path, tokens=room, nonce=nonce)
        shown.append(fenced("task", text))
    return "\n".join((LONG_TASK, *shown))


def _from_record(agent: Agent, record: Ledger, parted: Cut, *, budget: int) -> Sections:
    """Return the sections built from the ledger, and the file with what they shorten."""
    shown = ledger.render(record, budget=budget)
    if not shown.overflow:
        return list(shown.sections)
    data = shown.overflow.encode(errors="replace")
    path = agent.world.spill(f"record-{parted.last}", data)
    return [*shown.sections, (MESSAGES.title, f"{WHOLE_RECORD}\n- {path}")]


def _from_others(agent: Agent, record: Ledger, parted: Cut, *, budget: int) -> str:
    """Return replaced messages of other agents and hooks, and the file of those that do not fit."""
    stays = {item.seq for item in parted.kept if not is_summary(item)}
    gone = [one for one in record.received if one.seq not in stays]
    shown = received.render(gone, budget=budget)
    if not shown.overflow:
        return shown.text
    data = shown.overflow.encode(errors="replace")
    path = agent.world.spill(f"received-{parted.last}", data)
    return received.render(gone, budget=budget, where=path).text


def _opening(agent: Agent, record: Ledger, parted: Cut, *, trigger: Trigger) -> str:
    if record.task:
        return FORK_OPENING if record.fork else CHILD_OPENING
    later = parted.kept and parted.kept[0].seq < parted.first
    opening = LATER_OPENING if later else OPENING
    return opening if agent.permissions.is_attended or trigger == "manual" else f"{opening} {ALONE}"


def _unlisted(omitted: int) -> str:
    """Describe messages of a conversation that was too long to be saved as files."""
    if not omitted:
        return ""
    return f"{omitted:,} even older messages are only in the session log, not in the files above."


def _size(agent: Agent, blocks: Sequence[Text], kept: Sequence[ViewItem]) -> int:
    """Estimate the size of the next request."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    said = sum(estimate_tokens(block.text) for block in blocks)
    return round((head + said + sum(fact_tokens(item.fact) for item in kept)) * token_ratio(view))


def _ever(entries: list[Entry]) -> dict[int, ViewItem]:
    """Return all items as they once stood, by entry, including replaced and cleared ones."""
    whole = project_view(e for e in entries if not isinstance(e.fact, Compacted | Cleared))
    return {item.seq: item for item in whole.items}


def _until(ever: dict[int, ViewItem], last: int) -> tuple[ViewItem, ...]:
    return tuple(item for seq, item in ever.items() if seq <= last)
