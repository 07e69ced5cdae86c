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
from travois.compose.worktree import WORKTREES_FOLDER
from travois.context.window import threshold_for_model
from travois.core.content import Opaque
from travois.core.facts import Assistant, Entry
from travois.core.models import Usage
from travois.core.tasks import TODOS_STATE, read_tasks
from travois.core.tokens import context_tokens
from travois.core.view import THINKING_KINDS
from travois.ports.world import Command, Processes
from travois.presentation.items import ReplyItem, SessionItems, ToolCallItem
from travois.sdk import Session
from travois.settings.schema import Json, StatusLineSettings
from travois.tools.diff import FilePatch
from travois.tui.agent_progress import running_agents
from travois.tui.markdown import OURS, RESET, Role, Theme, clean, folded, width
from travois.tui.screen import Screen
from travois.version import __version__

if TYPE_CHECKING:
    from travois.engine.agent import Agent


MUCH = 65
FULL = 85
CELLS = 8


class Standing(msgspec.Struct, frozen=True):
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


def line(standing: Standing, theme: Theme, columns: int) -> str:
    """Render the footer on one line; the least important parts are dropped if it is too long."""
    role: Role = "warn" if standing.mode != "default" else "quiet"
    parts = {
        "model": theme.mark(clean(standing.model.rpartition("/")[2]), "quiet"),
        "mode": theme.mark(standing.mode, role) if standing.mode != "default" else "",
        "branch": theme.mark(clean(standing.branch), "quiet"),
        "used": _meter(standing.used, theme),
        "warm": theme.mark(f"cache {_left(standing.warm)}", "quiet") if standing.warm else "",
        "todos": theme.mark(_todos(*standing.todos), "quiet"),
        "tasks": theme.mark(_tasks(standing.tasks), "accent") if standing.tasks else "",
        "doing": theme.mark(clean(standing.doing), "quiet"),
    }
    gap = theme.mark(" · ", "quiet")
    for dropped in ("", "warm", "todos", "doing", "branch", "model", "tasks"):
        parts.pop(dropped, None)
        shown = "  " + gap.join(part for part in parts.values() if part)
        if width(shown) <= columns:
            return shown
    return ""


def _meter(used: int, theme: Theme) -> str:
    role: Role = "bad" if used >= FULL else "warn" if used >= MUCH else "quiet"
    full = min(CELLS, round(used / 100 * CELLS))
    return theme.mark(f"{'━' * full}{'╌' * (CELLS - full)} {used}%", role)


def _left(seconds: float) -> str:
    return (
        f"{round(seconds / 60)} min" if seconds >= 90 else f"{max(1, round(seconds / 15)) * 15} s"
    )


def _todos(done: int, total: int) -> str:
    return f"{done}/{total} done" if done < total else ""


def _tasks(count: int) -> str:
    return f"{count} task{'s' if count > 1 else ''}"


# The footer's values.


def standing(session: Session) -> Standing:
    """Read the footer's values from the session."""
    agent, model = session.crew.agent, session.crew.model
    limit = threshold_for_model(model, agent.context.layers)
    listed = read_tasks(agent.session.state.get(TODOS_STATE, ""))
    return Standing(
        model=model.name,
        mode=agent.permissions.guard.mode,
        branch=agent.prompt.environment().branch if agent.prompt.environment else "",
        used=round(100 * context_tokens(agent.session.view) / limit),
        warm=agent.session.cache.seconds_left(time.time()),
        tasks=tasks(agent),
        doing=agents[-1].doing if (agents := running_agents(agent)) else "",
        todos=(sum(not task.is_open for task in listed), len(listed)),
    )


def tasks(agent: Agent) -> int:
    """Count the running background agents and processes."""
    programs = sum(job.status is None for job in agent.world.processes.jobs().values())
    return programs + len(agent.session.running)


# Read from git's files: starting git would delay the status line.


ORIGIN = re.compile(r'\[remote "origin"\][^\[]*?\burl\s*=\s*(\S+)')
ADDRESS = re.compile(r"(?:\w+://)?(?:[^@/]+@)?([^:/]+)(?::\d+)?[:/](.+)/([^/]+?)(?:\.git)?/?")


def repository(folder: str) -> Json:
    """Return the git remote of a folder, and its worktree if it is a linked one."""
    for place in (Path(folder), *Path(folder).parents):
        git = place / ".git"
        if git.exists():
            return _told(git)
    return {}


def _told(git: Path) -> Json:
    """Read the origin's address from git's files, following the pointer of a linked worktree."""
    apart: Json = {}
    try:
        if git.is_file():
            git = Path(git.parent, git.read_text("utf-8").removeprefix("gitdir:").strip())
            if git.parent.name == "worktrees":
                apart, git = {"git_worktree": git.name}, git.parent.parent
        found = ORIGIN.search((git / "config").read_text("utf-8", errors="replace"))
    except OSError:
        return apart
    named = ADDRESS.fullmatch(found[1]) if found else None
    if named is None:
        return apart
    return {**apart, "repo": {"host": named[1], "owner": named[2], "name": named[3]}}


def worktree(folder: str, branch: str) -> Json:
    """Describe the Travois worktree that contains a folder; empty outside of one."""
    above, inside, below = folder.partition(f"/{WORKTREES_FOLDER}/")
    if not inside:
        return {}
    name = below.partition("/")[0]
    path = os.path.join(above, WORKTREES_FOLDER, name)
    told = {"name": name, "path": path, "branch": branch, "original_cwd": above}
    return {"worktree": told}


# The user's status line command, whose output is shown above the footer.


PAUSE = 0.3
"""Seconds to wait for further changes before the program runs, so that a burst runs it once."""
PATIENCE = 5.0
MOST = 5
KEPT = 1 << 14
LARGE = 200_000
CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""Every escape sequence that a terminal would act on."""


class Work(msgspec.Struct):
    """Work done since this process opened the session."""

    began: float = msgspec.field(default_factory=monotonic)
    waited: float = 0.0
    """Seconds spent waiting for replies."""
    added: int = 0
    removed: int = 0
    """In lines of files."""
    _items: SessionItems = msgspec.field(default_factory=SessionItems)

    def hear(self, entry: Entry) -> None:
        """Count one more log entry."""
        match self._items.add(entry):
            case ReplyItem(seconds=seconds):
                self.waited += seconds
            case ToolCallItem(patch=FilePatch() as change):
                self.added += change.added
                self.removed += change.removed
            case _:
                pass


class Asking:
    """The user's status line command, and its last output."""

    def __init__(
        self, chosen: StatusLineSettings, processes: Processes, tell: Callable[[str], None]
    ) -> None:
        self._chosen, self._processes, self._tell = chosen, processes, tell
        self._stirred = anyio.Event()
        self.work = Work()
        self._said: list[str] = []
        self._failed = False

    def stir(self) -> None:
        """Ask for a new run, because something has changed."""
        self._stirred.set()

    def rows(self, theme: Theme, columns: int) -> list[str]:
        """Render the command's output; of escape sequences, only colours pass."""
        margin = " " * (2 + max(0, self._chosen.padding))
        room = max(1, columns - len(margin))
        return [f"{margin}{folded(tame(line, theme), room)[0]}{RESET}" for line in self._said]

    async def keep(self, session: Session, screen: Screen) -> None:
        """Run the command after each change, one run at a time."""
        often = self._chosen.refresh_interval
        while True:
            with anyio.move_on_after(often if often > 0 else inf):
                await self._stirred.wait()
            await anyio.sleep(PAUSE)
            # Renewed before the run: a change during the run leads to another one.
            self._stirred = anyio.Event()
            await self._ask(session, screen)
            screen.refresh()

    async def _ask(self, session: Session, screen: Screen) -> None:
        seconds = monotonic() - self.work.began
        told = statusline_payload(session, self.work, seconds=seconds, vim=screen.vim)
        command = Command(
            ("bash", "-c", self._chosen.command),
            session.crew.agent.world.root,
            env={"COLUMNS": str(screen.columns), "LINES": str(screen.rows)},
            stdin=msgspec.json.encode(told),
            keep=KEPT,
            stderr="apart",
        )
        try:
            done = await self._processes.run(command, timeout=PATIENCE)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        if done.timed_out:
            self._fail(f"timed out after {PATIENCE:g} s")
        elif done.status:
            why = done.errors.head_and_tail().decode(errors="replace").strip()
            self._fail(why or f"exit code {done.status}")
        else:
            lines = done.output.head_and_tail().decode(errors="replace").rstrip().split("\n")
            self._said = [line for line in lines[:MOST] if line.strip()]

    def _fail(self, why: str) -> None:
        """Report a failure once."""
        self._said = []
        if not self._failed:
            self._tell(f"status line command failed: {why[:300]}")
        self._failed = True


def tame(line: str, theme: Theme) -> str:
    """Remove all escape sequences but colours from a line of the command's output."""
    coloured = theme.name != "none"
    parts = OURS.split(line)
    kept = (part if OURS.fullmatch(part) else clean(CODES.sub("", part)) for part in parts)
    return "".join(part for part in kept if coloured or not OURS.fullmatch(part))


def statusline_payload(session: Session, work: Work, *, seconds: float, vim: str = "") -> Json:
    """Build the JSON payload for a status line command (Claude Code's field names)."""
    agent, model = session.crew.agent, session.crew.model
    root, state = agent.world.root, agent.session.state
    reply = _last(session)
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
            **repository(root),
        },
        "output_style": {"name": session.crew.style},
        "cost": {
            "total_cost_usd": agent.session.dollars,
            "total_duration_ms": round(1000 * seconds),
            "total_api_duration_ms": round(1000 * work.waited),
            "total_lines_added": work.added,
            "total_lines_removed": work.removed,
        },
        "context_window": _window(agent.session.usage, last, model.window),
        "exceeds_200k_tokens": last is not None and last.context > LARGE,
        "thinking": {"enabled": reply is not None and _thought(reply)},
        "fast_mode": False,
        **{key: value for key, value in chosen.items() if all(value.values())},
        **worktree(root, branch),
    }


def _last(session: Session) -> Assistant | None:
    facts = (item.fact for item in reversed(session.crew.agent.session.view.items))
    return next((fact for fact in facts if isinstance(fact, Assistant)), None)


def _thought(reply: Assistant) -> bool:
    """Tell whether a reply contains thinking."""
    opaque = (block for block in reply.content if isinstance(block, Opaque))
    return any(block.kind in (*THINKING_KINDS, "reasoning") for block in opaque)


def _window(total: Usage, last: Usage | None, size: int) -> Json:
    """Build the context window fields of the payload."""
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
