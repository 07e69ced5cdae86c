"""L2: clearing of old results in place of a compaction that is due.

Model sees: as in `microcompact.clear`, a line in place of each result with the path of its text.
Tokens: frees at least `pressed_cleared` of the layers, and about twice that if there is enough.
Cache: keeps more than half of what is cached: only results in the later half are cleared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from travois.context.compaction.passages import weigh_file
from travois.context.layers import Layers
from travois.context.ledger.extractors import Act, decoded, kind_of
from travois.context.microcompact.plan import (
    Clearing,
    Now,
    choose_local,
    choose_server,
    oldest_results,
)
from travois.core.content import extract_calls
from travois.core.facts import Assistant, Result
from travois.core.tokens import fact_tokens, head_tokens
from travois.core.view import View, ViewItem, has_thinking

KEPT = 0.52
"""The share of what is cached that must stay: half, and some more as sizes are estimates."""
AMPLE = 2
"""The multiple of the least that is freed if possible: few clearings, each large."""
CURRENT = 2
"""The number of last used files that count as unfinished, though they were changed."""


def clearing_instead(
    view: View, layers: Layers, *, now: Now, names: Mapping[str, float]
) -> Clearing | None:
    """Plan what to clear in place of a compaction that is due; None if that would not be enough.

    Commands and searches go first, then files that were changed and left, then the files mentioned
    least (`names`): an edit needs the exact text of what it replaces. A compaction would take all
    of them.
    """
    bound = has_thinking(view)
    if not layers.pressure or (bound and not now.server):
        return None
    least = layers.pressed_cleared + max(0, now.size - now.limit)
    old = oldest_results(view, kept=layers.pressed_kept, protected=layers.pressed_tokens)
    late = {item.seq for item in _later_half(view)}
    if bound:
        found = choose_server(view, old, layers)
        fresh = [item.seq for item in old if _call(item) in {*found.calls} - {*view.cleared}]
        return found if fresh and found.freed >= least and fresh[0] in late else None
    candidates = [item for item in old if item.seq in late]
    found = _enough(view, candidates, names=names, wanted=AMPLE * least)
    return found if found.calls and found.freed >= least else None


def _enough(
    view: View, candidates: Sequence[ViewItem], *, names: Mapping[str, float], wanted: int
) -> Clearing:
    """Choose all results that show no file, and as many of the others as it takes."""
    files = _files_read(view)
    read = [item for item in candidates if _call(item) in files]
    finished = _finished_files(view)

    def worth(item: ViewItem) -> tuple[bool, float]:
        path = files[_call(item)]
        return path not in finished, weigh_file(path, names)

    read.sort(key=worth)
    chosen = [item for item in candidates if _call(item) not in files]
    found = choose_local(view, chosen)
    while read and found.freed < wanted:
        chosen.append(read.pop(0))
        found = choose_local(view, sorted(chosen, key=lambda item: item.seq))
    return found


def _finished_files(view: View) -> set[str]:
    """Return the files that were changed, without the most recently used ones."""
    changed: dict[str, bool] = {}
    for _, act in _calls_on_files(view):
        changed[act.path] = changed.pop(act.path, False) or act.kind != "read"
    return {path for path in list(changed)[:-CURRENT] if changed[path]}


def _later_half(view: View) -> list[ViewItem]:
    """Return the items that at least half of the cached prompt stands before."""
    sizes = [fact_tokens(item.fact) for item in view.items[: view.seen]]
    before = head_tokens(view.epoch) if view.epoch else 0
    half = KEPT * (before + sum(sizes))
    for index, size in enumerate(sizes):
        if before >= half:
            return view.items[index:]
        before += size
    return []


def _files_read(view: View) -> dict[str, str]:
    """Map the calls whose results show the latest text of a file, or lines of it, to that file."""
    latest: dict[tuple[str, object, object], str] = {}
    for call, act in _calls_on_files(view):
        if act.kind == "read":
            latest[act.path, act.args.get("offset"), act.args.get("limit")] = call
    return {call: path for (path, *_), call in latest.items()}


def _calls_on_files(view: View) -> Iterator[tuple[str, Act]]:
    """Yield the calls that read, change or write a file, in order."""
    replies = (item.fact for item in view.items if isinstance(item.fact, Assistant))
    for call in (call for reply in replies for call in extract_calls(reply.content)):
        args = decoded(call.args)
        act = Act(0, kind_of(call.name, args), call.name, args, "")
        if act.kind in ("read", "edit", "write"):
            yield call.id, act


def _call(item: ViewItem) -> str:
    return item.fact.call if isinstance(item.fact, Result) else ""
