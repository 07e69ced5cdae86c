"""`travois sessions diff A B`: what two sessions did differently."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from difflib import unified_diff

from travois.cli.comparing import Comparison, FileChange, Recorded, Side, compare
from travois.core.errors import Fault
from travois.core.facts import Opened
from travois.sessions.catalog import find
from travois.sessions.home import Home
from travois.sessions.log_file import Skipped, history
from travois.sessions.project import Project
from travois.snapshots.snapshots import Snapshots
from travois.terminal.tables import clean, say, say_json, styled, table, warn

MAX_PROMPT = 200
MAX_WORDS = 400
LETTERS = ("A", "B")


def show_diff(args: Namespace, home: Home, project: Project, *, skipped: list[Skipped]) -> None:
    """Print how two sessions differ; damage to their logs is added to `skipped`."""
    a, b = (_recorded(text, home, project, skipped=skipped) for text in (args.a, args.b))
    if a.summary.id == b.summary.id:
        raise Fault("Both are the same session", why=a.summary.id, fix="Name two sessions.")
    found = compare(a, b)
    if args.json:
        say_json(as_json(found))
        return
    for line in (*told(found), *(patch(found) if args.patch else ())):
        say(line)


def _recorded(text: str, home: Home, project: Project, *, skipped: list[Skipped]) -> Recorded:
    summary = find(home, text, project=project)
    entries = list(history(home.session(summary.project, summary.id), skipped))
    opened = next((e.fact for e in entries if isinstance(e.fact, Opened)), None)
    folder = opened.cwd if opened else summary.cwd
    keeper = Snapshots(home.path, summary.project, folders=(folder,), tell=warn)
    return Recorded(summary, entries, keeper)


# --- for programs ---------------------------------------------------------------------------------


def as_json(found: Comparison) -> dict[str, object]:
    """The comparison for programs; the fields stay as they are."""
    return {
        "a": _side_json(found.a),
        "b": _side_json(found.b),
        "relation": found.relation,
        "shared_prompts": found.shared_prompts,
        "parted_at": found.parted_at,
        "files": [
            {
                "path": path,
                "a": _file_json(found.a.files.get(path)),
                "b": _file_json(found.b.files.get(path)),
                "same": is_same(found, path),
            }
            for path in paths(found)
        ],
    }


def _side_json(side: Side) -> dict[str, object]:
    return {
        "id": side.id,
        "title": side.title,
        "cwd": side.cwd,
        "models": side.models,
        "prompts": side.prompts,
        "replies": side.replies,
        "tools": side.tools,
        "failed_calls": side.failed,
        "denied_calls": side.denied,
        "input_tokens": side.usage.prompt,
        "output_tokens": side.usage.output,
        "cost_usd": side.dollars,
        "seconds": side.seconds,
        "outcome": side.outcome,
        "last_words": side.last_words,
        "files_from": side.files_from,
    }


def _file_json(change: FileChange | None) -> dict[str, object] | None:
    if change is None:
        return None
    return {"status": change.status, "added": change.added, "removed": change.removed}


def paths(found: Comparison) -> list[str]:
    """Return every file that one of the sessions changed."""
    return sorted({*found.a.files, *found.b.files})


def is_same(found: Comparison, path: str) -> bool | None:
    """Whether both left a file alike; None where that is not known."""
    a, b = found.a.files.get(path), found.b.files.get(path)
    if a is None or b is None:
        return False
    if "deleted" in (a.status, b.status):
        return a.status == b.status
    return None if a.content is None or b.content is None else a.content == b.content


# --- for people -----------------------------------------------------------------------------------


def told(found: Comparison) -> Iterator[str]:
    """The comparison as lines for a terminal."""
    sides = (found.a, found.b)
    for letter, side in zip(LETTERS, sides, strict=True):
        title = clean(side.title, lines="show")[:MAX_PROMPT]
        yield styled(f"{letter}  {side.id[:8]}  {title}", "bold")
    yield _parting(found)
    yield ""
    yield table([("", *LETTERS, ""), *(_row(name, values) for name, values in _figures(sides))])
    yield ""
    yield from _conversation(found)
    yield from _changed(found)


def _row(name: str, values: Iterable[str]) -> tuple[str, ...]:
    return (name, *(clean(value, lines="show") for value in values), "")


def _figures(sides: tuple[Side, Side]) -> Iterator[tuple[str, list[str]]]:
    yield "model", [", ".join(side.models) or "-" for side in sides]
    yield "prompts", [str(len(side.prompts)) for side in sides]
    yield "replies", [str(side.replies) for side in sides]
    yield "tool calls", [_calls(side) for side in sides]
    for tool in sorted({tool for side in sides for tool in side.tools}):
        yield f"  {tool}", [str(side.tools.get(tool, 0)) for side in sides]
    yield "tokens in", [f"{side.usage.prompt:,}" for side in sides]
    yield "tokens out", [f"{side.usage.output:,}" for side in sides]
    yield "cost", [f"${side.dollars:.4f}" for side in sides]
    yield "time", [f"{side.seconds:.0f} s" for side in sides]
    yield "files changed", [str(len(side.files)) for side in sides]
    yield "outcome", [side.outcome or "-" for side in sides]


def _calls(side: Side) -> str:
    more = [f"{side.failed} failed"] if side.failed else []
    more += [f"{side.denied} denied"] if side.denied else []
    return f"{sum(side.tools.values())}" + (f" ({', '.join(more)})" if more else "")


def _parting(found: Comparison) -> str:
    if found.relation == "unrelated":
        return "They share no history; all of each is compared."
    many = len(found.shared_prompts)
    what = found.relation.replace("a is", "A is").replace("b is", "B is")
    what = what.replace("of a", "of A").replace("of b", "of B")
    last = f": {_cut(found.shared_prompts[-1], 60)!r}" if many else ""
    return f"{what.capitalize() if what[0] == 'f' else what}; they part after prompt {many}{last}."


def _conversation(found: Comparison) -> Iterator[str]:
    for letter, side in zip(LETTERS, (found.a, found.b), strict=True):
        for prompt in side.prompts:
            yield f"{letter} was asked: {_cut(prompt, MAX_PROMPT)}"
        if side.last_words:
            yield f"{letter} said last: {_cut(side.last_words, MAX_WORDS)}"
    yield ""


def _changed(found: Comparison) -> Iterator[str]:
    rows = [
        (*(_size(side.files.get(path)) for side in (found.a, found.b)), _verdict(found, path), path)
        for path in paths(found)
    ]
    if not rows:
        yield "Neither changed a file."
        return
    shown = [tuple(clean(cell, lines="show") for cell in row) for row in rows]
    yield table([(*LETTERS, "", "FILE"), *shown])
    for letter, side in zip(LETTERS, (found.a, found.b), strict=True):
        if side.files_from == "calls":
            yield f"Files of {letter} are told by its tool calls: its snapshots are gone."


def _size(change: FileChange | None) -> str:
    if change is None:
        return "-"
    counted = "" if change.added is None else f" +{change.added} -{change.removed}"
    return f"{change.status}{counted}"


def _verdict(found: Comparison, path: str) -> str:
    if path not in found.a.files:
        return "only B"
    if path not in found.b.files:
        return "only A"
    return {True: "same", False: "differs", None: "both"}[is_same(found, path)]


def patch(found: Comparison) -> Iterator[str]:
    """The files that both sessions left differently, as a unified diff from A to B."""
    for path in paths(found):
        a, b = found.a.files.get(path), found.b.files.get(path)
        if a is None or b is None or a.content is None or b.content is None or is_same(found, path):
            continue
        if b"\0" in a.content + b.content:
            yield f"Binary files A/{path} and B/{path} differ"
            continue
        old, new = (text.decode("utf-8", "replace").splitlines() for text in (a.content, b.content))
        names = (os.path.join("A", path), os.path.join("B", path))
        for line in unified_diff(old, new, *names, lineterm=""):
            yield clean(line, lines="show")


def _cut(text: str, most: int) -> str:
    flat = clean(" ".join(text.split()))
    return flat if len(flat) <= most else flat[: most - 1] + "…"
