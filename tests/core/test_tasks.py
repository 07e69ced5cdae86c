"""The task list: ids, dependencies, owners, and what a stored list keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from travois.core import tasks as lists
from travois.core.tasks import (
    Task,
    TaskEdit,
    TaskError,
    TaskList,
    add_task,
    claim_task,
    edit_task,
    open_blockers,
    read_stored,
    read_tasks,
    replace_tasks,
    store_tasks,
)

WORDS = st.sampled_from(["plan", "build", "test", "ship"])
STATUS = st.sampled_from(["pending", "in_progress", "completed", "deleted"])
IDS = st.integers(1, 12).map(str)
NAMES = st.sampled_from(["", "a1", "ada"])
STEPS = st.one_of(
    st.tuples(st.just("add"), WORDS),
    st.tuples(st.just("edit"), IDS, STATUS),
    st.tuples(st.just("block"), IDS, IDS),
    st.tuples(st.just("claim"), IDS, NAMES),
    st.tuples(st.just("rewrite"), st.lists(st.tuples(WORDS, STATUS), max_size=4), NAMES),
)


def task(content: str, status: str = "pending", **more: object) -> Task:
    return Task(content=content, status=status, **more)  # pyright: ignore[reportArgumentType]


def made(*contents: str) -> TaskList:
    found: TaskList = ()
    for content in contents:
        found, _ = add_task(found, task(content))
    return found


def taken(tasks: TaskList, step: tuple[object, ...]) -> TaskList:
    match step:
        case ("add", str() as word):
            return add_task(tasks, task(word))[0]
        case ("edit", str() as id, str() as status):
            return edit_task(tasks, id, TaskEdit(status=status))  # pyright: ignore[reportArgumentType]
        case ("block", str() as one, str() as other):
            return edit_task(tasks, one, TaskEdit(blocks=(other,)))
        case ("claim", str() as id, str() as name):
            return claim_task(tasks, id, by=name)
        case ("rewrite", list() as todos, str() as name):
            wanted = [task(word, status) for word, status in todos if status != "deleted"]
            return replace_tasks(tasks, wanted, by=name)
        case _:
            raise AssertionError(step)


def circular(tasks: TaskList) -> bool:
    waits = {each.id: set(each.blocked_by) for each in tasks}
    while free := [id for id, blockers in waits.items() if not blockers & waits.keys()]:
        for id in free:
            del waits[id]
    return bool(waits)


@given(st.lists(STEPS, max_size=30))
def test_whatever_happens_no_id_is_given_twice_and_no_task_waits_for_itself(
    steps: list[tuple[object, ...]],
) -> None:
    stored, ever = "", dict[str, str]()
    for step in steps:
        before = read_tasks(stored)
        try:
            stored = store_tasks(taken(read_stored(stored), step))
        except TaskError:
            continue
        after = read_tasks(stored)
        assert len({each.id for each in after}) == len(after)
        for each in after:
            if each.id not in {old.id for old in before}:
                assert each.id not in ever, "a new task under an old id"
            ever.setdefault(each.id, each.content)
        assert not circular(after)
        live = {each.id for each in after}
        assert all(live >= set(each.blocked_by) for each in after)
        assert store_tasks(read_stored(stored)) == stored


def test_a_circle_of_tasks_is_refused_however_long() -> None:
    tasks = made("a", "b", "c")
    tasks = edit_task(tasks, "2", TaskEdit(blocked_by=("1",)))
    tasks = edit_task(tasks, "2", TaskEdit(blocks=("3",)))
    with pytest.raises(TaskError, match=r"#1 cannot wait for #3: #3 waits for #1"):
        edit_task(tasks, "1", TaskEdit(blocked_by=("3",)))
    with pytest.raises(TaskError, match=r"#1 cannot wait for #1: it is the same task"):
        edit_task(tasks, "1", TaskEdit(blocks=("1",)))


def test_a_task_is_free_when_what_it_waits_for_is_completed_or_deleted() -> None:
    tasks = edit_task(made("a", "b", "c"), "3", TaskEdit(blocked_by=("1", "2")))
    assert open_blockers(tasks, tasks[2]) == ("1", "2")
    tasks = edit_task(tasks, "1", TaskEdit(status="completed"))
    assert open_blockers(tasks, tasks[2]) == ("2",)
    tasks = edit_task(tasks, "2", TaskEdit(status="deleted"))
    assert tasks[2].blocked_by == ("1",)
    assert open_blockers(tasks, tasks[2]) == ()


def test_who_begins_a_task_owns_it_until_another_takes_it_over() -> None:
    tasks = claim_task(made("a"), "1", by="a1")
    assert tasks == (task("a", "in_progress", id="1", owner="a1"),)
    assert claim_task(tasks, "1", by="a1") == tasks
    with pytest.raises(TaskError, match="being done by a1"):
        claim_task(tasks, "1", by="a2")
    assert edit_task(tasks, "1", TaskEdit(owner="a2"))[0].owner == "a2"
    given_back = edit_task(tasks, "1", TaskEdit(status="pending"))
    assert claim_task(given_back, "1", by="a2")[0].owner == "a2"


def test_metadata_is_merged_and_null_removes_a_key() -> None:
    tasks = edit_task(made("a"), "1", TaskEdit(metadata={"pr": 7, "x": {"y": None}}))
    tasks = edit_task(tasks, "1", TaskEdit(metadata={"pr": None, "z": "1"}))
    assert tasks[0].metadata == {"x": {"y": None}, "z": "1"}


def test_lists_of_logs_without_ids_are_numbered_by_place() -> None:
    old = '[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]'
    assert read_tasks(old) == (task("a", "completed", id="1"), task("b", id="2"))
    tasks, added = add_task(read_stored(old), task("c"))
    assert (added.id, read_tasks(store_tasks(tasks))[1].id) == ("3", "2")


@pytest.mark.parametrize(
    ("id", "words"),
    [("2", "Task #2 was deleted"), ("9", "not found. Tasks: #1"), ("x", "not found")],
)
def test_a_task_that_is_not_there_is_said_to_be_deleted_or_unknown(id: str, words: str) -> None:
    tasks = read_stored(store_tasks(edit_task(made("a", "b"), "2", TaskEdit(status="deleted"))))
    with pytest.raises(TaskError, match=words):
        edit_task(tasks, id, TaskEdit(status="completed"))


def test_a_list_that_grew_too_large_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_TASKS", 2)
    with pytest.raises(TaskError, match=r"full .* Delete completed tasks first"):
        store_tasks(made("a", "b", "c"))
    with pytest.raises(TaskError, match="into the description"):
        store_tasks(made("a" * 3_000))
