"""What stands in the place of the older conversation, put together from the record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from travois.context.compact import CHILD_OPENING, FORK_OPENING, OPENING, Cut, is_summary
from travois.context.layers import Layers
from travois.context.offload import preview
from travois.engine.agent import Agent
from travois.engine.room import beside_head
from travois.kernel.blocks import Text
from travois.kernel.facts import Cleared, Compacted, Entry
from travois.kernel.tokens import estimate, fact_tokens, head_tokens, ratio
from travois.kernel.view import Item, project

if TYPE_CHECKING:
    from travois.context.ledger import Ledger
    from travois.context.ledger.received import Received

YOUR_TASK = "## Your task, word for word"
LONG_TASK = (
    "## Your task, too long to stand here whole: read the rest of it in its file when you need it"
)
CUT_TASK = 0.4
"""The part of its room that a task takes which is cut anyway: the rest is for the work."""
OWN_WORDS = "## Your own summary, written before this was set aside"
NAMES = "## Names that occurred in what was set aside"
WHERE = "## Where what was set aside can be read, oldest first"
YOUR_TASKS = "## The tasks that you were given, word for word, the newest last"


def summarise(
    agent: Agent,
    parted: Cut,
    entries: list[Entry],
    *,
    layers: Layers,
    prose: str,
    restored: tuple[Text, ...],
) -> Compacted:
    """The fact that sets the older part aside, and where each part of it can be read."""
    from travois.context import ledger, names, spans

    ever = _ever(entries)
    pieces = spans.split([ever.get(item.seq, item) for item in parted.fresh])
    files = tuple(
        agent.world.spill(f"span-{parted.last}-{number}", span.text.encode(errors="replace"))
        for number, span in enumerate(pieces, 1)
    )
    record = _gone(ledger.fold(entries), parted.kept)
    task = given_task(agent, record, parted.kept, budget=layers.task)
    layers = layers.fitted(beside_head(agent) - estimate(task)) if task else layers
    told = _from_record(agent, record, parted, budget=layers.ledger)
    others = _from_others(agent, record, parted, budget=layers.received)
    kept = "\n".join(str(item.fact.content) for item in parted.kept)
    found = names.index(_until(ever, parted.last), budget=layers.names, skip=told + kept)
    past = [entry.fact for entry in entries if isinstance(entry.fact, Compacted)]
    titles = tuple(span.title for span in pieces)
    listing = spans.contents(
        [*(title for fact in past for title in fact.titles), *titles],
        [*(path for fact in past for path in fact.files), *files],
        budget=layers.contents,
    )
    headed = (_headed(OWN_WORDS, prose), _headed(NAMES, found), _headed(WHERE, listing))
    unlisted = _unlisted(agent.session.view.omitted)
    parts = (_opening(record), task, told, others, *headed, unlisted)
    text = "\n\n".join(part for part in parts if part)
    blocks = (*agent.baseline(), Text(text), *restored)
    return Compacted(
        parted.first,
        parted.last,
        blocks,
        "model" if prose else "notes",
        after=_size(agent, blocks, parted.kept),
        files=files,
        titles=titles,
    )


def _gone(record: Ledger, kept: Sequence[Item]) -> Ledger:
    """The record without what the model said itself and can still see."""
    stays = {item.seq for item in kept if not is_summary(item)}
    return replace(record, answers=tuple(one for one in record.answers if one.seq not in stays))


def _headed(title: str, text: str) -> str:
    return f"{title}\n{text}" if text else ""


def given_task(agent: Agent, record: Ledger, kept: Sequence[Item], *, budget: int) -> str:
    """Repeat what an agent was started for, word for word, unless it stands in what is kept.

    Of one that is too large for the window both ends are shown, and the file that has it whole.
    """
    from travois.context.ledger.received import allot, fenced

    stays = {item.seq for item in kept if not is_summary(item)}
    tasks = [one for one in record.task if one.seq not in stays]
    sizes = [estimate(one.text) for one in tasks]
    if sum(sizes) > budget:
        return _cut_task(agent, tasks, rooms=allot(sizes, round(budget * CUT_TASK)))
    title = YOUR_TASK if len(record.task) == 1 else YOUR_TASKS
    shown = [fenced("task", one.text) for one in tasks]
    return "\n".join((title, *shown)) if shown else ""


def _cut_task(agent: Agent, tasks: Sequence[Received], *, rooms: Sequence[int]) -> str:
    """Show the ends of tasks that have no room whole, and name the file of each."""
    from travois.context.ledger.received import fenced

    shown: list[str] = []
    for one, room in zip(tasks, rooms, strict=True):
        text = one.text
        if estimate(text) > room:
            path = agent.world.spill(f"task-{one.seq}", text.encode(errors="replace"))
            nonce = f"{int(agent.chance() * 0xFFFFFF):06x}"
            text = preview(text, path=path, tokens=room, nonce=nonce)
        shown.append(fenced("task", text))
    return "\n".join((LONG_TASK, *shown))


def _from_record(agent: Agent, record: Ledger, parted: Cut, *, budget: int) -> str:
    """What rules gather from the record, and the file that has whole what is shortened."""
    from travois.context.ledger import render

    shown = render(record, budget=budget)
    if not shown.overflow:
        return shown.text
    data = shown.overflow.encode(errors="replace")
    path = agent.world.spill(f"record-{parted.last}", data)
    return f"{shown.text}\n\nAll of this record, with nothing shortened or left out, is in {path}."


def _from_others(agent: Agent, record: Ledger, parted: Cut, *, budget: int) -> str:
    """What other agents and hooks said that is not kept; the file of what there is no room for."""
    from travois.context.ledger.received import render

    stays = {item.seq for item in parted.kept if not is_summary(item)}
    gone = [one for one in record.received if one.seq not in stays]
    shown = render(gone, budget=budget)
    if not shown.overflow:
        return shown.text
    data = shown.overflow.encode(errors="replace")
    path = agent.world.spill(f"received-{parted.last}", data)
    return render(gone, budget=budget, where=path).text


def _opening(record: Ledger) -> str:
    if not record.task:
        return OPENING
    return FORK_OPENING if record.fork else CHILD_OPENING


def _unlisted(omitted: int) -> str:
    """What to say of a conversation that was too long to be set aside as files."""
    if not omitted:
        return ""
    return f"{omitted:,} still older messages are kept in the session's log only, in no file above."


def _size(agent: Agent, blocks: Sequence[Text], kept: Sequence[Item]) -> int:
    """What the next request will come to, as far as that can be told."""
    view = agent.session.view
    head = head_tokens(view.epoch) if view.epoch else 0
    said = sum(estimate(block.text) for block in blocks)
    return round((head + said + sum(fact_tokens(item.fact) for item in kept)) * ratio(view))


def _ever(entries: list[Entry]) -> dict[int, Item]:
    """All items as they once stood, by entry: also those that gave way before or were cleared."""
    whole = project(e for e in entries if not isinstance(e.fact, Compacted | Cleared))
    return {item.seq: item for item in whole.items}


def _until(ever: dict[int, Item], last: int) -> tuple[Item, ...]:
    return tuple(item for seq, item in ever.items() if seq <= last)
