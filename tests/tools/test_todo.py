"""TodoWrite: a list that is replaced as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.world import World
from travois.engine.tool import Outcome
from travois.kernel.blocks import Text
from travois.kernel.facts import Changed
from travois.tools.todo import TODO, TodoArgs


def todo(content: str, status: str, **more: str) -> dict[str, str]:
    return {"content": content, "status": status, **more}


def test_the_list_becomes_the_session_s_state(tmp_path: Path):
    world = World(tmp_path)
    todos = [
        todo("Read", "completed"),
        todo("Write", "in_progress", activeForm="Writing"),
        todo("Test", "pending"),
    ]
    outcome = world.run(TODO, todos=todos)
    value = (
        '[{"content":"Read","status":"completed"},'
        '{"content":"Write","status":"in_progress","activeForm":"Writing"},'
        '{"content":"Test","status":"pending"}]'
    )
    assert outcome == Outcome((Text("1 of 3 done."),), changes=(Changed("todos", value),))
    assert msgspec.json.decode(world.state["todos"]) == todos


def test_a_list_replaces_the_one_before(tmp_path: Path):
    world = World(tmp_path)
    world.run(TODO, todos=[todo("Read", "pending")])
    outcome = world.run(TODO, todos=[])
    assert outcome == Outcome((Text("The list is empty."),), changes=(Changed("todos", "[]"),))


def test_several_tasks_at_once_are_taken_with_a_warning(tmp_path: Path):
    outcome = World(tmp_path).run(
        TODO, todos=[todo("Read", "in_progress"), todo("Write", "in_progress")]
    )
    assert outcome.content == (Text("0 of 2 done. 2 are in progress at once: keep to one."),)
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
    assert World(tmp_path).access(TODO, todos=[]) == ()
