"""The last line: with whom, how, where, how full, how warm, and what goes on beside."""

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

from travois.compose.agents import LEAD
from travois.compose.worktree import FOLDER
from travois.context.window import threshold
from travois.core.content import Opaque
from travois.core.facts import Assistant, Entry
from travois.core.models import Usage
from travois.core.tasks import TODOS, read_tasks
from travois.core.tokens import context_tokens
from travois.core.view import THINKING
from travois.ports.world import Command, Processes
from travois.presentation.items import ReplyItem, SessionItems, ToolCallItem
from travois.sdk import Session
from travois.settings.schema import Json, StatusLine
from travois.tools.diff import Patch
from travois.tui.agent_progress import running_agents
from travois.tui.markdown import OURS, RESET, Role, Theme, clean, folded, width
from travois.tui.screen import Screen
from travois.version import __version__

if TYPE_CHECKING:
    from travois.engine.agent import Agent


MUCH, FULL = 65, 85
CELLS = 8


class Standing(msgspec.Struct, frozen=True):
    """How things stand."""

    model: str = ""
    mode: str = "default"
    branch: str = ""
    used: int = 0
    """Per cent of what the conversation may grow to."""
    warm: float = 0.0
    """For how many seconds the provider still remembers."""
    tasks: int = 0
    doing: str = ""
    """What the last of the agents among them is doing."""
    todos: tuple[int, int] = (0, 0)
    """How many tasks of the list are completed, and of how many."""


def line(standing: Standing, theme: Theme, columns: int) -> str:
    """The standing in one line; what has no room is left out, the least needed first."""
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


# How a session stands, for the last line of the screen.


def standing(session: Session) -> Standing:
    """Everything that the footer tells."""
    agent, model = session.crew.agent, session.crew.model
    limit = threshold(model, agent.context.layers)
    listed = read_tasks(agent.session.state.get(TODOS, ""))
    return Standing(
        model=model.name,
        mode=agent.permissions.guard.mode,
        branch=agent.prompt.environment().branch if agent.prompt.environment else "",
        used=round(100 * context_tokens(agent.session.view) / limit),
        warm=agent.session.cache.left(time.time()),
        tasks=tasks(agent),
        doing=agents[-1].doing if (agents := running_agents(agent)) else "",
        todos=(sum(not task.open for task in listed), len(listed)),
    )


def tasks(agent: Agent) -> int:
    """How many agents and programs go on in the background."""
    programs = sum(job.status is None for job in agent.world.processes.jobs().values())
    return programs + len(agent.session.running)


# What git's own files say of a folder; git itself is not asked, so that nobody waits for it.


ORIGIN = re.compile(r'\[remote "origin"\][^\[]*?\burl\s*=\s*(\S+)')
ADDRESS = re.compile(r"(?:\w+://)?(?:[^@/]+@)?([^:/]+)(?::\d+)?[:/](.+)/([^/]+?)(?:\.git)?/?")


def repository(folder: str) -> Json:
    """The repository that a folder belongs to, and which of its worktrees it is, if one."""
    for place in (Path(folder), *Path(folder).parents):
        git = place / ".git"
        if git.exists():
            return _told(git)
    return {}


def _told(git: Path) -> Json:
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
    """The worktree of ours that a folder is in; nothing if it is in none."""
    above, inside, below = folder.partition(f"/{FOLDER}/")
    if not inside:
        return {}
    name = below.partition("/")[0]
    path = os.path.join(above, FOLDER, name)
    told = {"name": name, "path": path, "branch": branch, "original_cwd": above}
    return {"worktree": told}


# Rows of the user's own above the last line: a program is told how things stand, and answers.


PAUSE, PATIENCE = 0.3, 5.0
"""How long things must stand before the program is asked, and how long it may take, in seconds."""
MOST, KEPT = 5, 1 << 14
LARGE = 200_000
CODES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
"""All that a terminal would obey."""


class Work(msgspec.Struct):
    """What was done since the session was opened here."""

    began: float = msgspec.field(default_factory=monotonic)
    waited: float = 0.0
    """How many seconds the model took for its replies."""
    added: int = 0
    removed: int = 0
    """Lines of files."""
    _items: SessionItems = msgspec.field(default_factory=SessionItems)

    def hear(self, entry: Entry) -> None:
        """Take one more entry into account."""
        match self._items.add(entry):
            case ReplyItem(seconds=seconds):
                self.waited += seconds
            case ToolCallItem(patch=Patch() as change):
                self.added += change.added
                self.removed += change.removed
            case _:
                pass


class Asking:
    """Asks the program whenever something has changed, and keeps what it said."""

    def __init__(
        self, chosen: StatusLine, processes: Processes, tell: Callable[[str], None]
    ) -> None:
        self._chosen, self._processes, self._tell = chosen, processes, tell
        self._stirred = anyio.Event()
        self.work = Work()
        self._said: list[str] = []
        self._failed = False

    def stir(self) -> None:
        """Something has changed."""
        self._stirred.set()

    def rows(self, theme: Theme, columns: int) -> list[str]:
        """What it said, with colours at most."""
        margin = " " * (2 + max(0, self._chosen.padding))
        room = max(1, columns - len(margin))
        return [f"{margin}{folded(tame(line, theme), room)[0]}{RESET}" for line in self._said]

    async def keep(self, session: Session, screen: Screen) -> None:
        """Ask again and again, never twice at once."""
        often = self._chosen.refresh_interval
        while True:
            with anyio.move_on_after(often if often > 0 else inf):
                await self._stirred.wait()
            await anyio.sleep(PAUSE)
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
            self._fail(f"it took longer than {PATIENCE:g} s")
        elif done.status:
            why = done.errors.joined().decode(errors="replace").strip()
            self._fail(why or f"it ended with {done.status}")
        else:
            lines = done.output.joined().decode(errors="replace").rstrip().split("\n")
            self._said = [line for line in lines[:MOST] if line.strip()]

    def _fail(self, why: str) -> None:
        """Say so, but not each time."""
        self._said = []
        if not self._failed:
            self._tell(f"the status line shows nothing: {why[:300]}")
        self._failed = True


def tame(line: str, theme: Theme) -> str:
    """A line of a program with nothing in it that a terminal would obey but colours."""
    coloured = theme.name != "none"
    parts = OURS.split(line)
    kept = (part if OURS.fullmatch(part) else clean(CODES.sub("", part)) for part in parts)
    return "".join(part for part in kept if coloured or not OURS.fullmatch(part))


def statusline_payload(session: Session, work: Work, *, seconds: float, vim: str = "") -> Json:
    """What programs written for this purpose expect to be told, as far as it is known."""
    agent, model = session.crew.agent, session.crew.model
    root, state = agent.world.root, agent.session.state
    reply = _last(session)
    last = reply.usage if reply else None
    branch = agent.prompt.environment().branch if agent.prompt.environment else ""
    chosen = {"effort": {"level": model.effort}, "vim": {"mode": vim}}
    chosen["agent"] = {"name": state.get(LEAD, "")}
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
    """Whether the model thought before it spoke."""
    opaque = (block for block in reply.content if isinstance(block, Opaque))
    return any(block.kind in (*THINKING, "reasoning") for block in opaque)


def _window(total: Usage, last: Usage | None, size: int) -> Json:
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
