"""Fleet reports: tables, CSV, JSON and Markdown of tasks and their results."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from travois.fleet.store import TaskRow
from travois.terminal import format_table

TIME_UNITS = ((3600, "h"), (60, "min"))
MAX_WHY_CHARS = 200


class TaskResult(msgspec.Struct, frozen=True):
    """The result of a task as people and programs get it."""

    id: str
    state: str
    repo: str
    branch: str
    commit: str
    base: str
    check: str
    score: float | None
    usd: float
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    seconds: float
    ended: float
    tries: int
    waits: int
    session: str
    why: str
    answer: str


def build_result(row: TaskRow, session: str) -> TaskResult:
    """Build the report's result of a fleet task."""
    task = row.task
    verdict = {None: "", 0: "passed"}.get(row.check_code, f"failed ({row.check_code})")
    return TaskResult(
        id=row.id,
        state=row.state,
        repo=task.repo,
        branch=task.branch if row.published else "",
        commit=row.head,
        base=row.base,
        check=verdict,
        score=row.score,
        usd=round(row.cost, 6),
        input_tokens=row.input_tokens,
        cached_tokens=row.cached_tokens,
        output_tokens=row.output_tokens,
        seconds=round(row.seconds, 1),
        ended=round(row.ended, 3),
        tries=row.tries,
        waits=row.waits,
        session=session,
        why=row.why,
        answer=row.answer,
    )


def render_results(results: Sequence[TaskResult], style: str) -> str:
    """Render the fleet's results as JSON, CSV or Markdown."""
    renderers: dict[str, Callable[[Sequence[TaskResult]], str]] = {
        "json": _render_json,
        "csv": _render_csv,
        "md": _render_markdown_results,
    }
    return renderers[style](results)


def _render_json(results: Sequence[TaskResult]) -> str:
    return "[" + ",\n ".join(msgspec.json.encode(one).decode() for one in results) + "]"


def _render_csv(results: Sequence[TaskResult]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(TaskResult.__struct_fields__)
    for one in results:
        writer.writerow([_safe_cell(value) for value in msgspec.structs.astuple(one)])
    return out.getvalue().rstrip("\n")


def _safe_cell(value: object) -> object:
    """Return a report cell that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _render_markdown_results(results: Sequence[TaskResult]) -> str:
    head = ("task", "state", "check", "branch or reason", "USD", "seconds")
    rows = [
        (
            one.id,
            one.state,
            one.check,
            one.branch or one.why,
            f"{one.usd:.4f}",
            f"{one.seconds:.0f}",
        )
        for one in results
    ]
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(map(_markdown_cell, line)) + " |" for line in lines)


def _markdown_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:MAX_WHY_CHARS]


def render_task_list(rows: Sequence[TaskRow]) -> str:
    """Render the table of `fleet ls`."""
    cells = [("TASK", "STATE", "USD", "TOKENS", "TIME", "RESULT")]
    cells += [
        (
            row.id,
            row.state,
            f"{row.cost:.4f}",
            f"{row.input_tokens + row.output_tokens:,}",
            format_seconds(row.seconds),
            row.task.branch if row.published else " ".join(row.why.split()),
        )
        for row in rows
    ]
    return format_table(cells, right=(2, 3, 4))


def fold_members(rows: Iterable[TaskRow]) -> tuple[TaskRow, ...]:
    """Return the fleet's tasks without the runs that compete for one, which add to what it used."""
    tasks: dict[str, TaskRow] = {}
    members: list[TaskRow] = []
    for row in rows:
        if row.member_of:
            members.append(row)
        else:
            tasks[row.id] = row
    for row in members:
        if (task := tasks.get(row.member_of)) is not None:
            tasks[task.id] = msgspec.structs.replace(
                task,
                cost=task.cost + row.cost,
                seconds=task.seconds + row.seconds,
                input_tokens=task.input_tokens + row.input_tokens,
                cached_tokens=task.cached_tokens + row.cached_tokens,
                output_tokens=task.output_tokens + row.output_tokens,
            )
    return tuple(tasks.values())


def describe_totals(rows: Iterable[TaskRow]) -> str:
    """Describe all fleet tasks in one line."""
    known = [*rows]
    counts = Counter(row.state for row in known)
    states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    tokens = sum(row.input_tokens + row.output_tokens for row in known)
    dollars = sum(row.cost for row in known)
    return f"{len(known)} tasks: {states or 'none'}; ${dollars:.4f}, {tokens:,} tokens"


def format_seconds(seconds: float) -> str:
    """Format a duration in a fleet report."""
    for length, name in TIME_UNITS:
        if seconds >= length:
            return f"{seconds / length:.1f} {name}"
    return f"{seconds:.0f} s"
