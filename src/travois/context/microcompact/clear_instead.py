"""L2: clearing of old results in place of a compaction that is due.

Model sees: as in `microcompact.clear`, a line in place of each result with the path of its text.
Tokens: frees at least `pressed_cleared` of the layers, and about twice that if there is enough.
Cache: keeps more than half of what is cached: only results in the later half are cleared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from travois.context.compaction.passages import weigh_file
from travois.context.layers import ContextLayers
from travois.context.ledger.extractors import ToolAction, classify_tool, decode_arguments
from travois.context.microcompact.plan import (
    ClearingConditions,
    ClearingPlan,
    list_oldest_results,
    plan_local_clearing,
    plan_server_clearing,
)
from travois.core.content import extract_calls
from travois.core.facts import Assistant, Result
from travois.core.tokens import fact_tokens, head_tokens
from travois.core.view import View, ViewItem, has_thinking

MIN_CACHED_SHARE = 0.52
"""The share of what is cached that must stay: half, and some more as sizes are estimates."""
AMPLE_FREEING_FACTOR = 2
"""The multiple of the least that is freed if possible: few clearings, each large."""
CURRENT_FILES = 2
"""The number of last used files that count as unfinished, though they were changed."""


def plan_clearing_instead(
    view: View, layers: ContextLayers, *, now: ClearingConditions, names: Mapping[str, float]
) -> ClearingPlan | None:
    """Plan what to clear in place of a compaction that is due; None if that would not be enough.

    Commands and searches go first, then files that were changed and left, then the files mentioned
    least (`names`): an edit needs the exact text of what it replaces. A compaction would take all
    of them.
    """
    bound = has_thinking(view)
    if not layers.pressure or (bound and not now.server):
        return None
    least = layers.pressed_cleared + max(0, now.size - now.limit)
    old = list_oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)
    late = {item.seq for item in _items_in_later_half(view)}
    if bound:
        found = plan_server_clearing(view, old, layers)
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
    """Choose all results that show no file, and as many of the others as it takes."""
    files = _map_reads_to_files(view)
    read = [item for item in candidates if _result_call_id(item) in files]
    finished = _list_finished_files(view)

    def rank_item(item: ViewItem) -> tuple[bool, float]:
        path = files[_result_call_id(item)]
        return path not in finished, weigh_file(path, names)

    read.sort(key=rank_item)
    chosen = [item for item in candidates if _result_call_id(item) not in files]
    found = plan_local_clearing(view, chosen)
    while read and found.freed < wanted:
        chosen.append(read.pop(0))
        found = plan_local_clearing(view, sorted(chosen, key=lambda item: item.seq))
    return found


def _list_finished_files(view: View) -> set[str]:
    """Return the files that were changed, without the most recently used ones."""
    changed: dict[str, bool] = {}
    for _, act in _list_file_calls(view):
        changed[act.path] = changed.pop(act.path, False) or act.kind != "read"
    return {path for path in list(changed)[:-CURRENT_FILES] if changed[path]}


def _items_in_later_half(view: View) -> list[ViewItem]:
    """Return the items that at least half of the cached prompt stands before."""
    sizes = [fact_tokens(item.fact) for item in view.items[: view.seen]]
    before = head_tokens(view.epoch) if view.epoch else 0
    half = MIN_CACHED_SHARE * (before + sum(sizes))
    for index, size in enumerate(sizes):
        if before >= half:
            return view.items[index:]
        before += size
    return []


def _map_reads_to_files(view: View) -> dict[str, str]:
    """Map the calls whose results show the latest text of a file, or lines of it, to that file."""
    latest: dict[tuple[str, object, object], str] = {}
    for call, act in _list_file_calls(view):
        if act.kind == "read":
            latest[act.path, act.args.get("offset"), act.args.get("limit")] = call
    return {call: path for (path, *_), call in latest.items()}


def _list_file_calls(view: View) -> Iterator[tuple[str, ToolAction]]:
    """Yield the calls that read, change or write a file, in order."""
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    for call in (call for reply in replies for call in extract_calls(reply.content)):
        args = decode_arguments(call.args)
        act = ToolAction(0, classify_tool(call.name, args), call.name, args, "")
        if act.kind in ("read", "edit", "write"):
            yield call.id, act


def _result_call_id(item: ViewItem) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""
