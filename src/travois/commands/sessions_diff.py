"""`travois sessions diff`: compare two sessions."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher, unified_diff
from typing import Literal

import msgspec

from travois.context.ledger.extractors import extract_actions, extract_files
from travois.core.cache_audit import SessionSpending
from travois.core.content import extract_calls, extract_text
from travois.core.errors import UserError
from travois.core.facts import Assistant, Decided, Ended, Entry, Epoch, Opened, Result, User
from travois.core.models import Usage
from travois.core.view import keep_live_entries
from travois.sessions.catalog import SessionSummary, find_session
from travois.sessions.home import Project, TravoisHome
from travois.sessions.log_file import DamagedPlace, read_history
from travois.snapshots.snapshots import (
    SnapshotMark,
    Snapshots,
    has_pause_between,
    list_snapshot_marks,
)
from travois.snapshots.tree import PathChange
from travois.terminal import (
    escape_controls,
    format_table,
    print_json,
    print_line,
    print_warning,
    style_text,
)

# Comparing two sessions: where they part, what each did after that, and what files came of it.


SessionRelation = Literal[
    "unrelated", "a is a fork of b", "b is a fork of a", "forks of one session"
]
FileStatus = Literal["added", "modified", "deleted"]
MAX_COMPARED = 1 << 20
"""Files over this many bytes are not compared line by line."""


class FileChange(msgspec.Struct, frozen=True):
    """The change of one file in one session; line counts are missing if unknown."""

    status: FileStatus
    added: int | None = None
    removed: int | None = None
    content: bytes | None = None
    """The final content; None if unknown."""


class ComparedSession(msgspec.Struct, frozen=True):
    """One session after the fork: its messages, calls, cost and files."""

    id: str
    title: str
    cwd: str
    models: tuple[str, ...]
    prompts: tuple[str, ...]
    replies: int
    tools: dict[str, int]
    failed: int
    """Tool calls that ended in an error."""
    denied: int
    usage: Usage
    dollars: float
    seconds: float
    outcome: str
    """The end of the last turn; empty if none ended."""
    last_words: str
    files: dict[str, FileChange]
    files_from: Literal["snapshots", "calls"]
    """The source of the file list: snapshots, or only tool calls."""


class SessionComparison(msgspec.Struct, frozen=True):
    """Two sessions side by side."""

    a: ComparedSession
    b: ComparedSession
    relation: SessionRelation
    shared_prompts: tuple[str, ...]
    """The prompts before the fork."""
    parted_at: float
    """When the last thing happened that they share; nought if they share nothing."""


class RecordedSession(msgspec.Struct, frozen=True):
    """A session as it is on disk."""

    summary: SessionSummary
    entries: list[Entry]
    snapshots: Snapshots


def compare_sessions(a: RecordedSession, b: RecordedSession) -> SessionComparison:
    """Compare two sessions from the entry at which they diverge."""
    shared = _count_shared(a.entries, b.entries)
    before = a.entries[:shared]
    return SessionComparison(
        _summarize_side(a, shared),
        _summarize_side(b, shared),
        _find_relation(a.entries[shared:], b.entries[shared:], shared),
        _user_prompts(keep_live_entries(before)),
        before[-1].at if before else 0.0,
    )


def _count_shared(a: list[Entry], b: list[Entry]) -> int:
    """Count the entries that two sessions share: a fork begins with those of its parent."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(a), len(b)))


def _find_relation(a: list[Entry], b: list[Entry], shared: int) -> SessionRelation:
    """Return how two compared sessions are related: one a fork, both forks, or unrelated."""
    if not shared:
        return "unrelated"
    forked = tuple(bool(rest) and isinstance(rest[0].fact, Opened) for rest in (a, b))
    match forked:
        case (True, True):
            return "forks of one session"
        case (True, False):
            return "a is a fork of b"
        case _:
            return "b is a fork of a"


def _summarize_side(recorded: RecordedSession, shared: int) -> ComparedSession:
    """Summarize one session after the shared entries, for a comparison of sessions."""
    after = recorded.entries[shared:]
    last = recorded.entries[shared - 1].seq if shared else 0
    standing = [entry for entry in keep_live_entries(recorded.entries) if entry.seq > last]
    facts = [entry.fact for entry in standing]
    replies = [fact for fact in facts if isinstance(fact, Assistant)]
    ends = [fact for fact in facts if isinstance(fact, Ended)]
    spent = _sum_spending(recorded.entries, shared)
    changed, origin = _changed_files(recorded, standing)
    return ComparedSession(
        id=recorded.summary.id,
        title=recorded.summary.title,
        cwd=recorded.summary.cwd,
        models=_list_models_used(recorded.entries, shared),
        prompts=_user_prompts(standing),
        replies=len(replies),
        tools=dict(
            Counter(call.name for reply in replies for call in extract_calls(reply.content))
        ),
        failed=sum(isinstance(fact, Result) and fact.error for fact in facts),
        denied=sum(isinstance(fact, Decided) and fact.verdict == "deny" for fact in facts),
        usage=spent.usage,
        dollars=spent.dollars,
        seconds=sum(_turn_seconds(after)),
        outcome=ends[-1].detail or ends[-1].why if ends else "",
        last_words=extract_text(replies[-1].content) if replies else "",
        files=changed,
        files_from=origin,
    )


def _list_models_used(entries: list[Entry], shared: int) -> tuple[str, ...]:
    """List the models that answered after the sessions diverged, in order."""
    name, used = "", dict[str, None]()
    for index, entry in enumerate(entries):
        if isinstance(entry.fact, Epoch):
            name = entry.fact.model.name
        elif isinstance(entry.fact, Assistant) and index >= shared:
            used[name] = None
    return tuple(used) or ((name,) if name else ())


def _user_prompts(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the prompts that the user typed in a compared session."""
    said = (entry.fact for entry in entries)
    return tuple(
        extract_text(fact.content)
        for fact in said
        if isinstance(fact, User) and fact.origin == "human"
    )


def _sum_spending(entries: list[Entry], shared: int) -> SessionSpending:
    """Sum the cost and token usage of a session after its shared entries."""
    whole = SessionSpending()
    for entry in entries[:shared]:
        whole = whole.after_entry(entry)
    spent = SessionSpending(prices=whole.prices)
    for entry in entries[shared:]:
        spent = spent.after_entry(entry)
    return spent


def _turn_seconds(entries: list[Entry]) -> Iterator[float]:
    """Yield how long each turn of a compared session took, without pauses between turns."""
    began: float | None = None
    for entry in entries:
        if isinstance(entry.fact, User) and entry.fact.origin == "human" and began is None:
            began = entry.at
        elif isinstance(entry.fact, Ended) and began is not None:
            yield entry.at - began
            began = None


# --- files ----------------------------------------------------------------------------------------


def _changed_files(
    recorded: RecordedSession, standing: list[Entry]
) -> tuple[dict[str, FileChange], Literal["snapshots", "calls"]]:
    """Find the files that a session changed, by its snapshots or else its tool calls."""
    opened = next((e.fact for e in reversed(recorded.entries) if isinstance(e.fact, Opened)), None)
    cwd = opened.cwd if opened else recorded.summary.cwd
    found = _changes_from_snapshots(recorded.snapshots, standing)
    if found is not None:
        told = {
            _relative_to_session(os.fsdecode(path), cwd): _to_file_change(
                c, recorded.snapshots.read_content
            )
            for path, c in found
        }
        return dict(sorted(told.items())), "snapshots"
    return dict(sorted(_changes_from_calls(standing, cwd))), "calls"


def _changes_from_snapshots(
    store: Snapshots, standing: list[Entry]
) -> list[tuple[bytes, PathChange]] | None:
    """Return what turns changed, from first state to last; None if a snapshot is missing.

    What somebody else changed between turns is left out.
    """
    taken = list_snapshot_marks(standing)
    merged: dict[bytes, PathChange] = {}
    for turn in _group_by_turn(taken):
        found = [store.find(mark.name) for mark in turn]
        snapshots = [snapshot for snapshot in found if snapshot is not None]
        if len(snapshots) < len(found):
            return None
        # Of what several snapshots of a turn cover, the first one says how the turn began.
        for back in store.compare(snapshots[-1:], snapshots[:-1]):
            before = merged[back.path].old if back.path in merged else back.new
            merged[back.path] = PathChange(back.path, before, back.old)
    if not taken and any(True for _ in _changes_from_calls(standing, "")):
        return None
    return [(path, change) for path, change in merged.items() if _is_shown_change(change)]


def _group_by_turn(taken: list[SnapshotMark]) -> list[list[SnapshotMark]]:
    """Group snapshots by the turn that they were taken in."""
    turns: list[list[SnapshotMark]] = []
    for mark in taken:
        if not turns or has_pause_between(turns[-1][-1], mark):
            turns.append([])
        turns[-1].append(mark)
    return turns


def _is_shown_change(change: PathChange) -> bool:
    """Return whether a comparison shows this change: no folders and nothing inside .git."""
    nodes = [node for node in (change.old, change.new) if node is not None]
    inside_git = b"/.git/" in change.path or change.path.endswith(b"/.git")
    same = change.old == change.new
    return not same and not inside_git and not any(node.is_folder for node in nodes)


def _to_file_change(change: PathChange, content: Callable[..., bytes]) -> FileChange:
    """Convert a path's change in a session to a file status and line counts."""
    old, new = change.old, change.new
    status = "added" if old is None else "deleted" if new is None else "modified"
    if any(node is not None and node.size > MAX_COMPARED for node in (old, new)):
        return FileChange(status)
    before, after = content(old), content(new)
    added, removed = count_lines(before, after)
    return FileChange(status, added, removed, after)


def count_lines(before: bytes, after: bytes) -> tuple[int | None, int | None]:
    """Count the lines that a compared session added and removed; None for binary files."""
    if b"\0" in before + after:
        return None, None
    old, new = before.splitlines(), after.splitlines()
    same = sum(b.size for b in SequenceMatcher(None, old, new).get_matching_blocks())
    return len(new) - same, len(old) - same


def _changes_from_calls(standing: list[Entry], cwd: str) -> Iterator[tuple[str, FileChange]]:
    """Yield the files that the tool calls of a session edited, wrote or deleted."""
    status: dict[str, FileStatus] = {
        "edited": "modified",
        "written": "modified",
        "deleted": "deleted",
    }
    for file in extract_files(extract_actions(standing)):
        if file.state in status:
            yield (
                _relative_to_session(os.path.join(cwd, file.path), cwd),
                FileChange(status[file.state]),
            )


def _relative_to_session(path: str, cwd: str) -> str:
    """Return a path relative to its session's folder, to compare two sessions."""
    inside = cwd and path.startswith(cwd.rstrip("/") + "/")
    return os.path.relpath(path, cwd) if inside else path


MAX_PROMPT_CHARS = 200
MAX_LAST_WORDS_CHARS = 400
SIDE_LETTERS = ("A", "B")


def show_diff(
    args: Namespace, home: TravoisHome, project: Project, *, skipped: list[DamagedPlace]
) -> None:
    """Print how two sessions differ; damage to their logs is added to `skipped`."""
    a, b = (
        _load_recorded_session(text, home, project, skipped=skipped) for text in (args.a, args.b)
    )
    if a.summary.id == b.summary.id:
        raise UserError("A and B are the same session", why=a.summary.id, fix="Name two sessions.")
    found = compare_sessions(a, b)
    if args.json:
        print_json(comparison_to_json(found))
        return
    for line in (*render_comparison(found), *(render_patch(found) if args.patch else ())):
        print_line(line)


def _load_recorded_session(
    text: str, home: TravoisHome, project: Project, *, skipped: list[DamagedPlace]
) -> RecordedSession:
    """Find a session by id or name, and read its log and snapshots to compare it."""
    summary = find_session(home, text, project=project)
    entries = list(read_history(home.session_folder(summary.project, summary.id), skipped))
    opened = next((e.fact for e in entries if isinstance(e.fact, Opened)), None)
    folder = opened.cwd if opened else summary.cwd
    snapshots = Snapshots(
        *(home.path, summary.project), folders=(folder,), tell=print_warning, own=home.folders
    )
    return RecordedSession(summary, entries, snapshots)


# --- for programs ---------------------------------------------------------------------------------


def comparison_to_json(comparison: SessionComparison) -> dict[str, object]:
    """Build the JSON of a comparison of sessions; its fields are stable."""
    return {
        "a": _side_json(comparison.a),
        "b": _side_json(comparison.b),
        "relation": comparison.relation,
        "shared_prompts": comparison.shared_prompts,
        "parted_at": comparison.parted_at,
        "files": [
            {
                "path": path,
                "a": _file_json(comparison.a.files.get(path)),
                "b": _file_json(comparison.b.files.get(path)),
                "same": is_same_content(comparison, path),
            }
            for path in changed_paths(comparison)
        ],
    }


def _side_json(side: ComparedSession) -> dict[str, object]:
    """Build the JSON of one of the two compared sessions."""
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
    """Build the JSON of a changed file in a comparison of sessions."""
    if change is None:
        return None
    return {"status": change.status, "added": change.added, "removed": change.removed}


def changed_paths(comparison: SessionComparison) -> list[str]:
    """Return every file that either of two compared sessions changed."""
    return sorted({*comparison.a.files, *comparison.b.files})


def is_same_content(comparison: SessionComparison, path: str) -> bool | None:
    """Return whether both compared sessions left a file alike; None if unknown."""
    a, b = comparison.a.files.get(path), comparison.b.files.get(path)
    if a is None or b is None:
        return False
    if "deleted" in (a.status, b.status):
        return a.status == b.status
    return None if a.content is None or b.content is None else a.content == b.content


# --- for people -----------------------------------------------------------------------------------


def render_comparison(comparison: SessionComparison) -> Iterator[str]:
    """Yield the comparison of two sessions as lines for a terminal."""
    sides = (comparison.a, comparison.b)
    for letter, side in zip(SIDE_LETTERS, sides, strict=True):
        title = escape_controls(side.title, lines="show")[:MAX_PROMPT_CHARS]
        yield style_text(f"{letter}  {side.id[:8]}  {title}", "bold")
    yield _describe_relation(comparison)
    yield ""
    yield format_table(
        [
            ("", *SIDE_LETTERS, ""),
            *(_figure_row(name, values) for name, values in _iterate_figures(sides)),
        ]
    )
    yield ""
    yield from _conversation_lines(comparison)
    yield from _changed_file_lines(comparison)


def _figure_row(name: str, values: Iterable[str]) -> tuple[str, ...]:
    return (name, *(escape_controls(value, lines="show") for value in values), "")


def _iterate_figures(
    sides: tuple[ComparedSession, ComparedSession],
) -> Iterator[tuple[str, list[str]]]:
    """Yield the figures of two compared sessions: model, calls, tokens, cost and time."""
    yield "model", [", ".join(side.models) or "-" for side in sides]
    yield "prompts", [str(len(side.prompts)) for side in sides]
    yield "replies", [str(side.replies) for side in sides]
    yield "tool calls", [_describe_calls(side) for side in sides]
    for tool in sorted({tool for side in sides for tool in side.tools}):
        yield f"  {tool}", [str(side.tools.get(tool, 0)) for side in sides]
    yield "tokens in", [f"{side.usage.prompt:,}" for side in sides]
    yield "tokens out", [f"{side.usage.output:,}" for side in sides]
    yield "cost", [f"${side.dollars:.4f}" for side in sides]
    yield "time", [f"{side.seconds:.0f} s" for side in sides]
    yield "files changed", [str(len(side.files)) for side in sides]
    yield "outcome", [side.outcome or "-" for side in sides]


def _describe_calls(side: ComparedSession) -> str:
    """Describe how many tool calls a session made, and how many failed or were denied."""
    more = [f"{side.failed} failed"] if side.failed else []
    more += [f"{side.denied} denied"] if side.denied else []
    return f"{sum(side.tools.values())}" + (f" ({', '.join(more)})" if more else "")


def _describe_relation(comparison: SessionComparison) -> str:
    """Describe how two compared sessions are related, and where they diverge."""
    if comparison.relation == "unrelated":
        return "The sessions share no history; both are compared in full."
    many = len(comparison.shared_prompts)
    what = comparison.relation.replace("a is", "A is").replace("b is", "B is")
    what = what.replace("of a", "of A").replace("of b", "of B")
    last = f": {_shorten_text(comparison.shared_prompts[-1], 60)!r}" if many else ""
    return (
        f"{what.capitalize() if what[0] == 'f' else what}; they diverge after prompt {many}{last}."
    )


def _conversation_lines(comparison: SessionComparison) -> Iterator[str]:
    """Yield the prompts and final answers of two compared sessions."""
    for letter, side in zip(SIDE_LETTERS, (comparison.a, comparison.b), strict=True):
        for prompt in side.prompts:
            yield f"{letter} prompt: {_shorten_text(prompt, MAX_PROMPT_CHARS)}"
        if side.last_words:
            yield f"{letter} final answer: {_shorten_text(side.last_words, MAX_LAST_WORDS_CHARS)}"
    yield ""


def _changed_file_lines(comparison: SessionComparison) -> Iterator[str]:
    """Yield the table of files that two compared sessions changed."""
    rows = [
        (
            *(_describe_file_change(side.files.get(path)) for side in (comparison.a, comparison.b)),
            _compare_file(comparison, path),
            path,
        )
        for path in changed_paths(comparison)
    ]
    if not rows:
        yield "Neither session changed a file."
        return
    shown = [tuple(escape_controls(cell, lines="show") for cell in row) for row in rows]
    yield format_table([(*SIDE_LETTERS, "", "FILE"), *shown])
    for letter, side in zip(SIDE_LETTERS, (comparison.a, comparison.b), strict=True):
        if side.files_from == "calls":
            yield f"Files of {letter} come from its tool calls: its snapshots no longer exist."


def _describe_file_change(change: FileChange | None) -> str:
    """Describe how a session changed a file, with line counts; a dash if it did not."""
    if change is None:
        return "-"
    counted = "" if change.added is None else f" +{change.added} -{change.removed}"
    return f"{change.status}{counted}"


def _compare_file(comparison: SessionComparison, path: str) -> str:
    """Describe whether one or both sessions changed a file, and whether it then differs."""
    if path not in comparison.a.files:
        return "only B"
    if path not in comparison.b.files:
        return "only A"
    return {True: "same", False: "differs", None: "both"}[is_same_content(comparison, path)]


def render_patch(comparison: SessionComparison) -> Iterator[str]:
    """Yield the files that two sessions left differently, as a unified diff from A to B."""
    for path in changed_paths(comparison):
        a, b = comparison.a.files.get(path), comparison.b.files.get(path)
        if (
            a is None
            or b is None
            or a.content is None
            or b.content is None
            or is_same_content(comparison, path)
        ):
            continue
        if b"\0" in a.content + b.content:
            yield f"Binary files A/{path} and B/{path} differ"
            continue
        old, new = (text.decode("utf-8", "replace").splitlines() for text in (a.content, b.content))
        names = (os.path.join("A", path), os.path.join("B", path))
        for line in unified_diff(old, new, *names, lineterm=""):
            yield escape_controls(line, lines="show")


def _shorten_text(text: str, most: int) -> str:
    flat = escape_controls(" ".join(text.split()))
    return flat if len(flat) <= most else flat[: most - 1] + "…"
