"""TodoWrite: a list that is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.world import World
from travois.core.content import Text
from travois.core.tasks import Task
from travois.ports.tool import ToolOutcome
from travois.tools.tasks import TASK_CREATE, TODO_WRITE, TodoArgs


def todo(content: str, status: str, **more: str) -> dict[str, str]:
    return {"content": content, "status": status, **more}


def test_the_list_becomes_the_session_s_state(tmp_path: Path):
    world = World(tmp_path)
    todos = [
        todo("Read", "completed"),
        todo("Write", "in_progress", activeForm="Writing"),
        todo("Test", "pending"),
    ]
    outcome = world.run(TODO_WRITE, todos=todos)
    value = (
        '[{"id":"1","content":"Read","status":"completed"},'
        '{"id":"2","content":"Write","status":"in_progress","activeForm":"Writing"},'
        '{"id":"3","content":"Test","status":"pending"}]'
    )
    assert outcome == ToolOutcome((Text("1 of 3 done."),))
    assert world.state["todos"] == value


def test_a_list_replaces_the_one_before(tmp_path: Path):
    world = World(tmp_path)
    world.run(TODO_WRITE, todos=[todo("Read", "pending")])
    outcome = world.run(TODO_WRITE, todos=[])
    assert outcome == ToolOutcome((Text("No todos."),))
    assert world.tasks.read() == ()


def test_several_tasks_at_once_are_taken_with_a_warning(tmp_path: Path):
    outcome = World(tmp_path).run(
        TODO_WRITE, todos=[todo("Read", "in_progress"), todo("Write", "in_progress")]
    )
    assert outcome.content == (Text("0 of 2 done. 2 are in progress: work on one at a time."),)
    assert not outcome.error


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"todos": [todo("", "pending")]}, "length >= 1"),
        ({"todos": [todo("x", "done")]}, "Invalid enum value 'done'"),
        ({"todos": [{"content": "x"}]}, "missing required field `status`"),
        ({}, "missing required field `todos`"),
    ],
)
def test_what_is_no_list_of_tasks_is_refused_by_field(args: dict[str, Any], words: str):
    with pytest.raises(msgspec.ValidationError, match=words):
        msgspec.convert(args, TodoArgs)


def test_it_touches_nothing(tmp_path: Path):
    assert World(tmp_path).access(TODO_WRITE, todos=[]) == ()


def test_a_task_of_the_same_words_keeps_its_id_and_all_that_is_known_of_it(tmp_path: Path):
    world = World(tmp_path)
    world.run(TASK_CREATE, subject="Read", description="all of it")
    world.run(TASK_CREATE, subject="Write")
    world.run(TODO_WRITE, todos=[todo("Test", "pending"), todo("Read", "completed")])
    assert world.tasks.read() == (
        Task(id="3", content="Test", status="pending"),
        Task(id="1", content="Read", status="completed", description="all of it"),
    )


def test_a_subagent_writes_its_own_part_and_leaves_that_of_others(tmp_path: Path):
    world = World(tmp_path)
    world.run(TASK_CREATE, subject="Ship it")
    world.me = "a1"
    outcome = world.run(TODO_WRITE, todos=[todo("Read", "pending"), todo("Write", "pending")])
    assert outcome == ToolOutcome(
        (Text("0 of 2 done. 1 tasks of other agents remain on the list."),)
    )
    world.run(TODO_WRITE, todos=[todo("Write", "in_progress")])
    assert world.tasks.read() == (
        Task(id="3", content="Write", status="in_progress", owner="a1"),
        Task(id="1", content="Ship it", status="pending"),
    )
