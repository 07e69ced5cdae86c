"""The live view of a running fleet: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from travois.core.display_text import replace_invisible
from travois.fleet.child import ChildRun
from travois.fleet.report import describe_totals, format_seconds
from travois.fleet.store import FINAL_STATES, TaskRow

MAX_SHOWN_ENDED = 8
STATE_STYLES = {"done": "green", "failed": "red", "limit": "yellow", "refused": "red"}


class LiveTable:
    """A table of what runs, redrawn in place; ends of tasks as lines where there is no terminal."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._began = monotonic()
        self._told: set[tuple[str, int]] = set()
        self._done_before = -1

    @property
    def is_live(self) -> bool:
        """True if there is a terminal to draw on."""
        return self._console.is_terminal

    def screen(self) -> AbstractContextManager[object]:
        """Return the block in which the table is on the screen."""
        return self._live if self.is_live else nullcontext()

    def show_fleet(
        self,
        rows: Sequence[TaskRow],
        running: Mapping[str, ChildRun],
        paused: Mapping[str, float],
    ) -> None:
        """Show the state of the fleet."""
        ended = [row for row in rows if row.is_final]
        if self._done_before < 0:
            self._done_before = len(ended)
            self._told = {(row.id, row.run) for row in ended}
        if self.is_live:
            self._live.update(self._render_table(rows, running, paused), refresh=True)
            return
        for row in ended:
            if (row.id, row.run) not in self._told:
                self._told.add((row.id, row.run))
                sys.stdout.write(replace_invisible(describe_task_end(row)) + "\n")
        sys.stdout.flush()

    def _render_table(
        self,
        rows: Sequence[TaskRow],
        running: Mapping[str, ChildRun],
        paused: Mapping[str, float],
    ) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("TASK", "STATE", "REQUESTS", "TOKENS", "USD", "NOW"):
            table.add_column(
                name,
                no_wrap=True,
                justify="right" if name in ("REQUESTS", "TOKENS", "USD") else "left",
            )
        ended = [row for row in rows if row.is_final][-MAX_SHOWN_ENDED:]
        active = [row for row in rows if row.state == "running"]
        for row in (*ended, *active):
            child = running.get(row.id)
            requests = str(child.requests) if child else ""
            what = child.doing if child else row.why.partition("\n")[0]
            state = Text(row.state, STATE_STYLES.get(row.state, ""))
            tokens = row.input_tokens + row.output_tokens + (child.tokens if child else 0)
            table.add_row(
                row.id, state, requests, f"{tokens:,}", f"{row.cost:.4f}", replace_invisible(what)
            )
        lines = [describe_totals(rows), self._describe_pace(rows)]
        lines += [
            f"{key or 'default key'} is rate limited for {s:.0f} s" for key, s in paused.items()
        ]
        return Group(table, Text("\n".join(filter(None, lines)), "dim"))

    def _describe_pace(self, rows: Sequence[TaskRow]) -> str:
        """Return when the rest will be done at the pace of this run; empty before the first end."""
        done = sum(row.state in FINAL_STATES for row in rows)
        finished, left = done - self._done_before, len(rows) - done
        if finished <= 0 or not left:
            return "Ctrl-C stops; the same command goes on."
        rest = (monotonic() - self._began) / finished * left
        return f"about {format_seconds(rest)} left. Ctrl-C stops; the same command goes on."


def describe_task_end(row: TaskRow) -> str:
    """Describe in one line how a fleet task ended."""
    result = row.task.branch if row.published else row.why.partition("\n")[0]
    used = f"${row.cost:.4f}  {format_seconds(row.seconds)}"
    return f"{row.state:<9} {row.id}  {used}  {result}".rstrip()
