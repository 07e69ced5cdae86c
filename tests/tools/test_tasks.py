"""TaskCreate, TaskGet, TaskUpdate, TaskList: what models send and what they read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.world import World
from travois.core.content import extract_text
from travois.hooks.events import AnyHookEvent
from travois.hooks.output import HookDecision
from travois.ports.tool import ToolError, ToolOutcome
from travois.tools.tasks import TASK_CREATE, TASK_GET, TASK_LIST, TASK_UPDATE


def text(outcome: ToolOutcome) -> str:
    assert not outcome.error
    return extract_text(outcome.content)


def started(tmp_path: Path, *subjects: str) -> World:
    world = World(tmp_path)
    for subject in subjects:
        world.run(TASK_CREATE, subject=subject, description=f"{subject} it", activeForm="Doing")
    return world


def test_a_list_is_made_worked_through_and_shown(tmp_path: Path):
    world = World(tmp_path)
    assert text(world.run(TASK_LIST)) == "No tasks found"
    made = world.run(TASK_CREATE, subject="Build", description="all of it", activeForm="Building")
    assert text(made) == "Task #1 created successfully: Build"
    world.run(TASK_CREATE, subject="Test", description="run it", metadata={"pr": 7})
    assert (
        text(world.run(TASK_UPDATE, taskId="2", addBlockedBy=["1"])) == "Updated task #2 blockedBy"
    )
    assert text(world.run(TASK_LIST)) == "#1 [pending] Build\n#2 [pending] Test [blocked by #1]"
    assert (
        text(world.run(TASK_UPDATE, taskId="1", status="in_progress")) == "Updated task #1 status"
    )
    done = world.run(TASK_UPDATE, taskId="1", status="completed", description="done")
    assert text(done) == "Updated task #1 description, status. No longer blocked: #2"
    assert text(world.run(TASK_GET, taskId=2)) == (
        'Task #2: Test\nStatus: pending\nDescription: run it\nBlocked by: #1\nMetadata: {"pr":7}'
    )
    assert text(world.run(TASK_UPDATE, taskId="#2", status="deleted")) == "Updated task #2 deleted"
    assert text(world.run(TASK_LIST)) == "#1 [completed] Build"


def test_an_update_that_changes_nothing_says_so_by_naming_nothing(tmp_path: Path):
    world = started(tmp_path, "Build")
    assert text(world.run(TASK_UPDATE, taskId="1", status="pending")) == "Updated task #1"


def test_beginning_a_blocked_task_is_done_and_remarked_on(tmp_path: Path):
    world = started(tmp_path, "Build", "Test")
    world.run(TASK_UPDATE, taskId="1", addBlocks=["2"])
    begun = text(world.run(TASK_UPDATE, taskId="2", status="in_progress"))
    assert begun == "Updated task #2 status. It is blocked by #1: do that first."


def test_a_subagent_claims_a_task_and_another_cannot(tmp_path: Path):
    world = started(tmp_path, "Build")
    world.me = "a1"
    claimed = text(world.run(TASK_UPDATE, taskId="1", status="in_progress"))
    assert claimed == "Updated task #1 owner, status"
    world.me = "a2"
    with pytest.raises(ToolError, match="being done by a1"):
        world.run(TASK_UPDATE, taskId="1", status="in_progress")
    taken = text(world.run(TASK_UPDATE, taskId="1", status="in_progress", owner="a2"))
    assert taken == "Updated task #1 owner"
    assert text(world.run(TASK_LIST)) == "#1 [in_progress] Build (a2)"


def test_unknown_tasks_and_circles_are_refused_and_change_nothing(tmp_path: Path):
    world = started(tmp_path, "Build", "Test")
    world.run(TASK_UPDATE, taskId="1", addBlocks=["2"])
    before = world.state["todos"]
    with pytest.raises(ToolError, match=r"Task #7 not found. Tasks: #1, #2"):
        world.run(TASK_UPDATE, taskId="7", status="completed")
    with pytest.raises(ToolError, match="cannot wait"):
        world.run(TASK_UPDATE, taskId="2", status="completed", addBlocks=["1"])
    assert world.state["todos"] == before


class Objecting(World):
    """A world in which hooks object to everything that happens to tasks."""

    async def fire_hooks(self, occasion: AnyHookEvent) -> HookDecision:
        return HookDecision(block="not today")


def test_a_hook_undoes_a_new_task_and_refuses_a_completion(tmp_path: Path):
    quiet = started(tmp_path, "Build")
    world = Objecting(tmp_path)
    world.state = quiet.state
    with pytest.raises(ToolError, match=r"was removed again. A hook said: not today"):
        world.run(TASK_CREATE, subject="Test")
    with pytest.raises(ToolError, match=r"stays pending. A hook said: not today"):
        world.run(TASK_UPDATE, taskId="1", status="completed")
    assert text(world.run(TASK_LIST)) == "#1 [pending] Build"
    assert text(quiet.run(TASK_CREATE, subject="Ship")) == "Task #3 created successfully: Ship"
