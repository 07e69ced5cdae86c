"""A small real world for tool tests: a folder, real files, and the session's state as a dict."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import anyio
import msgspec

from travois.context.layers import ContextLayers
from travois.context.tool_results import ResultRoom
from travois.core.tasks import (
    TODOS_STATE,
    TaskError,
    TaskList,
    read_stored,
    read_tasks,
    store_tasks,
)
from travois.files.disk import DiskFiles
from travois.hooks.events import AnyHookEvent
from travois.hooks.output import NO_DECISION, HookDecision
from travois.permissions.access import Access
from travois.permissions.resolve_paths import JudgedFiles, resolve_accesses
from travois.ports.agents import TaskListEdit
from travois.ports.tool import AnyTool, CallLocation, ToolError, ToolOutcome
from travois.ports.world import content_digest

ROOM = ResultRoom(cap=25_000, share=100_000)


class MemoryBlobs:
    """Blobs in a dict."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        name = content_digest(data)
        self.held[name] = data
        return name

    def get(self, name: str) -> bytes:
        return self.held[name]


class StateTasks:
    """The task list in the state of a world, as an agent of that name uses it."""

    def __init__(self, state: dict[str, str], me: str) -> None:
        self.state, self.me = state, me

    def read(self) -> TaskList:
        return read_tasks(self.state.get(TODOS_STATE, ""))

    def preview(self, edit: TaskListEdit) -> TaskList:
        return edit(read_stored(self.state.get(TODOS_STATE, "")))

    def change(self, edit: TaskListEdit) -> TaskList:
        try:
            self.state[TODOS_STATE] = store_tasks(
                edit(read_stored(self.state.get(TODOS_STATE, "")))
            )
        except TaskError as error:
            raise ToolError(str(error)) from None
        return self.read()


class World:
    """An `Env` over a temporary folder. `processes` and `web` are set by the tests that need them.

    `run` is one call in an event loop of its own; `call` is the same inside a running loop. Both
    raise `Refusal` and schema errors as they come.
    """

    def __init__(self, tmp_path: Path) -> None:
        home = tmp_path / "workspace"
        home.mkdir(exist_ok=True)
        self.folder = home
        self.spilled = tmp_path / "spilled"
        self.kept = str(self.spilled)
        self.root = str(home)
        self.cwd = str(home)
        self.state: dict[str, str] = {}
        self.sandbox: Any = None
        self.files: Any = DiskFiles()
        self.processes: Any = None
        self.wary: Any = None
        self.agents: Any = None
        self.has_mail = False
        self.web: Any = None
        self.blobs = MemoryBlobs()
        self.shown: list[str] = []
        self.me = ""
        """The name of the agent that calls."""
        self.room = ROOM
        """In a call as large as the tool's cap, unless a test says otherwise."""

    def spill(self, call: str, data: bytes) -> str:
        self.spilled.mkdir(exist_ok=True)
        path = self.spilled / f"{call}.txt"
        path.write_bytes(data)
        return str(path)

    def hidden(self, path: str) -> bool:
        return False

    def progress(self, text: str) -> None:
        self.shown.append(text)

    @property
    def tasks(self) -> StateTasks:
        return StateTasks(self.state, self.me)

    async def fire_hooks(self, occasion: AnyHookEvent) -> HookDecision:
        return NO_DECISION

    async def call(self, tool: AnyTool, call_id: str = "t1", **args: Any) -> ToolOutcome:
        judged = resolve_accesses(self.access(tool, **args))
        seen = copy(self)
        seen.room = (
            ResultRoom(ContextLayers().result_cap(tool.name), 100_000)
            if self.room is ROOM
            else self.room
        )
        seen.files = JudgedFiles(self.files, judged, self.hidden)
        outcome = await tool.run(msgspec.convert(args, tool.args), seen, call_id)
        self.state.update({change.what: change.value for change in outcome.changes})
        if "cwd" in self.state:
            self.cwd = self.state["cwd"]
        return outcome

    def run(self, tool: AnyTool, call_id: str = "t1", **args: Any) -> ToolOutcome:
        async def main() -> ToolOutcome:
            return await self.call(tool, call_id, **args)

        return anyio.run(main)

    def access(self, tool: AnyTool, **args: Any) -> tuple[Access, ...]:
        jobs = self.processes.jobs() if self.processes is not None else {}
        here = CallLocation(root=self.root, cwd=self.cwd, jobs=jobs)
        return tool.access(msgspec.convert(args, tool.args), here)

    def write(self, name: str, data: bytes | str) -> str:
        """Put a file into the workspace behind the tools' backs; returns its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return str(path)

    def bytes(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()
