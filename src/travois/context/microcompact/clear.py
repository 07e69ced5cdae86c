"""Clearing old tool results: the text is kept on disk, and the model gets the path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from travois.context.compaction.cut import CompactionTrigger
from travois.context.layers import ContextLayers
from travois.context.ledger.extractors import ToolAction, classify_tool, decode_arguments
from travois.context.window import (
    cache_is_cold,
    compaction_threshold,
    current_model,
    room_beside_head,
    scaled_layers,
    seconds_since_request,
    should_clear_after_pause,
)
from travois.core.content import Text, extract_calls, extract_text
from travois.core.facts import Assistant, Changed, Cleared, Compacted, Offloaded, Result
from travois.core.tokens import (
    context_tokens,
    estimate_tokens,
    fact_tokens,
    format_tokens,
    head_tokens,
    token_ratio,
    warn_threshold,
)
from travois.core.view import CLEARED_RESULT, View, ViewItem, has_thinking
from travois.engine.agent import Agent
from travois.engine.overflow import drop_media
from travois.lazy_imports import lazy_imports
from travois.ports.world import UserWarned
from travois.providers.anthropic import count_cleared_results
from travois.providers.replies import Reply

if TYPE_CHECKING:
    from travois.context.microcompact.plan import ClearingConditions, ClearingPlan

with lazy_imports():
    from travois.context.compaction import passages, record, spans
    from travois.context.microcompact import fold, plan


CLEARED_RESULT_MARKER = f"{CLEARED_RESULT} Its whole text is in {{path}}.]"
CLEARED_INPUT_MARKER = "[This text was cleared. The whole input of the call is in {path}.]"
CLEARED_RESULTS_NOTE = (
    "Results of older calls to {tools} were cleared to save room. Each is in a file in "
    "{folder} named by the id of its call, and Recall searches them. The newest:"
)
MAKE_ROOM_REASON = "to make room"
MAX_LISTED_RESULTS = 12
"""The most cleared results that a note names; the others are found by searching."""


def clear_old_results(agent: Agent) -> bool:
    """Clear old tool results if it costs nothing or pays off; return whether any were cleared."""
    view, card, size = agent.session.view, current_model(agent), context_tokens(agent.session.view)
    rested = should_clear_after_pause(agent)
    if not rested and size < warn_threshold(card):
        return False
    plain = card.price.input or 1.0
    now = plan.ClearingConditions(
        cold=rested,
        early=rested
        and agent.context.layers.idle == "normal"
        and seconds_since_request(agent) < agent.context.layers.idle_seconds,
        server=card.has_context_editing and agent.context.layers.server,
        size=size,
        warn=warn_threshold(card),
        limit=compaction_threshold(agent),
        read=card.price.read / plain or 0.1,
        write=card.price.write / plain or 1.25,
    )
    forgotten = rested and _clear_old_thinking(agent)
    found = plan.plan_clearing(view, agent.context.layers, now=now)
    if found is None:
        return forgotten
    after = f"after a {round(seconds_since_request(agent) / 60)}-minute pause"
    _apply_clearing(agent, found, why=after if rested else MAKE_ROOM_REASON)
    return True


def clear_instead_of_compacting(agent: Agent) -> bool:
    """Clear old results instead of a due compaction; return whether it made enough room.

    If the cache is gone anyway, a compaction costs no more and frees more.
    """
    if not agent.context.layers.clear or cache_is_cold(agent):
        return False
    view, factor = agent.session.view, token_ratio(agent.session.view)
    now = plan.ClearingConditions(
        server=current_model(agent).has_context_editing and agent.context.layers.server,
        size=round(context_tokens(view) / factor),  # results are measured as we estimate
        limit=round(compaction_threshold(agent) / factor),
    )
    names = passages.weigh_spoken_names(view.items)
    found = plan_clearing_instead(view, scaled_layers(agent), now=now, names=names)
    if found is None:
        return False
    _apply_clearing(agent, found, why=MAKE_ROOM_REASON)
    return True


def _apply_clearing(agent: Agent, plan: ClearingPlan, *, why: str) -> None:
    """Store the tool results to clear, log the clearing, and report it in one line."""
    view = agent.session.view
    size, freed = context_tokens(view), round(plan.freed * token_ratio(view))
    fresh = {*plan.calls, *plan.inputs} - {*view.cleared, *view.cleared_inputs}
    paths = _store_results(agent, plan.calls)
    if plan.where == "server":
        _clear_on_server(agent, paths, inputs=plan.inputs)
    else:
        _clear_locally(agent, paths)
        _clear_inputs(agent, plan.inputs)
    many = f"{len(fresh)} old tool {'result' if plan.calls else 'input'}"
    many += "" if len(fresh) == 1 else "s"
    sizes = f"{format_tokens(size)} → {format_tokens(max(0, size - freed))} tokens"
    agent.session.emit(UserWarned(f"Cleared {many} {why}: {sizes}. The full text is kept on disk."))


def _clear_old_thinking(agent: Agent) -> bool:
    """Clear all but the last turn's thinking after an hour's pause; False if there was none."""
    if (
        not agent.context.layers.thinking
        or seconds_since_request(agent) < agent.context.layers.idle_seconds
    ):
        return False
    until = plan.find_old_thinking(agent.session.view)
    if until:
        agent.session.append(Cleared((), "", what="thinking", until=until))
    return bool(until)


def check_provider_clearing(agent: Agent, reply: Reply) -> None:
    """Warn once if the provider did not clear exactly what it was asked to."""
    wanted = count_cleared_results(agent.session.view)
    if wanted == reply.left_out or agent.session.state.get("left-out"):
        return
    agent.session.append(Changed("left-out", f"{reply.left_out} of {wanted}"))
    told = f"The provider cleared {reply.left_out} old results instead of {wanted}"
    agent.session.emit(UserWarned(f"{told}: the prompt cache may be lost with every request"))


def _store_results(agent: Agent, cleared: tuple[str, ...]) -> dict[str, str]:
    """Store tool results that are not on disk yet; return the path of each."""
    items = [item for item in agent.session.view.items if isinstance(item.fact, Result)]
    shown = [item for item in items if isinstance(item.fact, Result) and item.fact.call in cleared]
    first = min((item.seq for item in shown), default=agent.session.seq)
    since = agent.session.entries_since(first - 1)
    facts = [*(item.fact for item in shown), *(entry.fact for entry in since)]
    paths = {fact.call: fact.blob for fact in facts if isinstance(fact, Offloaded)}
    results = {fact.call: fact for fact in facts if isinstance(fact, Result)}
    for call in cleared:
        if call not in paths:
            text = extract_text(results[call].content).encode(errors="replace")
            paths[call] = agent.world.spill(f"{call}-result", text)
    return {call: paths[call] for call in cleared}


def _clear_inputs(agent: Agent, written: tuple[str, ...]) -> None:
    """Store these calls' arguments, and replace the long ones by their path."""
    replies = (i.fact for i in agent.session.view.items if isinstance(i.fact, Assistant))
    made = (
        call for reply in replies for call in extract_calls(reply.content) if call.id in written
    )
    paths = {
        call.id: agent.world.spill(f"{call.id}-input", call.args.encode(errors="replace"))
        for call in made
    }
    for template, those in _group_by_template(paths).items():
        text = CLEARED_INPUT_MARKER.replace("{path}", template)
        agent.session.append(Cleared(those, text, what="inputs"))


def _clear_locally(agent: Agent, paths: dict[str, str]) -> None:
    """Replace each cleared result by its path; equally old images go too unless cached."""
    if not paths:
        return
    items = agent.session.view.items
    last = max(i.seq for i in items if isinstance(i.fact, Result) and i.fact.call in paths)
    for template, those in _group_by_template(paths).items():
        agent.session.append(Cleared(those, CLEARED_RESULT_MARKER.replace("{path}", template)))
    if not cache_is_cold(agent):
        drop_media(agent, "it is old, and the window is nearly full", until=last)


def _group_by_template(paths: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Group cleared calls by the common part of their paths, so one fact covers many."""
    groups: dict[str, tuple[str, ...]] = {}
    for call, path in paths.items():
        template = path.replace(call, "{call}")
        groups[template] = (*groups.get(template, ()), call)
    return groups


def _clear_on_server(agent: Agent, paths: dict[str, str], *, inputs: tuple[str, ...]) -> None:
    """Let the provider clear old results; a note at the end names our files for them."""
    asked = {
        call.id: call
        for item in agent.session.view.items
        if isinstance(item.fact, Assistant)
        for call in extract_calls(item.fact.content)
    }
    tools = ", ".join(sorted({asked[call].name for call in paths}))
    newest = [call for call in paths if call not in agent.session.view.cleared][
        -MAX_LISTED_RESULTS:
    ]
    briefs = {call: " ".join(asked[call].args.split())[:80] for call in newest}
    lines = [f"- {asked[call].name} {briefs[call]}: {paths[call]}" for call in newest]
    told = CLEARED_RESULTS_NOTE.format(tools=tools, folder=agent.world.kept)
    text = "\n".join((told, *lines))
    if inputs:
        agent.session.append(Cleared(inputs, "", where="server", what="inputs"))
    agent.session.append(Cleared(tuple(paths), text, where="server"))


MIN_CACHED_SHARE = 0.52
"""The share of what is cached that must stay: half, and some more as sizes are estimates."""
AMPLE_FREEING_FACTOR = 2
"""The multiple of the least that is freed if possible: few clearings, each large."""
CURRENT_FILES = 2
"""The number of last used files that count as unfinished, though they were changed."""


def plan_clearing_instead(
    view: View, layers: ContextLayers, *, now: ClearingConditions, names: Mapping[str, float]
) -> ClearingPlan | None:
    """Plan what to clear instead of a due compaction; None if that would not be enough.

    Commands and searches go first, then files that were changed and left, then the files mentioned
    least (`names`): an edit needs the exact text of what it replaces. A compaction would take all
    of them.
    """
    bound = has_thinking(view)
    if not layers.pressure or (bound and not now.server):
        return None
    least = layers.pressed_cleared + max(0, now.size - now.limit)
    old = plan.list_oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)
    late = {item.seq for item in _items_in_later_half(view)}
    if bound:
        found = plan.plan_server_clearing(view, old, layers)
        fresh = [
            item.seq for item in old if _result_call_id(item) in {*found.calls} - {*view.cleared}
        ]
        return found if fresh and found.freed >= least and fresh[0] in late else None
    candidates = [item for item in old if item.seq in late]
    found = _choose_enough(view, candidates, names=names, wanted=AMPLE_FREEING_FACTOR * least)
    return found if found.calls and found.freed >= least else None


def _choose_enough(
    view: View, candidates: Sequence[ViewItem], *, names: Mapping[str, float], wanted: int
) -> ClearingPlan:
    """Choose results to clear: all that show no file, then as many others as needed."""
    files = _map_reads_to_files(view)
    read = [item for item in candidates if _result_call_id(item) in files]
    finished = _list_finished_files(view)

    def rank_item(item: ViewItem) -> tuple[bool, float]:
        path = files[_result_call_id(item)]
        return path not in finished, passages.weigh_file(path, names)

    read.sort(key=rank_item)
    chosen = [item for item in candidates if _result_call_id(item) not in files]
    found = plan.plan_local_clearing(view, chosen)
    while read and found.freed < wanted:
        chosen.append(read.pop(0))
        found = plan.plan_local_clearing(view, sorted(chosen, key=lambda item: item.seq))
    return found


def _list_finished_files(view: View) -> set[str]:
    """Return changed files whose results can be cleared, without the most recently used."""
    changed: dict[str, bool] = {}
    for _, act in _list_file_calls(view):
        changed[act.path] = changed.pop(act.path, False) or act.kind != "read"
    return {path for path in list(changed)[:-CURRENT_FILES] if changed[path]}


def _items_in_later_half(view: View) -> list[ViewItem]:
    """Return the items after at least half of the cached prompt, where clearing is cheaper."""
    sizes = [fact_tokens(item.fact) for item in view.items[: view.seen]]
    before = head_tokens(view.epoch) if view.epoch else 0
    half = MIN_CACHED_SHARE * (before + sum(sizes))
    for index, size in enumerate(sizes):
        if before >= half:
            return view.items[index:]
        before += size
    return []


def _map_reads_to_files(view: View) -> dict[str, str]:
    """Map tool calls with the latest text or lines of a file to it, to clear others first."""
    latest: dict[tuple[str, object, object], str] = {}
    for call, act in _list_file_calls(view):
        if act.kind == "read":
            latest[act.path, act.args.get("offset"), act.args.get("limit")] = call
    return {call: path for (path, *_), call in latest.items()}


def _list_file_calls(view: View) -> Iterator[tuple[str, ToolAction]]:
    """Yield the tool calls that read, change or write a file, in order."""
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    for call in (call for reply in replies for call in extract_calls(reply.content)):
        args = decode_arguments(call.args)
        act = ToolAction(0, classify_tool(call.name, args), call.name, args, "")
        if act.kind in ("read", "edit", "write"):
            yield call.id, act


def _result_call_id(item: ViewItem) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""


UNFOLDED_TAIL_SHARE = 0.35
"""The share of the room between head and threshold whose newest messages stay unchanged."""
ENOUGH_FOLDED_SHARE = 0.65
"""Folding is enough if less than this share of the threshold is in use after it."""
FOLDED_TEXT_SHARE = 0.2
"""The share of the room that the folded text may take."""


def fold_old_calls(agent: Agent, *, trigger: CompactionTrigger) -> bool:
    """Fold the conversation's old tool calls; return whether compaction became unnecessary."""
    session, view = agent.session, agent.session.view
    room = room_beside_head(agent) / token_ratio(view)  # as we estimate
    cut = fold.find_foldable_part(view, tail=round(room * UNFOLDED_TAIL_SHARE))
    if cut is None or view.omitted:
        return False
    gone = record.restore_items(session, [item for item in cut.dropped if not fold.is_folded(item)])
    pieces = spans.split_into_spans(gone)
    names = [f"folded-{cut.last_seq}-{number}" for number in range(1, len(pieces) + 1)]
    before = session.fold(record.SessionRecord).folded_files
    paths = [f"{agent.world.kept}/{name}.txt" for name in names]
    text = fold.fold_items(
        cut.dropped,
        [*before, *paths],
        budget=round(room * FOLDED_TEXT_SHARE),
        snip=agent.context.layers.snip,
    )
    size = context_tokens(view)
    freed = sum(fact_tokens(item.fact) for item in cut.dropped) - estimate_tokens(text)
    after = size - round(freed * token_ratio(view))
    if not text or after >= ENOUGH_FOLDED_SHARE * compaction_threshold(agent):
        return False
    data = (span.text.encode(errors="replace") for span in pieces)
    files = tuple(map(agent.world.spill, names, data))
    fact = Compacted(
        cut.first_seq,
        cut.last_seq,
        (Text(text),),
        "folded",
        trigger=trigger,
        before=size,
        after=after,
        files=files,
        titles=tuple(span.title for span in pieces),
        limit=compaction_threshold(agent),
    )
    session.append(fact)
    sizes = f"{format_tokens(size)} → {format_tokens(after)} tokens"
    many = f"Folded {len(cut.dropped)} old messages"
    session.emit(UserWarned(f"{many}: {sizes}. The full text is kept on disk."))
    return True
