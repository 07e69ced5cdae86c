"""The footer: model, mode, branch, context use and background work, or a custom status line."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import anyio
import msgspec

from travois.compose.agents import MAIN_AGENT_STATE
from travois.compose.live_session import LiveSession
from travois.compose.worktree import WORKTREES_FOLDER
from travois.context.window import threshold_for_model
from travois.core.content import Opaque
from travois.core.facts import Assistant, Entry
from travois.core.models import Usage
from travois.core.tasks import TODOS_STATE, read_tasks
from travois.core.tokens import context_tokens
from travois.core.view import THINKING_KINDS
from travois.ports.world import Command, Processes
from travois.presentation import ReplyItem, SessionItems, ToolCallItem
from travois.settings.schema import Json, StatusLineSettings
from travois.tui.agent_progress import MIN_SHOWN_DOLLARS, list_running_agents
from travois.tui.layout import COLOUR_PATTERN, clean_display_text, display_width, fold_lines
from travois.tui.screen import Screen
from travois.tui.theme import RESET_CODE, TextRole, Theme
from travois.version import __version__

if TYPE_CHECKING:
    from travois.engine.agent import Agent


MODE_ROLES: dict[str, TextRole] = {
    "default": "quiet",
    "plan": "accent",
    "accept-edits": "good",
    "auto": "warn",
    "bypass": "bad",
}
HIGH_USE_PERCENT = 65
FULL_USE_PERCENT = 85
METER_CELLS = 8


class FooterStatus(msgspec.Struct, frozen=True):
    """The values that the footer shows."""

    model: str = ""
    mode: str = "default"
    branch: str = ""
    used: int = 0
    """Per cent of the compaction threshold."""
    warm: float = 0.0
    """Seconds until the prompt cache expires."""
    tasks: int = 0
    doing: str = ""
    """The activity of the subagent started last."""
    todos: tuple[int, int] = (0, 0)
    """Completed and total todos."""
    dollars: float = 0.0
    """The cost of the session."""


def choose_frame_role(mode: str) -> TextRole:
    """Return the colour of the input's frame, which tells the permission mode."""
    return "frame" if mode == "default" else MODE_ROLES.get(mode, "warn")


def render_footer(standing: FooterStatus, theme: Theme, columns: int) -> str:
    """Render the footer on one line; the least important parts are dropped if it is too long."""
    parts = {
        "mode": theme.mark(standing.mode, MODE_ROLES.get(standing.mode, "warn")),
        "model": theme.mark(clean_display_text(standing.model.rpartition("/")[2]), "quiet"),
        "branch": theme.mark(clean_display_text(standing.branch), "quiet"),
        "used": _render_meter(standing.used, theme),
        "cost": theme.mark(format_cost(standing.dollars), "quiet"),
        "warm": theme.mark(f"cache {_format_time_left(standing.warm)}", "quiet")
        if standing.warm
        else "",
        "todos": theme.mark(_format_todo_count(*standing.todos), "quiet"),
        "tasks": theme.mark(_format_task_count(standing.tasks), "accent") if standing.tasks else "",
        "doing": theme.mark(clean_display_text(standing.doing), "quiet"),
        "help": theme.mark("? for shortcuts", "quiet"),
    }
    gap = theme.mark(" · ", "quiet")
    for dropped in ("", "help", "warm", "todos", "doing", "cost", "branch", "model", "tasks"):
        parts.pop(dropped, None)
        shown = "  " + gap.join(part for part in parts.values() if part)
        if display_width(shown) <= columns:
            return shown
    return ""


def _render_meter(used: int, theme: Theme) -> str:
    """Draw the context window meter of the footer."""
    role: TextRole = (
        "bad" if used >= FULL_USE_PERCENT else "warn" if used >= HIGH_USE_PERCENT else "quiet"
    )
    full = min(METER_CELLS, round(used / 100 * METER_CELLS))
    return theme.mark(f"{'━' * full}{'╌' * (METER_CELLS - full)} {used}%", role)


def format_cost(dollars: float) -> str:
    """Format a session's cost; empty if it is next to nothing."""
    if dollars < MIN_SHOWN_DOLLARS:
        return ""
    return f"${dollars:.2f}" if dollars >= 0.1 else f"${dollars:.3f}"


def _format_time_left(seconds: float) -> str:
    """Format the time until the prompt cache expires, for the footer."""
    return (
        f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(1, round(seconds / 15)) * 15} s"
    )


def _format_todo_count(done: int, total: int) -> str:
    return f"{done}/{total} done" if done < total else ""


def _format_task_count(count: int) -> str:
    return f"{count} task{'s' if count > 1 else ''}"


# The footer's values.


def read_footer_status(session: LiveSession) -> FooterStatus:
    """Read the footer's values from the session."""
    agent, model = session.runtime.agent, session.runtime.model
    limit = threshold_for_model(model, agent.context.layers)
    listed = read_tasks(agent.session.state.get(TODOS_STATE, ""))
    return FooterStatus(
        model=model.name,
        mode=agent.permissions.guard.mode,
        branch=agent.prompt.environment().branch if agent.prompt.environment else "",
        used=round(100 * context_tokens(agent.session.view) / limit),
        warm=agent.session.cache.seconds_left(time.time()),
        tasks=count_background_tasks(agent),
        doing=agents[-1].doing if (agents := list_running_agents(agent)) else "",
        dollars=agent.session.dollars,
        todos=(sum(not task.is_open for task in listed), len(listed)),
    )


def count_background_tasks(agent: Agent) -> int:
    """Count the running background agents and processes for the footer."""
    programs = sum(job.status is None for job in agent.world.processes.jobs().values())
    return programs + len(agent.session.running)


# Read from git's files: starting git would delay the status line.


GIT_ORIGIN_PATTERN = re.compile(r'\[remote "origin"\][^\[]*?\burl\s*=\s*(\S+)')
GIT_ADDRESS_PATTERN = re.compile(
    r"(?:\w+://)?(?:[^@/]+@)?([^:/]+)(?::\d+)?[:/](.+)/([^/]+?)(?:\.git)?/?"
)


def find_git_repository(folder: str) -> Json:
    """Return the git remote for the status line, and the folder's worktree if linked."""
    for place in (Path(folder), *Path(folder).parents):
        git = place / ".git"
        if git.exists():
            return _parse_git_repository(git)
    return {}


def _parse_git_repository(git: Path) -> Json:
    """Read the origin's address from git's files, following the pointer of a linked worktree."""
    apart: Json = {}
    try:
        if git.is_file():
            git = Path(git.parent, git.read_text("utf-8").removeprefix("gitdir:").strip())
            if git.parent.name == "worktrees":
                apart, git = {"git_worktree": git.name}, git.parent.parent
        found = GIT_ORIGIN_PATTERN.search((git / "config").read_text("utf-8", errors="replace"))
    except OSError:
        return apart
    named = GIT_ADDRESS_PATTERN.fullmatch(found[1]) if found else None
    if named is None:
        return apart
    return {**apart, "repo": {"host": named[1], "owner": named[2], "name": named[3]}}


def describe_worktree(folder: str, branch: str) -> Json:
    """Describe the Travois worktree that contains a folder; empty outside of one."""
    above, inside, below = folder.partition(f"/{WORKTREES_FOLDER}/")
    if not inside:
        return {}
    name = below.partition("/")[0]
    path = os.path.join(above, WORKTREES_FOLDER, name)
    told = {"name": name, "path": path, "branch": branch, "original_cwd": above}
    return {"worktree": told}


# The user's status line command, whose output is shown above the footer.


STATUS_LINE_DELAY_SECONDS = 0.3
"""Seconds to wait for further changes before the program runs, so that a burst runs it once."""
STATUS_LINE_TIMEOUT_SECONDS = 5.0
MAX_STATUS_LINES = 5
MAX_STATUS_LINE_BYTES = 1 << 14
LARGE_PROMPT_TOKENS = 200_000
TERMINAL_CODE_PATTERN = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""Every escape sequence that a terminal would act on."""


class SessionWork(msgspec.Struct):
    """Work done since this process opened the session."""

    began: float = msgspec.field(default_factory=monotonic)
    waited: float = 0.0
    """Seconds spent waiting for replies."""
    added: int = 0
    removed: int = 0
    """In lines of files."""
    _items: SessionItems = msgspec.field(default_factory=SessionItems)

    def add(self, entry: Entry) -> None:
        """Count one more log entry."""
        match self._items.add(entry):
            case ReplyItem(seconds=seconds):
                self.waited += seconds
            case ToolCallItem(patches=patches):
                self.added += sum(one.added for one in patches)
                self.removed += sum(one.removed for one in patches)
            case _:
                pass


class StatusLineProgram:
    """The user's status line command, and its last output."""

    def __init__(
        self, chosen: StatusLineSettings, processes: Processes, tell: Callable[[str], None]
    ) -> None:
        self._chosen, self._processes, self._tell = chosen, processes, tell
        self._stirred = anyio.Event()
        self.work = SessionWork()
        self._said: list[str] = []
        self._failed = False

    def request_update(self) -> None:
        """Ask for a new run, because something has changed."""
        self._stirred.set()

    def render_rows(self, theme: Theme, columns: int) -> list[str]:
        """Render the command's output; of escape sequences, only colours pass."""
        margin = " " * (2 + max(0, self._chosen.padding))
        room = max(1, columns - len(margin))
        return [
            f"{margin}{fold_lines(strip_terminal_codes(line, theme), room)[0]}{RESET_CODE}"
            for line in self._said
        ]

    async def keep_updating(self, session: LiveSession, screen: Screen) -> None:
        """Run the command after each change, one run at a time."""
        often = self._chosen.refresh_interval
        while True:
            with anyio.move_on_after(often if often > 0 else inf):
                await self._stirred.wait()
            await anyio.sleep(STATUS_LINE_DELAY_SECONDS)
            # Renewed before the run: a change during the run leads to another one.
            self._stirred = anyio.Event()
            await self._run_program(session, screen)
            screen.refresh()

    async def _run_program(self, session: LiveSession, screen: Screen) -> None:
        seconds = monotonic() - self.work.began
        told = build_status_line_payload(session, self.work, seconds=seconds, vim=screen.vim_mode)
        command = Command(
            ("bash", "-c", self._chosen.command),
            session.runtime.agent.world.root,
            env={"COLUMNS": str(screen.columns), "LINES": str(screen.rows)},
            stdin=msgspec.json.encode(told),
            keep=MAX_STATUS_LINE_BYTES,
            stderr="apart",
        )
        try:
            done = await self._processes.run(command, timeout=STATUS_LINE_TIMEOUT_SECONDS)
        except OSError as error:
            self._report_failure(error.strerror or str(error))
            return
        if done.timed_out:
            self._report_failure(f"timed out after {STATUS_LINE_TIMEOUT_SECONDS:g} s")
        elif done.status:
            why = done.errors.head_and_tail().decode(errors="replace").strip()
            self._report_failure(why or f"exit code {done.status}")
        else:
            lines = done.output.head_and_tail().decode(errors="replace").rstrip().split("\n")
            self._said = [line for line in lines[:MAX_STATUS_LINES] if line.strip()]

    def _report_failure(self, why: str) -> None:
        """Report a failure once."""
        self._said = []
        if not self._failed:
            self._tell(f"status line command failed: {why[:300]}")
        self._failed = True


def strip_terminal_codes(line: str, theme: Theme) -> str:
    """Strip escape sequences except colours from a status line command's output."""
    coloured = theme.depth > 0
    parts = COLOUR_PATTERN.split(line)
    kept = (
        part
        if COLOUR_PATTERN.fullmatch(part)
        else clean_display_text(TERMINAL_CODE_PATTERN.sub("", part))
        for part in parts
    )
    return "".join(part for part in kept if coloured or not COLOUR_PATTERN.fullmatch(part))


def build_status_line_payload(
    session: LiveSession, work: SessionWork, *, seconds: float, vim: str = ""
) -> Json:
    """Build the JSON payload for a status line command (Claude Code's field names)."""
    agent, model = session.runtime.agent, session.runtime.model
    root, state = agent.world.root, agent.session.state
    reply = _last_reply(session)
    last = reply.usage if reply else None
    branch = agent.prompt.environment().branch if agent.prompt.environment else ""
    chosen = {"effort": {"level": model.effort}, "vim": {"mode": vim}}
    chosen["agent"] = {"name": state.get(MAIN_AGENT_STATE, "")}
    return {
        "session_id": session.id,
        **({"session_name": state["name"]} if "name" in state else {}),
        **({"prompt_id": f"turn-{agent.turn.began}"} if agent.turn.began else {}),
        "transcript_path": agent.hooks.write_transcript(),
        "cwd": state.get("cwd", root),
        "version": __version__,
        "model": {"id": model.id, "display_name": model.id},
        "workspace": {
            "current_dir": state.get("cwd", root),
            "project_dir": root,
            "added_dirs": list(agent.permissions.guard.folders[1:]),
            **find_git_repository(root),
        },
        "output_style": {"name": session.runtime.style},
        "cost": {
            "total_cost_usd": agent.session.dollars,
            "total_duration_ms": round(1000 * seconds),
            "total_api_duration_ms": round(1000 * work.waited),
            "total_lines_added": work.added,
            "total_lines_removed": work.removed,
        },
        "context_window": _build_window_payload(agent.session.usage, last, model.window),
        "exceeds_200k_tokens": last is not None and last.context > LARGE_PROMPT_TOKENS,
        "thinking": {"enabled": reply is not None and _has_thinking(reply)},
        "fast_mode": False,
        **{key: value for key, value in chosen.items() if all(value.values())},
        **describe_worktree(root, branch),
    }


def _last_reply(session: LiveSession) -> Assistant | None:
    facts = (item.fact for item in reversed(session.runtime.agent.session.view.items))
    return next((fact for fact in facts if isinstance(fact, Assistant)), None)


def _has_thinking(reply: Assistant) -> bool:
    """Return whether a reply contains thinking, for the status line."""
    opaque = (block for block in reply.content if isinstance(block, Opaque))
    return any(block.kind in (*THINKING_KINDS, "reasoning") for block in opaque)


def _build_window_payload(total: Usage, last: Usage | None, size: int) -> Json:
    """Build the context window fields of the status line payload."""
    used = round(100 * last.prompt / size) if last and size else 0
    current: Json | None = None
    if last is not None:
        current = {
            "input_tokens": last.input,
            "output_tokens": last.output,
            "cache_creation_input_tokens": last.write + last.write_1h,
            "cache_read_input_tokens": last.read,
        }
    return {
        "total_input_tokens": total.prompt,
        "total_output_tokens": total.output,
        "context_window_size": size,
        "used_percentage": used,
        "remaining_percentage": 100 - used,
        "current_usage": current,
    }
