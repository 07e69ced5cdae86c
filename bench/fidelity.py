"""How much of what a session established the model can still see, and what the requests cost.

`python bench/fidelity.py SESSIONS_DIR [--window N] [--json]`: recorded sessions of at least 120K
tokens are played through the real engine (see `bench.replay`) and scored with the probe, whose
file stands beside the sessions or is named with `--probe`. `edit` is the share of recorded edits
whose old text stood in the request that they were written from, `edit_of_keep_all` the same as a
part of those that a request with everything would have shown; `continuation` and `stale` come from
two more judges (`bench.continuation`, `bench.staleness`), which look at the request right after
each compaction. `--thinking` keeps thinking in the history, so that the provider clears results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from random import Random
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from bench.billing import HEAD, READ, TTL, WRITE, Seen, tokens
from bench.continuation import continued, without_name_lists
from bench.replay import Moment, Player, Setting, Watcher, replay
from bench.staleness import Log, contradicted
from bench.steps import Step, script
from bench.tokens import half
from travois.context.layers import ContextLayers
from travois.core.content import Text, extract_text

SHORTEST = 120_000
CATEGORIES = ("instruct", "edited", "todo", "verify", "error", "ids", "decide", "need", "fresh")
LASTING = ("instruct", "edited", "todo", "ids")
"""What must still be in sight after a compaction."""
WATCHED = (1, 3)
MEASURES = ("visible", "near", "far", "F")
KEEP_ALL = ContextLayers(offload=False, clear=False, compact=False, draft=False, restore=False)
FLOORS = (
    *("sessions", "calls", "edits", "edit_of_keep_all", "billed_ratio", "breaks_per_100_calls"),
    *("continuation", "stale", "judged"),
)
"""What is told of each source."""
AFTER = 60
"""How many messages after a cut the probe looks at for what was needed."""


class Task(msgspec.Struct, frozen=True):
    """One session to be measured."""

    path: str
    probe: str
    window: int
    layers: ContextLayers
    thinking: bool = False


class Row(msgspec.Struct):
    """What one session came to."""

    id: str
    scores: list[dict[str, dict[str, float]]] = []
    """Of each cut, by category."""
    after: dict[int, dict[str, float]] = {}
    """The share in sight after the 1st and the 3rd compaction."""
    sizes: list[int] = []
    """The tokens of the requests at the cuts."""
    edits: int = 0
    """Recorded edits that succeeded."""
    edits_ready: int = 0
    """Those whose old text stood in the request that they were written from."""
    edits_kept: int = 0
    """The same if each request held all that was ever shown."""
    unready: list[str] = []
    """What was replaced by edits that only a request with everything was ready for."""
    judged: int = 0
    """Compactions that a request followed."""
    wanted: int = 0
    """What the next calls took from the conversation before each compaction."""
    lost: list[str] = []
    """What of that was out of sight."""
    stale: list[str] = []
    """Statements about the present that the log contradicts."""
    figures: dict[str, float] = {}
    causes: dict[str, int] = {}
    """Why the cached prefix was lost, and how often."""
    died: str = ""


@cache
def load(path: str) -> Any:
    """The probe, which is no part of this project."""
    spec = spec_from_file_location("probe", path)
    assert spec is not None and spec.loader is not None, path
    probe = module_from_spec(spec)
    spec.loader.exec_module(probe)
    return probe


def measure(task: Task) -> Row | None:
    """Play one session and score it; none if it is too short to tell anything."""
    begun, probe = perf_counter(), load(task.probe)
    traj = probe.Traj(task.path)
    if traj.tokens() + probe.BASE < SHORTEST or len(traj.calls) < 10:
        return None
    cuts = probe.choose_cuts(traj)
    if not task.thinking:
        without_thinking(traj)
    steps, row = script(traj.msgs, thinking=task.thinking), Row(traj.id)
    cwd = traj.head.get("cwd") or "/"
    setting = Setting(task.window, task.layers, cwd=cwd, edits=task.thinking)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / traj.id
        jury = Jury(probe, traj, row=row, folder=folder, cuts=placed(cuts, steps))
        jury.steps, jury.cwd = steps, cwd
        watcher = Watcher(jury.sent, jury.compacted)
        player, row.died = replay(steps, folder, setting=setting, watcher=watcher)
    row.causes = player.causes
    row.figures = figures(player) | {"keep_all": keep_all(steps), "seconds": perf_counter() - begun}
    return row


def without_thinking(traj: Any) -> None:
    """Neither played nor asked for: what only thinking mentioned cannot be in any view."""
    for message, texts in zip(traj.msgs, traj.blocks, strict=True):
        kept = [i for i, block in enumerate(message["content"]) if block["type"] != "thinking"]
        message["content"] = [message["content"][i] for i in kept]
        texts[:] = [texts[i] for i in kept]


def placed(cuts: list[int], steps: list[Step]) -> dict[int, int]:
    """The cut that each step stands for: the reply at it, or the last one before it."""
    indexes = [step.index for step in steps]
    return {max((i for i in indexes if i <= cut), default=indexes[0]): cut for cut in cuts}


class Jury:
    """Scores the requests at the cuts and after compactions."""

    def __init__(
        self, probe: Any, traj: Any, *, row: Row, folder: Path, cuts: dict[int, int]
    ) -> None:
        self._probe, self._traj, self._row, self._folder = probe, traj, row, folder
        self._cuts = cuts
        self.steps: list[Step] = []
        self.cwd = "/"
        self._written: set[str] = set()
        """What the harness put in the place of the older conversation."""
        self._moved = [e["at"] for e in traj.events if e["type"] == "compaction"]
        self._edits = probe.edits(traj)
        self._bare: dict[str, str] = {}
        self._ever: list[str] = []
        """All that was shown up to the last edit, in order."""
        self._until = 0

    def sent(self, step: Step, request: Seen, compactions: int) -> None:
        """Look at one request before its reply."""
        self._count_ready_edits(step, request)
        if step.index in self._cuts:
            self._row.sizes.append(HEAD + sum(map(tokens, request.texts)))
            self._row.scores.append(self._score(self._cuts[step.index], request))
        if compactions in WATCHED and compactions not in self._row.after:
            facts = self._probe.facts(self._traj, step.index)
            found = self._probe.score(
                self._traj, step.index, request.text, F=facts, need=set(), fresh=set()
            )
            lasting = {name: found[name]["visible"] for name in LASTING if name in found}
            self._row.after[compactions] = lasting

    def compacted(self, request: Seen, moment: Moment) -> None:
        """Look at the request right after a compaction."""
        row, fact = self._row, moment.fact
        self._written = {block.text for block in fact.summary if isinstance(block, Text)}
        shown = without_name_lists(request.texts, self._written)
        found = continued(
            self.steps, at=moment.at, shown=self._probe.norm(shown), atoms=self._atoms
        )
        log = Log(self.steps, at=moment.at, aside=moment.aside, cwd=self.cwd)
        text = "\n".join(block.text for block in fact.summary if isinstance(block, Text))
        row.judged += 1
        row.wanted += found.wanted
        row.lost += [f"{moment.at}: {name}" for name in found.lost]
        row.stale += [f"{moment.at}: {why}" for why in contradicted(text, log, moment.tree.place)]

    def _atoms(self, text: str) -> set[str]:
        return self._probe.atoms(self._probe.norm(text))

    def _count_ready_edits(self, step: Step, request: Seen) -> None:
        wanted = self._edits.get(step.index, ())
        if not wanted:
            return
        ready, row = self._probe.edit_ready, self._row
        self._bare = {t: self._bare.get(t) or self._probe.plain(t) for t in request.texts}
        shown, ever = list(self._bare.values()), self._all_before(step.index)
        for old in wanted:
            seen, kept = ready(shown, old), ready(ever, old)
            row.edits += 1
            row.edits_ready += seen
            row.edits_kept += kept
            row.unready += [f"{step.index}: {old[:120]}"] if kept and not seen else []

    def _all_before(self, index: int) -> list[str]:
        """What a request with everything shows before this message."""
        for texts in self._traj.blocks[self._until : index]:
            self._ever += [self._probe.plain(text) for text, _ in texts]
        self._until = index
        return self._ever

    def _score(self, cut: int, request: Seen) -> dict[str, dict[str, float]]:
        probe, traj = self._probe, self._traj
        untouched = cut + AFTER <= min(self._moved, default=sys.maxsize)
        stirred = any(cut - 10 <= at <= cut + 6 for at in self._moved)
        fresh: set[str] = set() if stirred else probe.fresh_atoms(traj, cut)
        files = dict(self._artifacts(request.text))
        found = probe.score(traj, cut, request.text, files, need=set(), fresh=fresh)
        if untouched and (need := probe.need_atoms(traj, cut)):
            bare = "\n".join((without_name_lists(request.texts, self._written), *files))
            found |= probe.score(traj, cut, bare, files, F=[], need=need, fresh=set())
        rest = [score for name, score in found.items() if name != "all" and score]
        found["all"] = {name: mean(score[name] for score in rest) for name in MEASURES}
        return {name: score for name, score in found.items() if score}

    def _artifacts(self, text: str) -> Iterator[tuple[str, str]]:
        """The files of the session that the request names."""
        for path in sorted(self._folder.rglob("*")):
            if path.is_file() and _is_named(path, text):
                yield path.name, path.read_text("utf-8", errors="replace")


def _is_named(path: Path, text: str) -> bool:
    """Whether a request names a file: as a whole, or its folder once and then its name."""
    return str(path) in text or (str(path.parent) in text and path.name in text)


def figures(player: Player) -> dict[str, float]:
    bill, counts = player.bill, player.counts
    return {
        "calls": bill.calls,
        "billed": bill.billed,
        "read": bill.read,
        "input": bill.read + bill.write,
        "breaks": bill.breaks,
        "over": bill.over,
        "largest": bill.largest,
        "asides": bill.asides,
        "compactions": counts.get("Compacted", 0),
        "cleared": counts.get("Cleared", 0),
        "offloaded": counts.get("Offloaded", 0),
        "misses": sum(player.misses),
        "worst_miss": max(player.misses),
    }


def keep_all(steps: list[Step]) -> float:
    """What the same session costs if every request holds all that was ever said."""
    billed, last, total, at = 0.0, 0, HEAD, float("-inf")
    for step in steps:
        total += sum(tokens(extract_text(user.content)) for user in step.said)
        hit = last if step.time - at <= TTL else 0
        billed += hit * READ + (total - hit) * WRITE
        last, at = total, step.time
        total += sum(step.sizes)
    return billed


def total(rows: list[Row], *, window: int, seconds: float) -> dict[str, Any]:
    """All sessions as one figure of each kind."""
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        for name, value in row.figures.items():
            sums[name] += value
    fidelity = {name: _mean(rows, name, "F") for name in ("all", *CATEGORIES)}
    return {
        "fidelity": {name: value for name, value in fidelity.items() if value is not None},
        "billed_ratio": sums["billed"] / sums["keep_all"],
        "cache_read": sums["read"] / sums["input"],
        "sessions": len(rows),
        "window": window,
        "breaks_per_100_calls": 100 * sums["breaks"] / sums["calls"],
        "breaks_by_cause": _causes(rows),
        "over_window": int(sums["over"]),
        "largest": int(max(row.figures["largest"] for row in rows)),
        "at_cuts": round(mean(size for row in rows for size in row.sizes)),
        "miscounted": sums["misses"] / sums["calls"],
        "miscounted_most": max(row.figures["worst_miss"] for row in rows),
        **_edits(rows),
        "continuation": _continuation(rows),
        "stale": sum(len(row.stale) for row in rows),
        "judged": sum(row.judged for row in rows),
        "visible": _mean(rows, "all", "visible"),
        "near": _mean(rows, "all", "near"),
        "far": _mean(rows, "all", "far"),
        "after_compaction": {str(n): _after(rows, n) for n in WATCHED},
        **{name: int(sums[name]) for name in ("calls", "compactions", "cleared", "offloaded")},
        "asides": int(sums["asides"]),
        "died": [f"{row.id}: {row.died}" for row in rows if row.died],
        "seconds": round(seconds, 1),
    }


def _edits(rows: list[Row]) -> dict[str, float]:
    edits, ready = sum(row.edits for row in rows), sum(row.edits_ready for row in rows)
    kept = sum(row.edits_kept for row in rows)
    return {
        "edit": ready / edits if edits else 1.0,
        "edit_of_keep_all": ready / kept if kept else 1.0,
        "edits": edits,
    }


def _causes(rows: list[Row]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        for cause, count in row.causes.items():
            found[cause] += count
    return dict(found)


def _continuation(rows: list[Row]) -> float | None:
    wanted, lost = sum(row.wanted for row in rows), sum(len(row.lost) for row in rows)
    return 1 - lost / wanted if wanted else None


def _mean(rows: list[Row], category: str, measure: str) -> float | None:
    found = [score[category][measure] for r in rows for score in r.scores if category in score]
    return mean(found) if found else None


def _after(rows: list[Row], number: int) -> dict[str, float]:
    seen = [row.after[number] for row in rows if number in row.after]
    shares = {name: [s[name] for s in seen if name in s] for name in LASTING}
    return {name: mean(found) for name, found in shares.items() if found} | {"n": len(seen)}


def table(found: dict[str, Any]) -> None:
    """The figures for a person."""
    for name, value in found["fidelity"].items():
        print(f"{name:24}{value:8.3f}")
    for number, shares in found["after_compaction"].items():
        told = "  ".join(f"{name} {share:.3f}" for name, share in shares.items() if name != "n")
        print(f"in sight after {number}.        {told}   ({shares['n']} sessions)")
    for name, value in found.items():
        if isinstance(value, int | float):
            shown = f"{value:8.3f}" if isinstance(value, float) else f"{value:8,}"
            print(f"{name.replace('_', ' '):24}{shown}")
    for cause, count in found["breaks_by_cause"].items():
        print(f"broken by {cause:14}{count:8,}")
    for line in found["died"]:
        print(f"died: {line}")


def _sources(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    """The rows by the agent that was recorded."""
    names = sorted({row.id.rpartition("-")[0] for row in rows})
    return [(name, [row for row in rows if row.id.rpartition("-")[0] == name]) for name in names]


def _brief(rows: list[Row], *, window: int) -> dict[str, Any]:
    """The figures that have floors, of some sessions."""
    found = total(rows, window=window, seconds=0.0)
    parts = {name: found["fidelity"].get(name) for name in ("all", "error", "need", "fresh")}
    return parts | {name: found[name] for name in FLOORS}


def _lost(row: Row) -> str:
    """What one session lost, as a line of JSON."""
    kinds = {"unready": row.unready, "lost": row.lost, "stale": row.stale}
    return json.dumps({"id": row.id, "wanted": row.wanted, **kinds}, ensure_ascii=False)


def options(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/fidelity.py", description=__doc__)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--each", action="store_true", help="also a line for each session")
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--half", choices=("a", "b"), help="only this half of the sessions")
    parser.add_argument("--baseline", action="store_true", help="every layer off: keep all")
    parser.add_argument("--idle", choices=("normal", "cheap", "off"), default="normal")
    parser.add_argument("--thinking", action="store_true", help="with thinking in the history")
    parser.add_argument("--seed", type=int, help="take the sessions in this random order")
    parser.add_argument("--lost", type=Path, help="write what was lost or stale to this file")
    parser.add_argument("--probe", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args(args)


def probe_beside(sessions: Path) -> Path:
    places = [
        sessions / "fidelity.py",
        *(above / "fidelity" / "fidelity.py" for above in sessions.resolve().parents[:2]),
    ]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise SystemExit("The probe was not found: name its file with --probe.")
    return found


def main(args: list[str]) -> None:
    chosen, begun = options(args), perf_counter()
    probe = str(chosen.probe or probe_beside(chosen.sessions))
    layers = KEEP_ALL if chosen.baseline else ContextLayers(idle=chosen.idle)
    paths = sorted(chosen.sessions.glob("*.jsonl.gz"), key=lambda path: -path.stat().st_size)
    halves = [p for p in paths if not chosen.half or half(p.name.split(".")[0]) == chosen.half]
    if chosen.seed is not None:
        Random(chosen.seed).shuffle(halves)
    tasks = [Task(str(path), probe, chosen.window, layers, chosen.thinking) for path in halves]
    rows: list[Row] = []
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for number, row in enumerate(pool.map(measure, tasks), 1):
            rows += [row] if row else []
            print(f"\r{number}/{len(tasks)} {len(rows)} played", end="", file=sys.stderr)
            if chosen.limit and len(rows) >= chosen.limit:
                pool.shutdown(cancel_futures=True)
                break
    print(file=sys.stderr)
    if not rows:
        raise SystemExit(f"No session of {SHORTEST:,} tokens or more in {chosen.sessions}.")
    if chosen.each:
        for row in rows:
            print(json.dumps({"id": row.id, **row.figures, "scores": row.scores}))
    if chosen.lost:
        chosen.lost.write_text("\n".join(map(_lost, rows)), "utf-8")
    found = total(rows, window=chosen.window, seconds=perf_counter() - begun)
    found["sources"] = {name: _brief(each, window=chosen.window) for name, each in _sources(rows)}
    print(json.dumps(found)) if chosen.json else table(found)


if __name__ == "__main__":
    main(sys.argv[1:])
